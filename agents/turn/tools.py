"""The tools an agent acts with. A tool is a class: the model sees its fields and docstring, `perform` carries it out."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar

from django.utils.module_loading import import_string
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, create_model

from agents.kit import llm
from agents.kit.capability import declared
from agents.kit.text.fences import MAX_CHARACTERS, fence, safe_and_cut
from agents.kit.text.tokens import has_emoji, tokenize
from agents.models import Channel, ChannelMember, MemoryBlock, MemoryPassage, Message, Reaction
from agents.turn.pipeline import Answer, Draft, SendResult, Turn
from agents.turn.prompt import render, within_reach
from agents.turn.send_message import KEY_CHARACTERS, RequiredStageFailed, SendRefused, send_message

REASON_CHARACTERS = 500
QUERY_CHARACTERS = 200
PASSAGE_CHARACTERS = 2_000
BLOCK_CHARACTERS = 4_000
MEMORY_BLOCKS = 20
SEARCHED_PASSAGES = 1_000
FOUND_PASSAGES = 5
LABEL = re.compile(r"[a-z][a-z0-9_]{0,63}")
PROTECTED_LABEL = "personality"


class ToolFault(ValueError):
    """A tool cannot do what was asked. Its text goes to the model: the field, its value, and what is allowed."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("allowed: text that is not only white space")
    return text


def _one_emoji(text: str) -> str:
    emoji = text.strip()
    has_words = any(char.isalpha() or char.isspace() for char in emoji)
    if has_words or not has_emoji(emoji):
        raise ValueError("allowed: one emoji such as 👍, without words")
    return emoji


def plain_label(text: str) -> str:
    """Return a label in its one spelling: ``Current focus`` is ``current_focus``."""
    return re.sub(r"[\W_]+", "_", unicodedata.normalize("NFKC", text).casefold()).strip("_")


def _own_label(text: str) -> str:
    """Return the label of a note in its one spelling, unless it is not the agent's to change.

    The protected label is recognised however it is written: what differs only in case, spaces or signs is the same to a reader.

    Raises:
        ValueError: It is protected, or no label; says what is allowed.
    """
    label = plain_label(text)
    if label.replace("_", "") == PROTECTED_LABEL:
        raise ValueError(f"the note {PROTECTED_LABEL} is not yours to change; allowed: any other label")
    if not LABEL.fullmatch(label):
        raise ValueError("allowed: 1 to 64 letters a-z, digits and _, beginning with a letter")
    return label


@dataclass(frozen=True, slots=True)
class Performed:
    """The outcome of a tool call.

    Attributes:
        text: For the model.
        is_error: Whether nothing was done.
        message: The message it committed.
        detail: JSON that is stored with it, enough to go on from after a restart.
        ends: Whether the turn is over.
    """

    text: str
    is_error: bool = False
    message: Message | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    ends: bool = False


class Tool(BaseModel):
    """A tool, whose fields are what the model asks of it, validated.

    Attributes:
        calls_models: Whether carrying it out may ask a model, so that no transaction may be open.
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    calls_models: ClassVar[bool] = False

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        """Carry out what was asked, for a turn whose run is set.

        Raises:
            ToolFault, SendRefused: It cannot be done; the sentence goes to the model.
            RequiredStageFailed: A stage without which nothing may be said failed: the turn cannot go on.
        """
        raise NotImplementedError

    @classmethod
    def scripted(cls, message: str) -> dict[str, Any] | None:
        """Return what the offline actor asks of this tool when it answers a message; None = it does not use it."""
        return None


class SendMessage(Tool):
    """Say something in one of your channels. The text is posted as it stands."""

    calls_models: ClassVar[bool] = True

    channel: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)] = Field(
        description="short name of the channel, from the list of your channels"
    )
    text: Annotated[str, StringConstraints(max_length=MAX_CHARACTERS), AfterValidator(_not_blank)] = Field(
        description="what you say"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        """Pass the text through the review stages and say it; a typed answer that was said ends the turn."""
        channel = self._chosen_channel(turn)
        fields_of_answer = self.model_dump(mode="json", exclude=set(SendMessage.model_fields))
        result = send_message(
            agent=turn.agent,
            channel=channel,
            text=self.text,
            payload=fields_of_answer,
            run=turn.run,
            turn=turn,
            idempotency_key=_key_of_call(turn, call),
        )
        gives_answer = turn.wanted_answer is not None and result.committed
        return _performed_send(result, channel, self.text, ends=gives_answer)

    def _chosen_channel(self, turn: Turn) -> Channel:
        """Return the channel that the model names, also with a # or in capitals; the channel of the turn where it names none.

        A typed answer can only be given in the channel of the turn.

        Raises:
            ToolFault: It names none that the agent can speak in.
        """
        reached = [turn.channel] if turn.wanted_answer is not None else within_reach(turn.agent, turn.channel)
        by_slug = {channel.slug: channel for channel in reached}
        slug = self.channel.removeprefix("#") if self.channel else turn.channel.slug
        channel = by_slug.get(slug) or by_slug.get(slug.casefold())
        if channel is None:
            allowed = ", ".join(list(by_slug)[:30]) or "none, you have joined no channel"
            raise ToolFault(f"The field channel is {shown(self.channel)}; allowed: {allowed}.")
        return channel


def _key_of_call(turn: Turn, call: llm.ToolCall) -> str:
    """Return the idempotency key of a tool call, so that a repeated one says nothing twice; a server's overlong id is digested."""
    key = f"run:{turn.run.pk if turn.run else ''}:{call.id}"
    if len(key) <= KEY_CHARACTERS:
        return key
    return key[:60] + ":" + hashlib.sha256(key.encode()).hexdigest()


class SendAnswer(SendMessage):
    """Give the typed answer that is asked for, in the channel of the turn."""

    # Fields that nobody asked for are no reason to lose an answer; the schema still names those that there are.
    model_config = ConfigDict(extra="ignore", json_schema_extra={"additionalProperties": False})

    channel: Annotated[str, StringConstraints(strip_whitespace=True, max_length=120)] = Field(
        "", description="short name of the channel; may be left out"
    )


class ReactToMessage(Tool):
    """Put one emoji on a message of the conversation you are shown."""

    message: Annotated[int, Field(ge=1, le=2**62, strict=False)] = Field(
        description="the number in front of the message"
    )
    emoji: Annotated[str, StringConstraints(max_length=32), AfterValidator(_one_emoji)] = Field(description="one emoji")

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        """Store the reaction to a message of the turn's channel, once.

        Raises:
            ToolFault: The agent is no active member of the channel any more, or there is no such message.
        """
        membership = ChannelMember.objects.filter(agent=turn.agent, agent__is_active=True, channel=turn.channel)
        if not membership.exists():
            raise ToolFault(f"You are not an active member of {turn.channel.slug}.")
        message = Message.objects.filter(channel=turn.channel, position=self.message).first()
        if message is None:
            allowed = "the number in front of a message of the conversation you are shown"
            raise ToolFault(f"The field message is {self.message}; allowed: {allowed}.")
        _, is_new = Reaction.objects.get_or_create(message=message, agent=turn.agent, emoji=self.emoji)
        text = f"You reacted to message {self.message} with {self.emoji}."
        if not is_new:
            text = f"You had put {self.emoji} on message {self.message} before."
        return Performed(text, detail={"message": message.pk, "emoji": self.emoji})


class DoNothing(Tool):
    """Say nothing more and end your turn."""

    reason: Annotated[str, StringConstraints(max_length=REASON_CHARACTERS), AfterValidator(_not_blank)] = Field(
        description="why, in a few words; nobody sees it"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        turn.abandoned = True
        return Performed("Your turn is over.", detail={"reason": self.reason}, ends=True)


class UpdateMemory(Tool):
    """Replace the text of one of your memory notes, or begin a new one."""

    label: Annotated[str, StringConstraints(max_length=100), AfterValidator(_own_label)] = Field(
        description="name of the note, for example relationships or current_focus; never personality"
    )
    value: Annotated[str, StringConstraints(max_length=BLOCK_CHARACTERS)] = Field(description="its whole new text")

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        """Store the note, unless the turn is in a simulation, which the agent does not learn. A stored label keeps its spelling.

        Raises:
            ToolFault: It would be one note more than 20.
        """
        stored_labels = MemoryBlock.objects.filter(agent=turn.agent).values_list("label", flat=True)
        by_spelling = {plain_label(label): label for label in stored_labels}
        if self.label not in by_spelling and len(by_spelling) >= MEMORY_BLOCKS:
            allowed = ", ".join(sorted(by_spelling))
            raise ToolFault(
                f"The field label is {self.label!r}: you have {len(by_spelling)} notes; allowed: {allowed}."
            )
        label = by_spelling.get(self.label, self.label)
        if not turn.channel.synthetic:
            MemoryBlock.objects.update_or_create(
                agent=turn.agent, label=label, defaults={"value": self.value, "run": turn.run}
            )
        return Performed(f"Your note {self.label} is changed.", detail={"label": label, **_memory_detail(turn)})


class SearchMemory(Tool):
    """Look up thoughts that you kept with store_memory."""

    query: Annotated[str, StringConstraints(max_length=QUERY_CHARACTERS), AfterValidator(_not_blank)] = Field(
        description="words to look for"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        """Find the five passages that hold most of the words looked for, the newer first among equals; the newest 1,000 are read.

        They are given within a fence, numbered.
        """
        words = set(tokenize(self.query))
        newest_first = MemoryPassage.objects.filter(agent=turn.agent).order_by("-created_at", "-pk")
        matches = []
        for passage in newest_first[:SEARCHED_PASSAGES]:
            number_of_words = len(words & set(tokenize(passage.text)))
            if number_of_words:
                matches.append((number_of_words, passage))
        matches.sort(key=lambda match: match[0], reverse=True)  # stable: the newer first among equals
        best = matches[:FOUND_PASSAGES]
        if not best:
            return Performed("Nothing you kept holds these words.", detail={"found": 0})
        lines = []
        for number, (_, passage) in enumerate(best, 1):
            text = safe_and_cut(passage.text).replace("\n", "\n    | ")
            lines.append(f"{number}. {text}")
        return Performed(fence("MEMORY", "\n".join(lines), turn.nonce), detail={"found": len(best)})


class StoreMemory(Tool):
    """Keep a thought to look up later."""

    text: Annotated[str, StringConstraints(max_length=PASSAGE_CHARACTERS), AfterValidator(_not_blank)] = Field(
        description="the thought"
    )

    def perform(self, turn: Turn, call: llm.ToolCall) -> Performed:
        if not turn.channel.synthetic:
            MemoryPassage.objects.create(agent=turn.agent, text=self.text, run=turn.run)
        return Performed("Kept.", detail=_memory_detail(turn))


TOOLS: Mapping[str, type[Tool]] = {
    "send_message": SendMessage,
    "react_to_message": ReactToMessage,
    "do_nothing": DoNothing,
    "update_memory": UpdateMemory,
    "search_memory": SearchMemory,
    "store_memory": StoreMemory,
}


def tools_for(answer: Answer | None, more: Sequence[str] = ()) -> Mapping[str, type[Tool]]:
    """Return what an agent may use: `TOOLS` and `more` of `turn_tools`; or `send_message` alone, with the fields of a typed answer."""
    if answer is not None:
        return {"send_message": _send_message_with(declared("turn_answers")[answer.name])}
    further = {name: import_string(declared("turn_tools")[name]) for name in more}
    return {**TOOLS, **further}


@lru_cache(maxsize=32)
def _send_message_with(path: str) -> type[Tool]:
    """Return the tool `send_message` with the fields of the answer at a dotted path."""
    return create_model("SendMessage", __base__=(SendAnswer, import_string(path)), __doc__=SendMessage.__doc__)


def tool_definitions(answer: Answer | None = None, more: Sequence[str] = ()) -> tuple[llm.Tool, ...]:
    """Return the tools as a request offers them; the same for every agent, so that a prompt cache can hold them."""
    path_of_answer = declared("turn_answers")[answer.name] if answer is not None else ""
    return _definitions(path_of_answer, tuple(more))


@lru_cache(maxsize=32)
def _definitions(path_of_answer: str, more: tuple[str, ...]) -> tuple[llm.Tool, ...]:
    """Return the definitions of tools, with pydantic's schemas but without the titles that it adds.

    Args:
        path_of_answer: Dotted path of a typed answer: then `send_message` with its fields is the only tool; empty = all tools.
        more: Names of further tools.
    """
    if path_of_answer:
        tools: Mapping[str, type[Tool]] = {"send_message": _send_message_with(path_of_answer)}
    else:
        tools = tools_for(None, more)
    definitions = []
    for name, tool in tools.items():
        schema = tool.model_json_schema()
        for part in (schema, *schema["properties"].values()):
            part.pop("title", None)
        description = schema.pop("description", "")
        definitions.append(llm.Tool(name=name, description=description, input_schema=schema))
    return tuple(definitions)


def perform(call: llm.ToolCall, *, turn: Turn) -> Performed:
    """Check and carry out what the model asked for, see `Tool.perform`.

    Returns:
        The outcome; what cannot be done, or is not offered in this turn, is an error for the model, marked as `refused`.

    Raises:
        RequiredStageFailed: A stage without which nothing may be said failed.
    """
    tools = tools_for(turn.wanted_answer, turn.tools)
    try:
        tool = tools.get(call.name)
        if tool is None:
            raise ToolFault(f"There is no tool {shown(call.name)}; allowed: {', '.join(tools)}.")
        return _validated(tool, call).perform(turn, call)
    except RequiredStageFailed:
        raise
    except (ToolFault, SendRefused) as fault:
        return Performed(str(fault), is_error=True, detail={"refused": True})


def _validated(tool: type[Tool], call: llm.ToolCall) -> Tool:
    """Return what the model asked for.

    Raises:
        ToolFault: It does not fit the tool; names every mistake.
    """
    try:
        return tool.model_validate(dict(call.input))
    except ValidationError as error:
        sentences = [_complaint(tool, dict(detail)) for detail in error.errors()]
        raise ToolFault(" ".join(sentences)) from None


def calls_models(call: llm.ToolCall, turn: Turn) -> bool:
    """Return whether carrying out a call may ask a model, so that no transaction may be open."""
    tool = tools_for(turn.wanted_answer, turn.tools).get(call.name)
    return tool is not None and tool.calls_models


def send_draft(draft: Draft, *, turn: Turn) -> Performed:
    """Send what a stage answered at once in place of the model; that ends the turn, also where it is sent back or refused.

    Raises:
        RequiredStageFailed: A stage without which nothing may be said failed.
    """
    if turn.run is None:
        raise ValueError("a stage's draft is sent by a run")
    try:
        result = send_message(
            agent=turn.agent,
            channel=turn.channel,
            text=draft.text,
            payload=draft.payload,
            run=turn.run,
            turn=turn,
            idempotency_key=f"run:{turn.run.pk}:draft",
        )
    except RequiredStageFailed:
        raise
    except SendRefused as fault:
        return Performed(str(fault), is_error=True, detail={"refused": True}, ends=True)
    return _performed_send(result, turn.channel, draft.text, ends=True)


def _performed_send(result: SendResult, channel: Channel, draft: str, *, ends: bool = False) -> Performed:
    """Return the outcome of sending a draft as the outcome of the tool that sent it; an error for the model where it was sent back.

    Args:
        draft: The text as it was written: the model sees where a stage changed it.
    """
    detail: dict[str, Any] = {
        "channel": channel.slug,
        "channel_id": channel.pk,
        "committed": result.committed,
        "outcome": result.outcome,
        "session": result.session,
        "stages": [entry.as_json() for entry in result.trace],
    }
    if result.message is None:
        detail["feedback"] = result.feedback
        return Performed(render("sent_back", feedback=result.feedback), is_error=True, detail=detail, ends=ends)
    text = render("sent", channel=channel.slug, number=result.message.position, changed=result.text != draft)
    return Performed(text, message=result.message, detail=detail, ends=ends)


def shown(value: Any, limit: int = 80) -> str:
    """Return a value as an error names it, shortened."""
    text = repr(value)
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "…"


def _complaint(model: type[Tool], detail: dict[str, Any]) -> str:
    """Return an error of pydantic as a sentence for the model: the field, its value, and what is allowed.

    E.g. ``The field emoji is missing; allowed: message, emoji.``
    """
    name = ".".join(str(part) for part in detail["loc"]) or "input"
    fields = ", ".join(model.model_fields)
    if detail["type"] == "missing":
        return f"The field {name} is missing; allowed: {fields}."
    if detail["type"] == "extra_forbidden":
        return f"There is no field {shown(name)}; allowed: {fields}."
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"The field {name} is {shown(detail['input'])}: {message}."


def _memory_detail(turn: Turn) -> dict[str, Any]:
    """Return what is noted of a change of memory: that a simulation is not remembered.

    The agent, who acts as if it were real, does not learn so.
    """
    if not turn.channel.synthetic:
        return {}
    return {"stored": False, "why": "a simulation: nothing is remembered"}
