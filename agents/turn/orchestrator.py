"""Taking turns: lease one, let the model act with its tools until it ends, and leave nothing blocked, whatever happens.

The exchange with the model is recorded as it happens, each step together with what it brings about, and rebuilt from its rows when another
process goes on with the turn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import sentry_sdk
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from agents.kit import llm
from agents.kit.capability import declared
from agents.kit.models import owner_is_dead, owner_name
from agents.kit.models.lease import LeaseLost
from agents.kit.ops.telemetry import logging_about
from agents.kit.running import is_outage, pause, retry_on_outage
from agents.kit.text.storable import storable
from agents.kit.work.queues import carry_out, do_next, report_crash
from agents.models import ChannelMember, Message, Run, RunMessage, RunStep
from agents.turn.pipeline import Answer, Draft, Overrides, StageFailed, ToolOutcome, Turn, pipeline
from agents.turn.prompt import Prompt, build_prompt, new_turn, render
from agents.turn.send_message import RequiredStageFailed, TurnRefused, start_turn
from agents.turn.tools import Performed, calls_models, perform, send_draft, tool_definitions

__all__ = ["TurnRefused", "cancel", "finish_turn", "run_turn", "start_turn", "work_one"]

Role, Status, StopReason = RunMessage.Role, Run.Status, Run.StopReason
LEASE_MARGIN = 60  # seconds of a lease beyond the deadline of one model call
MALFORMED_IN_A_ROW = 2  # replies or answers of the model that end the turn
RETRIES = 2  # of one model call, by the SDK, within its deadline
MAX_TOKENS = 4096
WAIT = 0.2  # seconds between two looks at a turn that another worker has
ABANDONED = timedelta(minutes=2)  # after its lease ended, a turn whose process is gone and that no worker resumes


# One statement, seven times a turn: as an UPDATE and a SELECT of the ORM it was a tenth of a turn's CPU.
_RENEW = """
    UPDATE runs SET lease_expires_at = %s, trace = %s WHERE id = %s AND status = %s AND lease_owner = %s RETURNING cancel_requested
"""


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


def lease() -> timedelta:
    """Return how long a lease lasts: one model call's deadline and a margin."""
    return timedelta(seconds=settings.TURN_STEP_DEADLINE + LEASE_MARGIN)


@dataclass(slots=True)
class LeasedTurn:
    """A run that is being worked on, the turn as the stages see it, and the exchange with the model so far.

    Attributes:
        earlier: The trace that earlier leases stored.
        system: The system prompt; empty before the turn has begun.
        turns: What was exchanged, as the next request needs it.
        number: Of the last recorded message. `step`: of the last recorded step. `model_calls`: how many of the steps those were.
        pending: The tool calls of the last reply that were not carried out yet, in order.
        draft: What a stage answered at once in place of the model, while it is not sent.
        used_tools: Whether the model used any tool. `sent`: how often it said something.
        rejected: Texts of this turn that were sent back.
        refusals: What the tools said of the last calls that could not be carried out, up to one that could.
        ended: Whether a tool ended the turn. `answered`: whether the last reply asked for no tool.
        reminded: Whether a prompt said to the model that a typed answer is given by the tool.
        cancelled: Whether the turn is to end, as of the last renewal of the lease.
    """

    run: Run
    owner: str
    turn: Turn
    earlier: list[Any] = field(default_factory=list)
    system: tuple[llm.Block, ...] = ()
    turns: list[llm.Turn] = field(default_factory=list)
    number: int = 0
    step: int = 0
    model_calls: int = 0
    pending: list[llm.ToolCall] = field(default_factory=list)
    draft: Draft | None = None
    used_tools: bool = False
    sent: int = 0
    rejected: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    ended: bool = False
    answered: bool = False
    reminded: bool = False
    cancelled: bool = False

    @property
    def trace(self) -> list[Any]:
        """Return everything that stages did in this turn, also before it was resumed."""
        return storable([*self.earlier, *(entry.as_json() for entry in self.turn.trace)])  # type: ignore[no-any-return]

    def load(self) -> None:
        """Rebuild the exchange from its rows, and in the turn what the tools' answers say of it. A turn that has not begun has none."""
        for row in RunMessage.objects.filter(run=self.run).order_by("number"):
            self.number = row.number
            if row.role == Role.SYSTEM:
                self._load_system(row.content)
            elif row.role == Role.USER:
                was_reminder = bool(self.turns)  # the first one is the conversation
                self.reminded = was_reminder
                self.answered = False  # after a reminder the model is asked again
                self.turns.append(llm.Turn("user", _blocks(row.content)))
            elif row.role == Role.ASSISTANT and "draft" in row.content:
                draft = row.content["draft"]
                self.draft = Draft(draft["text"], draft["payload"])
            elif row.role == Role.ASSISTANT:
                calls = [llm.ToolCall(call["id"], call["name"], call["input"]) for call in row.content["tool_calls"]]
                self._add_reply(row.content["text"], tuple(calls))
            else:  # the answer of a tool
                self._add_result(row.content)
                self._restore_turn(row.content)
        for number, kind in RunStep.objects.filter(run=self.run).values_list("number", "kind"):
            self.step = max(self.step, number)
            if kind == "model_call":
                self.model_calls += 1

    def _load_system(self, content: Mapping[str, Any]) -> None:
        """Set the system prompt, and in the turn what stages decided when it was prepared."""
        self.system = _blocks(content)
        self.turn.nonce = content["nonce"]
        self.turn.wanted_answer = Answer(**content["answer"]) if "answer" in content else None
        installed = declared("turn_tools")  # an app may have been taken out since
        self.turn.tools = [name for name in content.get("tools", []) if name in installed]
        self.turn.temperature = content.get("temperature")
        self.turn.persona_version_id = content["persona_version"]

    def _add_reply(self, text: str, calls: tuple[llm.ToolCall, ...]) -> None:
        """Add a reply of the model to the exchange; its tool calls wait to be carried out."""
        blocks = (llm.Block(text),) if text.strip() else ()
        self.turns.append(llm.Turn("assistant", blocks, tool_calls=calls))
        self.pending = list(calls)
        self.answered = not calls
        if calls:
            self.used_tools = True

    def _add_result(self, content: Mapping[str, Any]) -> None:
        """Add the answer of a tool to the exchange: the stage's draft, or the next pending call, is done.

        Notes, too, whether it ended the turn, what was said, and what was sent back or refused.
        """
        detail = content["detail"]
        if self.draft is not None:
            written = self.draft.text
            self.draft = None  # no call of the model, so it gets no result
        else:
            call = self.pending.pop(0)
            written = str(call.input.get("text", ""))
            self._add_tool_result(llm.ToolResult(call.id, content["text"], content["is_error"]))
        self.turn.performed.append(ToolOutcome(content["tool"], not content["is_error"], content["text"]))
        if content["ends"]:
            self.ended = True
        if detail.get("refused"):  # the call could not be carried out, e.g. a field was missing
            self.refusals.append(content["text"])
        else:
            self.refusals = []  # only those in a row count
        committed = detail.get("committed")  # False: a stage sent it back; None: the tool says nothing
        if committed is True:
            self.sent += 1
        elif committed is False:
            self.rejected.append(written)

    def _add_tool_result(self, result: llm.ToolResult) -> None:
        """Add a tool's result for the model; the results of calls of the same reply go together."""
        results = [result]
        if self.turns[-1].role == "user" and self.turns[-1].tool_results:
            results = [*self.turns.pop().tool_results, result]
        self.turns.append(llm.Turn("user", tool_results=tuple(results)))

    def _restore_turn(self, content: Mapping[str, Any]) -> None:
        """Leave the turn as the tool's answer left it: abandoned, and with its open session in the channel.

        What was said ends the session there; what was sent back counts as a revision. Other tools change neither.
        """
        detail = content["detail"]
        channel = detail.get("channel_id")
        if content["tool"] == "do_nothing" and content["ends"]:
            self.turn.abandoned = True
        if detail.get("committed") is True:
            self.turn.sessions.pop(channel, None)
            self.turn.revisions.pop(channel, None)
        elif detail.get("committed") is False:
            self.turn.revisions[channel] = self.turn.revisions.get(channel, 0) + 1
            if detail["session"]:
                self.turn.sessions[channel] = detail["session"]

    def renew(self) -> None:
        """Renew the lease, store the trace, and set `cancelled` where a cancellation was asked for.

        Called in the transaction of all that a step stores, so that a worker without the lease stores nothing.

        Raises:
            LeaseLost: The run has ended, or another worker has leased it.
        """
        until = connection.ops.adapt_datetimefield_value(timezone.now() + lease())
        with connection.cursor() as cursor:
            cursor.execute(_RENEW, [until, json.dumps(self.trace), self.run.pk, Status.RUNNING.value, self.owner])
            row = cursor.fetchone()
        if row is None:
            raise LeaseLost(f"run {self.run.pk} is not held by {self.owner} any more")
        self.cancelled = bool(row[0])

    def show_stage(self) -> None:
        """Store the trace as a stage begins, for a person who watches. Where the database is away the next renewal says so.

        Raises:
            LeaseLost: The run has ended, or another worker has leased it.
        """
        with suppress(DatabaseError):
            self.renew()

    def begin(self, prompt: Prompt, draft: Draft | None) -> None:
        """Record what the agent is shown, and what a stage answers in place of the model.

        Args:
            prompt: Its system prompt is stored with what stages decided in `prepare`, so that another process can resume the turn.
            draft: None = the model is asked.

        Raises:
            LeaseLost: The run is not ours any more; nothing is stored.
        """
        turn = self.turn
        system = {
            **_blocks_json(prompt.system),
            "nonce": turn.nonce,
            "persona_version": turn.persona_version_id,
            "sections": [{"heading": section.heading, "stage": section.stage} for section in prompt.sections],
        }
        if turn.wanted_answer is not None:
            system["answer"] = {"name": turn.wanted_answer.name, "values": dict(turn.wanted_answer.values)}
        if turn.tools:
            system["tools"] = turn.tools
        if turn.temperature is not None:
            system["temperature"] = turn.temperature
        with transaction.atomic():
            self.renew()
            self._add(Role.SYSTEM, system)
            self._add(Role.USER, _blocks_json(prompt.user.blocks))
            if draft is not None:
                self._add(Role.ASSISTANT, {"draft": {"text": draft.text, "payload": dict(draft.payload)}})
        self.system = prompt.system
        self.draft = draft
        self.turns.append(prompt.user)

    def ask(self) -> llm.Reply:
        """Ask the agent's model what to do next, and record the call, and its reply when it can be used.

        Returns:
            The reply. A failed one (not `ok`) counts as a model call too, and adds nothing to the exchange.

        Raises:
            LeaseLost: The run is not ours any more; nothing is stored.
        """
        started = time.perf_counter()
        reply = llm.complete(self._request(), deadline=settings.TURN_STEP_DEADLINE)
        detail = {
            "status": str(reply.status),
            "error": reply.error,
            "model": reply.served_model or reply.model,
            "call": reply.call_id,
            "tools": [call.name for call in reply.tool_calls],
        }
        with transaction.atomic():
            self.renew()
            step = self._step("model_call", detail, started)
            if reply.ok:
                calls = [{"id": call.id, "name": call.name, "input": dict(call.input)} for call in reply.tool_calls]
                self._add(Role.ASSISTANT, {"text": reply.text, "tool_calls": calls, "call": reply.call_id}, step=step)
        self.model_calls += 1
        if reply.ok:
            self._add_reply(reply.text, reply.tool_calls)
        return reply

    def _request(self) -> llm.LLMRequest:
        """Return the request for the next step, with the facts that the scripted actor goes by."""
        run = self.run
        turn = self.turn
        agent = turn.agent
        overrides = Overrides.of(turn.overrides)
        own_messages = [message.text for message in turn.transcript if message.agent_id == agent.pk]
        return llm.LLMRequest(
            role="actor",
            task="turn",
            model=overrides.model or agent.model_id,
            system=self.system,
            turns=tuple(self.turns),
            tools=tool_definitions(turn.wanted_answer, turn.tools),
            temperature=turn.temperature,
            max_tokens=MAX_TOKENS,
            retries=RETRIES,
            nonce=turn.nonce,
            facts={
                "agent": agent.slug,
                "channel": turn.channel.slug,
                "trigger": turn.trigger.text if turn.trigger is not None else "",
                "sample_lines": list(agent.sample_lines),
                "lines": overrides.lines,
                "said": own_messages,
                "rejected": list(self.rejected),
                "sent": self.sent,
                "step": self.model_calls + 1,
                "scene": overrides.scene,
                "answer": dict(turn.wanted_answer.values) if turn.wanted_answer is not None else {},
            },
            label=llm.Label(
                purpose="turn", mechanism="turn", agent_id=agent.pk, run_id=run.pk, work_id=f"run:{run.pk}"
            ),
        )

    def remind(self) -> None:
        """Tell the model that the answer is given by the tool, where it answered with text alone."""
        blocks = (llm.Block(render("answer_by_tool")),)
        with transaction.atomic():
            self.renew()
            self._add(Role.USER, _blocks_json(blocks))
        self.turns.append(llm.Turn("user", blocks))
        self.reminded = True
        self.answered = False

    def act(self) -> None:
        """Carry out the stage's draft or the next pending tool call, and record its answer.

        What only touches the database is carried out in the transaction that records it; what may ask a model before it. After a call
        that ended the turn, the other calls of that reply are answered "Not done".

        Raises:
            LeaseLost: The run is not ours any more; nothing is recorded.
            RequiredStageFailed: A stage without which nothing may be said failed; nothing is recorded.
        """
        started = time.perf_counter()
        done: Performed | None = None
        if self.draft is not None:
            call_id = "draft"
            tool = "send_message"
            done = send_draft(self.draft, turn=self.turn)
        else:
            call = self.pending[0]
            call_id = call.id
            tool = call.name
            if self.ended:
                done = Performed("Not done: your turn is over.", is_error=True)
            elif calls_models(call, self.turn):
                done = self._perform(call)
        with transaction.atomic():
            self.renew()
            if done is None:  # it asks no model
                done = self._perform(self.pending[0])
            answer = {"text": done.text, "is_error": done.is_error, "ends": done.ends, "detail": done.detail}
            content = storable({"call_id": call_id, "tool": tool, **answer})
            step = self._step("tool_call", {"tool": tool, "is_error": done.is_error, **done.detail}, started)
            self._add(Role.TOOL, content, step=step, tool_name=tool[:64], message=done.message)
        self._add_result(content)

    def _perform(self, call: llm.ToolCall) -> Performed:
        with sentry_sdk.start_span(op="agents.turn.tool", name=call.name[:64]) as span:
            done = perform(call, turn=self.turn)
            span.set_data("is_error", done.is_error)
        return done

    def _step(self, kind: str, detail: Mapping[str, Any], started: float) -> RunStep:
        """Record a step that ends now; `started` is a time of `time.perf_counter`."""
        self.step += 1
        milliseconds = round((time.perf_counter() - started) * 1000)
        return RunStep.objects.create(
            run=self.run, number=self.step, kind=kind, detail=storable(dict(detail)), duration_ms=milliseconds
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
        """Record the next entry of the exchange.

        Args:
            step: Of which it is; None = of none, as the prompt.
            message: What was said by it; None = nothing.
        """
        self.number += 1
        RunMessage.objects.create(
            run=self.run,
            number=self.number,
            role=role,
            content=storable(dict(content)),
            step=step,
            tool_name=tool_name,
            message=message,
        )


def _blocks(content: Mapping[str, Any]) -> tuple[llm.Block, ...]:
    return tuple(llm.Block(block["text"], block["cache"]) for block in content["blocks"])


def _blocks_json(blocks: tuple[llm.Block, ...]) -> dict[str, Any]:
    return {"blocks": [{"text": storable(block.text), "cache": block.cache} for block in blocks]}


def run_turn(run: Run, *, owner: str) -> Run:
    """Lease a queued or lost turn, unless `owner` has it already, and take it to its end.

    An interrupted turn (Ctrl-C, SIGTERM, the database away) goes back to the queue, and the exception is raised on; a crash marks it
    errored. Neither blocks the agent.

    Args:
        run: The turn. One that another process holds, or whose agent is taking another turn, is left alone.
        owner: The lease's name, see `owner_name`.

    Returns:
        The run as it is now.
    """
    if run.is_leased_by(owner):
        run.refresh_from_db()
        is_ours = run.is_leased_by(owner)
    else:
        is_ours = run.acquire(owner=owner, lease=lease())  # reads the row again
    if is_ours:
        carry_out(run, lambda run: _take_turn(run, owner), owner=owner)
    run.refresh_from_db()
    return run


def finish_turn(run: Run, *, waiting: Callable[[], object] = lambda: None) -> Run:
    """Take a turn to its end here, or wait for the worker that was faster, or until the agent's present turn has ended.

    A present turn whose process was killed on this machine goes back to the queue, so that this one need not wait for it.

    Args:
        run: The turn.
        waiting: Called between two looks, e.g. to renew the lease of the work that the turn is part of.

    Returns:
        The run, which has ended in any of the statuses `Run.FINAL`, also as failed or cancelled.

    Raises:
        TurnRefused: The agent's present turn will not end: its process is gone, and no worker resumes it. The turn waits on.
    """
    owner = owner_name()
    while True:
        run = retry_on_outage(partial(run_turn, run, owner=owner))
        if run.status in Run.FINAL:
            return run
        for present in Run.objects.filter(agent=run.agent_id, status=Status.RUNNING).exclude(pk=run.pk):
            _refuse_to_wait_for(present, run)
        pause(WAIT)
        waiting()


def _refuse_to_wait_for(present: Run, run: Run) -> None:
    """Put the agent's present turn back into the queue where its process was killed on this machine.

    Raises:
        TurnRefused: Its lease ended more than two minutes ago (`ABANDONED`), and no worker resumed it.
    """
    if owner_is_dead(present.lease_owner):
        present.release()
        return
    lease_ended = present.lease_expires_at
    if lease_ended is not None and lease_ended < timezone.now() - ABANDONED:
        raise TurnRefused(f"turn {present.pk} of {run.agent} was left unfinished; manage.py work ends it")


def work_one(*, owner: str) -> bool:
    """Lease and take the next queued or lost turn, for a worker; return whether there was one."""
    return do_next(Run, lambda run: _take_turn(run, owner), owner=owner, lease=lease())


def cancel(run: Run) -> Run:
    """Ask for a turn to end: at once when it has not begun, else before its next step. One that has ended stays as it is."""
    has_not_begun = Run.objects.filter(pk=run.pk, status=Status.PENDING, attempt=0)  # `attempt` counts its leases
    is_cancelled = has_not_begun.update(
        status=Status.CANCELLED,
        stop_reason=StopReason.CANCELLED,
        cancel_requested=True,
        error=CANCELLED.error,
        finished_at=timezone.now(),
    )
    if not is_cancelled:
        Run.objects.filter(pk=run.pk, status__in=(Status.PENDING, Status.RUNNING)).update(cancel_requested=True)
    run.refresh_from_db()
    return run


def _take_turn(run: Run, owner: str) -> dict[str, Any]:
    """Take a leased turn to its end; return the columns of its end."""
    about = logging_about(run=run.pk, agent=run.agent_id)
    with about, sentry_sdk.start_span(op="agents.turn", name="take a turn") as span:
        span.set_data("run", run.pk)
        span.set_data("agent", run.agent_id)
        columns = _columns_of_end(run, owner)
        span.set_data("stop_reason", columns["stop_reason"])
        return columns


def _columns_of_end(run: Run, owner: str) -> dict[str, Any]:
    """Take a turn to its end, let the stages finish, and return the columns of its end; a crash of the turn is one of its ends.

    A turn that cannot begin or go on, e.g. of an agent that was made inactive, fails at once, and its stages hear nothing of it.

    Raises:
        LeaseLost: Another worker has the turn.
        DatabaseError: The database is away; the turn is to resume where it stopped.
    """
    hindrance = _hindrance(run)
    if hindrance:
        return {"status": Status.FAILED, "error": hindrance, "stop_reason": StopReason.ERROR}
    assert run.channel is not None  # noqa: S101 (for the type checker)
    turn = new_turn(agent=run.agent, channel=run.channel, run=run, trigger=run.trigger, overrides=run.overrides)
    leased = LeasedTurn(run, owner, turn, _ended_entries(run.trace))
    if run.channel.is_scratch:
        turn.stage_begins = leased.show_stage
    try:
        leased.load()
        ending = _begin_or_resume(leased)
        if ending is CANCELLED:
            turn.abandoned = True  # so that no stage says its best attempt when it finishes
        try:
            pipeline(turn.overrides).finish(turn)
        except StageFailed as error:
            ending = _failed_ending(str(error))
    except LeaseLost:
        raise
    except Exception as error:
        if is_outage(error):  # no fault of the turn: it resumes where it stopped
            raise
        ending = Ending(Status.ERRORED, StopReason.ERROR, report_crash(error, run))
        with suppress(ImportError, StageFailed):
            pipeline(turn.overrides).finish(turn)
    return {
        "status": ending.status,
        "error": str(storable(ending.error)),
        "stop_reason": ending.stop_reason,
        "trace": leased.trace,
    }


def _ended_entries(trace: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return what an earlier lease stored of the stages; one that was at work when its worker stopped is interrupted."""
    entries = []
    for entry in trace:
        is_cut_off = entry["status"] == "running"
        entries.append({**entry, "status": "interrupted"} if is_cut_off else entry)
    return entries


def _hindrance(run: Run) -> str:
    """Return why the turn can neither begin nor be resumed; empty when it can."""
    if run.channel is None:
        return "the channel of this turn was deleted"
    if not run.agent.is_active:
        return f"{run.agent} is inactive; allowed: active agents"
    if not ChannelMember.objects.filter(agent=run.agent, channel=run.channel).exists():
        return f"{run.agent} is no longer a member of {run.channel}"
    return ""


def _failed_ending(why: str) -> Ending:
    return Ending(Status.FAILED, StopReason.ERROR, why)


def _begin_or_resume(leased: LeasedTurn) -> Ending:
    """Begin a turn, or resume one that was interrupted, and take it to its end; a required stage that failed is an end."""
    if leased.run.cancel_requested:
        return CANCELLED
    try:
        if not leased.turns:  # it has not begun
            draft = pipeline(leased.turn.overrides).prepare(leased.turn)
            leased.begin(build_prompt(leased.turn, prompt=leased.run.prompt), draft)
        return _exchange_until_end(leased)
    except (StageFailed, RequiredStageFailed) as error:
        return _failed_ending(str(error))


def _exchange_until_end(leased: LeasedTurn) -> Ending:
    """Carry out what the model asked for and ask it again, until it ends its turn or something else does.

    Something else: a cancellation, the agent's most model calls, a model call that failed, two unusable replies in a row.

    Raises:
        RequiredStageFailed: A stage without which nothing may be said failed.
    """
    agent = leased.turn.agent
    malformed_replies = 0  # in a row
    while True:
        while leased.draft is not None or leased.pending:
            if leased.cancelled:
                return CANCELLED
            leased.act()
        ending = _ending_of_model(leased)
        if ending is not None:
            return ending
        if leased.model_calls >= agent.max_turns:
            why = f"stopped after {agent.max_turns} model calls (max_turns of {agent})"
            return Ending(Status.COMPLETED, StopReason.MAX_STEPS, why)
        if leased.cancelled:
            return CANCELLED
        reply = leased.ask()
        if reply.ok:
            malformed_replies = 0
            continue
        if _ends_with_nothing(reply, leased):
            return ENDED
        if reply.status is llm.Status.MALFORMED:
            malformed_replies += 1
        if reply.status is not llm.Status.MALFORMED or malformed_replies >= MALFORMED_IN_A_ROW:
            return _failed_ending(f"the model call failed: {reply.status}: {reply.error}")


def _ending_of_model(leased: LeasedTurn) -> Ending | None:
    """Return how the model's last reply ends the turn; None where the model is to be asked (again).

    Where a typed answer is asked for, two refused calls in a row end the turn, and a reply of text alone is answered once with a
    reminder, which is recorded.
    """
    needs_answer = leased.turn.wanted_answer is not None
    if needs_answer and len(leased.refusals) >= MALFORMED_IN_A_ROW:
        return _failed_ending(f"no valid answer: {leased.refusals[-1]}")
    if leased.ended:
        return ENDED
    if leased.answered and needs_answer and not leased.reminded:
        leased.remind()
        return None
    if leased.answered:
        return ENDED if leased.used_tools else NO_TOOL_CALL
    return None


def _ends_with_nothing(reply: llm.Reply, leased: LeasedTurn) -> bool:
    """Return whether a reply that cannot be used is an empty one after a tool: so some models end their turn."""
    is_empty = reply.status is llm.Status.MALFORMED and not reply.text.strip()
    return is_empty and reply.stop_reason == "end_turn" and leased.used_tools
