"""A loopback server that speaks Anthropic's Messages API and OpenAI's Chat Completions, so that tests drive the real SDKs.

    with LLMServer() as server:
        server.reply(text="not JSON")             # the next request gets this, once; replies queue up
        server.reply(status=429, headers={"retry-after": "1"})
        server.reply(tool_calls=[("send_message", {"text": "Hello."})])  # with text= it says that first
    server.always(json={"score": 7})          # every request that finds the queue empty
        server.respond = lambda body: {...}       # or decide by the request's body: keywords as for `reply`, None =
        default

Without any of these a request is answered with an object that fits its schema (the first value of an enum, 0, true, a
word). `server.bodies`, `server.contents` (the same as bytes), `server.headers` and `server.paths` hold what was sent;
`wait_until` waits for a condition on the server without polling.

The path that is asked decides the protocol: one that ends in ``/chat/completions`` is Chat Completions, any other is Messages. A
reply is scripted in the words of Messages for both; `CHAT_STOP_REASONS` and `_chat_usage` translate them.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

REASONS = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error", 529: "overloaded_error"}
CHAT_COMPLETIONS = "/chat/completions"
CHAT_STOP_REASONS = {
    "end_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """One reply.

    Attributes:
        text, json: Text of the answer, or the object whose JSON is its text.
        thinking: Text of a thinking block before it.
        tool_calls: Tools the model wants to use, as (name, input), with ids the server makes; after `text`, if there is
            one. A dict instead of a pair is sent as the block it is, right or wrong.
        stop_reason, model, usage: Fields of the message; `stop_reason` is by default ``tool_use`` with tool calls, else
            ``end_turn``; `usage` None leaves it out.
        status, message, error_code: An HTTP status other than 200 answers with this error.
        headers: Further response headers.
        raw, content_type: A whole body instead of a message.
        latency: Seconds before the answer.
        hold: Answer only after `LLMServer.release`.
        hang: Never answer. `trickle`: send a byte now and then, never an end. `drop`: close the connection without an
            answer.
    """

    text: str | None = None
    json: Any = None
    thinking: str = ""
    tool_calls: Sequence[tuple[str, Any] | dict[str, Any]] = ()
    stop_reason: str = ""
    model: str = ""
    usage: dict[str, int] | None = field(default_factory=lambda: {"input_tokens": 100, "output_tokens": 10})
    status: int = 200
    message: str = "scripted error"
    error_code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    raw: str | None = None
    content_type: str = "application/json"
    latency: float = 0.0
    hold: bool = False
    hang: bool = False
    trickle: bool = False
    drop: bool = False


def example_of(schema: Any, definitions: Any = None) -> Any:
    """A value that fits a simple JSON schema."""
    definitions = schema.get("$defs", definitions)
    if "$ref" in schema:
        return example_of(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return example_of(schema[choice][0], definitions)
    kind = schema.get("type")
    if kind == "object":
        return {name: example_of(part, definitions) for name, part in schema.get("properties", {}).items()}
    if kind == "array":
        return [example_of(schema.get("items", {}), definitions) for _ in range(schema.get("minItems", 1))]
    return {"integer": 0, "number": 0, "boolean": True, "null": None}.get(kind, "word")


class LLMServer:
    """The server; runs in a thread of its own between `start` and `stop`, or inside a ``with`` block."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self.address = (host, port)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.contents: list[bytes] = []
        self.connections = self.open_connections = 0
        self.inflight = self.peak_inflight = self.client_gone = 0
        self.respond: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
        self._queue: deque[Scripted] = deque()
        self._always: Scripted | None = None
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._released: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="llm-server", daemon=True)
        self._ready = threading.Event()
        self._connected: set[asyncio.Task[None]] = set()
        self.url = ""

    # -- for tests
    def reply(self, **fields: Any) -> None:
        """Queue one reply."""
        self._queue.append(Scripted(**fields))

    def always(self, **fields: Any) -> None:
        """Answer like this whenever nothing is queued."""
        self._always = Scripted(**fields)

    def release(self) -> None:
        """Let the held replies go, and those that would be held later."""
        assert self._released is not None
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_until(self, condition: Callable[[], bool], timeout: float = 30.0) -> bool:
        """Wait until `condition` holds; False when it does not within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(condition, timeout)

    @property
    def calls(self) -> int:
        return len(self.bodies)

    def start(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30), "the loopback server did not start"
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- the server's thread
    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._released = asyncio.Event()
        server = self._loop.run_until_complete(asyncio.start_server(self._connection, *self.address))
        self.url = f"http://{self.address[0]}:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for task in self._connected:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*self._connected, return_exceptions=True))
        self._loop.close()

    def _note(self, **changes: int) -> None:
        with self._changed:
            for name, change in changes.items():
                setattr(self, name, getattr(self, name) + change)
            self.peak_inflight = max(self.peak_inflight, self.inflight)
            self._changed.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connected.add(task)
        self._note(connections=1, open_connections=1)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.decode("latin-1").split("\r\n")
                path = lines[0].split(" ")[1]
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:])
                    if value
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.headers.append(headers)
                self.paths.append(path)
                self.contents.append(body)
                self.bodies.append(json.loads(body or b"{}"))
                self._note(inflight=1)
                try:
                    await self._answer(self.bodies[-1], reader, writer, path)
                finally:
                    self._note(inflight=-1)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connected.discard(task)
            self._note(open_connections=-1)
            with suppress(RuntimeError):
                writer.transport.abort()

    async def _answer(
        self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = ""
    ) -> None:
        scripted = self._choose(body)
        if scripted.drop:
            raise ConnectionResetError
        if scripted.hang or scripted.trickle or scripted.hold or scripted.latency:
            await self._wait(scripted, reader, writer)
        is_chat = path.endswith(CHAT_COMPLETIONS)
        payload = (self._chat_payload(body, scripted) if is_chat else self._payload(body, scripted)).encode()
        status = f"HTTP/1.1 {scripted.status} X"
        headers = {
            "content-type": scripted.content_type,
            "content-length": str(len(payload)),
            "x-request-id" if is_chat else "request-id": f"req_{self.calls}",
        }
        writer.write("\r\n".join([status, *(f"{k}: {v}" for k, v in (headers | scripted.headers).items())]).encode())
        writer.write(b"\r\n\r\n" + payload)
        await writer.drain()

    async def _wait(self, scripted: Scripted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Delay as scripted; notices when the client goes meanwhile."""
        gone = asyncio.ensure_future(reader.read(1))
        delay = asyncio.ensure_future(self._delay(scripted, writer))
        try:
            await asyncio.wait({gone, delay}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            delay.cancel()
            gone_early = gone.done()
            gone.cancel()
            with suppress(asyncio.CancelledError, ConnectionError):
                await gone
        if gone_early:
            self._note(client_gone=1)
            raise ConnectionResetError

    async def _delay(self, scripted: Scripted, writer: asyncio.StreamWriter) -> None:
        if scripted.trickle:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n")
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.02)
        if scripted.hang:
            await asyncio.Event().wait()
        if scripted.hold:
            assert self._released is not None
            await self._released.wait()
        await asyncio.sleep(scripted.latency)

    def _choose(self, body: dict[str, Any]) -> Scripted:
        if self._queue:
            return self._queue.popleft()
        fields = self.respond(body) if self.respond is not None else None
        if fields is not None:
            return Scripted(**fields)
        return self._always or Scripted()

    def _payload(self, body: dict[str, Any], scripted: Scripted) -> str:
        if scripted.raw is not None:
            return scripted.raw
        if scripted.status != 200:
            error: dict[str, Any] = {"type": REASONS.get(scripted.status, "api_error"), "message": scripted.message}
            if scripted.error_code:
                error["details"] = {"error_code": scripted.error_code}
            return json.dumps({"type": "error", "error": error, "request_id": f"req_{self.calls}"})
        content = self._content(body, scripted)
        message = {
            "id": f"msg_{self.calls}",
            "type": "message",
            "role": "assistant",
            "model": scripted.model or body.get("model", ""),
            "content": [] if scripted.stop_reason == "refusal" and not scripted.text else content,
            "stop_reason": scripted.stop_reason or ("tool_use" if scripted.tool_calls else "end_turn"),
            "stop_sequence": None,
        }
        return json.dumps(message if scripted.usage is None else message | {"usage": scripted.usage})

    def _content(self, body: dict[str, Any], scripted: Scripted) -> list[dict[str, Any]]:
        text = _text(scripted, body.get("output_config", {}).get("format", {}).get("schema"))
        content: list[dict[str, Any]] = []
        if scripted.thinking:
            content.append({"type": "thinking", "thinking": scripted.thinking, "signature": "x"})
        if text is not None:
            content.append({"type": "text", "text": text})
        return content + self._tool_blocks(scripted)

    def _tool_blocks(self, scripted: Scripted, *, as_text: bool = False) -> list[dict[str, Any]]:
        """The calls as blocks; `as_text` makes the inputs of pairs JSON text."""
        blocks = []
        for number, call in enumerate(scripted.tool_calls, start=1):
            if isinstance(call, dict):
                blocks.append(call)
            else:
                name, input_ = call
                if as_text and input_ is not None and not isinstance(input_, str):
                    input_ = json.dumps(input_)
                id_ = f"toolu_{self.calls}_{number}"
                blocks.append({"type": "tool_use", "id": id_, "name": name, "input": input_})
        return blocks

    def _chat_payload(self, body: dict[str, Any], scripted: Scripted) -> str:
        if scripted.raw is not None:
            return scripted.raw
        if scripted.status != 200:
            error = {
                "message": scripted.message,
                "type": REASONS.get(scripted.status, "server_error"),
                "param": None,
                "code": scripted.error_code or None,
            }
            return json.dumps({"error": error})
        text = _text(scripted, body.get("response_format", {}).get("json_schema", {}).get("schema"))
        is_refusal = scripted.stop_reason == "refusal"
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if is_refusal and not scripted.text else text,
            "refusal": None,
        }
        if scripted.thinking:
            message["reasoning_content"] = scripted.thinking  # as vLLM and DeepSeek name it
        if scripted.tool_calls:
            message["tool_calls"] = [_chat_tool_call(block) for block in self._tool_blocks(scripted, as_text=True)]
        stop_reason = scripted.stop_reason or ("tool_use" if scripted.tool_calls else "end_turn")
        completion = {
            "id": f"chatcmpl-{self.calls}",
            "object": "chat.completion",
            "created": 1_795_000_000,
            "model": scripted.model or body.get("model", ""),
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": CHAT_STOP_REASONS.get(stop_reason, stop_reason),
                }
            ],
        }
        return json.dumps(completion if scripted.usage is None else completion | {"usage": _chat_usage(scripted.usage)})


def _text(scripted: Scripted, schema: Any) -> str | None:
    """The text of an answer: as scripted, else an object that fits the schema; None beside tool calls alone."""
    if scripted.text is not None or scripted.tool_calls:
        return scripted.text
    if scripted.json is not None:
        return json.dumps(scripted.json)
    return "plain text" if schema is None else json.dumps(example_of(schema))


def _chat_tool_call(block: dict[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": block.get("input")}
    return {"id": block.get("id"), "type": "function", "function": function}


def _chat_usage(usage: dict[str, int]) -> dict[str, Any]:
    """The same tokens in the words of Chat Completions, where those of the cache are part of the prompt's."""
    cached = usage.get("cache_read_input_tokens", 0)
    written = usage.get("cache_creation_input_tokens", 0)
    prompt = usage["input_tokens"] + cached + written
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": usage["output_tokens"],
        "total_tokens": prompt + usage["output_tokens"],
    }
    if cached or written:
        counts["prompt_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": written}
    return counts
