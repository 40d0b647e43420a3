"""Taking turns: claim one, let the model act with its tools until it ends, and leave nothing blocked, whatever happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from agents import llm
from agents.llm.extraction import storable
from agents.log_context import logging_about
from agents.models import ChannelMember, Message, Run, RunMessage, RunStep, owner_is_dead
from agents.turn.pipeline import Draft, StageFailed, Turn, model_of, pipeline, scene_of
from agents.turn.prompt import Prompt, build_prompt, new_turn
from agents.turn.send_message import RequiredStageFailed, TurnRefused, start_turn
from agents.turn.tools import Performed, calls_models, perform, send_draft, tool_definitions
from agents.work.outages import is_outage

Role = RunMessage.Role


@dataclass(slots=True)
class Exchange:
    """What was said between the turn and the model so far.

    Attributes:
        system: The system prompt; empty before the turn has begun.
        turns: What was exchanged, as the next request needs it.
        nonce: The random text in the prompt's fences.
        number: Of the last recorded message. `step`: of the last recorded step. `model_calls`: how many of the steps those were.
        pending: The tool calls of the last reply that were not carried out yet, in order.
        draft: What a stage answered at once in place of the model, while it is not sent.
        used_tools: Whether the model used any tool. `sent`: how often it said something.
        rejected: Texts of this turn that were sent back.
        ended: Whether a tool ended the turn. `answered`: whether the last reply asked for no tool.
    """

    system: tuple[llm.Block, ...] = ()
    turns: list[llm.Turn] = field(default_factory=list)
    nonce: str = ""
    number: int = 0
    step: int = 0
    model_calls: int = 0
    pending: list[llm.ToolCall] = field(default_factory=list)
    draft: Draft | None = None
    used_tools: bool = False
    sent: int = 0
    rejected: list[str] = field(default_factory=list)
    ended: bool = False
    answered: bool = False

    @property
    def begun(self) -> bool:
        return bool(self.turns)


def load(run: Run, turn: Turn) -> Exchange:
    """Rebuild the exchange of a run from its rows, and in `turn` what the tools' answers say of it."""
    exchange = Exchange()
    for row in RunMessage.objects.filter(run=run).order_by("number"):
        exchange.number = row.number
        _replay(row, exchange, turn)
    steps = RunStep.objects.filter(run=run).values_list("number", "kind")
    exchange.step = max((number for number, _ in steps), default=0)
    exchange.model_calls = sum(kind == "model_call" for _, kind in steps)
    return exchange


def _replay(row: RunMessage, exchange: Exchange, turn: Turn) -> None:
    content = row.content
    if row.role == Role.SYSTEM:
        exchange.system, exchange.nonce = _blocks(content), content["nonce"]
        turn.persona_version_id = content["persona_version"]
    elif row.role == Role.USER:
        exchange.turns.append(llm.Turn("user", _blocks(content)))
    elif row.role == Role.ASSISTANT and "draft" in content:
        exchange.draft = Draft(content["draft"]["text"], content["draft"]["payload"])
    elif row.role == Role.ASSISTANT:
        calls = tuple(llm.ToolCall(call["id"], call["name"], call["input"]) for call in content["tool_calls"])
        add_reply(exchange, content["text"], calls)
    else:
        add_result(exchange, content)
        _restore(turn, content)


def add_reply(exchange: Exchange, text: str, calls: tuple[llm.ToolCall, ...]) -> None:
    """The model answered."""
    blocks = (llm.Block(text),) if text.strip() else ()
    exchange.turns.append(llm.Turn("assistant", blocks, tool_calls=calls))
    exchange.pending, exchange.answered = list(calls), not calls
    exchange.used_tools = exchange.used_tools or bool(calls)


def add_result(exchange: Exchange, content: Mapping[str, Any]) -> None:
    """A tool answered: the next pending call is done."""
    written = exchange.draft.text if exchange.draft is not None else ""
    if exchange.draft is not None:
        exchange.draft = None
    else:
        call = exchange.pending.pop(0)
        written = str(call.input.get("text", ""))
        result = llm.ToolResult(call.id, content["text"], content["is_error"])
        last = exchange.turns[-1]
        if last.role == "user" and last.tool_results:
            exchange.turns[-1] = llm.Turn("user", tool_results=(*last.tool_results, result))
        else:
            exchange.turns.append(llm.Turn("user", tool_results=(result,)))
    exchange.ended = exchange.ended or content["ends"]
    committed = content["detail"].get("committed")
    exchange.sent += committed is True
    if committed is False:
        exchange.rejected.append(written)


def _restore(turn: Turn, content: Mapping[str, Any]) -> None:
    """Leave the turn as the tool's answer left it: abandoned, and with its open session in the channel."""
    detail, channel = content["detail"], content["detail"].get("channel_id")
    turn.abandoned = turn.abandoned or (content["tool"] == "do_nothing" and content["ends"])
    if detail.get("committed") is True:
        turn.sessions.pop(channel, None)
        turn.revisions.pop(channel, None)
    elif detail.get("committed") is False:
        turn.revisions[channel] = turn.revisions.get(channel, 0) + 1
        if detail["session"]:
            turn.sessions[channel] = detail["session"]


# -- rows
def system_row(prompt: Prompt, turn: Turn) -> dict[str, Any]:
    return {
        **_blocks_json(prompt.system),
        "nonce": prompt.nonce,
        "persona_version": turn.persona_version_id,
        "sections": [{"heading": section.heading, "stage": section.stage} for section in prompt.sections],
    }


def user_row(prompt: Prompt) -> dict[str, Any]:
    return _blocks_json(prompt.user.blocks)


def draft_row(draft: Draft) -> dict[str, Any]:
    return {"draft": {"text": draft.text, "payload": dict(draft.payload)}}


def reply_row(reply: llm.Reply) -> dict[str, Any]:
    calls = [{"id": call.id, "name": call.name, "input": dict(call.input)} for call in reply.tool_calls]
    return {"text": reply.text, "tool_calls": calls, "call": reply.call_id}


def result_row(call_id: str, tool: str, done: Performed) -> dict[str, Any]:
    return {
        "call_id": call_id,
        "tool": tool,
        "text": done.text,
        "is_error": done.is_error,
        "ends": done.ends,
        "detail": done.detail,
    }


def _blocks(content: Mapping[str, Any]) -> tuple[llm.Block, ...]:
    return tuple(llm.Block(block["text"], block["cache"]) for block in content["blocks"])


def _blocks_json(blocks: tuple[llm.Block, ...]) -> dict[str, Any]:
    return {"blocks": [{"text": storable(block.text), "cache": block.cache} for block in blocks]}


MARGIN = 60  # seconds of a lease beyond the deadline of one model call


class ClaimLost(Exception):
    """Another process has the run now, or it was deleted: nothing more may be done."""


def lease() -> timedelta:
    """How long a claim is believed: one model call's deadline and a margin."""
    return timedelta(seconds=settings.TURN_STEP_DEADLINE + MARGIN)


@dataclass(slots=True)
class Session:
    """The run, whose it is, the turn as the stages see it, and the exchange so far.

    `earlier` is the trace that earlier claims stored.
    """

    run: Run
    owner: str
    turn: Turn
    exchange: Exchange
    earlier: list[Any] = field(default_factory=list)

    @property
    def trace(self) -> list[Any]:
        """Everything that stages did in this turn, also before it was taken up again."""
        return storable([*self.earlier, *(entry.as_json() for entry in self.turn.trace)])  # type: ignore[no-any-return]

    def keep(self) -> bool:
        """Heartbeat before each step, which also stores the trace; whether the turn may go on.

        Returns:
            False when somebody asked for it to be cancelled.

        Raises:
            ClaimLost: The run is not ours any more.
        """
        mine = Run.objects.filter(pk=self.run.pk, status=Run.Status.RUNNING, lease_owner=self.owner)
        if not mine.update(lease_expires_at=timezone.now() + lease(), trace=self.trace):
            raise ClaimLost(f"run {self.run.pk} is not held by {self.owner} any more")
        return not mine.values_list("cancel_requested", flat=True).get()

    def begin(self, prompt: Prompt, draft: Draft | None) -> None:
        """Record what the agent is shown, and what a stage answers in place of the model."""
        with transaction.atomic():
            self.keep()
            self._add(Role.SYSTEM, system_row(prompt, self.turn))
            self._add(Role.USER, user_row(prompt))
            if draft is not None:
                self._add(Role.ASSISTANT, draft_row(draft))
        self.exchange.system, self.exchange.nonce = prompt.system, prompt.nonce
        self.exchange.turns.append(prompt.user)
        self.exchange.draft = draft

    def answered(self, reply: llm.Reply, begun: float) -> None:
        """Record a model call, and its reply when it can be used."""
        detail = {
            "status": str(reply.status),
            "error": reply.error,
            "model": reply.served_model or reply.model,
            "call": reply.call_id,
            "tools": [call.name for call in reply.tool_calls],
        }
        with transaction.atomic():
            self.keep()
            step = self._step("model_call", detail, begun)
            if reply.ok:
                self._add(Role.ASSISTANT, reply_row(reply), step=step)
        self.exchange.model_calls += 1
        if reply.ok:
            add_reply(self.exchange, reply.text, reply.tool_calls)

    def act(self) -> None:
        """Carry out the next pending tool call and record its answer; what only touches the database, in the same transaction."""
        draft, begun = self.exchange.draft, time.perf_counter()
        if draft is not None:
            self._record("draft", "send_message", begun, send_draft(draft, turn=self.turn))
            return
        call = self.exchange.pending[0]
        if self.exchange.ended:
            self._record(call.id, call.name, begun, Performed("Not done: your turn is over.", is_error=True))
        elif calls_models(call):
            self._record(call.id, call.name, begun, self._perform(call))
        else:
            self._record(call.id, call.name, begun)

    def _perform(self, call: llm.ToolCall) -> Performed:
        with sentry_sdk.start_span(op="agents.turn.tool", name=call.name[:64]) as span:
            done = perform(call, turn=self.turn, nonce=self.exchange.nonce)
            span.set_data("is_error", done.is_error)
        return done

    def _record(self, call_id: str, tool: str, begun: float, done: Performed | None = None) -> None:
        """Record what became of a tool call; one that is not done yet is carried out here, inside the transaction."""
        with transaction.atomic():
            self.keep()
            done = done or self._perform(self.exchange.pending[0])
            content = storable(result_row(call_id, tool, done))
            step = self._step("tool_call", {"tool": tool, "is_error": done.is_error, **done.detail}, begun)
            self._add(Role.TOOL, content, step=step, tool_name=tool[:64], message=done.message)
        add_result(self.exchange, content)

    def _step(self, kind: str, detail: Mapping[str, Any], begun: float) -> RunStep:
        self.exchange.step += 1
        took = round((time.perf_counter() - begun) * 1000)
        return RunStep.objects.create(
            run=self.run, number=self.exchange.step, kind=kind, detail=storable(dict(detail)), duration_ms=took
        )

    def _add(
        self,
        role: str,
        content: Mapping[str, Any],
        *,
        step: RunStep | None = None,
        tool_name: str = "",
        message: Message | None = None,
    ) -> None:
        self.exchange.number += 1
        RunMessage.objects.create(
            run=self.run,
            number=self.exchange.number,
            role=role,
            content=storable(dict(content)),
            step=step,
            tool_name=tool_name,
            message=message,
        )


RETRIES = 2  # of one model call, by the SDK, within its deadline
MAX_TOKENS = 4096


def build_request(session: Session) -> llm.LLMRequest:
    """The exchange so far and the tools, for the agent's model."""
    run, turn, exchange = session.run, session.turn, session.exchange
    agent = turn.agent
    own = [message.text for message in turn.transcript if message.agent_id == agent.pk]
    return llm.LLMRequest(
        role="actor",
        task="turn",
        model=model_of(turn.overrides) or agent.model_id,
        system=exchange.system,
        turns=tuple(exchange.turns),
        tools=tool_definitions(),
        max_tokens=MAX_TOKENS,
        retries=RETRIES,
        nonce=exchange.nonce,
        facts={
            "agent": agent.slug,
            "channel": turn.channel.slug,
            "trigger": turn.trigger.text if turn.trigger is not None else "",
            "sample_lines": list(agent.sample_lines),
            "said": own,
            "rejected": list(exchange.rejected),
            "sent": exchange.sent,
            "step": exchange.model_calls + 1,
            "scene": scene_of(turn.overrides),
        },
        label=llm.Label(purpose="turn", mechanism="turn", agent_id=agent.pk, run_id=run.pk, work_id=f"run:{run.pk}"),
    )


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
