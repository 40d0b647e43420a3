"""The gate in the pipeline (S-7.0): judges a draft in `review`, logs what was `committed`, and in `finish` ends what a turn left open.

A gate session is the attempts at one message. Its state is the rows of `correction_logs`, so any process can continue it; they are
read and written in short statements, never around a model call.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, Q, Value, When

from agents.kit.text.fences import neutral, render_prompt
from agents.kit.text.storable import storable
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.settings import config_of
from correction.gate.check import GateResult, action_of_draft, check_action_quality, scores_of
from correction.models import CorrectionLog, GateDimensionResult, GateMode, ObservedMessage, Outcome
from evaluation.models import Dimension

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
    scores = {attempt.attempt: scores_of(attempt.results) for attempt in attempts}
    judged = [frozenset(of_one) for of_one in scores.values() if of_one]
    shared = frozenset.intersection(*judged) if judged else frozenset()

    def merit(attempt: CorrectionLog) -> tuple[float, int]:
        own = scores[attempt.attempt]
        counted = [score for name, score in own.items() if name in shared] or list(own.values())
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


REPORT, CLOSING = "gate", "gate:closing"
MAX_DRAFT, MAX_FINDING = 1_000, 1_500  # characters quoted


@dataclass(frozen=True, slots=True)
class Closing:
    """What is to be written when a session's message is saved: its last attempt (`log`), and which logged one is said if not that.

    Travels from `review` to `committed` on the turn, under `CLOSING`.
    """

    session: uuid.UUID
    log: CorrectionLog | None = None
    best: int | None = None
    has_earlier: bool = False


def review(turn: Turn, draft: Draft) -> Accept | Revise:
    """Judge a draft (AC-7.0.5). What cannot be judged passes."""
    turn.reports.pop(REPORT, None)
    turn.reports.pop(CLOSING, None)
    config = config_of(turn)
    if turn.preview or (config.gate_is_off and not turn.session):
        turn.skip("only a preview" if turn.preview else "the gate is off for this agent")
        return Accept(draft)
    if config.gate_is_off or config.gate_mode == GateMode.OBSERVE:
        return Accept(draft)  # a session opened before the gate was switched off or over is ended by `committed`
    attempts = load_attempts(session=turn.session, draft_key=turn.draft_key)
    earlier = _with_key(turn, attempts)
    if earlier is not None and _is_same_draft(turn, earlier):
        return _repeat(turn, earlier)
    session = GateSession()
    if turn.session:
        try:
            session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel, attempts=attempts)
        except ValueError as error:
            turn.running[-1].why = f"a new session was begun: {error}"[:300]
    each, total = float(config["gate_deadline_seconds"]), float(config["gate_total_deadline_seconds"])
    result = check_action_quality(
        agent=turn.agent,
        config=config,
        run_id=turn.run.pk if turn.run is not None else None,
        work_id=f"gate_session:{session.id}",
        deadline=min(each, total - session.spent_seconds),
        action=lambda propositions: action_of_draft(turn, draft, propositions),
    )
    turn.count(attempts=1, failed_dimensions=len(result.failures))
    number, allowed = session.next_number, config["max_correction_attempts"]
    log = result.log(
        session=session.id,
        attempt=number,
        draft_key=(turn.draft_key if earlier is None else "") or None,
        agent=turn.agent,
        channel=turn.channel,
        run=turn.run,
        persona_version_id=turn.persona_version_id,
        original_text=turn.original.text if turn.original is not None else draft.text,
        judged_text=draft.text,
        payload=dict(draft.payload),
    )
    if not result.passed and number <= allowed:
        return _send_back(turn, draft, log, result, left=allowed - number + 1)
    has_earlier = bool(session.attempts)
    if result.passed:
        turn.reports[CLOSING] = Closing(session.id, log, has_earlier=has_earlier)
        turn.reports[REPORT] = report(log)
        return Accept(draft, Outcome(log.outcome))
    # The attempts are spent: the best of them is said (AC-7.0.8), which need not be the last.
    best = best_attempt([*session.attempts, log])
    log.outcome = Outcome.FORCED_THROUGH
    other = None if best is log else best.attempt
    turn.reports[CLOSING] = Closing(session.id, log, best=other, has_earlier=has_earlier)
    turn.reports[REPORT] = report(log) | {"best": best.attempt}
    turn.count(forced_through=1)
    return Accept(Draft(best.judged_text, best.payload), Outcome.FORCED_THROUGH)


def report(log: CorrectionLog) -> dict[str, Any]:
    """What callers of `send_message` and the command line are shown of an attempt."""
    return {
        "session": str(log.session),
        "attempt": log.attempt,
        "outcome": str(log.outcome),
        "judge": log.judge,
        "dimensions": {
            result.dimension: {
                "score": result.score,
                "threshold": float(result.threshold),
                "passed": result.passed,
                "status": str(result.status),
                "reasoning": result.reasoning or result.reason,
            }
            for result in log.results
        },
    }


def _with_key(turn: Turn, attempts: Sequence[CorrectionLog]) -> CorrectionLog | None:
    """The attempt that carries the key of this draft already."""
    return next((log for log in attempts if turn.draft_key and log.draft_key == turn.draft_key), None)


def _is_same_draft(turn: Turn, log: CorrectionLog) -> bool:
    """Whether it is the draft under review and was sent back; a caller may use one key for all drafts of a message."""
    written = turn.original.text if turn.original is not None else None
    same = (log.agent_id, log.channel_id, log.original_text) == (turn.agent.pk, turn.channel.pk, written)
    return same and bool(log.feedback)


def _repeat(turn: Turn, log: CorrectionLog) -> Revise:
    """Answer as for the same draft before."""
    turn.reports[REPORT] = report(log) | {"outcome": str(Outcome.CORRECTED)}
    turn.running[-1].why = "this draft was judged before"
    return Revise(log.feedback, session=str(log.session), outcome=Outcome.CORRECTED)


def _send_back(turn: Turn, draft: Draft, log: CorrectionLog, result: GateResult, *, left: int) -> Revise:
    log.feedback = said = feedback(draft=draft.text, result=result, attempt=log.attempt, left=left)
    try:
        write(log)
    except KeyTaken:
        earlier = _with_key(turn, load_attempts(draft_key=turn.draft_key))
        if earlier is not None and _is_same_draft(turn, earlier):
            return _repeat(turn, earlier)
        log.draft_key = None
        write(log)
    turn.reports[REPORT] = report(log)
    turn.count(sent_back=1)
    return Revise(said, session=str(log.session), outcome=Outcome.CORRECTED)


def feedback(*, draft: str, result: GateResult, attempt: int, left: int, external: bool = False) -> str:
    """Write the feedback on an attempt that failed (AC-7.0.7): findings per failed dimension, and to change more each time.

    The draft and the judge's words are data: quoted line by line, their marker-like text neutralised, so that neither can pass for
    an instruction of ours.

    Args:
        left: Retries that are left, 1 or more; 0 only where another program decides what then happens.
        external: Whether it is another program's draft: no tools of ours, and whether it is said is not our decision.
    """

    def quoted(text: str, limit: int) -> str:
        """Text behind bars, so that none of its lines can stand as one of ours."""
        return "\n".join(f"> {line}" for line in neutral(text.strip(), limit)[0].split("\n")) if text.strip() else ""

    def explained(check: GateDimensionResult) -> dict[str, str]:
        return {
            "label": Dimension(check.dimension).label,
            "score": f"{check.score:g}",
            "threshold": f"{check.threshold:g}",
            "reasoning": quoted(check.reasoning, MAX_FINDING),
            "recommendations": check.recommendations,
        }

    values = {
        "failed": [explained(check) for check in result.failures],
        "checked": len(result.dimensions),
        "draft": quoted(draft, MAX_DRAFT),
        "attempt": attempt,
        "left": left,
        "external": external,
    }
    return render_prompt("gate/feedback", **values)


def is_sampled(message_id: int, rate: Decimal | float) -> bool:
    """Whether a message belongs to the share that is observed: always the same answer for the same message."""
    drawn = int.from_bytes(hashlib.sha256(str(message_id).encode()).digest()[:6], "big") / 2**48
    return drawn < rate


def observe(*, message: Message, rate: Decimal | float) -> ObservedMessage | None:
    """Have a message judged later, if it is sampled; wakes a worker once the message is saved."""
    if not is_sampled(message.pk, rate):
        return None
    observed = ObservedMessage(message=message, session=uuid.uuid4(), whose=message.agent_id or 0)
    observed.save(force_insert=True)
    transaction.on_commit(wake_workers)
    return observed


def committed(turn: Turn, message: Message) -> None:
    """Log the attempt that passed and link its session to the message; in observe mode queue it to be judged."""
    closing: Closing | None = turn.reports.pop(CLOSING, None)
    if closing is None:
        config = config_of(turn)
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            observe(message=message, rate=config["observe_sample_rate"])
        if turn.session:
            _close_unjudged(turn, message)
        return
    session = closing.session
    if closing.log is not None:
        session = write(closing.log, committed=closing.best is None, message=message).session
    if closing.has_earlier and session == closing.session:
        close(session=session, message=message, best=closing.best)


def _close_unjudged(turn: Turn, message: Message) -> None:
    """A message was committed in an open session without a verdict: by the cap on revisions, or with the gate off or broken.

    The session ends with it, so that nothing of it is said again. Where it is the text of an attempt, that one is said.
    """
    try:
        session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel)
    except ValueError:
        return
    said = None
    for attempt in session.attempts:
        if message.text in (attempt.judged_text, attempt.original_text):
            said = attempt.attempt
    if said is not None:
        end(session=session.id, outcome=Outcome.FORCED_THROUGH)
    close(session=session.id, message=message, best=said)


def finish(turn: Turn) -> None:
    """End what the turn left open: commit each best attempt, or note that the agent chose to say nothing."""
    turn.reports.pop(CLOSING, None)
    waiting = {pk: session for pk, session in turn.sessions.items() if session}
    if turn.run is not None and turn.run.attempt > 1:  # an earlier worker may have died between draft and commit
        waiting = open_sessions_of_run(turn.run.pk) | waiting
    if not waiting:
        turn.skip("nothing was left open")
        return
    for pk, key in waiting.items():
        channel = turn.channel if turn.channel.pk == pk else Channel.objects.filter(pk=pk).first()
        if channel is not None:
            _finish_one(turn, channel, key)


def _finish_one(turn: Turn, channel: Channel, key: str) -> None:
    try:
        session = check_session(session=key, agent=turn.agent, channel=channel)
    except ValueError:  # ended by another process, or no session of ours
        return
    turn.sessions.pop(channel.pk, None)
    abandoned = turn.abandoned
    if not abandoned:
        best = best_attempt(session.attempts)
        turn.reports[CLOSING] = Closing(session.id, best=best.attempt, has_earlier=True)
        key, draft = f"gate_session:{session.id}", Draft(best.judged_text, best.payload)
        try:
            with transaction.atomic():
                end(session=session.id, outcome=Outcome.FORCED_THROUGH)
                commit(turn=turn, draft=draft, channel=channel, idempotency_key=key)
            turn.count(forced_through=1)
        except SendRefused:
            abandoned = True
        finally:
            turn.reports.pop(CLOSING, None)
    if abandoned:
        end(session=session.id, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
