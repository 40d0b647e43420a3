"""The exchange with the model: recorded once as it happens, rebuilt from its rows when another process goes on with the turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents import llm
from agents.llm.extraction import storable
from agents.models import Run, RunMessage, RunStep
from agents.turn.actions import Performed
from agents.turn.prompt import Prompt
from agents.turn.values import Draft, Turn

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
