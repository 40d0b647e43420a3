"""The values that go into and come out of a model call. Frozen, without Django, safe to share between threads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Role = Literal["judge", "actor"]
ROLES: tuple[Role, ...] = ("judge", "actor")


class Status(StrEnum):
    """How a call ended. A failure is a value: nothing above this floor catches the SDK's exceptions."""

    OK = "ok"
    REFUSED = "refused"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    UNAVAILABLE = "unavailable"
    REJECTED = "rejected"


class InvalidAnswer(ValueError):
    """Raised by a request's `parse` when the JSON object is not what was asked for. Its text says what and why."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of prompt text. `cache` sets a prompt-cache breakpoint after it: everything up to here is static."""

    text: str
    cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function the model may ask for. `input_schema` is the JSON schema (type object) of its input."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to use a tool. `input` is what it wrote, not yet validated; `id` is unique within a conversation."""

    id: str
    name: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered, as the model reads it."""

    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the conversation sent to the model.

    `tool_results` stand first in a user turn, before its blocks; `tool_calls` last in an assistant turn.
    """

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What a call is for: the columns of its ledger row. Ids, never ORM objects, so that the value may cross threads.

    `item` tells equal questions of one piece of work apart, e.g. repeated judgements; it is no column.
    """

    purpose: str
    mechanism: str = ""
    dimension: str = ""
    agent_id: int | None = None
    run_id: int | None = None
    work_id: str = ""
    item: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LLMRequest:
    """One question to a model.

    Attributes:
        role: Whose model and endpoint answers, ``judge`` or ``actor``.
        task: Name of the offline responder (``OFFLINE_RESPONDERS``), e.g. ``score``.
        turns: The conversation; ends with a user turn.
        schema: JSON schema of the answer; None asks for free text.
        parse: Turns the decoded JSON object into the caller's value; raises `InvalidAnswer`. None keeps the object.
        example: A valid answer, shown as an earlier assistant turn when the first one was malformed.
        reask: Whether a malformed answer is asked again once (offline evaluation; never in the gate).
        max_tokens: Most tokens of the answer.
        retries: Retries after 408, 409, 429, >= 500 and connection errors (gate 0).
        gate: Whether the call may use the slots reserved for the gate.
        model: Overrides the role's model.
        nonce: Random text used in this prompt's fences; replaced by a constant in the request's digest, so that a replay finds it.
        tools: What the model may use; with tools an answer may be text, tool calls or both, and `schema` stays None.
        facts: Structured input for the offline provider; never sent over the network.
        span: The Sentry span that the call belongs under; None for the one that is current when it is settled.
    """

    role: Role
    task: str
    system: tuple[Block, ...]
    turns: tuple[Turn, ...]
    label: Label
    schema: Mapping[str, Any] | None = None
    parse: Callable[[Any], Any] | None = None
    example: Mapping[str, Any] | None = None
    reask: bool = False
    max_tokens: int = 2048
    retries: int = 0
    gate: bool = False
    model: str = ""
    nonce: str = ""
    tools: tuple[Tool, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    span: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call; None where the server did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer, or the reason why there is none.

    Attributes:
        status: `Status.OK` exactly when `value` (structured) or `text` (free) can be used.
        value: What `parse` returned, or the decoded object.
        error: One line for people when the status is not ``ok``.
        provider: ``anthropic``, ``offline`` or ``replay``.
        endpoint: Base URL without credentials; empty for offline and replay.
        model: The model asked for. `served_model`: the one the server says it used.
        latency_ms: Wall time of this call without waiting for a slot. `waited_ms`: waiting for a slot.
        heard: Whether the server began to answer the last of them; None where nothing was sent, or that is not known.
        call_id: Primary key of the ledger row; None only when writing it failed.
        batch: Whether it was answered in a batch, at the batch price.
        earlier: Replies of this request before a re-ask; each has its own ledger row.
    """

    status: Status
    value: Any = None
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    error: str = ""
    stop_reason: str = ""
    provider: str = ""
    endpoint: str = ""
    model: str = ""
    served_model: str = ""
    usage: Usage = Usage()
    request_id: str = ""
    request_digest: str = ""
    latency_ms: int = 0
    waited_ms: int = 0
    attempts: int = 1
    heard: bool | None = None
    call_id: int | None = None
    batch: bool = False
    earlier: tuple[Reply, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


CHARACTERS_PER_TOKEN = 4


def request_digest(request: LLMRequest) -> str:
    """SHA-256 (hex) of what was asked: system, turns, schema, `max_tokens` and, where there are any, tools.

    Not of the model: a replay answers for whichever model was asked. The request's nonce counts as a constant, for it
    differs in every run, and so do the ids of tool calls: which call a result answers counts as the call's number.
    Where cache breakpoints stand does not change the question and does not count.
    """
    question: dict[str, Any] = {
        "system": [block.text for block in request.system],
        "turns": _turns(request),
        "schema": request.schema,
        "max_tokens": request.max_tokens,
    }
    if request.tools:
        question["tools"] = [[tool.name, tool.description, dict(tool.input_schema)] for tool in request.tools]
    canonical = json.dumps(question, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    if request.nonce:
        canonical = canonical.replace(json.dumps(request.nonce, ensure_ascii=False)[1:-1], "NONCE")
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _turns(request: LLMRequest) -> list[list[Any]]:
    """Role and texts of each turn; then its tool calls and results, if it has any."""
    numbers: dict[str, int] = {}
    turns: list[list[Any]] = []
    for turn in request.turns:
        entry: list[Any] = [turn.role, [block.text for block in turn.blocks]]
        for call in turn.tool_calls:
            numbers.setdefault(call.id, len(numbers) + 1)
        if turn.tool_calls or turn.tool_results:
            entry.append([[numbers[call.id], call.name, dict(call.input)] for call in turn.tool_calls])
            entry.append([[numbers.get(done.call_id, 0), done.text, done.is_error] for done in turn.tool_results])
        turns.append(entry)
    return turns


def estimate_tokens(request: LLMRequest) -> int:
    """Input tokens of a request, **estimated** as a quarter of its characters; for dry runs only.

    Off by tens of percent: newer tokenizers count about 30 % more for the same English text, other scripts several
    times more. Real counts come from the server and stand in the ledger.
    """
    blocks = [*request.system, *(block for turn in request.turns for block in turn.blocks)]
    characters = sum(len(block.text) for block in blocks)
    for turn in request.turns:
        characters += sum(len(call.name) + len(json.dumps(dict(call.input))) for call in turn.tool_calls)
        characters += sum(len(result.text) for result in turn.tool_results)
    if request.schema is not None:
        characters += len(json.dumps(request.schema))
    for tool in request.tools:
        characters += len(tool.name) + len(tool.description) + len(json.dumps(dict(tool.input_schema)))
    return -(-characters // CHARACTERS_PER_TOKEN)
