"""The loopback model server in a process of its own, so that what it computes is not counted as Plumbline's."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tests.llm_server import LLMServer
from tests.prompt_cache import PromptCache


def _with_cache(default: dict[str, Any], **options: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Answers with the default, and the usage that a prompt cache would make of the request."""
    cache = PromptCache(**options)
    return lambda body: {**default, "usage": cache.usage(body)}


def _speaking(text: str, default: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Says the text in the channel that the prompt names, then ends its turn."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        prompt = json.dumps(body["messages"])
        if "tool_result" in prompt or (channel := re.search(r"talk-\d+-\d+", prompt)) is None:
            return {**default, "text": "done"}
        return {**default, "tool_calls": [("send_message", {"channel": channel.group(), "text": text})]}

    return respond


def _serve(pipe: Connection) -> None:
    with LLMServer() as server:
        pipe.send(server.url)
        while (command := pipe.recv()) != "stop":
            if command == "stats":
                pipe.send(
                    {"calls": server.calls, "peak_inflight": server.peak_inflight, "connections": server.connections}
                )
            else:
                server.bodies.clear()
                server.headers.clear()
                server.peak_inflight = 0
                server.always(**command["default"])
                server.respond = _with_cache(command["default"], **command["cache"]) if command["cache"] else None
                if command["speaks"]:
                    server.respond = _speaking(command["speaks"], command["default"])
                for reply in command["first"]:
                    server.reply(**reply)
                pipe.send("ready")


class ServerProcess:
    """Starts, programs and stops the server."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        self.url: str = self._pipe.recv()

    def program(
        self,
        default: dict[str, Any],
        first: Sequence[dict[str, Any]] = (),
        *,
        cache: dict[str, Any] | None = None,
        speaks: str = "",
    ) -> None:
        """Forget what was counted; answer with `first`, one each, then with `default`.

        With `cache`, the options of a `PromptCache`, usage is what that would make of the requests. With `speaks`, every turn says that
        in an environment of an experiment.
        """
        self._pipe.send({"default": default, "first": list(first), "cache": cache, "speaks": speaks})
        self._pipe.recv()

    def stats(self) -> dict[str, int]:
        self._pipe.send("stats")
        found: dict[str, int] = self._pipe.recv()
        return found

    def stop(self) -> None:
        self._pipe.send("stop")
        self._process.join(10)
