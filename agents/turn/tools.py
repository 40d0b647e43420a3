"""The tools an agent acts with: what the model is told of them, and the check of what it asks for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agents import llm
from agents.text.tokens import has_emoji
from agents.turn.admission import MAX_CHARACTERS

REASON_CHARACTERS = 500
QUERY_CHARACTERS = 200
PASSAGE_CHARACTERS = 2_000
BLOCK_CHARACTERS = 4_000
LABEL = re.compile(r"[a-z][a-z0-9_]{0,63}")
PROTECTED_LABEL = "personality"


class ToolFault(ValueError):
    """A tool cannot do what was asked. Its text goes to the model: the field, its value, and what is allowed."""


def _said(text: str) -> str:
    if not text.strip():
        raise ValueError("allowed: text that is not only white space")
    return text


def _emoji(text: str) -> str:
    bare = text.strip()
    if not has_emoji(bare) or any(char.isalpha() or char.isspace() for char in bare):
        raise ValueError("allowed: one emoji such as 👍, without words")
    return bare


def plain_label(text: str) -> str:
    """A label in its one spelling: ``Current focus`` is ``current_focus``."""
    return re.sub(r"[\W_]+", "_", unicodedata.normalize("NFKC", text).casefold()).strip("_")


def _label(text: str) -> str:
    """The protected label is recognised however it is written: what differs only in case, spaces or signs is the same to a reader."""
    label = plain_label(text)
    if label.replace("_", "") == PROTECTED_LABEL:
        raise ValueError(f"the note {PROTECTED_LABEL} is not yours to change; allowed: any other label")
    if not LABEL.fullmatch(label):
        raise ValueError("allowed: 1 to 64 letters a-z, digits and _, beginning with a letter")
    return label


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class SendMessage(_Input):
    """Say something in one of your channels. The text is posted as it stands."""

    channel: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)] = Field(
        description="short name of the channel, from the list of your channels"
    )
    text: Annotated[str, StringConstraints(max_length=MAX_CHARACTERS), AfterValidator(_said)] = Field(
        description="what you say"
    )


class ReactToMessage(_Input):
    """Put one emoji on a message of the conversation you are shown."""

    message: Annotated[int, Field(ge=1, le=2**62, strict=False)] = Field(
        description="the number in front of the message"
    )
    emoji: Annotated[str, StringConstraints(max_length=32), AfterValidator(_emoji)] = Field(description="one emoji")


class DoNothing(_Input):
    """Say nothing more and end your turn."""

    reason: Annotated[str, StringConstraints(max_length=REASON_CHARACTERS), AfterValidator(_said)] = Field(
        description="why, in a few words; nobody sees it"
    )


class UpdateMemory(_Input):
    """Replace the text of one of your memory notes, or begin a new one."""

    label: Annotated[str, StringConstraints(max_length=100), AfterValidator(_label)] = Field(
        description="name of the note, for example relationships or current_focus; never personality"
    )
    value: Annotated[str, StringConstraints(max_length=BLOCK_CHARACTERS)] = Field(description="its whole new text")


class SearchMemory(_Input):
    """Look up thoughts that you kept with store_memory."""

    query: Annotated[str, StringConstraints(max_length=QUERY_CHARACTERS), AfterValidator(_said)] = Field(
        description="words to look for"
    )


class StoreMemory(_Input):
    """Keep a thought to look up later."""

    text: Annotated[str, StringConstraints(max_length=PASSAGE_CHARACTERS), AfterValidator(_said)] = Field(
        description="the thought"
    )


INPUTS: Mapping[str, type[_Input]] = {
    "send_message": SendMessage,
    "react_to_message": ReactToMessage,
    "do_nothing": DoNothing,
    "update_memory": UpdateMemory,
    "search_memory": SearchMemory,
    "store_memory": StoreMemory,
}
ToolInput = SendMessage | ReactToMessage | DoNothing | UpdateMemory | SearchMemory | StoreMemory


def tool_definitions() -> tuple[llm.Tool, ...]:
    """The tools as a request offers them; the same for every agent, so that a prompt cache can hold them."""
    return tuple(
        llm.Tool(name=name, description=(model.__doc__ or "").strip(), input_schema=_schema(model))
        for name, model in INPUTS.items()
    )


def read_input(call: llm.ToolCall) -> ToolInput:
    """The validated input of a tool call.

    Raises:
        ToolFault: There is no such tool, or a field is missing, unknown or not allowed.
    """
    model = INPUTS.get(call.name)
    if model is None:
        raise ToolFault(f"There is no tool {shown(call.name)}; allowed: {', '.join(INPUTS)}.")
    try:
        found = model.model_validate(dict(call.input))
    except ValidationError as error:
        raise ToolFault(" ".join(_complaint(model, dict(detail)) for detail in error.errors())) from None
    assert isinstance(found, ToolInput)  # noqa: S101 (for the type checker)
    return found


def shown(value: Any, limit: int = 80) -> str:
    """A value as an error names it, shortened."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _complaint(model: type[_Input], detail: dict[str, Any]) -> str:
    name = ".".join(str(part) for part in detail["loc"]) or "input"
    fields = ", ".join(model.model_fields)
    if detail["type"] == "missing":
        return f"The field {name} is missing; allowed: {fields}."
    if detail["type"] == "extra_forbidden":
        return f"There is no field {shown(name)}; allowed: {fields}."
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"The field {name} is {shown(detail['input'])}: {message}."


def _schema(model: type[_Input]) -> dict[str, Any]:
    """The JSON schema of a tool's input, without what only people would read."""
    schema = model.model_json_schema()
    for part in (schema, *schema["properties"].values()):
        part.pop("title", None)
    schema.pop("description", None)
    return schema
