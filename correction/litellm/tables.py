"""The table of gated replies as console, help, export, erasure and retention know it; see `agents.kit.registry`."""

from __future__ import annotations

from django.db.models import Q

from agents.kit.erasing import Erase, Person, matching, of_agents
from agents.kit.registry import Prune, Table, export_of
from correction.litellm.models import GatedReply


def _open_of_agents(person: Person) -> Q:
    """Return the condition for calls under way, of agents that spoke where the person did, or of none: whose words they hold is unknown."""
    of_these_or_none = Q(agent__in=person.agents) | Q(agent__isnull=True)
    return of_these_or_none & Q(finished_at__isnull=True)


TABLES = (
    Table(
        model=GatedReply,
        tab_of="correction.CorrectionLog",
        title="Replies through LiteLLM",
        empty="Nothing came through LiteLLM. Name this installation as a guardrail in LiteLLM's configuration, and switch the gate on for "
        "an agent.",
        start=(
            (
                "Configure the gate",
                "admin:correction_agentevaluationconfig_changelist",
                "correction.view_agentevaluationconfig",
            ),
        ),
        columns="pk status agent channel message rounds created_at last_round_at finished_at",
        filters="status error agent created_at",
        search="call_id",
        fields=(
            ("", "status agent call_id conversation rounds last_round_at channel message error"),
            ("How it was stored", "created_at started_at finished_at attempt lease_owner"),
        ),
        export=export_of(
            "id=pk created_at last_round_at agent=agent.slug call_id conversation rounds channel=channel.slug message=message_id status "
            "error started_at finished_at attempt",
        ),
        erase=(
            Erase(
                columns="error context replies",
                emptied="context replies",
                rows=(of_agents("agent", at="finished_at"), matching(_open_of_agents)),
            ),
        ),
        no_speech="call_id caller conversation",
        prune=Prune(rows=lambda before: GatedReply.objects.filter(status__in=GatedReply.FINAL, finished_at__lt=before)),
    ),
)
