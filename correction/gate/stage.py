"""The gate in the pipeline (S-7.0): judges a draft in `review`, logs what was `committed`, and in `finish` ends what a turn left open."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from agents.kit.text.fences import render_prompt, safe_and_cut
from agents.kit.work.batches import why_no_batches
from agents.kit.work.queues import wake_workers
from agents.models import Channel, Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.settings import ResolvedConfig, config_of
from correction.gate.actions import action_of_draft
from correction.gate.check import check_action_quality
from correction.gate.plan import plan_check
from correction.gate.results import GateResult
from correction.gate.sessions import (
    KeyTaken,
    SessionRefused,
    best_attempt,
    check_session,
    end_session,
    load_attempts,
    open_sessions_of_run,
    write_attempt,
)
from correction.models import CorrectionLog, GateMode, GateSession, ObservedMessage, Outcome
from correction.sampling import is_observed
from evaluation.models import Dimension

REPORT = "gate"  # the key of the turn's report that callers are shown
CLOSING = "gate:closing"  # the key of the report that `review` leaves for `committed`
MAX_DRAFT = 1_000  # characters of a draft that feedback quotes
MAX_FINDING = 1_500  # characters of a judge's reasoning that feedback quotes


@dataclass(frozen=True, slots=True)
class Closing:
    """A session that ends when its message is saved; travels from `review` to `committed` in the turn's reports, under `CLOSING`.

    Attributes:
        log: Its last attempt, where that is not stored yet.
        best: The number of the earlier attempt whose text is sent; None where it is that of `log`.
    """

    session: GateSession
    log: CorrectionLog | None = None
    best: int | None = None


def review(turn: Turn, draft: Draft) -> Accept | Revise:
    """Judge a draft (AC-7.0.5) and accept it or send it back; an unjudgeable one is let through.

    A preview, an agent whose gate is off, and one that is only observed: the draft is accepted without a judge. A draft that was sent
    back before under the same key gets the same answer again. Where no retry is left the best attempt is accepted in its place.
    The attempt is stored here only if it is sent back; else `committed` stores it with the message.
    """
    turn.reports.pop(REPORT, None)
    turn.reports.pop(CLOSING, None)
    config = config_of(turn)
    if turn.preview:
        turn.skip("only a preview")
        return Accept(draft)
    if config.gate_is_off or config.gate_mode == GateMode.OBSERVE:
        # A session that was opened before the gate was switched off, or over to observing, is ended by `committed`.
        if config.gate_is_off and not turn.session:
            turn.skip("the gate is off for this agent")
        return Accept(draft)
    attempts = load_attempts(session=turn.session, draft_key=turn.draft_key)
    earlier = _find_attempt_with_key_of(turn, attempts)
    if earlier is not None and _is_same_draft(turn, earlier):
        return _send_back_again(turn, earlier)
    session = _session_of(turn, attempts)
    result = _judge(turn, draft, config, session)
    log = result.log(
        session=session,
        attempt=session.next_number,
        # A key that stands on another draft already cannot stand on this one, too.
        draft_key=turn.draft_key if turn.draft_key and earlier is None else None,
        persona_version_id=turn.persona_version_id,
        original_text=turn.original.text if turn.original is not None else draft.text,
        judged_text=draft.text,
        payload=dict(draft.payload),
    )
    retries_left = config["max_correction_attempts"] - log.attempt + 1
    if result.passed:
        return _accept(turn, draft, log)
    if retries_left > 0:
        return _send_back(turn, draft, log, result, left=retries_left)
    return _force_through(turn, log)


def _session_of(turn: Turn, attempts: Sequence[CorrectionLog]) -> GateSession:
    """Return the open session that the turn continues, or a new one where there is none to continue."""
    if turn.session:
        try:
            return check_session(session=turn.session, agent=turn.agent, channel=turn.channel, attempts=attempts)
        except SessionRefused as error:
            turn.running[-1].why = f"a new session was begun: {error}"[:300]
    return GateSession(agent=turn.agent, channel=turn.channel, run=turn.run)


def _judge(turn: Turn, draft: Draft, config: ResolvedConfig, session: GateSession) -> GateResult:
    """Judge the draft, for at most the seconds per check and those left of the message's total; with none left it passes unjudged."""
    plan = plan_check(agent=turn.agent, config=config)
    seconds_left = float(config["gate_total_deadline_seconds"]) - session.spent_seconds
    result = check_action_quality(
        action_of_draft(turn, draft, plan.propositions),
        plan,
        run_id=turn.run.pk if turn.run is not None else None,
        work_id=session.work_id,
        deadline=min(float(config["gate_deadline_seconds"]), seconds_left),
    )
    turn.count(attempts=1, failed_dimensions=len(result.failures))
    return result


def _accept(turn: Turn, draft: Draft, log: CorrectionLog) -> Accept:
    """Accept a draft that passed; `committed` stores its attempt."""
    turn.reports[CLOSING] = Closing(log.session, log)
    turn.reports[REPORT] = report(log)
    return Accept(draft, Outcome(log.outcome))


def _force_through(turn: Turn, log: CorrectionLog) -> Accept:
    """Accept the best attempt, which need not be the last, where all of them failed (AC-7.0.8)."""
    best = best_attempt([*log.session.attempts, log])
    log.outcome = Outcome.FORCED_THROUGH
    turn.reports[CLOSING] = Closing(log.session, log, best=None if best is log else best.attempt)
    turn.reports[REPORT] = {**report(log), "best": best.attempt}
    turn.count(forced_through=1)
    return Accept(Draft(best.judged_text, best.payload), Outcome.FORCED_THROUGH)


def report(log: CorrectionLog) -> dict[str, Any]:
    """Return what callers of `send_message` and the command line are shown of an attempt.

    The `score` of a dimension is None where it was not judged; `reasoning` says why then.
    """
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


def _find_attempt_with_key_of(turn: Turn, attempts: Sequence[CorrectionLog]) -> CorrectionLog | None:
    """Return the attempt that carries the idempotency key of the turn's draft already; None where none does, or it has no key."""
    if not turn.draft_key:
        return None
    return next((log for log in attempts if log.draft_key == turn.draft_key), None)


def _is_same_draft(turn: Turn, log: CorrectionLog) -> bool:
    """Return whether a logged attempt was sent back and is the draft under review.

    The key alone does not say so: a caller may use one key for all drafts of a message.
    """
    if not log.feedback or turn.original is None:
        return False
    is_same_place = log.session.agent_id == turn.agent.pk and log.session.channel_id == turn.channel.pk
    return is_same_place and log.original_text == turn.original.text


def _send_back_again(turn: Turn, log: CorrectionLog) -> Revise:
    """Answer with the stored feedback, as when the same draft was judged before; nothing is stored."""
    turn.reports[REPORT] = {**report(log), "outcome": str(Outcome.CORRECTED)}
    turn.running[-1].why = "this draft was judged before"
    return Revise(log.feedback, session=str(log.session.uuid), outcome=Outcome.CORRECTED)


def _send_back(turn: Turn, draft: Draft, log: CorrectionLog, result: GateResult, *, left: int) -> Revise:
    """Store a failed attempt and answer with the feedback; `left` retries remain.

    Where another process judged the same draft under the same key meanwhile its answer is given, and this attempt is not stored.
    """
    must_answer = turn.wanted_answer is not None  # then `send_message` is its only tool
    log.feedback = feedback(draft=draft.text, result=result, attempt=log.attempt, left=left, must_answer=must_answer)
    try:
        write_attempt(log)
    except KeyTaken:  # another process logged a draft of this key while this one was judged
        earlier = _find_attempt_with_key_of(turn, load_attempts(draft_key=turn.draft_key))
        if earlier is not None and _is_same_draft(turn, earlier):
            return _send_back_again(turn, earlier)
        log.draft_key = None  # it stands on another draft
        write_attempt(log)
    turn.reports[REPORT] = report(log)
    turn.count(sent_back=1)
    return Revise(log.feedback, session=str(log.session.uuid), outcome=Outcome.CORRECTED)


def feedback(
    *,
    draft: str,
    result: GateResult,
    attempt: int,
    left: int,
    external: bool = False,
    must_answer: bool = False,
) -> str:
    """Write the feedback on an attempt that failed (AC-7.0.7): findings per failed dimension, and to change more each time.

    The draft and the judge's words are data: quoted line by line, their marker-like text neutralised, so that neither can pass for
    an instruction of ours.

    Args:
        attempt: Its number, from 1.
        left: Retries that are left, 1 or more; 0 only where another program decides what then happens.
        external: Whether it is another program's draft: no tools of ours, and whether it is sent is not our decision.
        must_answer: Whether an answer is asked for, as of a seat in a debate: to say nothing is not offered.
    """
    failed = [
        {
            "label": Dimension(dimension_result.dimension).label,
            "score": f"{dimension_result.score:g}",
            "threshold": f"{dimension_result.threshold:g}",
            "reasoning": _quoted(dimension_result.reasoning, MAX_FINDING),
            "recommendations": dimension_result.recommendations,
        }
        for dimension_result in result.failures
    ]
    return render_prompt(
        "gate/feedback",
        failed=failed,
        checked=len(result.dimensions),
        draft=_quoted(draft, MAX_DRAFT),
        attempt=attempt,
        left=left,
        external=external,
        must_answer=must_answer,
    )


def _quoted(text: str, limit: int) -> str:
    """Return text behind bars, so that none of its lines can stand as one of ours."""
    if not text.strip():
        return ""
    harmless = safe_and_cut(text.strip(), limit)
    return "\n".join(f"> {line}" for line in harmless.split("\n"))


def judges_in_batches(config: ResolvedConfig) -> bool:
    """Return whether observed messages of this configuration are judged in batches: where it says so, and the judge takes them."""
    return bool(config["observe_by_batches"]) and not why_no_batches()


def new_observation(
    message: Message, dimensions: Sequence[str] = (), *, rate: Decimal | float = 1.0, in_batch: bool = False
) -> ObservedMessage:
    """Return the row by which a worker judges a message afterwards, not saved yet.

    Args:
        dimensions: Those a person asked for; empty: as configured.
        rate: The share of conversations that is observed, by which this one was drawn; 1: it was not drawn.
        in_batch: Whether it waits for a batch.
    """
    return ObservedMessage(
        message=message,
        session=uuid.uuid4(),
        whose=message.agent_id or 0,
        inclusion_weight=message.channel.inclusion_weight / float(rate),
        dimensions=list(dimensions),
        waits_since=timezone.now() if in_batch else None,
    )


def observe(*, message: Message, rate: Decimal | float, in_batch: bool = False) -> ObservedMessage | None:
    """Queue a message to be judged later, if its conversation is drawn; wake a worker once the message is saved."""
    if not is_observed(message.channel.slug, rate):
        return None
    observed = new_observation(message, rate=rate, in_batch=in_batch)
    observed.save(force_insert=True)
    transaction.on_commit(wake_workers)
    return observed


def committed(turn: Turn, message: Message) -> None:
    """End the gate session of a message that is being saved, and link it to the message; in observe mode queue the message.

    Called in the transaction that saves the message. An attempt that `review` accepted is stored with it.
    """
    closing: Closing | None = turn.reports.pop(CLOSING, None)
    if closing is None:  # the gate accepted nothing: it is off, only observes, or did not see this message
        config = config_of(turn)
        if config.gate_mode == GateMode.OBSERVE and not config.gate_is_off:
            observe(message=message, rate=config["observe_sample_rate"], in_batch=judges_in_batches(config))
        if turn.session:
            _close_unjudged(turn, message)
        return
    if closing.log is not None:
        write_attempt(closing.log, message=message, best=closing.best)
    else:  # the best of attempts that are stored already, sent by `finish`
        end_session(closing.session, outcome=Outcome.FORCED_THROUGH, message=message, sent=closing.best)


def _close_unjudged(turn: Turn, message: Message) -> None:
    """End the turn's open session with a message that has no verdict, so that none of its drafts is committed later.

    Such a message comes from the cap on revisions, or the gate is off or broken. Where it has the text of an attempt, the last such
    attempt counts as sent and the outcome is `FORCED_THROUGH`; else it is `CORRECTED`. A session that is not open stays as it is.
    """
    try:
        session = check_session(session=turn.session, agent=turn.agent, channel=turn.channel)
    except SessionRefused:
        return
    sent_attempt = None
    outcome = Outcome.CORRECTED
    for attempt in session.attempts:
        if message.text in (attempt.judged_text, attempt.original_text):
            sent_attempt = attempt.attempt
            outcome = Outcome.FORCED_THROUGH
    end_session(session, outcome=outcome, message=message, sent=sent_attempt)


def finish(turn: Turn) -> None:
    """End the sessions that the turn left open: send the best attempt of each, or note that the agent chose to say nothing.

    A channel that was deleted is passed over.
    """
    turn.reports.pop(CLOSING, None)
    left_open: dict[int, str] = {}
    if turn.run is not None and turn.run.attempt > 1:  # an earlier worker may have died between draft and commit
        left_open = open_sessions_of_run(turn.run.pk)
    for channel_id, session_id in turn.sessions.items():
        if session_id:
            left_open[channel_id] = session_id
    if not left_open:
        turn.skip("nothing was left open")
        return
    for channel_id, session_id in left_open.items():
        channel: Channel | None = turn.channel
        if turn.channel.pk != channel_id:
            channel = Channel.objects.filter(pk=channel_id).first()
        if channel is not None:
            _finish_session(turn, channel, session_id)


def _finish_session(turn: Turn, channel: Channel, session_id: str) -> None:
    """Send the best attempt of an open session; end it as abandoned where the agent gave up or the attempt may not be sent."""
    try:
        session = check_session(session=session_id, agent=turn.agent, channel=channel)
    except SessionRefused:  # another process ended it, or it is no session of this agent's
        return
    turn.sessions.pop(channel.pk, None)
    if turn.abandoned or not _commit_best(turn, channel, session):
        end_session(session, outcome=Outcome.ABANDONED)
        turn.count(abandoned=1)


def _commit_best(turn: Turn, channel: Channel, session: GateSession) -> bool:
    """Send the session's best attempt, which ends the session; return False where it may not be sent."""
    best = best_attempt(session.attempts)
    # `commit` saves the message and calls `committed` of this module, which ends the session as this says.
    turn.reports[CLOSING] = Closing(session, best=best.attempt)
    try:
        commit(
            turn=turn,
            draft=Draft(best.judged_text, best.payload),
            channel=channel,
            idempotency_key=session.work_id,
        )
    except SendRefused:
        return False
    finally:
        turn.reports.pop(CLOSING, None)
    turn.count(forced_through=1)
    return True
