"""An agent that was asked to use emoji, or to stop, and what it said before and since."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_django import Settings

from correction.behavior.models import BehaviorRequest
from tests.correction.behavior.measured import ask_for, clerk, reads, speak
from tests.llm_server import LLMServer

Changed = Callable[..., BehaviorRequest]
MORE: dict[str, Any] = {"strength": 0.0, "text": "Please use emoji in every message.", "becomes": 0.95}
LESS: dict[str, Any] = {"strength": 0.95, "text": "Stop using emoji.", "becomes": 0.0}


def changed(
    server: LLMServer,
    settings: Settings,
    folder: Path,
    asked: dict[str, Any] | None = None,
    *,
    before: int = 3,
    since: int = 3,
    followed: bool = True,
) -> BehaviorRequest:
    """An applied request with so many messages on each side; from then on the server judges what it reads."""
    asked = asked or MORE
    did = asked is LESS
    agent, channel = clerk(settings, folder, asked["strength"])
    speak(agent, channel, "1", emoji=did, n=before)
    request = ask_for(server, channel, asked["text"], asked["becomes"])
    speak(agent, channel, "2", emoji=did is not followed, n=since)
    server.respond = reads
    server.bodies.clear()
    return request
