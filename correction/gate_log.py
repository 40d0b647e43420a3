"""Writing what the gate did: an attempt with its dimensions, the end of a session. Short statements, never around a model call."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When

from agents.llm.extraction import storable
from agents.models import Message
from correction.gate_values import GateResult
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.pattern_timeouts import count_timeouts

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
    count_timeouts((check.dimension, part.id, part.reason) for check in result.dimensions for part in check.parts)
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


def close(*, session: uuid.UUID, message: Message, best: int | None) -> None:
    """Link the attempts of a session to what was said.

    Args:
        session: Whose attempts.
        message: What was said.
        best: The logged attempt whose text it was; None for a later one.
    """
    changes: dict[str, Any] = {"message": message}
    if best is not None:
        changes["committed"] = Case(When(attempt=best, then=Value(True)), default=F("committed"))
    CorrectionLog.objects.filter(session=session).update(**changes)


def end(*, session: uuid.UUID, outcome: Outcome) -> bool:
    """Give the last attempt of an open session its final outcome; False when somebody else ended it."""
    last = CorrectionLog.objects.filter(session=session).order_by("-attempt").first()
    return last is not None and bool(
        CorrectionLog.objects.filter(pk=last.pk, outcome=Outcome.CORRECTED).update(outcome=outcome)
    )
