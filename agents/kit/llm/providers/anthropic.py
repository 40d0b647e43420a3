"""Anthropic's Messages API, and any server that speaks it: Ollama, llama.cpp, vLLM, LiteLLM."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings

from agents.kit.llm.providers.base import (
    PLACEHOLDER_KEY,
    Batches,
    BatchState,
    Entry,
    Failure,
    Message,
    NoMessage,
    RemoteProvider,
    Route,
    failure_by_status,
    failure_without_answer,
    hint_of_404,
    key_fault,
    no_key,
    token_count,
    url_fault,
    words_of,
)
from agents.kit.llm.requests import (
    Block,
    LLMRequest,
    Role,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    short_line,
    tool_block,
)
from agents.kit.text.storable import storable

if TYPE_CHECKING:
    import httpx2
    from anthropic import APIStatusError
    from anthropic.types.messages import MessageBatch

ANTHROPIC_URL = "https://api.anthropic.com"
SPEND_LIMIT = "spend_limit"
MAX_BREAKPOINTS = 4  # the API refuses more
LISTED_AT_ONCE = 100
SIGNING_THREADS = 4


class MessagesProvider(RemoteProvider):
    """What speaks the Messages API through the SDK of Anthropic, wherever it is served.

    Attributes:
        hints: What to do about an HTTP error, by its status.
        path: What the SDK adds to the base URL.
    """

    hints: ClassVar[Mapping[int, str]] = {}
    path: ClassVar[str] = "/v1/messages"
    hopeless_words = (SPEND_LIMIT,)
    schema_field = "output_config"
    schema_words = ("schema", "structured", "output_format")

    def import_sdk(self) -> None:
        import anthropic  # noqa: F401
        import httpcore2  # noqa: F401

    def new_pool(self, route: Route, **options: Any) -> httpx2.AsyncClient:
        import anthropic

        return anthropic.DefaultAsyncHttpxClient(base_url=route.base_url, **options)

    def body(self, request: LLMRequest, route: Route, *, without: Collection[str]) -> dict[str, Any]:
        """Return the body of a message. Blank blocks and empty turns are left out, and all but the last cache breakpoints."""
        model = route.model_at_server
        system = _texts(request.system)
        messages = []
        blocks = [*system]
        for turn in request.turns:
            message = _message(turn)
            if message["content"]:
                messages.append(message)
                blocks += message["content"]
        _limit_breakpoints(blocks)
        body: dict[str, Any] = {"model": model, "max_tokens": request.max_tokens, "messages": messages}
        if system:
            body["system"] = system
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.temperature is not None and "temperature" not in without:
            body["temperature"] = request.temperature
        if request.schema is not None and "schema" not in without:
            body[self.schema_field] = {"format": {"type": "json_schema", "schema": dict(request.schema)}}
        if "claude-haiku-5" in model:
            body["thinking"] = {"type": "disabled"}  # it thinks by default, and thoughts count against max_tokens
        return body

    async def send(self, client: Any, body: Mapping[str, Any], *, headers: Mapping[str, str], seconds: float) -> object:
        fields = dict(body)
        others = {}
        if "temperature" in fields:  # the SDK's method does not take it
            others["temperature"] = fields.pop("temperature")
        message: object = await client.messages.create(
            **fields, extra_body=others, extra_headers=dict(headers), timeout=seconds
        )
        return message

    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        import anthropic

        if isinstance(problem, anthropic.APIStatusError):
            return self._failure_by_status(problem, route)
        return failure_without_answer(anthropic, problem, route)

    def _failure_by_status(self, problem: APIStatusError, route: Route) -> Failure:
        words = problem.api_message or words_of(problem.body) or "no reason given"
        hint = self.hints.get(problem.status_code, "")
        if problem.status_code == 404:
            hint = hint_of_404(words, route, self.path)
        if problem.status_code == 429 and SPEND_LIMIT in (problem.error_code or ""):
            hint = "a spend limit is reached; retrying will not help before it is raised"
        return failure_by_status(problem.status_code, words, hint)

    def read(self, answer: object) -> Message:
        content = getattr(answer, "content", None)
        if not isinstance(content, list):
            # Some servers answer 200 to what they refuse, and a wrong base URL can lead to any web page.
            complaint = getattr(answer, "error", None) or "not a message of the Messages API; is the base URL right?"
            raise NoMessage(str(complaint))
        return Message(
            text=_text_of(content),
            stop_reason=str(getattr(answer, "stop_reason", None) or ""),
            tool_blocks=_tool_blocks(content),
            served_model=str(getattr(answer, "model", None) or ""),
            usage=_usage_of(answer),
        )

    def takes_temperature(self, route: Route) -> bool:
        """Return whether a temperature may be sent: Anthropic's API refuses it, and so do its models behind another server."""
        return not self.is_own_server(route) and "claude" not in route.model.lower()


class Platform(MessagesProvider):
    """A cloud platform that serves Anthropic's models under an account of its own; it has no batches.

    Attributes:
        url_setting: Names another address, such as one of a private network.
    """

    url_setting: ClassVar[str]

    def problem(self, role: Role, model: str, url: str) -> str:
        """Return what is missing. No address of a role counts here: what is meant for a server of one's own would get signed requests."""
        own_url = getattr(settings, self.url_setting)
        if not self.bare_name(model).strip():
            return f"{model!r} names no model: write {self.name}:NAME, as the platform knows it"
        if own_url and (fault := url_fault(own_url, key_setting="the platform's own credentials")):
            return f"{self.url_setting} {fault}"
        return self.missing()

    @abstractmethod
    def missing(self) -> str:
        """Return a sentence on what to set or install; empty where nothing is missing."""

    @abstractmethod
    def usual_url(self) -> str:
        """Return the platform's address for the account that is set."""

    def base_url(self, url: str) -> str:
        own_url = getattr(settings, self.url_setting) or self.usual_url()
        return str(own_url).rstrip("/")

    def takes_temperature(self, route: Route) -> bool:
        """Return that none may be sent: all models are Anthropic's, which refuse it."""
        return False


def without_custom_headers(client: Any) -> Any:
    """Return the SDK's client without the headers of ANTHROPIC_CUSTOM_HEADERS: those for one server would be sent to another."""
    client._custom_headers = {}
    return client


def signed_by(client: Any, signer: Any) -> Any:
    """Return the SDK's asynchronous client, whose requests its synchronous one signs, in threads of their own.

    The credentials may come from a program or a server that hangs. The asynchronous client would wait for them in the threads in which
    the loop resolves names, and so keep all other providers from connecting.
    """
    threads = ThreadPoolExecutor(SIGNING_THREADS, thread_name_prefix="llm-signing")

    async def prepare_request(request: httpx2.Request) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, signer._prepare_request, request)

    client._prepare_request = prepare_request
    return client


class Anthropic(MessagesProvider):
    """Anthropic's own API, or the server that a base URL names."""

    name = "anthropic"
    is_default = True
    own_url = ANTHROPIC_URL
    hints: ClassVar[Mapping[int, str]] = {401: "check ANTHROPIC_API_KEY", 402: "check the account's billing"}

    def problem(self, role: Role, model: str, url: str) -> str:
        key = settings.ANTHROPIC_API_KEY
        url = url or _usual_server()
        setting = f"{role.upper()}_BASE_URL"
        if fault := key_fault(key):
            return f"ANTHROPIC_API_KEY {fault}"
        if url and (fault := url_fault(url, key_setting="ANTHROPIC_API_KEY")):
            return f"{setting} (or ANTHROPIC_BASE_URL) {fault}"
        if key or url:
            return ""
        return no_key(role, model, key_setting="ANTHROPIC_API_KEY", speaks="the same API")

    def base_url(self, url: str) -> str:
        return url or _usual_server() or ANTHROPIC_URL

    def key(self) -> str:
        return settings.ANTHROPIC_API_KEY or PLACEHOLDER_KEY

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        import anthropic

        client = anthropic.AsyncAnthropic(
            api_key=route.key, base_url=route.base_url, max_retries=retries, http_client=pool, open_telemetry=False
        )
        return without_custom_headers(client)


def _usual_server() -> str:
    return str(settings.ANTHROPIC_BASE_URL).rstrip("/")


# -- what is sent
def _message(turn: Turn) -> dict[str, Any]:
    """Return a turn's blocks with results of tools first and calls of tools last, which is the only order that the API takes."""
    results = [_tool_result(result) for result in turn.tool_results]
    calls = [_tool_call(call) for call in turn.tool_calls]
    return {"role": turn.role, "content": [*results, *_texts(turn.blocks), *calls]}


def _texts(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Return the blocks that say something: the API refuses empty ones, and white space counts as empty."""
    return [_text(block) for block in blocks if block.text.strip()]


def _text(block: Block) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "text", "text": storable(block.text)}  # a lone surrogate cannot be sent
    if block.cache:
        content["cache_control"] = {"type": "ephemeral"}
    return content


def _limit_breakpoints(blocks: list[dict[str, Any]]) -> None:
    """Keep the last breakpoints: each covers all text before it, so the later ones cover more."""
    marked = [block for block in blocks if "cache_control" in block]
    for block in marked[:-MAX_BREAKPOINTS]:
        del block["cache_control"]


def _tool(tool: Tool) -> dict[str, Any]:
    """Return the entry of a request's `tools`."""
    return {
        "name": tool.name,
        "description": storable(tool.description),
        "input_schema": storable(dict(tool.input_schema)),
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    """Return the block of an assistant turn in which the model asked for a tool."""
    return {"type": "tool_use", "id": storable(call.id), "name": call.name, "input": storable(dict(call.input))}


def _tool_result(result: ToolResult) -> dict[str, Any]:
    """Return the block of a user turn that answers a tool call."""
    part: dict[str, Any] = {"type": "tool_result", "tool_use_id": storable(result.call_id)}
    if result.text.strip():
        part["content"] = storable(result.text)
    if result.is_error:
        part["is_error"] = True
    return part


# -- what comes back
def _text_of(content: Sequence[Any]) -> str:
    """Return what a message of the SDK says, its text blocks joined."""
    texts = [getattr(block, "text", None) for block in content if getattr(block, "type", "") == "text"]
    text: str = storable("".join(text for text in texts if isinstance(text, str)))
    return text


def _tool_blocks(content: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return the tool calls in a message of the SDK."""
    calls = [block for block in content if getattr(block, "type", "") == "tool_use"]
    return tuple(
        tool_block(getattr(call, "id", None), getattr(call, "name", None), getattr(call, "input", None))
        for call in calls
    )


def _usage_of(message: object) -> Usage:
    """Return the tokens that a message of the SDK says it took."""
    usage = getattr(message, "usage", None)
    return Usage(
        input_tokens=token_count(getattr(usage, "input_tokens", None)),
        output_tokens=token_count(getattr(usage, "output_tokens", None)),
        cache_read_tokens=token_count(getattr(usage, "cache_read_input_tokens", None)),
        cache_write_tokens=token_count(getattr(usage, "cache_creation_input_tokens", None)),
    )


# -- batches
class MessageBatches(Batches):
    """Anthropic's Message Batches."""

    async def submit(self, client: Any, requests: Sequence[tuple[str, dict[str, Any]]]) -> BatchState:
        entries = [{"custom_id": name, "params": body} for name, body in requests]
        return _state_of(await client.messages.batches.create(requests=entries))

    async def check(self, client: Any, batch_id: str) -> BatchState:
        return _state_of(await client.messages.batches.retrieve(batch_id))

    async def cancel(self, client: Any, batch_id: str) -> None:
        await client.messages.batches.cancel(batch_id)

    async def since(self, client: Any, begin: datetime) -> list[BatchState]:
        batches_since = []
        async for batch in client.messages.batches.list(limit=LISTED_AT_ONCE):
            if batch.created_at < begin:
                break
            batches_since.append(_state_of(batch))
        return batches_since[::-1]

    async def results(self, client: Any, batch_id: str) -> AsyncIterator[Entry]:
        lines = await client.messages.batches.results(batch_id)
        return (_entry(line) async for line in lines)


Anthropic.batches = MessageBatches()


def _state_of(batch: MessageBatch) -> BatchState:
    counts = batch.request_counts
    return BatchState(
        id=batch.id,
        status=batch.processing_status,
        created_at=batch.created_at,
        expires_at=batch.expires_at,
        size=sum(counts.model_dump(exclude_unset=True).values()),
        processing=counts.processing,
        has_ended=batch.processing_status == "ended",
        has_results=bool(batch.results_url),
    )


def _entry(line: Any) -> Entry:
    """Return a line of the results as an entry; what is not succeeded, expired or canceled, or cannot be read, is errored."""
    name = str(getattr(line, "custom_id", "") or "")
    result = getattr(line, "result", None)
    kind = str(getattr(result, "type", "") or "")
    if kind in ("expired", "canceled"):
        return Entry(name, kind)
    answer = getattr(result, "message", None)
    if kind == "succeeded" and isinstance(getattr(answer, "content", None), list):
        message = PROVIDER.read(answer)
        return Entry(
            name,
            kind,
            text=message.text,
            stop_reason=message.stop_reason,
            served_model=message.served_model,
            usage=message.usage,
        )
    reason = getattr(getattr(getattr(result, "error", None), "error", None), "message", None)
    return Entry(name, "errored", error=short_line(str(reason or "the server gave no reason")))


PROVIDER = Anthropic()
