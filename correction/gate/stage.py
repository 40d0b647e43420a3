"""The gate in the pipeline (S-7.0): judges a draft in `review`, logs what was `committed`, and in `finish` ends what a turn left open.

A gate session is the attempts at one message. Its state is its row, so any process can continue it; rows are read and written in short
statements, never around a model call. Of those that write the same attempt at once one is first, by the constraint of the table.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max, Q

from agents.kit.text.fences import neutral, render_prompt
from agents.kit.text.storable import storable
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.settings import config_of
from correction.gate.check import GateResult, action_of_draft, check_action_quality, scores_of
from correction.models import CorrectionLog, GateDimensionResult, GateMode, GateSession, ObservedMessage, Outcome
from evaluation.models import Dimension

TRIES = 20  # each lost race means that another process won one: as many as may continue one session at once


class KeyTaken(Exception):
    """The idempotency key of a draft that was sent back stands on another attempt already."""


class SessionRefused(ValueError):
    """A session cannot be continued; the sentence says why."""


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
    *, session: str = "", draft_key: str = "", source: str = GateSession.Source.GATE
) -> tuple[CorrectionLog, ...]:
    """The attempts of a session, and the one with this idempotency key, oldest first, with their results; one query.

    An id that is none, or that of a session of another source, brings nothing.
    """
    key = as_uuid(session)
    if key is None and not draft_key:
        return ()
    wanted = Q(log__draft_key=draft_key) if draft_key else Q()
    if key is not None:
        wanted |= Q(log__session__uuid=key)
    rows = GateDimensionResult.objects.filter(wanted, log__session__source=source).select_related("log__session")
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
    own = tuple(attempt for attempt in attempts if attempt.session.uuid == key)
    if not own:
        raise SessionRefused(f"session {key} is not known; leave it out to begin a new message")
    if why := problem(own[-1]):
        raise SessionRefused(f"session {key} {why}")
    opened = own[-1].session
    if opened.outcome:
        closed = opened.get_outcome_display()
        raise SessionRefused(f"session {key} is closed ({closed}); leave it out to begin a new message")
    opened.attempts = own
    return opened


def check_session(
    *, session: str, agent: Agent, channel: Channel, attempts: Sequence[CorrectionLog] | None = None
) -> GateSession:
    """The open session of this id, for the next attempt of this agent in this channel; of `attempts` where they were loaded already.

    Raises:
        SessionRefused: It cannot be continued; see `open_session`.
    """

    def problem(last: CorrectionLog) -> str:
        if last.session.agent_id != agent.pk:
            return f"belongs to another agent, not to {agent.slug!r}"
        other = last.session.channel_id != channel.pk
        return f"belongs to a message for another channel, not for {channel.slug!r}" if other else ""

    return open_session(session, load_attempts(session=session) if attempts is None else attempts, problem=problem)


def as_uuid(session: str) -> uuid.UUID | None:
    """The id that a text spells; None where it spells none."""
    try:
        return uuid.UUID(session) if session else None
    except ValueError:
        return None


def open_sessions_of_run(run_id: int) -> dict[int, str]:
    """Sessions a run left open, by the ids of their channels: what a run that is resumed must bring to an end."""
    left_open = GateSession.objects.filter(run_id=run_id, source=GateSession.Source.GATE, outcome="")
    rows = left_open.filter(channel__isnull=False).order_by("pk").values_list("channel", "uuid")
    return {channel: str(key) for channel, key in rows if channel is not None}


def write(log: CorrectionLog, *, message: Message | None = None, best: int | None = None) -> CorrectionLog:
    """Store an attempt with its verdicts, and of its session what it changes: it is begun or ended by it. One transaction.

    Where another process was faster with the same attempt of the same session this one becomes the next; where it ended the
    session, this one stands in a session of its own. No row is lost.

    Args:
        message: What is said in the end, if this attempt ends the session with something said.
        best: The earlier attempt whose text that has; None = this one's.

    Raises:
        KeyTaken: Another process logged a draft of the same idempotency key meanwhile; only for a draft that was sent back.
        IntegrityError: Of a message said already, and logged before; or a row it refers to is gone.
    """
    log.feedback = storable(log.feedback)
    for _ in range(TRIES):
        try:
            return _store(log, message, best)
        except IntegrityError:
            if not _renumber(log):
                raise
    return _store(log, message, best)


def _store(log: CorrectionLog, message: Message | None, best: int | None) -> CorrectionLog:
    """Write the rows as they are numbered now.

    Raises:
        IntegrityError: This attempt or key is there already, or the session was ended.
    """
    session = log.session
    log.pk = None  # an earlier try may have been rolled back
    if log.outcome != Outcome.CORRECTED:
        session.outcome = log.outcome
        session.message = message
        if message is not None and (best is None or best < log.attempt):  # else that attempt is another session's
            session.sent = best or log.attempt
    is_new = session.pk is None
    try:
        with transaction.atomic():
            if is_new:
                session.save(force_insert=True)
            elif not _continue_row(session):
                raise IntegrityError("another process ended the session")
            log.session = session
            log.save(force_insert=True)
            for result in log.results:
                result.log = log
            GateDimensionResult.objects.bulk_create(log.results)
    except IntegrityError:
        if is_new:
            session.pk = None
        raise
    return log


def _continue_row(session: GateSession) -> bool:
    """Store how an open session ends, or lock it while it goes on; False where another process ended it."""
    still_open = GateSession.objects.filter(pk=session.pk, outcome="")
    if not session.outcome:
        return bool(still_open.select_for_update(no_key=True).values_list("pk"))
    return bool(still_open.update(outcome=session.outcome, message=session.message, sent=session.sent))


def _renumber(log: CorrectionLog) -> bool:
    """Give the attempt a number, session or key that is free now; return False where none of them was in the way."""
    if log.draft_key and CorrectionLog.objects.filter(draft_key=log.draft_key).exists():
        if log.outcome == Outcome.CORRECTED:
            raise KeyTaken(log.draft_key)
        log.draft_key = None
        return True
    session = log.session
    stored = GateSession.objects.filter(pk=session.pk).annotate(last=Max("logs__attempt")).first()
    if stored is None:
        return False
    if stored.outcome:
        session.pk = None
        session.uuid = uuid.uuid4()
        session.outcome = ""
        session.sent = None
        log.attempt = 1
    else:
        log.attempt = stored.last + 1
    return True


def end(session: GateSession, *, outcome: Outcome, message: Message | None = None, sent: int | None = None) -> bool:
    """End an open session with its last attempt; False when another process ended it.

    Args:
        outcome: Of that attempt and the session; `CORRECTED` = something else was said than what was sent back.
        message: What was said.
        sent: The attempt whose text it has.
    """
    session.outcome = outcome
    session.message = message
    session.sent = sent
    with transaction.atomic():
        if not _continue_row(session):
            return False
        last = CorrectionLog.objects.filter(session=session.pk).order_by("-attempt").values("pk")[:1]
        CorrectionLog.objects.filter(pk__in=last).update(outcome=outcome)
    return True


REPORT, CLOSING = "gate", "gate:closing"
MAX_DRAFT, MAX_FINDING = 1_000, 1_500  # characters quoted


@dataclass(frozen=True, slots=True)
class Closing:
    """What is to be written when a session's message is saved: its last attempt, if that is not logged yet, and which one is said.

    Travels from `review` to `committed` on the turn, under `CLOSING`.
    """

    session: GateSession
    log: CorrectionLog | None = None
    best: int | None = None


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
    session = GateSession(agent=turn.agent, channel=turn.channel, run=turn.run)
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
        work_id=session.work_id,
        deadline=min(each, total - session.spent_seconds),
        action=lambda propositions: action_of_draft(turn, draft, propositions),
    )
    turn.count(attempts=1, failed_dimensions=len(result.failures))
    number, allowed = session.next_number, config["max_correction_attempts"]
    log = result.log(
        session=session,
        attempt=number,
        draft_key=(turn.draft_key if earlier is None else "") or None,
        persona_version_id=turn.persona_version_id,
        original_text=turn.original.text if turn.original is not None else draft.text,
        judged_text=draft.text,
        payload=dict(draft.payload),
    )
    if not result.passed and number <= allowed:
        return _send_back(turn, draft, log, result, left=allowed - number + 1)
    if result.passed:
        turn.reports[CLOSING] = Closing(session, log)
        turn.reports[REPORT] = report(log)
        return Accept(draft, Outcome(log.outcome))
    # The attempts are spent: the best of them is said (AC-7.0.8), which need not be the last.
    best = best_attempt([*session.attempts, log])
    log.outcome = Outcome.FORCED_THROUGH
    other = None if best is log else best.attempt
    turn.reports[CLOSING] = Closing(session, log, best=other)
    turn.reports[REPORT] = report(log) | {"best": best.attempt}
    turn.count(forced_through=1)
    return Accept(Draft(best.judged_text, best.payload), Outcome.FORCED_THROUGH)


def report(log: CorrectionLog) -> dict[str, Any]:
    """What callers of `send_message` and the command line are shown of an attempt."""
    return {
        "session": str(log.session.uuid),
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
    session = log.session
    same = (session.agent_id, session.channel_id, log.original_text) == (turn.agent.pk, turn.channel.pk, written)
    return same and bool(log.feedback)


def _repeat(turn: Turn, log: CorrectionLog) -> Revise:
    """Answer as for the same draft before."""
    turn.reports[REPORT] = report(log) | {"outcome": str(Outcome.CORRECTED)}
    turn.running[-1].why = "this draft was judged before"
    return Revise(log.feedback, session=str(log.session.uuid), outcome=Outcome.CORRECTED)


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
    return Revise(said, session=str(log.session.uuid), outcome=Outcome.CORRECTED)


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
    if closing.log is not None:
        write(closing.log, message=message, best=closing.best)
    else:
        end(closing.session, outcome=Outcome.FORCED_THROUGH, message=message, sent=closing.best)


def _close_unjudged(turn: Turn, message: Message) -> None:
    """A message was committed in an open session without a verdict: by the cap on revisions, or with the gate off or broken.

    The session ends with it, so that nothing of it is said again. Where it is the text of an attempt, that one is said.
    """
    try:
        session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel)
    except ValueError:
        return
    sent = None
    for attempt in session.attempts:
        if message.text in (attempt.judged_text, attempt.original_text):
            sent = attempt.attempt
    outcome = Outcome.CORRECTED if sent is None else Outcome.FORCED_THROUGH
    end(session, outcome=outcome, message=message, sent=sent)


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
        turn.reports[CLOSING] = Closing(session, best=best.attempt)
        draft = Draft(best.judged_text, best.payload)
        try:
            commit(turn=turn, draft=draft, channel=channel, idempotency_key=session.work_id)
            turn.count(forced_through=1)
        except SendRefused:
            abandoned = True
        finally:
            turn.reports.pop(CLOSING, None)
    if abandoned:
        end(session, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)
