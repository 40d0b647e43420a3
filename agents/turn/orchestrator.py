"""Taking turns: claim one, let the model act with its tools until it ends, and leave nothing blocked, whatever happens."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import dataclass

import sentry_sdk
from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from agents import llm
from agents.llm.extraction import storable
from agents.log_context import logging_about
from agents.models import ChannelMember, Run, owner_is_dead
from agents.turn.admission import RequiredStageFailed
from agents.turn.exchange import load
from agents.turn.pipeline import StageFailed, pipeline
from agents.turn.prompt import build_prompt, new_turn
from agents.turn.request import build_request
from agents.turn.session import ClaimLost, Session, lease
from agents.turn.starting import TurnRefused, start_turn
from agents.work.outages import is_outage

__all__ = ["TurnRefused", "cancel", "run_turn", "start_turn", "work_one"]

logger = logging.getLogger(__name__)

Status, StopReason = Run.Status, Run.StopReason
MALFORMED_IN_A_ROW = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """How a turn ends."""

    status: str
    stop_reason: str
    error: str = ""


ENDED = Ending(Status.COMPLETED, StopReason.END_TURN)
CANCELLED = Ending(Status.CANCELLED, StopReason.CANCELLED, "cancelled on request")
NO_TOOL_CALL = Ending(
    Status.COMPLETED, StopReason.NO_TOOL_CALL, "the model answered with text and used no tool: nothing was said"
)


def run_turn(run: Run, *, owner: str) -> Run:
    """Claim a queued or lost turn, unless `owner` has it already, and take it to its end.

    An interrupted turn (Ctrl-C, SIGTERM) is handed back; a crash marks it errored. Neither blocks the agent.

    Args:
        run: The turn. One that another process holds, or whose agent is taking another turn, is left alone.
        owner: The claim's name, see `owner_name`.

    Returns:
        The run as it is now.

    Raises:
        Exception: What crashed the turn, after the run was marked errored.
    """
    if not run.is_leased_by(owner) and not run.acquire(owner=owner, lease=lease()):
        run.refresh_from_db()
        return run
    try:
        about = logging_about(run=run.pk, agent=run.agent_id)
        with about, sentry_sdk.start_span(op="agents.turn", name="take a turn") as span:
            span.set_data("run", run.pk)
            span.set_data("agent", run.agent_id)
            _take(run, owner)
            span.set_data("stop_reason", run.stop_reason)
    except ClaimLost as lost:
        logger.warning("%s", lost)
        run.refresh_from_db()
    except Exception as error:
        if is_outage(error):  # no fault of the turn: it is taken up where it stopped
            run.finish(owner=owner, status=Status.PENDING)
            raise
        sentry_sdk.capture_exception(error)
        run.finish(owner=owner, status=Status.ERRORED, error=_crash(error), stop_reason=StopReason.ERROR)
        raise
    except BaseException:  # told to stop: handed back at once instead of waiting for the lease to run out
        run.finish(owner=owner, status=Status.PENDING)
        raise
    return run


def work_one(*, owner: str) -> bool:
    """Claim and take the queued or lost turn whose turn it is; whether there was one. What `manage.py work` calls.

    Turns of an agent that is busy with another one wait, and hold up nobody else's.
    """
    for run in _claimable():
        if run.acquire(owner=owner, lease=lease()):
            run.note_served()
            with sentry_sdk.start_transaction(op="agents.work", name="turn"):  # a span alone would be sent nowhere
                run_turn(run, owner=owner)
            return True
    return False


def cancel(run: Run) -> Run:
    """Ask for a turn to end: at once when it has not begun, else before its next step. One that has ended stays as it is."""
    waiting = Run.objects.filter(pk=run.pk, status=Status.PENDING, attempt=0)
    if not waiting.update(
        status=Status.CANCELLED,
        stop_reason=StopReason.CANCELLED,
        cancel_requested=True,
        error=CANCELLED.error,
        finished_at=timezone.now(),
    ):
        Run.objects.filter(pk=run.pk, status__in=(Status.PENDING, Status.RUNNING)).update(cancel_requested=True)
    run.refresh_from_db()
    return run


def _claimable() -> list[Run]:
    """The turns that may be taken now, those that were lost first: they hold their agent until they end."""
    now, dead, busy = timezone.now(), [], []
    for run in Run.objects.filter(status=Status.RUNNING).only("agent_id", "lease_owner", "lease_expires_at"):
        if owner_is_dead(run.lease_owner):
            dead.append(run.pk)
        elif run.lease_expires_at is not None and run.lease_expires_at >= now:
            busy.append(run.agent_id)
    free = Run.objects.filter(Run.leasable() | Q(pk__in=dead)).exclude(agent_id__in=busy)
    return Run.in_turn(free, lost_first=True)


def _crash(error: Exception) -> str:
    return str(storable(f"{type(error).__name__}: {error}"[:1000]))


def _take(run: Run, owner: str) -> None:
    run.refresh_from_db()
    if hindrance := _hindrance(run):
        run.finish(owner=owner, status=Status.FAILED, error=hindrance, stop_reason=StopReason.ERROR)
        return
    assert run.channel is not None  # noqa: S101 (for the type checker)
    turn = new_turn(agent=run.agent, channel=run.channel, run=run, trigger=run.trigger, overrides=run.overrides)
    session = Session(run, owner, turn, load(run, turn), list(run.trace))
    try:
        ending = _go_on(session)
    except ClaimLost:
        raise
    except Exception as error:
        if is_outage(error):
            raise
        with suppress(StageFailed):
            pipeline(turn.overrides).finish(turn)
        run.finish(
            owner=owner, status=Status.ERRORED, error=_crash(error), stop_reason=StopReason.ERROR, trace=session.trace
        )
        raise
    _end(session, ending)


def _hindrance(run: Run) -> str:
    """Why the turn cannot be taken (any more); empty when it can."""
    if run.channel is None:
        return "the channel of this turn was deleted"
    if not run.agent.is_active:
        return f"agent {run.agent.slug!r} is inactive; allowed: active agents"
    if not ChannelMember.objects.filter(agent=run.agent, channel=run.channel).exists():
        return f"agent {run.agent.slug!r} is no longer a member of channel {run.channel.slug!r}"
    return ""


def _go_on(session: Session) -> Ending:
    """The loop: carry out what the model asked for, ask it again, until it ends or something ends it."""
    exchange, agent, malformed = session.exchange, session.turn.agent, 0
    try:
        if not session.keep():
            return CANCELLED
        if not exchange.begun:
            draft = pipeline(session.turn.overrides).prepare(session.turn)
            session.begin(build_prompt(session.turn, prompt=session.run.prompt), draft)
        while True:
            while exchange.draft is not None or exchange.pending:
                if not session.keep():
                    return CANCELLED
                session.act()
            if exchange.ended or exchange.answered:
                return ENDED if exchange.ended or exchange.used_tools else NO_TOOL_CALL
            if exchange.model_calls >= agent.max_turns:
                return Ending(
                    Status.COMPLETED,
                    StopReason.MAX_STEPS,
                    f"stopped after {agent.max_turns} model calls (max_turns of {agent.slug})",
                )
            if not session.keep():
                return CANCELLED
            begun = time.perf_counter()
            reply = llm.complete(build_request(session), deadline=settings.TURN_STEP_DEADLINE)
            session.answered(reply, begun)
            if reply.ok:
                malformed = 0
                continue
            if _said_nothing_more(reply) and exchange.used_tools:
                return ENDED
            malformed += reply.status is llm.Status.MALFORMED
            if reply.status is not llm.Status.MALFORMED or malformed >= MALFORMED_IN_A_ROW:
                return Ending(Status.FAILED, StopReason.ERROR, f"the model call failed: {reply.status}: {reply.error}")
    except (StageFailed, RequiredStageFailed) as error:
        return Ending(Status.FAILED, StopReason.ERROR, str(error))


def _said_nothing_more(reply: llm.Reply) -> bool:
    """An empty answer after a tool: how some models end their turn."""
    return reply.status is llm.Status.MALFORMED and reply.stop_reason == "end_turn" and not reply.text.strip()


def _end(session: Session, ending: Ending) -> None:
    """Let the stages finish, and store how the turn ended."""
    turn, run = session.turn, session.run
    if ending is CANCELLED:
        turn.abandoned = True  # nothing more is to be said
    session.keep()
    try:
        pipeline(turn.overrides).finish(turn)
    except StageFailed as error:
        ending = Ending(Status.FAILED, StopReason.ERROR, str(error))
    run.finish(
        owner=session.owner,
        status=ending.status,
        error=str(storable(ending.error)),
        stop_reason=ending.stop_reason,
        trace=session.trace,
    )
