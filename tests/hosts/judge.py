"""A model server for the machines: ``python -m tests.hosts.judge HOST PORT SECONDS``. Each judgement is a 7, after so many seconds."""

from __future__ import annotations

import sys
import threading
from typing import Any

from tests.llm_server import LLMServer, example_of


def main() -> None:
    host, port, seconds = sys.argv[1:]

    def judge(body: dict[str, Any]) -> dict[str, Any]:
        for kept in (server.bodies, server.contents, server.headers):
            kept.clear()
        answer = example_of(body.get("output_config", {}).get("format", {}).get("schema", {}))
        return {"json": scored(answer), "latency": float(seconds)}

    server = LLMServer(host, int(port))
    server.respond = judge
    with server:
        threading.Event().wait()


def scored(answer: Any) -> Any:
    """Return an answer in which each score is a 7."""
    if isinstance(answer, dict):
        return {name: 7 if name == "score" else scored(part) for name, part in answer.items()}
    return [scored(part) for part in answer] if isinstance(answer, list) else answer


if __name__ == "__main__":
    main()
