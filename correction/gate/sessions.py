"""A gate session is the attempts at one message: how attempts are written, found again and ended.

Its state is its row, so any process can continue it; rows are read and written in short statements, never around a model call. Of those
that write the same attempt at once one is first, by the constraint of the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence

from django.db import IntegrityError, transaction
from django.db.models import Max, Q
from django.utils.module_loading import import_string

from agents.kit.capability import declared_list
from agents.kit.text.storable import storable
from agents.models import Agent, Channel, Message
from correction.gate.results import scores_of
from correction.models import CorrectionLog, GateDimensionResult, GateSession, Outcome

MOST_LOST_RACES = 20  # each lost race means that another process won one: as many as may continue one session at once


class KeyTaken(Exception):
    """Refusal of a draft that was sent back: its idempotency key stands on another attempt already."""


class SessionRefused(ValueError):
    """A session cannot be continued; the sentence says why."""


def load_attempts(
    *, session: str = "", draft_key: str = "", source: str = GateSession.Source.GATE
) -> tuple[CorrectionLog, ...]:
    """Return the attempts of a session, and the one with this idempotency key, by number, with their results; in one query.

    Args:
        session: Its id; what is no id, or the id of a session of another source, brings nothing.
        draft_key: Of one attempt, which may belong to another session; empty where none is looked for.
    """
    session_id = as_uuid(session)
    condition = Q()
    if session_id is not None:
        condition |= Q(log__session__uuid=session_id)
    if draft_key:
        condition |= Q(log__draft_key=draft_key)
    if not condition:
        return ()
    rows = GateDimensionResult.objects.filter(condition, log__session__source=source).select_related("log__session")
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
