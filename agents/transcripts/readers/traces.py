"""From calls of a model, as traces record them, to a conversation.

A call holds the conversation so far again and again; only what is new in it becomes messages. Calls around other calls (chains, agents)
repeat what these hold and are skipped. `langfuse`, `langsmith` and `otel` read the calls; what a call may hold is the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agents.kit.files.json_input import MAX_DEPTH, MAX_DOCUMENT, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.chat import SYSTEM_ROLES, TEXT_PARTS, TOOL_ROLES
from agents.transcripts.records import Record, Skipped, SourceMessage

USER, ASSISTANT = "user", "assistant"
MOST_OVERLAP = 200  # messages
ROLES = {
    "human": USER, "humanmessage": USER, "humanmessagechunk": USER, "user": USER,
    "ai": ASSISTANT, "aimessage": ASSISTANT, "aimessagechunk": ASSISTANT, "model": ASSISTANT, "assistant": ASSISTANT, "bot": ASSISTANT,
    "systemmessage": "system", "toolmessage": "tool", "functionmessage": "tool", "chatmessage": USER,
}  # fmt: skip
_INSIDE = ("messages", "message", "choices", "generations", "prompts", "chat_history", "input", "inputs", "prompt", "question",
           "query", "output", "outputs", "answer", "response", "result", "completion", "content", "text", "data")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a call: by the model itself (assistant), another speaker, the system or a tool."""

    role: str
    text: str
    name: str = ""
    skip: str = ""
    """Why it is no message, e.g. ``tool call``."""


@dataclass(slots=True, kw_only=True)
class Call:
    """A call, or a step around calls. `is_model`: it is known to be one of a model. `unread`: it holds something that is no chat."""

    id: str
    line: int
    conversation: str
    parent: str = ""
    trace: str = ""
    agent: str = ""
    model: str = ""
    is_model: bool = False
    started: datetime | None = None
    ended: datetime | None = None
    inputs: list[Item] = field(default_factory=list)
    outputs: list[Item] = field(default_factory=list)
    unread: str = ""


def items_of(value: Any, role: str, depth: int = 0) -> list[Item] | None:
    """The messages in what a call was asked or answered, whichever library wrote it; None where it is no chat.

    Args:
        role: Whose a text without a role is: ``user`` for what was asked, ``assistant`` for what was answered.
    """
    if depth > MAX_DEPTH // 4:
        return None
    if isinstance(value, str):
        if value.lstrip()[:1] in ("{", "["):  # exports of tables write JSON as text
            with suppress(ValueError, RecursionError):
                inner = items_of(json.loads(value), role, depth + 1)
                return inner if inner is not None else [Item(role, value)]
        return [Item(role, value)]
    if isinstance(value, list):
        inside = [items_of(one, role, depth + 1) for one in value]
        none = [Item(role, "", skip="entry that is no message")]
        return [item for items in inside for item in items or none] if any(inside) else None
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("kwargs"), dict) and "lc" in value:  # LangChain's own form: id ends in the class
        names = value.get("id")
        kind = str(names[-1]) if isinstance(names, list) and names else ""
        return items_of({"role": kind, **value["kwargs"]}, role, depth + 1)
    own = value.get("role") or value.get("type")
    if (
        isinstance(own, str)
        and own.casefold() in ROLES.keys() | SYSTEM_ROLES | TOOL_ROLES
        and {"content", "parts", "data", "tool_calls"} & set(value)
    ):
        return [_item(value, own.casefold())]
    alternatives = value.get("choices") or value.get("generations")
    if isinstance(alternatives, list) and alternatives:
        first = alternatives[0][0] if isinstance(alternatives[0], list) and alternatives[0] else alternatives[0]
        items = items_of(first, ASSISTANT, depth + 1)
        return items + [Item(ASSISTANT, "", skip="answer not chosen")] * _others(alternatives) if items else None
    for key in _INSIDE:
        if value.get(key) is not None and (items := items_of(value[key], role, depth + 1)):
            system = value.get("system")
            return ([Item("system", system)] if isinstance(system, str) and system.strip() else []) + items
    return None


def both_sides(inputs: Any, outputs: Any) -> tuple[list[Item], list[Item]]:
    """What a call was asked and answered. Where only one of them is a chat, the other counts as left out."""
    sides = items_of(inputs, USER) or [], items_of(outputs, ASSISTANT) or []
    if sides[1] and not sides[0] and inputs:
        sides[0].append(Item(USER, "", skip="input that is no chat"))
    if sides[0] and not sides[1] and outputs:
        sides[1].append(Item(ASSISTANT, "", skip="output that is no chat"))
    return sides


def _others(alternatives: list[Any]) -> int:
    inner = alternatives[0] if len(alternatives) == 1 and isinstance(alternatives[0], list) else alternatives
    return len(inner) - 1 if isinstance(inner[0], dict) else 0


def _item(value: dict[str, Any], role: str) -> Item:
    """A message with a role. Text parts are joined; what else it holds is a reason to skip it only when there is no text."""
    data = value.get("data")
    value = {**value, **data} if isinstance(data, dict) else value
    content = value.get("content") if value.get("content") is not None else value.get("parts")
    texts, others = [], []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type", "text") if isinstance(part, dict) else "text"
        text = (part.get("text") or part.get("content")) if isinstance(part, dict) else part
        if kind in TEXT_PARTS and isinstance(text, str):
            texts.append(text)
        elif isinstance(part, dict):
            others.append(
                {"tool_use": "tool call", "tool_call": "tool call", "reasoning": "thinking"}.get(str(kind), str(kind))
            )
    others += ["tool call"] * bool(value.get("tool_calls") or value.get("function_call"))
    name = value.get("name")
    text = "\n".join(text for text in texts if text.strip())
    skip = (
        "tool result"
        if role in TOOL_ROLES or ROLES.get(role) == "tool"
        else ""
        if text
        else (others[0] if others else "empty message")
    )
    return Item(ROLES.get(role, role), text, name if isinstance(name, str) else "", skip)


def calls_of(source: Source) -> Iterator[tuple[int, Any]]:
    """The values of a file of traces, which is read as a whole: its calls are put in order of time.

    Raises:
        FileError: It is larger than that allows.
    """
    if source.size > MAX_DOCUMENT:
        raise FileError(source.name, 0, f"traces of more than {MAX_DOCUMENT:,} bytes; export them in parts")
    yield from json_values(source)


def conversations(calls: Sequence[Call], spoken: Mapping[str, list[tuple[str, str]]] | None = None) -> Iterator[Record]:
    """Put calls in order and yield the messages of their conversations, each once.

    Args:
        calls: Of any number of conversations, in any order.
        spoken: What was said before in each conversation, as (speaker, text): for calls that come piece by piece.
    """
    chosen, left_out = _innermost(calls)
    yield from left_out
    said = {name: list(before) for name, before in (spoken or {}).items()}
    instructions: set[tuple[str, str]] = set()
    far = datetime.max.replace(tzinfo=UTC)
    for call in sorted(chosen, key=lambda call: call.started or call.ended or far):
        before = said.setdefault(call.conversation, [])
        me = call.agent or ASSISTANT
        texts: list[tuple[int, Item]] = []
        # What a step around calls answers may be its whole state, with what it was asked.
        state = {item.text for item in call.outputs} if any(item.role != ASSISTANT for item in call.outputs) else set()
        for place, item in enumerate([*call.inputs, *call.outputs]):
            if item.skip or not item.text.strip():
                yield Skipped(item.skip or "empty message", call.line)
            elif place < len(call.inputs) and item.text in state:
                yield Skipped("sent again", call.line)
            elif item.role in SYSTEM_ROLES:
                again = (call.conversation, item.text) in instructions
                instructions.add((call.conversation, item.text))
                yield Skipped("sent again", call.line) if again else _message(call, item, place, "system")
            else:
                texts.append((place, item))
        answers = sum(place >= len(call.inputs) for place, _ in texts)
        known = _known(before, texts if not call.is_model else texts[: len(texts) - answers], me)
        for number, (place, item) in enumerate(texts):
            speaker = me if item.role == ASSISTANT else item.name or item.role
            if number < known:
                yield Skipped("sent again", call.line)
            else:
                before.append((speaker, item.text))
                yield _message(call, item, place, speaker)


def _innermost(calls: Sequence[Call]) -> tuple[list[Call], list[Record]]:
    """The calls that hold no other one with a chat; of a trace without a call of a model, the outermost step."""
    by_id = {call.id: call for call in calls}
    readable = [call for call in calls if call.inputs or call.outputs]
    models = {call.trace for call in readable if call.is_model}
    chosen, left_out = [], list[Record]()
    around = {above.id for call in readable if call.is_model for above in _above(call, by_id)}
    inside = {call.id for call in readable if any(above.inputs or above.outputs for above in _above(call, by_id))}
    for call in calls:
        if not (call.inputs or call.outputs):
            left_out.append(Skipped(call.unread or "step without messages", call.line))
        elif (
            call.id in around
            or (call.trace in models and not call.is_model)
            or (call.trace not in models and call.id in inside)
        ):
            left_out.append(Skipped("step around a model's call", call.line))
        else:
            agent = call.agent or next((above.agent for above in _above(call, by_id) if above.agent), "")
            chosen.append(replace(call, agent=agent))
    return chosen, left_out


def _above(call: Call, by_id: Mapping[str, Call]) -> Iterable[Call]:
    """The steps around a call, from the nearest; none twice."""
    seen = {call.id}
    while call.parent in by_id and call.parent not in seen:
        call = by_id[call.parent]
        seen.add(call.id)
        yield call


def _known(before: list[tuple[str, str]], texts: Sequence[tuple[int, Item]], me: str) -> int:
    """How many of a call's messages were said before: up to its last own answer that was, and what overlaps with the end."""
    ever = {text for _, text in before}
    first = max((n for n, (_, item) in enumerate(texts, 1) if item.role == ASSISTANT and item.text in ever), default=0)
    rest = [item for _, item in texts[first:]]
    for n in range(min(len(rest), len(before), MOST_OVERLAP), 0, -1):
        pairs = zip(before[-n:], rest[:n], strict=True)
        if all(text == item.text and (item.role == ASSISTANT or speaker != me) for (speaker, text), item in pairs):
            return first + n
    return first


def _message(call: Call, item: Item, place: int, speaker: str) -> SourceMessage:
    answer = place >= len(call.inputs)
    own = item.role == ASSISTANT
    return SourceMessage(
        speaker=speaker,
        role=item.role,
        kind="system" if item.role in SYSTEM_ROLES else "named",
        text=item.text,
        line=call.line,
        source_id=f"{call.id}:{place}" if call.id else "",
        sent_at=(call.ended or call.started) if answer else call.started,
        channel=call.conversation,
        tags={"model": call.model} if call.model and own and answer else {},
    )


def moment(row_time: datetime | None) -> datetime | None:
    """A time of a trace, in UTC where it has no zone: calls are sorted by it."""
    return row_time if row_time is None or row_time.tzinfo is not None else row_time.replace(tzinfo=UTC)
