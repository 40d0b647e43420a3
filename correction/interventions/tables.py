"""The tables of interventions as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, Q

from agents.kit.erasing import Erase, there
from agents.kit.registry import Prune, Table, export_of
from correction.interventions.models import Intervention, InterventionLog

# A cooldown is counted in messages from the last time it fired, however long ago that was.
_FIRED_LATER = InterventionLog.objects.filter(
    agent=OuterRef("agent"), channel=OuterRef("channel"), name=OuterRef("name"), fired=True, pk__gt=OuterRef("pk")
)


TABLES = (
    Table(
        model=Intervention,
        editor="*",
        tab_of="correction.AgentEvaluationConfig",
        columns="slug=intervention is_enabled=enabled function textual_claim proposition_claim nudge_type nudge reach",
        filters="is_enabled dm_allowed",
        search="slug* description* textual_claim* proposition_claim*",
        empty="Add one to tell agents something when a conversation calls for it. Two are built in and are switched on per agent.",
        deleting="It no longer runs. What it did stays in the log under its name. To keep it, switch it off instead.",
        typed="description textual_claim function_parameters proposition_claim nudge",
        no_speech="slug function nudge_type",
    ),
    Table(
        model=InterventionLog,
        tab_of="correction.CorrectionLog",
        title="Log of interventions",
        empty="Every look at an intervention before a turn leaves one: switch one on in an agent's configuration, or add one of your own.",
        columns="created_at name agent fired_mark reason nudge channel",
        filters="intervention? fired name judge agent channel__tags created_at",
        fields=(
            ("", "name fired_mark reason conditions nudge_type nudge"),
            ("Where", "agent channel channel_position run intervention_link"),
            ("How it was judged", "judge duration_ms=milliseconds calls created_at"),
        ),
        export=export_of(
            "id=pk created_at name intervention=intervention.slug agent=agent.slug channel=channel.slug run=run_id channel_position fired "
            "why preconditions nudge_type nudge judge duration_ms work_id",
            texts=("why", "preconditions"),  # what a judge said of the conversation
        ),
        erase=(Erase(columns="why preconditions nudge", rows=(there("channel"),)),),
        no_speech="name nudge_type judge",
        prune=Prune(
            rows=lambda before: InterventionLog.objects.filter(
                Q(fired=False) | Q(agent=None) | Q(channel=None) | Exists(_FIRED_LATER), created_at__lt=before
            )
        ),
    ),
)
