"""What the logs of correction hold as files; columns are named as in the API. One row per attempt, its dimensions in columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Prefetch

from agents.admin.logs import Export, export_of, same
from correction.config.resolve import GATE_DIMENSIONS
from correction.models import CorrectionLog, GateDimensionResult, ObservedMessage

_OF_DIMENSION: dict[str, Callable[[GateDimensionResult], Any]] = {
    "status": lambda result: result.status,
    "score": lambda result: result.score,
    "threshold": lambda result: float(result.threshold),
    "passed": lambda result: result.passed,
    "reasoning": lambda result: result.reasoning or result.reason,
    "mark": lambda result: result.mark,
}


def _of(dimension: str, read: Callable[[GateDimensionResult], Any]) -> Callable[[Any], Any]:
    def cell(log: Any) -> Any:
        found = next((result for result in log.fetched_results if result.dimension == dimension), None)
        return None if found is None else read(found)

    return cell


def _said(log: CorrectionLog) -> str | None:
    return None if log.message is None else log.message.text


def _observed_agent(row: ObservedMessage) -> str | None:
    return row.message.agent.slug if row.message.agent is not None else None


ATTEMPTS: Export = export_of(
    {
        "id": "pk",
        **same("created_at", "session", "attempt", "source"),
        "agent": "agent.slug",
        "speaker": "speaker",
        "channel": "channel.slug",
        "run": "run_id",
        "message": "message_id",
        **same("committed", "outcome", "original_text", "judged_text"),
        "said": _said,
        **same("feedback", "payload", "tags", "judge", "score_sum", "duration_ms"),
        "persona_version": "persona_version.number",
        **{
            f"{dimension}_{name}": _of(dimension, read)
            for dimension in GATE_DIMENSIONS
            for name, read in _OF_DIMENSION.items()
        },
    },
    select=("agent", "channel", "message", "persona_version"),
    prefetch=(Prefetch("dimension_results", to_attr="fetched_results"),),  # a list: asked many times for each row
    texts=(
        *("original_text", "judged_text", "said", "feedback", "payload"),
        *(f"{dimension}_reasoning" for dimension in GATE_DIMENSIONS),
    ),
)
OBSERVED: Export = export_of(
    {
        "id": "pk",
        "created_at": "created_at",
        "agent": _observed_agent,
        "message": "message_id",
        "text": "message.text",
        **same("session", "status", "error", "started_at", "finished_at", "attempt"),
    },
    select=("message", "message__agent"),
    texts=("text",),
)
INTERVENTIONS: Export = export_of(
    {
        "id": "pk",
        **same("created_at", "name"),
        "intervention": "intervention.slug",
        "agent": "agent.slug",
        "channel": "channel.slug",
        "run": "run_id",
        **same(
            *("channel_position", "fired", "why", "preconditions", "nudge_type", "nudge", "judge", "duration_ms"),
            "work_id",
        ),
    },
    select=("agent", "channel", "intervention"),
    texts=("why", "preconditions"),  # what a judge said of the conversation
)
