"""Writing what the gate did: an attempt with its dimensions, the end of a session. Short statements, never around a model call."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When

from agents.llm.extraction import storable
from agents.models import Message
from agents.rollups import mark_stale, may_be_closed
from evaluation.models import PatternTimeout
from correction.gate_values import GateResult
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from correction.rollup import GATE

TRIES = 20  # each lost race means that somebody else won one: as many as may continue one session at once


class KeyTaken(Exception):
    """The idempotency key of a draft that was sent back stands on another attempt already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An attempt to be logged. `columns` are further fields of the log: agent, channel, run, texts."""

    session: uuid.UUID
    attempt: int
    outcome: Outcome
    result: GateResult
    columns: dict[str, Any]
    feedback: str = ""
    draft_key: str | None = None
    source: str = CorrectionLog.Source.GATE


@dataclass(frozen=True, slots=True)
class Closing:
    """What is to be written when a session's message is saved: its last attempt, and which logged one is said if not that.

    Travels from `review` to `committed` on the turn, under `CLOSING`.
    """

    session: uuid.UUID
    entry: Entry | None = None
    best: int | None = None
    has_earlier: bool = False
    began: datetime | None = None


CLOSING = "gate:closing"


def write(entry: Entry, *, committed: bool = False, message: Message | None = None) -> CorrectionLog:
    """Insert an attempt and its dimensions: two statements in one transaction.

    Where another process was faster with the same attempt of the same session this one becomes the next; where it closed the
    session, this one stands in a session of its own. Nobody's row is lost.

    Raises:
        KeyTaken: Another process logged a draft of the same idempotency key meanwhile; only for a draft that was sent back.
        IntegrityError: Of a message said already, and logged before; or a row it refers to is gone.
    """
    for _ in range(TRIES):
        try:
            with transaction.atomic():
                return _insert(entry, committed, message)
        except IntegrityError:
            if entry.source == CorrectionLog.Source.OBSERVE:
                raise
            entry = _made_room(entry, committed)
    with transaction.atomic():
        return _insert(entry, committed, message)


def _insert(entry: Entry, committed: bool, message: Message | None) -> CorrectionLog:
    result = entry.result
    log = CorrectionLog.objects.create(
        session=entry.session,
        attempt=entry.attempt,
        source=entry.source,
        outcome=entry.outcome,
        feedback=storable(entry.feedback),
        draft_key=entry.draft_key,
        committed=committed,
        message=message,
        score_sum=result.score_sum,
        judge=result.judge[:200],
        duration_ms=result.duration_ms,
        **entry.columns,
    )
    GateDimensionResult.objects.bulk_create(
        GateDimensionResult(
            log=log,
            dimension=check.dimension,
            status=check.status,
            score=check.score,
            threshold=check.threshold,
            passed=check.passed,
            reasoning=storable(check.reasoning),
            recommendations=storable(check.recommendations),
            reason=storable(check.reason)[:300],
            judge=storable(check.judge)[:200],
            proposition_id=check.proposition_id,
            parts=storable([part.as_json() for part in check.parts]),
            call_id=check.call,
            duration_ms=check.duration_ms,
        )
        for check in result.dimensions
    )
    PatternTimeout.count((check.dimension, part.id, part.reason) for check in result.dimensions for part in check.parts)
    return log


def _made_room(entry: Entry, committed: bool) -> Entry:
    """The entry under a number, session and key that are free now."""
    if entry.draft_key and CorrectionLog.objects.filter(draft_key=entry.draft_key).exists():
        if not committed:
            raise KeyTaken(entry.draft_key)
        entry = replace(entry, draft_key=None)
    rows = CorrectionLog.objects.filter(session=entry.session)
    if rows.filter(Q(committed=True) | Q(message__isnull=False)).exists():
        return replace(entry, session=uuid.uuid4(), attempt=1)
    return replace(entry, attempt=(rows.aggregate(last=Max("attempt"))["last"] or 0) + 1)


def close(*, session: uuid.UUID, message: Message, best: int | None, began: datetime | None = None) -> None:
    """Link the attempts of a session to what was said.

    Args:
        session: Whose attempts.
        message: What was said.
        best: The logged attempt whose text it was; None for a later one.
        began: When the first attempt was logged.
    """
    changes: dict[str, Any] = {"message": message}
    if best is not None:
        changes["committed"] = Case(When(attempt=best, then=Value(True)), default=F("committed"))
    logs = CorrectionLog.objects.filter(session=session)
    logs.update(**changes)
    if best is not None and began is not None and may_be_closed(began):
        _sum_up_anew(logs.values_list("created_at", flat=True))


def end(*, session: uuid.UUID, outcome: Outcome) -> bool:
    """Give the last attempt of an open session its final outcome; False when somebody else ended it."""
    last = CorrectionLog.objects.filter(session=session).order_by("-attempt").values("pk", "created_at")[:1]
    found = {row["pk"]: row["created_at"] for row in last}
    if not CorrectionLog.objects.filter(pk__in=list(found), outcome=Outcome.CORRECTED).update(outcome=outcome):
        return False
    _sum_up_anew(moment for moment in found.values() if may_be_closed(moment))
    return True


def _sum_up_anew(moments: Iterable[datetime]) -> None:
    """Attempts of hours that are summed up already were changed."""
    for hour in {moment.replace(minute=0, second=0, microsecond=0) for moment in moments}:
        mark_stale(GATE.name, hour)
