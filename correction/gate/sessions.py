"""A gate session: the attempts at one message. Its state is the rows of `correction_logs`, so any process can continue it.

Everything here is short statements, never around a model call.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When

from agents.llm.requests import storable
from agents.models import Agent, Channel, Message
from correction.models import CorrectionLog, GateDimensionResult, Outcome

TRIES = 20  # each lost race means that another process won one: as many as may continue one session at once


class KeyTaken(Exception):
    """The idempotency key of a draft that was sent back stands on another attempt already."""


class SessionRefused(ValueError):
    """A session cannot be continued; the sentence says why."""


@dataclass(frozen=True, slots=True)
class GateSession:
    """An open session: its id and the attempts so far, oldest first. A new one has none."""

    id: uuid.UUID = field(default_factory=uuid.uuid4)
    attempts: tuple[CorrectionLog, ...] = ()

    @property
    def next_number(self) -> int:
        return self.attempts[-1].attempt + 1 if self.attempts else 1

    @property
    def spent_seconds(self) -> float:
        """Seconds of judging so far."""
        return sum(attempt.duration_ms for attempt in self.attempts) / 1000


def best_attempt(attempts: Sequence[CorrectionLog]) -> CorrectionLog:
    """The attempt to commit when none passed (AC-7.0.9): the highest sum of scores; of equal ones the latest.

    Where attempts have different dimensions scored, sums would favour those with more of them: then the mean over the dimensions
    scored in all counts, or each one's own mean where there is none. An attempt with no score at all comes last.

    Raises:
        ValueError: There is no attempt.
    """
    if not attempts:
        raise ValueError("no attempt to choose from")
    judged = [frozenset(attempt.scores) for attempt in attempts if attempt.scores]
    shared = frozenset.intersection(*judged) if judged else frozenset()

    def merit(attempt: CorrectionLog) -> tuple[float, int]:
        scores = attempt.scores
        counted = [score for name, score in scores.items() if name in shared] or list(scores.values())
        # In exact numbers: 0.1 + 0.2 must not lose against 0.3.
        return (round(sum(counted) / len(counted), 6) if counted else -1.0, attempt.attempt)

    return max(attempts, key=merit)


def load_attempts(
    *, session: str = "", draft_key: str = "", source: str = CorrectionLog.Source.GATE
) -> tuple[CorrectionLog, ...]:
    """The attempts of a session, and the one with this idempotency key, oldest first, with their results; one query.

    An id that is none, or that of a session of another source, brings nothing.
    """
    key = as_uuid(session)
    if key is None and not draft_key:
        return ()
    wanted = Q(log__draft_key=draft_key) if draft_key else Q()
    if key is not None:
        wanted |= Q(log__session=key)
    rows = GateDimensionResult.objects.filter(wanted, log__source=source).select_related("log")
    logs: dict[int, CorrectionLog] = {}
    for row in rows.order_by("log__attempt", "log_id", "pk"):
        log = logs.setdefault(row.log_id, row.log)
        log.results = (*log.results, row)
    return tuple(logs.values())


def open_session(
    session: str, attempts: Sequence[CorrectionLog], *, problem: Callable[[CorrectionLog], str]
) -> GateSession:
    """The open session of this id among these attempts, for the next attempt at its message.

    Args:
        session: Its id, as it was sent.
        attempts: What `load_attempts` returned.
        problem: Why the session of this last attempt is not the caller's, as the end of a sentence; empty where it is.

    Raises:
        SessionRefused: It cannot be continued: not an id, unknown, another's, or closed. Names the value and why.
    """
    key = as_uuid(session)
    if key is None:
        shown = session[:60]
        raise SessionRefused(f"session {shown!r} is not a session id; allowed: the id that a rejected draft came with")
    own = tuple(attempt for attempt in attempts if attempt.session == key)
    if not own:
        raise SessionRefused(f"session {key} is not known; leave it out to begin a new message")
    if why := problem(own[-1]):
        raise SessionRefused(f"session {key} {why}")
    if not is_open(own):
        closed = own[-1].get_outcome_display()
        raise SessionRefused(f"session {key} is closed ({closed}); leave it out to begin a new message")
    return GateSession(key, own)


def check_session(
    *, session: str, agent: Agent, channel: Channel, attempts: Sequence[CorrectionLog] | None = None
) -> GateSession:
    """The open session of this id, for the next attempt of this agent in this channel; of `attempts` where they were loaded already.

    Raises:
        SessionRefused: It cannot be continued; see `open_session`.
    """

    def problem(last: CorrectionLog) -> str:
        if last.agent_id != agent.pk:
            return f"belongs to another agent, not to {agent.slug!r}"
        other = last.channel_id != channel.pk
        return f"belongs to a message for another channel, not for {channel.slug!r}" if other else ""

    return open_session(session, load_attempts(session=session) if attempts is None else attempts, problem=problem)


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


def write(log: CorrectionLog, *, committed: bool = False, message: Message | None = None) -> CorrectionLog:
    """Insert an attempt and its dimensions: two statements in one transaction.

    Where another process was faster with the same attempt of the same session this one becomes the next; where it closed the
    session, this one stands in a session of its own. No row is lost.

    Raises:
        KeyTaken: Another process logged a draft of the same idempotency key meanwhile; only for a draft that was sent back.
        IntegrityError: Of a message said already, and logged before; or a row it refers to is gone.
    """
    log.committed, log.message, log.feedback = committed, message, storable(log.feedback)
    for _ in range(TRIES):
        try:
            return _insert(log)
        except IntegrityError:
            if log.source == CorrectionLog.Source.OBSERVE:
                raise
            _renumber(log)
    return _insert(log)


def _insert(log: CorrectionLog) -> CorrectionLog:
    log.pk = None  # an earlier try may have been rolled back
    with transaction.atomic():
        log.save(force_insert=True)
        for result in log.results:
            result.log = log
        GateDimensionResult.objects.bulk_create(log.results)
    return log


def _renumber(log: CorrectionLog) -> None:
    """Give the attempt a number, session and key that are free now."""
    if log.draft_key and CorrectionLog.objects.filter(draft_key=log.draft_key).exists():
        if not log.committed:
            raise KeyTaken(log.draft_key)
        log.draft_key = None
    rows = CorrectionLog.objects.filter(session=log.session)
    if rows.filter(Q(committed=True) | Q(message__isnull=False)).exists():
        log.session, log.attempt = uuid.uuid4(), 1
    else:
        log.attempt = (rows.aggregate(last=Max("attempt"))["last"] or 0) + 1


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
