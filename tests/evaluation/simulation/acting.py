"""An actor on the loopback server, and short ways to situations and to what was simulated."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agents.models import Agent, Message
from evaluation.simulation.conversations import Simulation, simulate
from evaluation.simulation.situations import Situation
from tests.agents.turn.playing import answers, shown


def situation(name: str, *lines: str, **fields: str) -> Situation:
    return Situation(id=name, lines=lines, **fields)


HELLO = situation("hello", "Good morning.", "How are you?")
QUARREL = situation("quarrel", "You are wrong.", speaker="Zed")
TWO = (HELLO, QUARREL)
_PLACE = re.compile(r"wrote message \d+ in ([\w-]+)")


def place(body: dict[str, Any]) -> str:
    """The channel a turn's request is about."""
    result = _PLACE.search(shown(body))
    assert result is not None
    return result[1]


def acts(say: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """An actor that says once what `say` makes of the request, then ends; anything but a turn gets the server's own answer."""

    def respond(body: dict[str, Any]) -> dict[str, Any] | None:
        if "tools" not in body:
            return None
        if answers(body):
            return {"text": "done"}
        return {"tool_calls": [("send_message", {"channel": place(body), "text": say(body)})]}

    return respond


def simulated(agent: Agent, *situations: Situation, **options: Any) -> Simulation:
    return simulate(agent=agent, situations=situations or TWO, **options)


def said(simulation: Simulation) -> list[tuple[str, str, str, str]]:
    """Situation, turn, speaker and text of everything that was said in a simulation, channel by channel."""
    messages = (
        Message.objects.filter(tags__simulation=simulation.id)
        .select_related("agent")
        .order_by("channel__slug", "position")
    )
    return [(m.tags["situation"], m.tags["turn"], m.author_name, m.text) for m in messages]
