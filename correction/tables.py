"""The tables of correction as console, help, export, erasure and retention know them; see `agents.kit.registry`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Prefetch, QuerySet
from django.utils import timezone

from agents.kit.erasing import Erase, there
from agents.kit.registry import Prune, Table, export_of
from correction.config.settings import GATE_DIMENSIONS
from correction.gate.statistics import GATE
from correction.models import (
    AgentEvaluationConfig,
    AttemptHour,
    CorrectionLog,
    DimensionHour,
    GateDimensionResult,
    GateSession,
    ObservedMessage,
    SampledDay,
)

# Marks of people are in no sums: a session with one stays, and with it the precision beside each threshold.
_MARKED_RESULTS = GateDimensionResult.objects.filter(log__session=OuterRef("pk")).exclude(mark="")


def _old_and_unmarked(before: datetime) -> QuerySet[GateSession]:
    """Return the sessions of which each attempt was made before this moment, and no verdict has a mark of a person."""
    later = CorrectionLog.objects.filter(session=OuterRef("pk"), created_at__gte=before)
    return GateSession.objects.filter(~Exists(_MARKED_RESULTS), ~Exists(later), created_at__lt=before)


def _old_sampled_days(before: datetime) -> QuerySet[SampledDay]:
    """Return the days from before this moment by which no rate is fixed any more."""
    looked_at = timezone.now() - SampledDay.LOOKED_AT
    return SampledDay.objects.filter(day__lt=min(before, looked_at).date())


_DIMENSION_COLUMNS: dict[str, Callable[[GateDimensionResult], Any]] = {
    "status": lambda result: result.status,
    "score": lambda result: result.score,
    "threshold": lambda result: float(result.threshold),
    "passed": lambda result: result.passed,
    "reasoning": lambda result: result.reasoning or result.reason,
    "mark": lambda result: result.mark,
}


def _dimension_cell(dimension: str, read: Callable[[GateDimensionResult], Any]) -> Callable[[Any], Any]:
    """Return a function that reads one value of this dimension of an exported attempt; it returns None where that was not checked."""

    def cell(log: Any) -> Any:
        for result in log.fetched_results:
            if result.dimension == dimension:
                return read(result)
        return None

    return cell


TABLES = (
    Table(
        model=AgentEvaluationConfig,
        editor="*",
        menu="Gate",
        icon="tune",
        title="Configuration",
        empty="Every agent inherits the defaults. Switch something on in the matrix, or run manage.py configure AGENT.",
        deleting="The agent inherits everything from the defaults from its next turn on. The history of changes is kept.",
        typed="behavior_named_requesters behavior_protected_traits",
    ),
    Table(
        model=CorrectionLog,
        has_saved_views=True,
        operator="add",
        menu="Gate",
        icon="rule",
        title="Log",
        columns="when who outcome_mark verdicts draft place",
        filters="session=session__uuid? message=session__message? outcome failed mark committed session__source judge session__agent "
        "session__tags,session__message__tags,session__channel__tags created_at",
        search="judged_text*",
        fields=(("As it is stored", "session__uuid=session draft_key"),),
        empty="Every draft the gate judges leaves one. Switch it on for an agent, best in observe mode first: manage.py configure AGENT "
        "gate_mode=observe gate_adherence_enabled=on.",
        start=(
            (
                "Configure the gate",
                "admin:correction_agentevaluationconfig_changelist",
                "correction.view_agentevaluationconfig",
            ),
        ),
        export=export_of(
            "id=pk created_at session=session.uuid attempt source=session.source agent=session.agent.slug speaker=session.speaker "
            "channel=session.channel.slug run=session.run_id message=session.message_id committed outcome original_text judged_text "
            "said=session.message.text feedback payload tags=session.tags judge score_sum duration_ms "
            "persona_version=persona_version.number",
            special={
                f"{dimension}_{name}": _dimension_cell(dimension, read)
                for dimension in GATE_DIMENSIONS
                for name, read in _DIMENSION_COLUMNS.items()
            },
            # A list: asked many times for each row.
            prefetch=(Prefetch("dimension_results", to_attr="fetched_results"),),
            texts=(
                *("original_text", "judged_text", "said", "feedback", "payload"),
                *(f"{dimension}_reasoning" for dimension in GATE_DIMENSIONS),
            ),
        ),
        erase=(
            Erase(
                columns="original_text judged_text payload feedback",
                rows=(there("session__channel"),),
                emptied="payload",
            ),
        ),
        no_speech="draft_key judge",
    ),
    Table(
        model=ObservedMessage,
        tab_of="correction.CorrectionLog",
        empty="Nothing waits. Where an agent's gate observes, the messages to be judged afterwards wait here until manage.py work has "
        "judged them.",
        columns="pk state message__agent message created_at finished_at",
        filters="status error message__agent created_at",
        fields=(
            (
                "",
                "state message__agent message dimensions session=verdicts error created_at started_at finished_at attempt lease_owner",
            ),
            ("In batches", "waits_since batch batches"),
        ),
        export=export_of(
            "id=pk created_at agent=message.agent.slug message=message_id text=message.text session dimensions status error started_at "
            "finished_at attempt waits_since batch=batch_id batches",
            texts=("text",),
        ),
        erase=(Erase(columns="error", rows=(there("message__channel", at="finished_at"),)),),
        no_speech="dimensions",
        prune=Prune(
            rows=lambda before: ObservedMessage.objects.filter(status__in=ObservedMessage.FINAL, finished_at__lt=before)
        ),
    ),
    # Without a page of their own.
    Table(
        model=GateSession,
        typed="speaker tags",
        prune=Prune(
            rows=_old_and_unmarked,
            children=((CorrectionLog, "session"), (GateDimensionResult, "log__session")),
            sums=GATE,
        ),
    ),
    Table(
        model=GateDimensionResult,
        operator="change",
        erase=(
            Erase(
                columns="reasoning recommendations reason parts",
                rows=(there("log__session__channel", at="log__created_at"),),
                keep="judge",
            ),
        ),
        no_speech="judge proposition_id",
    ),
    # The rate of a day needs the day before alone.
    Table(model=SampledDay, prune=Prune(rows=_old_sampled_days)),
    Table(model=AttemptHour, no_speech="outcome source"),
    Table(model=DimensionHour, no_speech="source judge"),
)
