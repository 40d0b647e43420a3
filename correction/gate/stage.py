"""The gate in the pipeline (S-7.0): judges a draft in `review`, logs what was `committed`, and in `finish` ends what a turn left open.

A gate session is the attempts at one message. Its state is its row, so any process can continue it; rows are read and written in short
statements, never around a model call. Of those that write the same attempt at once one is first, by the constraint of the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max, Q
from django.utils import timezone
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.text.fences import render_prompt, safe_and_cut
from agents.kit.text.storable import storable
from agents.kit.work.batches import why_no_batches
from agents.kit.work.queues import wake_workers
from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Accept, Draft, Revise, Turn
from agents.turn.send_message import SendRefused, commit
from correction.config.settings import ResolvedConfig, config_of
from correction.gate.check import GateResult, action_of_draft, check_action_quality, plan_check, scores_of
from correction.models import CorrectionLog, GateDimensionResult, GateMode, GateSession, ObservedMessage, Outcome
from correction.sampling import is_observed
from evaluation.models import Dimension

MOST_LOST_RACES = 20  # each lost race means that another process won one: as many as may continue one session at once


class KeyTaken(Exception):
    """Refusal of a draft that was sent back: its idempotency key stands on another attempt already."""


class SessionRefused(ValueError):
    """A session cannot be continued; the sentence says why."""


def best_attempt(attempts: Sequence[CorrectionLog]) -> CorrectionLog:
    """Return the attempt to commit when none passed (AC-7.0.9): the one with the highest mean score; of equal ones the latest.

    The mean is over the dimensions that have a score in every attempt that was scored at all, so that an attempt gains nothing by more
    scored dimensions; where there is no such dimension it is over each attempt's own. An attempt with no score at all comes last.

    Raises:
        ValueError: There is no attempt.
    """
    if not attempts:
        raise ValueError("no attempt to choose from")
    dimensions_of_scored_attempts = []
    for attempt in attempts:
        scores = scores_of(attempt.results)
        if scores:
            dimensions_of_scored_attempts.append(frozenset(scores))
    shared = frozenset[str]()
    if dimensions_of_scored_attempts:
        shared = frozenset.intersection(*dimensions_of_scored_attempts)
    # Over the same dimensions the highest mean is the highest sum.
    return max(attempts, key=lambda attempt: (_mean_score(attempt, shared), attempt.attempt))


def _mean_score(attempt: CorrectionLog, shared_dimensions: Collection[str]) -> float:
    """Return the mean over these dimensions, or over all where none is scored; -1 without any score."""
    scores = scores_of(attempt.results)
    counted = [score for dimension, score in scores.items() if dimension in shared_dimensions]
    if not counted:
        counted = list(scores.values())
    if not counted:
        return -1.0
    return round(sum(counted) / len(counted), 6)  # rounded, for 0.1 + 0.2 must not win against 0.3


def load_attempts(
    *, session: str = "", draft_key: str = "", source: str = GateSession.Source.GATE
) -> tuple[CorrectionLog, ...]:
    """Return the attempts of a session, and the one with this idempotency key, by number, with their results; in one query.

    Args:
        session: Its id; what is no id, or the id of a session of another source, brings nothing.
        draft_key: Of one attempt, which may belong to another session; empty where none is looked for.
    """
    session_id = as_uuid(session)
    wanted = Q()
    if session_id is not None:
        wanted |= Q(log__session__uuid=session_id)
    if draft_key:
        wanted |= Q(log__draft_key=draft_key)
    if not wanted:
        return ()
    rows = GateDimensionResult.objects.filter(wanted, log__session__source=source).select_related("log__session")
    logs: dict[int, CorrectionLog] = {}
    for row in rows.order_by("log__attempt", "log_id", "pk"):
        log = logs.setdefault(row.log_id, row.log)
        log.results = (*log.results, row)
    return tuple(logs.values())


def find_open_session(
    session: str, attempts: Sequence[CorrectionLog], *, problem: Callable[[CorrectionLog], str]
) -> GateSession:
    """Return the open session of this id among these attempts, for the next attempt at its message.

    Args:
        attempts: Loaded ones, by number; those of other sessions are passed over.
        problem: Says of the session's last attempt why the session is not the caller's, as the end of a sentence; empty where it is.

    Returns:
        The session, with its `attempts` set.

    Raises:
        SessionRefused: It cannot be continued: not an id, unknown, another's, or closed. Names the value and why.
    """
    session_id = as_uuid(session)
    if session_id is None:
        raise SessionRefused(
            f"session {session[:60]!r} is not a session id; allowed: the id that a rejected draft came with"
        )
    own_attempts = tuple(attempt for attempt in attempts if attempt.session.uuid == session_id)
    if not own_attempts:
        raise SessionRefused(f"session {session_id} is not known; leave it out to begin a new message")
    last_attempt = own_attempts[-1]
    why = problem(last_attempt)
    if why:
        raise SessionRefused(f"session {session_id} {why}")
    opened = last_attempt.session
    if opened.outcome:
        closed = opened.get_outcome_display()
        raise SessionRefused(f"session {session_id} is closed ({closed}); leave it out to begin a new message")
    opened.attempts = own_attempts
    return opened


def check_session(
    *, session: str, agent: Agent, channel: Channel, attempts: Sequence[CorrectionLog] | None = None
) -> GateSession:
    """Return the open session of this id, for the next attempt of this agent in this channel.

    Args:
        attempts: Those of the session, where they were loaded already; None: they are read here.

    Raises:
        SessionRefused: It cannot be continued; see `find_open_session`.
    """

    def problem(last_attempt: CorrectionLog) -> str:
        """Say why the session is not that of this agent and channel; empty where it is."""
        if last_attempt.session.agent_id != agent.pk:
            return f"belongs to another agent, not to {agent.slug!r}"
        if last_attempt.session.channel_id != channel.pk:
            return f"belongs to a message for another channel, not for {channel.slug!r}"
        return ""

    if attempts is None:
        attempts = load_attempts(session=session)
    return find_open_session(session, attempts, problem=problem)


def as_uuid(session: str) -> uuid.UUID | None:
    """Return the id that a text spells; None where it spells none."""
    try:
        return uuid.UUID(session)
    except ValueError:
        return None


def open_sessions_of_run(run_id: int) -> dict[int, str]:
    """Return the sessions a run left open by the keys of their channels: a run that is resumed must end them."""
    left_open = GateSession.objects.filter(run_id=run_id, source=GateSession.Source.GATE, outcome="")
    rows = left_open.filter(channel__isnull=False).order_by("pk").values_list("channel", "uuid")
    return {channel: str(key) for channel, key in rows if channel is not None}


def write_attempt(log: CorrectionLog, *, message: Message | None = None, best: int | None = None) -> CorrectionLog:
    """Store an attempt with its verdicts, each try in one transaction; return it as it was numbered.

    A session that is not saved yet begins with it. Any outcome but `CORRECTED` (sent back) ends the session.
    Where another process was faster with the same attempt of the same session this one becomes the next; where it ended the
    session, this one begins a session of its own. A key that another attempt carries is left out, unless this one is sent back.

    Args:
        message: The message that is sent, if this attempt ends the session with one.
        best: The earlier attempt whose text the message has; None = this one's.

    Raises:
        KeyTaken: Another process logged a draft of the same idempotency key meanwhile; only for a draft that was sent back.
        IntegrityError: A new session has an id that is stored already (an observed message judged twice), or a row referred to is gone.
    """
    log.feedback = storable(log.feedback)
    for _ in range(MOST_LOST_RACES):
        try:
            return _insert_attempt(log, message, best)
        except IntegrityError:
            was_other_process = _step_aside(log)  # it has another number, session or key now, for the next try
            if not was_other_process:
                raise
    return _insert_attempt(log, message, best)


def _insert_attempt(log: CorrectionLog, message: Message | None, best: int | None) -> CorrectionLog:
    """Write an attempt with its verdicts and its session, numbered as they are.

    Any outcome but `CORRECTED` (sent back) ends the session, with `message` where one is sent. The `attempt_observers` that apps declare
    are called with it, in the same transaction.

    Raises:
        IntegrityError: Another process wrote this attempt or key, or ended the session; or a row it refers to is gone.
    """
    session = log.session
    is_new_session = session.pk is None
    log.pk = None  # an earlier try may have been rolled back
    if log.outcome != Outcome.CORRECTED:
        session.outcome = log.outcome
        session.message = message
        session.sent = _number_of_sent_attempt(log, message, best)
    try:
        with transaction.atomic():
            if is_new_session:
                session.save(force_insert=True)
            elif not _end_or_lock_if_open(session):
                raise IntegrityError("another process ended the session")
            log.session = session
            log.save(force_insert=True)
            for result in log.results:
                result.log = log
            GateDimensionResult.objects.bulk_create(log.results)
            for path in declared_list("attempt_observers"):
                import_string(path)(log)
    except IntegrityError:
        if is_new_session:
            session.pk = None  # it was rolled back, too
        raise
    return log


def _number_of_sent_attempt(log: CorrectionLog, message: Message | None, best: int | None) -> int | None:
    """Return the number of the attempt whose text the message has; None where none of this session has it."""
    if message is None:
        return None
    if best is None:
        return log.attempt
    # After a lost race the log may begin a session of its own: then the best attempt is one of the old session.
    return best if best < log.attempt else None


def _end_or_lock_if_open(session: GateSession) -> bool:
    """Store how an open session ends, or lock it while it goes on; return False where another process ended it."""
    still_open = GateSession.objects.filter(pk=session.pk, outcome="")
    if not session.outcome:
        return bool(still_open.select_for_update(no_key=True).values_list("pk"))
    return bool(still_open.update(outcome=session.outcome, message=session.message, sent=session.sent))


def _step_aside(log: CorrectionLog) -> bool:
    """Change what of the attempt another process has taken meanwhile, for another try; return False where it took nothing.

    A key that stands on another attempt is left out, an ended session replaced by a new one, else the number is the next.

    Raises:
        KeyTaken: The key stands on another draft that was sent back.
    """
    if log.draft_key and CorrectionLog.objects.filter(draft_key=log.draft_key).exists():
        if log.outcome == Outcome.CORRECTED:
            raise KeyTaken(log.draft_key)
        log.draft_key = None
        return True
    stored = GateSession.objects.filter(pk=log.session.pk).annotate(last=Max("logs__attempt")).first()
    if stored is None:
        return False
    if stored.outcome:
        _begin_new_session(log)
    else:
        log.attempt = stored.last + 1
    return True


def _begin_new_session(log: CorrectionLog) -> None:
    """Make the attempt the first of a session like its own, which another process ended."""
    session = log.session
    session.pk = None
    session.uuid = uuid.uuid4()
    session.outcome = ""
    session.sent = None
    log.attempt = 1


def end_session(
    session: GateSession, *, outcome: Outcome, message: Message | None = None, sent: int | None = None
) -> bool:
    """End an open session with its last stored attempt; return False, and store nothing, when another process ended it.

    Args:
        outcome: Of that attempt and the session; `CORRECTED` = something else was sent than the drafts that were sent back.
        message: What was sent; None where nothing was.
        sent: The number of the attempt whose text it has; None where none has it.
    """
    session.outcome = outcome
    session.message = message
    session.sent = sent
    with transaction.atomic():
        if not _end_or_lock_if_open(session):
            return False
        last = CorrectionLog.objects.filter(session=session.pk).order_by("-attempt").values("pk")[:1]
        CorrectionLog.objects.filter(pk__in=last).update(outcome=outcome)
    return True


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
