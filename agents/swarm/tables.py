"""The tables of swarms as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, Q, QuerySet

from agents.kit.erasing import Erase, Person, matching, there
from agents.kit.registry import Prune, Table, export_of
from agents.models import (
    Run,
)
from agents.swarm.models import DialogEntry, DialogState, DialogSummary, Swarm, SwarmPhase, SwarmTurn, UserPreferences


def _their_preferences(person: Person) -> Q:
    return Q(user=person.user.pk) if person.user is not None else Q(pk=None)


def _replaced_summaries(before: datetime) -> QuerySet[DialogSummary]:
    """Return the summaries that may go; the newest one of a conversation stays: it is shown."""
    completed = DialogSummary.objects.filter(status=DialogSummary.Status.COMPLETED)
    newer = completed.filter(
        agent=OuterRef("agent"), channel=OuterRef("channel"), to_position__gt=OuterRef("to_position")
    )
    return DialogSummary.objects.filter(Exists(newer), status__in=DialogSummary.FINAL, finished_at__lt=before)


def _old_swarm_turns(before: datetime) -> QuerySet[SwarmTurn]:
    return SwarmTurn.objects.filter(Q(run=None) | Q(run__status__in=Run.FINAL), created_at__lt=before)


TABLES = (
    Table(
        model=Swarm,
        editor="*",
        tab_of="agents.Agent",
        empty="manage.py seed stores the default swarm. Add one of your own with the + above; it takes part once an agent has it.",
        columns="name having intents tools enabled post_executor updated_at=changed",
        filters="enabled post_executor",
        search="name*",
        deleting="Its phases and their versions go with it; its agents answer as if they did not have it. What it did in turns stays. To "
        "keep it, clear enabled instead.",
        no_speech="name intents tools",
    ),
    Table(
        model=DialogState,
        operator="change",
        tab_of="agents.Channel",
        empty="An agent with a swarm leaves one for each conversation with a person. Write to it, or use Chat on its page.",
        start=(("Choose an agent", "admin:agents_agent_changelist", "agents.view_agent"),),
        columns="pk agent channel turn position dropped updated_at=changed",
        filters="agent updated_at",
        fields=(("", "agent channel turn position dropped updated_at=changed"),),
        # The next message begins a new one.
        erase=(
            Erase(
                columns="pending asked preferences last_tool",
                rows=(there("channel", at="updated_at"),),
                delete=True,
            ),
        ),
    ),
    Table(
        model=DialogEntry,
        erase=(
            Erase(columns="text quote author", rows=(there("state__channel", at="state__updated_at"),), delete=True),
        ),
    ),
    Table(
        model=SwarmTurn,
        order=-1,
        tab_of="agents.Run",
        empty="Each turn in which an agent with a swarm answers a person leaves one. Assign a swarm on its page.",
        columns="pk agent channel swarm intent outcome run created_at=time",
        filters="swarm intent heuristic agent created_at",
        search="intent",
        fields=(("", "agent channel swarm intent run created_at=time heuristic milliseconds"),),
        export=export_of(
            "id=pk created_at agent=agent.slug channel=channel.slug swarm=swarm.name run=run_id message=message_id intent heuristic "
            "milliseconds replaced calibration steps draft polished rejected",
            texts=("replaced", "calibration", "steps", "draft", "polished", "rejected"),
        ),
        erase=(
            Erase(
                columns="calibration steps draft polished rejected replaced",
                rows=(there("channel"),),
                emptied="calibration",
                keep="phase kind call outcome name",
            ),
        ),
        no_speech="intent milliseconds",
        prune=Prune(rows=_old_swarm_turns),
    ),
    Table(model=SwarmPhase, editor="*", no_speech="name prompt"),
    Table(
        model=DialogSummary,
        erase=(Erase(columns="text quotes error", rows=(there("channel"),), delete=True),),
        prune=Prune(rows=_replaced_summaries),
    ),
    Table(
        model=UserPreferences,
        erase=(Erase(columns="tone units length learning_style", rows=(matching(_their_preferences),), delete=True),),
    ),
)
