"""A gate session: the attempts at one message. Its state is the rows of `correction_logs`, so any process can continue it.

Everything here is short statements, never around a model call.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When

from agents.llm.answers import storable
from agents.models import Agent, Channel, Message
from correction.gate.check import GateResult
from correction.models import CorrectionLog, GateDimensionResult, Outcome
from evaluation.models import PatternTimeout

TRIES = 20  # each lost race means that another process won one: as many as may continue one session at once


class KeyTaken(Exception):
    """The idempotency key of a draft that was sent back stands on another attempt already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt: its scores by dimension, of those really scored; of a logged one also its row and results."""

    number: int
    text: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    results: tuple[GateDimensionResult, ...] = ()

    @property
    def log(self) -> CorrectionLog:
        return self.results[0].log


@dataclass(frozen=True, slots=True)
class GateSession:
    """An open session: its id and the attempts so far, oldest first. A new one has none."""

    id: uuid.UUID = field(default_factory=uuid.uuid4)
    attempts: tuple[Attempt, ...] = ()

    @property
    def next_number(self) -> int:
        return self.attempts[-1].number + 1 if self.attempts else 1

    @property
    def spent_seconds(self) -> float:
        """Seconds of judging so far."""
        return sum(attempt.log.duration_ms for attempt in self.attempts) / 1000


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


def best_attempt(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt to commit when none passed (AC-7.0.9): the highest sum of scores; of equal ones the latest.

    Where attempts have different dimensions scored, sums would favour those with more of them: then the mean over the dimensions
    scored in all counts, or each one's own mean where there is none. An attempt with no score at all comes last.

    Raises:
        ValueError: There is no attempt.
    """
    if not attempts:
        raise ValueError("no attempt to choose from")
    judged = [attempt.scores.keys() for attempt in attempts if attempt.scores]
    shared = frozenset.intersection(*map(frozenset, judged)) if judged else frozenset()

    def merit(attempt: Attempt) -> tuple[float, int]:
        counted = [score for name, score in attempt.scores.items() if name in shared] or list(attempt.scores.values())
        # In exact numbers: 0.1 + 0.2 must not lose against 0.3.
        return (round(sum(counted) / len(counted), 6) if counted else -1.0, attempt.number)

    return max(attempts, key=merit)


def load_attempts(
    *, session: str = "", draft_key: str = "", source: str = CorrectionLog.Source.GATE
) -> tuple[Attempt, ...]:
    """The attempts of a session, and the one with this idempotency key, oldest first; one query.

    An id that is none, or that of a session of another source, brings nothing.
    """
    key = as_uuid(session)
    if key is None and not draft_key:
        return ()
    wanted = Q(log__draft_key=draft_key) if draft_key else Q()
    if key is not None:
        wanted |= Q(log__session=key)
    rows = GateDimensionResult.objects.filter(wanted, log__source=source).select_related("log")
    by_log: dict[int, list[GateDimensionResult]] = {}
    for row in rows.order_by("log__attempt", "log_id", "pk"):
        by_log.setdefault(row.log_id, []).append(row)
    scored = GateDimensionResult.Status.SCORED
    return tuple(
        Attempt(
            number=results[0].log.attempt,
            text=results[0].log.judged_text,
            payload=results[0].log.payload,
            scores={r.dimension: r.score for r in results if r.status == scored and r.score is not None},
            results=tuple(results),
        )
        for results in by_log.values()
    )


def check_session(
    *, session: str, agent: Agent, channel: Channel, attempts: Sequence[Attempt] | None = None
) -> GateSession:
    """The open session of this id, for the next attempt at its message; of `attempts` where they were loaded already.

    Raises:
        ValueError: It cannot be continued: not an id, unknown, another agent's or channel's, or closed. Names the value and why.
    """
    key = as_uuid(session)
    if key is None:
        shown = session[:60]
        raise ValueError(f"session {shown!r} is not a session id; allowed: the id that a rejected draft came with")
    attempts = load_attempts(session=session) if attempts is None else attempts
    own = tuple(attempt for attempt in attempts if attempt.log.session == key)
    if not own:
        raise ValueError(f"session {key} is not known; leave it out to begin a new message")
    last = own[-1].log
    if last.agent_id != agent.pk:
        raise ValueError(f"session {key} belongs to another agent, not to {agent.slug!r}")
    if last.channel_id != channel.pk:
        raise ValueError(f"session {key} belongs to a message for another channel, not for {channel.slug!r}")
    if not is_open([attempt.log for attempt in own]):
        raise ValueError(f"session {key} is closed ({last.get_outcome_display()}); leave it out to begin a new message")
    return GateSession(key, own)


def as_uuid(session: str) -> uuid.UUID | None:
    """The id that a text spells; None where it spells none."""
    try:
        return uuid.UUID(session) if session else None
    except ValueError:
        return None


def is_open(logs: Sequence[CorrectionLog]) -> bool:
    """Whether every attempt was sent back and nothing was said yet."""
    return all(log.outcome == Outcome.CORRECTED and not log.committed and log.message_id is None for log in logs)


def open_sessions_of_run(run_id: int) -> dict[int, str]:
    """Sessions a run left open, by the ids of their channels: what a run that is resumed must bring to an end."""
    rows = CorrectionLog.objects.filter(run_id=run_id, source=CorrectionLog.Source.GATE, channel__isnull=False)
    by_session: dict[tuple[uuid.UUID, int], list[CorrectionLog]] = {}
    for log in rows.order_by("attempt"):
        by_session.setdefault((log.session, log.channel_id or 0), []).append(log)
    return {channel: str(session) for (session, channel), logs in by_session.items() if is_open(logs)}


def write(entry: Entry, *, committed: bool = False, message: Message | None = None) -> CorrectionLog:
    """Insert an attempt and its dimensions: two statements in one transaction.

    Where another process was faster with the same attempt of the same session this one becomes the next; where it closed the
    session, this one stands in a session of its own. No row is lost.

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
            entry = _renumbered(entry, committed)
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


def _renumbered(entry: Entry, committed: bool) -> Entry:
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
    """Link the attempts of a session to the message. `best` is the logged attempt whose text it has; None for a later one."""
    changes: dict[str, Any] = {"message": message}
    if best is not None:
        changes["committed"] = Case(When(attempt=best, then=Value(True)), default=F("committed"))
    CorrectionLog.objects.filter(session=session).update(**changes)


def end(*, session: uuid.UUID, outcome: Outcome) -> bool:
    """Give the last attempt of an open session its final outcome; False when another process ended it."""
    last = CorrectionLog.objects.filter(session=session).order_by("-attempt").first()
    return last is not None and bool(
        CorrectionLog.objects.filter(pk=last.pk, outcome=Outcome.CORRECTED).update(outcome=outcome)
    )
