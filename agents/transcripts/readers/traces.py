"""Turn calls of a model, as traces record them, into a conversation.

A call holds the conversation so far again and again; only what is new in it becomes messages. Calls around other calls (chains, agents)
repeat what these hold and are skipped. `langfuse`, `langsmith` and `otel` read the calls; what a call may hold is the same for all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from agents.kit.files.json_input import MAX_DEPTH, MAX_DOCUMENT, json_values
from agents.kit.files.source import FileError, Source
from agents.transcripts.readers.chat import SYSTEM_ROLES, TEXT_PARTS, TOOL_ROLES
from agents.transcripts.records import Record, Skipped, SourceMessage

USER = "user"
ASSISTANT = "assistant"
TOOL_RESULT = "tool result"
MOST_OVERLAP = 200  # messages
ROLES = {  # what libraries call the roles of messages
    "human": USER,
    "humanmessage": USER,
    "humanmessagechunk": USER,
    "user": USER,
    "chatmessage": USER,
    "ai": ASSISTANT,
    "aimessage": ASSISTANT,
    "aimessagechunk": ASSISTANT,
    "model": ASSISTANT,
    "assistant": ASSISTANT,
    "bot": ASSISTANT,
    "systemmessage": "system",
    "toolmessage": "tool",
    "functionmessage": "tool",
}
KNOWN_ROLES = ROLES.keys() | SYSTEM_ROLES | TOOL_ROLES
MESSAGE_FIELDS = frozenset(
    ["content", "parts", "data", "tool_calls"]
)  # an object with a role and one of these is a message
FIELDS_WITH_MESSAGES = (  # where libraries keep what was asked or answered; the first that holds messages counts
    "messages",
    "message",
    "choices",
    "generations",
    "prompts",
    "chat_history",
    "input",
    "inputs",
    "prompt",
    "question",
    "query",
    "output",
    "outputs",
    "answer",
    "response",
    "result",
    "completion",
    "content",
    "text",
    "data",
)


@dataclass(frozen=True, slots=True)
class Item:
    """One message of a call: by the model itself (assistant), another speaker, the system or a tool."""

    role: str
    text: str
    name: str = ""
    skip: str = ""  # why it is no message, e.g. ``tool call``


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

    @property
    def has_items(self) -> bool:
        """Return whether it holds a chat."""
        return bool(self.inputs or self.outputs)


class PastMessage(NamedTuple):
    """What was said in a conversation, and by whom."""

    speaker: str
    text: str


@dataclass(frozen=True, slots=True)
class BothSides:
    """What a call was asked and what it answered."""

    inputs: list[Item] = field(default_factory=list)
    outputs: list[Item] = field(default_factory=list)


def items_of(value: Any, role: str, depth: int = 0) -> list[Item] | None:
    """Return the messages in what a call was asked or answered, whichever library wrote it; None where it is no chat.

    Args:
        role: Whose a text without a role is: ``user`` for what was asked, ``assistant`` for what was answered.
        depth: How deep the value stands in another.
    """
    if depth > MAX_DEPTH // 4:  # each level takes several calls here
        return None
    if isinstance(value, str):
        return _items_of_text(value, role, depth)
    if isinstance(value, list):
        return _items_of_list(value, role, depth)
    if isinstance(value, dict):
        return _items_of_object(value, role, depth)
    return None


def _items_of_text(text: str, role: str, depth: int) -> list[Item]:
    """Return a text as one message; exports of tables write JSON as text, which is read."""
    items: list[Item] | None = None
    if text.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            items = items_of(json.loads(text), role, depth + 1)
    return [Item(role, text)] if items is None else items


def _items_of_list(values: list[Any], role: str, depth: int) -> list[Item] | None:
    """Return the messages of all entries, one to be skipped for each entry without any; None where no entry has one."""
    items: list[Item] = []
    is_chat = False
    for value in values:
        inner = items_of(value, role, depth + 1)
        if inner:
            is_chat = True
            items += inner
        else:
            items.append(Item(role, "", skip="entry that is no message"))
    return items if is_chat else None


def _items_of_object(value: dict[str, Any], role: str, depth: int) -> list[Item] | None:
    """Return the messages of an object; None where it holds none.

    It may be in LangChain's own form (`lc`), a message with a role, hold answers to choose from, or fields with messages, of which the
    first that has some counts, after a `system` beside it.
    """
    if isinstance(value.get("kwargs"), dict) and "lc" in value:
        names = value.get("id")  # in LangChain's own form, it ends in the class
        class_name = str(names[-1]) if isinstance(names, list) and names else ""
        return items_of({"role": class_name, **value["kwargs"]}, role, depth + 1)
    own_role = value.get("role") or value.get("type")
    if isinstance(own_role, str) and own_role.casefold() in KNOWN_ROLES and MESSAGE_FIELDS & set(value):
        return [_item(value, own_role.casefold())]
    answers = value.get("choices") or value.get("generations")
    if isinstance(answers, list) and answers:
        return _items_of_answers(answers, depth)
    for name in FIELDS_WITH_MESSAGES:
        items = None if value.get(name) is None else items_of(value[name], role, depth + 1)
        if not items:
            continue
        system = value.get("system")
        if isinstance(system, str) and system.strip():
            return [Item("system", system), *items]
        return items
    return None


def _items_of_answers(answers: list[Any], depth: int) -> list[Item] | None:
    """Return the first of several answers to one request, and an item to be skipped for each of the others; None where it is no chat.

    Some libraries nest them: a list for each request. Of several requests only the first one's first answer is returned.
    """
    is_nested = isinstance(answers[0], list) and bool(answers[0])
    items = items_of(answers[0][0] if is_nested else answers[0], ASSISTANT, depth + 1)
    if not items:
        return None
    alternatives = answers[0] if is_nested and len(answers) == 1 else answers
    are_answers = isinstance(alternatives[0], dict)  # and no lists, one for each of several requests
    if not are_answers:
        return items
    not_chosen = Item(ASSISTANT, "", skip="answer not chosen")
    return items + [not_chosen] * (len(alternatives) - 1)


def both_sides(inputs: Any, outputs: Any) -> BothSides:
    """Return what a call was asked and answered. Where only one of them is a chat, the other counts as left out."""
    sides = BothSides(items_of(inputs, USER) or [], items_of(outputs, ASSISTANT) or [])
    if sides.outputs and not sides.inputs and inputs:
        sides.inputs.append(Item(USER, "", skip="input that is no chat"))
    elif sides.inputs and not sides.outputs and outputs:
        sides.outputs.append(Item(ASSISTANT, "", skip="output that is no chat"))
    return sides


def _item(message: dict[str, Any], role: str) -> Item:
    """Return a message with a role. Text parts are joined; what else it holds is a reason to skip it only when there is no text.

    What a tool says is skipped always.
    """
    if isinstance(message.get("data"), dict):
        message = {**message, **message["data"]}
    content = message.get("content")
    if content is None:
        content = message.get("parts")
    texts: list[str] = []
    reasons: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        text = _text_of_part(part)
        if text is not None:
            texts.append(text)
        elif isinstance(part, dict):
            kind = str(part.get("type", "text"))
            reasons.append(_REASONS_OF_PARTS.get(kind, kind))
    if message.get("tool_calls") or message.get("function_call"):
        reasons.append("tool call")
    text = "\n".join(text for text in texts if text.strip())
    skip = ""
    if role in TOOL_ROLES or ROLES.get(role) == "tool":
        skip = TOOL_RESULT
    elif not text:
        skip = reasons[0] if reasons else "empty message"
    name = message.get("name")
    return Item(ROLES.get(role, role), text, name if isinstance(name, str) else "", skip)


_REASONS_OF_PARTS = {"tool_use": "tool call", "tool_call": "tool call", "reasoning": "thinking"}


def _text_of_part(part: Any) -> str | None:
    """Return the text of a part of a message; None where it is another kind of part."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("type", "text") not in TEXT_PARTS:
        return None
    text = part.get("text") or part.get("content")
    return text if isinstance(text, str) else None


def calls_of(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield the values of a file of traces, which is read as a whole: its calls are put in order of time.

    Raises:
        FileError: It is larger than that allows.
    """
    if source.size > MAX_DOCUMENT:
        raise FileError(source.name, 0, f"traces of more than {MAX_DOCUMENT:,} bytes; export them in parts")
    yield from json_values(source)


# -- from calls to conversations
@dataclass(frozen=True, slots=True)
class PlacedItem:
    """A message of a call, its number there, and whether it is among what the call answered."""

    number: int
    item: Item
    is_answer: bool


@dataclass(frozen=True, slots=True)
class SortedCalls:
    """The calls whose messages count, and an entry for each of the others."""

    chosen: list[Call]
    left_out: list[Skipped]


def conversations(calls: Sequence[Call], spoken: Mapping[str, Sequence[PastMessage]] | None = None) -> Iterator[Record]:
    """Put calls in order of time and yield the messages of their conversations, each once, and an entry for whatever is left out.

    Args:
        calls: Of any number of conversations, in any order.
        spoken: What was said before in each conversation: for calls that come piece by piece.
    """
    sorted_calls = _innermost(calls)
    yield from sorted_calls.left_out
    said_in = {name: list(said) for name, said in (spoken or {}).items()}
    instructions: set[tuple[str, str]] = set()  # conversation and system prompt
    for call in sorted(sorted_calls.chosen, key=_time_of):
        yield from _new_messages(call, said_in.setdefault(call.conversation, []), instructions)


def _time_of(call: Call) -> datetime:
    """Return when a call began; calls without a time come last."""
    return call.started or call.ended or datetime.max.replace(tzinfo=UTC)


def _new_messages(call: Call, earlier: list[PastMessage], instructions: set[tuple[str, str]]) -> Iterator[Record]:
    """Yield what is new in a call, and an entry for each message that is none or was said before.

    Args:
        earlier: What was said in its conversation before; what is new is added.
        instructions: Each conversation's system prompts so far; a new one is added.
    """
    spoken: list[PlacedItem] = []
    answered_state = _answered_state(call)
    for numbered in _placed_items(call):
        item = numbered.item
        if item.skip or not item.text.strip():
            yield Skipped(item.skip or "empty message", call.line)
        elif not numbered.is_answer and item.text in answered_state:
            yield Skipped("sent again", call.line)
        elif item.role not in SYSTEM_ROLES:
            spoken.append(numbered)
        elif (call.conversation, item.text) in instructions:
            yield Skipped("sent again", call.line)
        else:
            instructions.add((call.conversation, item.text))
            yield _message(call, numbered, "system")
    already_read = _count_known(call, spoken, earlier)
    for _ in range(already_read):
        yield Skipped("sent again", call.line)
    for numbered in spoken[already_read:]:
        speaker = _speaker_of(call, numbered.item)
        earlier.append(PastMessage(speaker, numbered.item.text))
        yield _message(call, numbered, speaker)


def _placed_items(call: Call) -> list[PlacedItem]:
    items = [*call.inputs, *call.outputs]
    return [PlacedItem(number, item, number >= len(call.inputs)) for number, item in enumerate(items)]


def _answered_state(call: Call) -> set[str]:
    """Return the texts that a step around calls answers where that is its whole state, with what it was asked; else nothing."""
    if all(item.role == ASSISTANT for item in call.outputs):
        return set()
    return {item.text for item in call.outputs}


def _speaker_of(call: Call, item: Item) -> str:
    if item.role == ASSISTANT:
        return call.agent or ASSISTANT
    return item.name or item.role


def _innermost(calls: Sequence[Call]) -> SortedCalls:
    """Choose the calls whose messages count: a step around a call repeats what that call holds.

    Of a trace in which a model is called, these are the model's calls with none inside; of another, the outermost steps with a chat.
    Chosen ones that name no agent get that of the nearest step around them.
    """
    by_id = {call.id: call for call in calls}
    traces_with_model: set[str] = set()
    around_model: set[str] = set()  # ids of steps around a call of a model
    inside_step: set[str] = set()  # ids of calls inside a step with a chat
    for call in calls:
        if not call.has_items:
            continue
        if call.is_model:
            traces_with_model.add(call.trace)
        for step in _steps_around(call, by_id):
            if call.is_model:
                around_model.add(step.id)
            if step.has_items:
                inside_step.add(call.id)

    chosen: list[Call] = []
    left_out: list[Skipped] = []
    for call in calls:
        # Where a model is called, steps repeat what its calls hold; elsewhere inner steps repeat what the outermost one holds.
        is_repeated = not call.is_model if call.trace in traces_with_model else call.id in inside_step
        if not call.has_items:
            left_out.append(Skipped(call.unread or "step without messages", call.line))
        elif is_repeated or call.id in around_model:
            left_out.append(Skipped("step around a model's call", call.line))
        else:
            chosen.append(replace(call, agent=call.agent or _agent_around(call, by_id)))
    return SortedCalls(chosen, left_out)


def _steps_around(call: Call, by_id: Mapping[str, Call]) -> Iterator[Call]:
    """Yield the steps around a call, from the nearest; none twice, for a broken export may nest them in a circle."""
    seen = {call.id}
    while call.parent in by_id and call.parent not in seen:
        call = by_id[call.parent]
        seen.add(call.id)
        yield call


def _agent_around(call: Call, by_id: Mapping[str, Call]) -> str:
    """Return the agent that the nearest step around a call names; empty where none does."""
    for step in _steps_around(call, by_id):
        if step.agent:
            return step.agent
    return ""


def _count_known(call: Call, spoken: Sequence[PlacedItem], earlier: Sequence[PastMessage]) -> int:
    """Return how many of a call's messages were said before: up to its last own answer that was, and what overlaps with the end.

    Texts are compared without the white space around them, which clients often leave out when they send again what was said. What a model's
    call answers is new, though it may say the same words again.

    Args:
        spoken: The call's messages, without those that are skipped.
        earlier: What was said in its conversation before, by any speaker.
    """
    if call.is_model:
        spoken = [numbered for numbered in spoken if not numbered.is_answer]
    texts_so_far = {text.strip() for _, text in earlier}
    first_new = 0
    for number, numbered in enumerate(spoken, 1):
        if numbered.item.role == ASSISTANT and numbered.item.text.strip() in texts_so_far:
            first_new = number
    rest = [numbered.item for numbered in spoken[first_new:]]
    for length in range(min(len(rest), len(earlier), MOST_OVERLAP), 0, -1):  # the longest overlap counts
        if _are_the_same(rest[:length], earlier[-length:], agent=call.agent or ASSISTANT):
            return first_new + length
    return first_new


def _are_the_same(items: Sequence[Item], earlier: Sequence[PastMessage], *, agent: str) -> bool:
    """Return whether messages of a call are what was said; what the agent said is no other speaker's message."""
    for item, (speaker, text) in zip(items, earlier, strict=True):
        is_agents = item.role == ASSISTANT
        if text.strip() != item.text.strip() or (speaker == agent and not is_agents):
            return False
    return True


def _message(call: Call, numbered: PlacedItem, speaker: str) -> SourceMessage:
    """Return a message of a call: sent when the call began, an answer when it ended. Answers of a known model are tagged with its name."""
    item = numbered.item
    is_answer_of_model = numbered.is_answer and item.role == ASSISTANT and bool(call.model)
    return SourceMessage(
        speaker=speaker,
        role=item.role,
        kind="system" if item.role in SYSTEM_ROLES else "named",
        text=item.text,
        line=call.line,
        source_id=f"{call.id}:{numbered.number}" if call.id else "",
        sent_at=(call.ended or call.started) if numbered.is_answer else call.started,
        channel=call.conversation,
        tags={"model": call.model} if is_answer_of_model else {},
    )


def moment(time: datetime | None) -> datetime | None:
    """Return a time of a trace, in UTC where it has no zone: calls are sorted by it."""
    if time is None or time.tzinfo is not None:
        return time
    return time.replace(tzinfo=UTC)
