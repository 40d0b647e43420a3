"""A loopback server that speaks OpenAI's Chat Completions, streamed and whole, as the model behind a gateway.

    with ModelServer() as model:
        model.replies["Where is my file?"] = StreamedReply(texts=[["In the ", "cabinet."]], pause=0.02)

The last message of the user names the reply. A request with another last message, which is how a rewrite looks, is answered
with `continuation`. `sent` has for each streamed reply when (`time.perf_counter`) how many characters of its first choice had left.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.llm_server import LLMServer

TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "find_file", "arguments": '{"name": "ledger"}'}}


@dataclass(frozen=True, kw_only=True)
class StreamedReply:
    """A reply of the model.

    Attributes:
        texts: The pieces of each choice's text, in the order in which they are streamed.
        pause: Seconds before each piece.
        calls_tool: Whether the first choice ends with `TOOL_CALL`.
        breaks_after: Close the connection after so many pieces.
    """

    texts: Sequence[Sequence[str]]
    pause: float = 0.0
    calls_tool: bool = False
    breaks_after: int | None = None

    @property
    def text(self) -> str:
        """Return the whole text of the first choice."""
        return "".join(self.texts[0])


def characters(text: str) -> list[str]:
    return list(text)


def tokens(text: str) -> list[str]:
    """Return pieces of about four characters, which end anywhere."""
    return [text[start : start + 4] for start in range(0, len(text), 4)]


def sentences(text: str) -> list[str]:
    return re.findall(r".+?(?:[.!?]\s+|$)", text, re.DOTALL)


def whole(text: str) -> list[str]:
    return [text]


CHUNKINGS = {"whole": whole, "sentence": sentences, "token": tokens, "character": characters}


class ModelServer(LLMServer):
    """The server; runs in a thread of its own inside a ``with`` block."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[str, StreamedReply] = {}
        self.continuation = "It is in the second cabinet."
        self.rewrites: list[dict[str, Any]] = []
        self.sent: dict[str, list[tuple[float, int]]] = {}

    async def _answer(
        self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str = ""
    ) -> None:
        if "messages" not in body:  # LiteLLM asks which models there are
            _write(writer, "application/json", b'{"object": "list", "data": []}')
            return
        reply = self.replies.get(_last_words_of_user(body))
        if reply is None:
            self.rewrites.append(body)
            reply = StreamedReply(texts=[[self.continuation]])
        if body.get("stream"):
            await self._stream(reply, body, writer)
            return
        await asyncio.sleep(reply.pause)
        _write(writer, "application/json", json.dumps(_completion(reply)).encode())
        await writer.drain()

    async def _stream(self, reply: StreamedReply, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\ncache-control: no-cache\r\n\r\n"
        )
        times = self.sent.setdefault(_last_words_of_user(body), [])
        sent = length = 0
        for number in range(max(len(pieces) for pieces in reply.texts)):
            for index, pieces in enumerate(reply.texts):
                if number >= len(pieces):
                    continue
                if reply.breaks_after == sent:
                    raise ConnectionResetError
                await asyncio.sleep(reply.pause)
                delta = {"content": pieces[number]}
                _event(writer, _chunk(index, delta if number else {"role": "assistant", **delta}))
                await writer.drain()
                sent += 1
                if index == 0:
                    length += len(pieces[number])
                    times.append((time.perf_counter(), length))
        for index in range(len(reply.texts)):
            if index == 0 and reply.calls_tool:
                _event(writer, _chunk(index, {"tool_calls": [{"index": 0, **TOOL_CALL}]}))
                _event(writer, _chunk(index, {}, "tool_calls"))
            else:
                _event(writer, _chunk(index, {}, "stop"))
        if (body.get("stream_options") or {}).get("include_usage"):
            _event(writer, {**_chunk(0, {}), "choices": [], "usage": USAGE})
        _frame(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def _last_words_of_user(body: dict[str, Any]) -> str:
    for message in reversed(body.get("messages", [])):
        if message["role"] != "user":
            continue
        content = message["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in content)
    return ""


def _completion(reply: StreamedReply) -> dict[str, Any]:
    choices: list[dict[str, Any]] = []
    for index, pieces in enumerate(reply.texts):
        message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces)}
        reason = "stop"
        if index == 0 and reply.calls_tool:
            message["tool_calls"] = [TOOL_CALL]
            reason = "tool_calls"
        choices.append({"index": index, "message": message, "finish_reason": reason})
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "scripted"}
    return {**head, "choices": choices, "usage": USAGE}


def _chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": index, "delta": delta, "finish_reason": reason}],
    }


def _event(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    _frame(writer, f"data: {json.dumps(value)}\n\n".encode())


def _frame(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")


def _write(writer: asyncio.StreamWriter, content_type: str, content: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
