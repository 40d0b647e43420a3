"""A gate session: the attempts at one message. Its state is the rows of `correction_logs`, so any process can continue it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from agents.models import Agent, Channel
from correction.models import CorrectionLog, GateDimensionResult, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt as far as choosing the best needs it: its scores by dimension, of those really scored."""

    number: int
    text: str
    payload: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class Logged:
    """An attempt as it was logged, with its dimensions."""

    log: CorrectionLog
    results: tuple[GateDimensionResult, ...]

    def attempt(self) -> Attempt:
        scored = [r for r in self.results if r.status == GateDimensionResult.Status.SCORED]
        return Attempt(
            number=self.log.attempt,
            text=self.log.judged_text,
            payload=self.log.payload,
            scores={r.dimension: r.score for r in scored if r.score is not None},
        )


@dataclass(frozen=True, slots=True)
class Session:
    """An open session: its id and the attempts so far, oldest first. A new one has none."""

    id: uuid.UUID = field(default_factory=uuid.uuid4)
    logged: tuple[Logged, ...] = ()

    @property
    def next_number(self) -> int:
        return self.logged[-1].log.attempt + 1 if self.logged else 1

    @property
    def spent_seconds(self) -> float:
        """Seconds of judging so far."""
        return sum(logged.log.duration_ms for logged in self.logged) / 1000

    def attempts(self) -> list[Attempt]:
        return [logged.attempt() for logged in self.logged]


def load_logged(*, session: str = "", draft_key: str = "", source: str = CorrectionLog.Source.GATE) -> list[Logged]:
    """The attempts of a session, and the one with this idempotency key, oldest first; one query.

    An id that is none, or that of a session of another source, finds nothing.
    """
    key = as_uuid(session)
    if key is None and not draft_key:
        return []
    wanted = Q(log__draft_key=draft_key) if draft_key else Q()
    if key is not None:
        wanted |= Q(log__session=key)
    rows = GateDimensionResult.objects.filter(wanted, log__source=source).select_related("log")
    found: dict[int, tuple[CorrectionLog, list[GateDimensionResult]]] = {}
    for row in rows.order_by("log__attempt", "log_id", "pk"):
        found.setdefault(row.log_id, (row.log, []))[1].append(row)
    return [Logged(log, tuple(results)) for log, results in found.values()]


def check_session(*, session: str, agent: Agent, channel: Channel) -> Session:
    """The open session of this id, for the next attempt at its message.

    Raises:
        ValueError: It cannot be continued: not an id, unknown, another agent's or channel's, or closed. Names the value and why.
    """
    return usable(load_logged(session=session), session=session, agent=agent, channel=channel)


def usable(logged: Sequence[Logged], *, session: str, agent: Agent, channel: Channel) -> Session:
    """The session made of those of the attempts that are its own, see `check_session`.

    Raises:
        ValueError: It cannot be continued.
    """
    key = as_uuid(session)
    if key is None:
        shown = session[:60]
        raise ValueError(f"session {shown!r} is not a session id; allowed: the id that a rejected draft came with")
    own = tuple(one for one in logged if one.log.session == key)
    if not own:
        raise ValueError(f"session {key} is not known; leave it out to begin a new message")
    last = own[-1].log
    if last.agent_id != agent.pk:
        raise ValueError(f"session {key} belongs to another agent, not to {agent.slug!r}")
    if last.channel_id != channel.pk:
        raise ValueError(f"session {key} belongs to a message for another channel, not for {channel.slug!r}")
    if not is_open([one.log for one in own]):
        raise ValueError(f"session {key} is closed ({last.get_outcome_display()}); leave it out to begin a new message")
    return Session(key, own)


def as_uuid(session: str) -> uuid.UUID | None:
    """The id that a text spells; None where it spells none."""
    try:
        return uuid.UUID(session) if session else None
    except ValueError:
        return None


def is_open(logs: Sequence[CorrectionLog]) -> bool:
    """Whether every attempt was sent back and nothing was said yet."""
    return all(log.outcome == Outcome.CORRECTED and not log.committed and log.message_id is None for log in logs)


def open_sessions_of_run(run_id: int) -> list[tuple[uuid.UUID, int]]:
    """Sessions a run left open, with the ids of their channels: what a run that was taken up again must bring to an end."""
    rows = CorrectionLog.objects.filter(run_id=run_id, source=CorrectionLog.Source.GATE, channel__isnull=False)
    by_session: dict[tuple[uuid.UUID, int], list[CorrectionLog]] = {}
    for log in rows.order_by("attempt"):
        by_session.setdefault((log.session, log.channel_id or 0), []).append(log)
    return [key for key, logs in by_session.items() if is_open(logs)]
