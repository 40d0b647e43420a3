"""An agent with the default swarm, and a model that calibrates, answers and polishes as a test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.models import Agent, Channel, Message, Run
from agents.swarm.models import SwarmTurn
from agents.swarm.phases import ensure_default_swarm
from tests.agents.turn.playing import join, take_turn
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

ANSWER = "The blue one costs 40 euros and lasts two years. I would take it."
READING: dict[str, Any] = {
    "tone": "direct",
    "formality": "casual",
    "jargon": "none",
    "expertise": "novice",
    "length": "brief",
    "units": None,
    "learning_style": None,
    "risk": 0.1,
    "uncertainty": 0.0,
    "missing": [],
    "question": "",
    "cannot": "",
    "assumption": "",
    "anchor": [],
    "goal": [],
    "facts": [],
    "decisions": [],
    "preferences": [],
}


class Mind:
    """Answers each kind of request.

    Attributes:
        reading: What the calibrators answer, over `READING`; or keywords for a reply that is no reading.
        says: What the agent does, call by call: a text it says, or a tool with its input.
        polishes: Makes the polished text of the draft; or keywords for another reply. `calls`: the kinds of requests, in order.
    """

    def __init__(self, server: LLMServer, *, says: list[Any] | None = None) -> None:
        self.reading: dict[str, Any] = {}
        self.fails_reading: dict[str, Any] | None = None
        self.says: list[Any] = [ANSWER] if says is None else says
        self.polishes: Callable[[str], dict[str, Any]] = lambda draft: {"json": {"text": draft}}
        self.calls: list[str] = []
        self.bodies: dict[str, list[dict[str, Any]]] = {"pre": [], "turn": [], "post": []}
        server.respond = self._respond

    def _respond(self, body: dict[str, Any]) -> dict[str, Any]:
        kind = kind_of(body)
        self.calls.append(kind)
        self.bodies[kind].append(body)
        if kind == "pre":
            return self.fails_reading or {"json": READING | self.reading}
        if kind == "post":
            return self.polishes(part_of(prompt_of(body), "DRAFT"))
        if not self.says:
            return {"text": "I am done."}
        one = self.says.pop(0)
        return {"tool_calls": [("send_message", {"channel": "dm", "text": one}) if isinstance(one, str) else one]}


def prompt_of(body: dict[str, Any]) -> str:
    return "\n".join(part["text"] for message in body["messages"] for part in message["content"] if "text" in part)


def system_of(body: dict[str, Any]) -> str:
    return "\n".join(part["text"] for part in body["system"])


def kind_of(body: dict[str, Any]) -> str:
    """What a request is for: ``pre``, ``turn``, ``post`` or ``summary``."""
    if "tools" in body:
        return "turn"
    asked = body.get("output_config", {}).get("format", {}).get("schema", {}).get("properties", {})
    return "pre" if "risk" in asked else "summary" if "discussed" in asked else "post"


def part_of(text: str, name: str) -> str:
    """What stands in the fence of this name."""
    begin = text.index(f"<<<{name} ")
    return text[text.index("\n", begin) + 1 : text.index(f"\n<<<END {name} ")]


def with_swarm(slug: str = "ada", **fields: Any) -> Agent:
    """An agent with the default swarm, in a direct message."""
    agent = make_agent(slug, **fields)
    ensure_default_swarm().agents.add(agent)
    channel = Channel.objects.filter(slug="dm").first() or make_channel("dm", kind="dm")
    join(channel, agent)
    return agent


def asks(agent: Agent, text: str, *, by: str = "Zed") -> tuple[Run, list[Message]]:
    """A person says something and the agent takes its turn; the run, and what it said in it."""
    channel = Channel.objects.get(slug="dm")
    message = say(channel, by, text)
    run = take_turn(agent, channel, trigger=message)
    return run, list(Message.objects.filter(run=run).order_by("position"))


def noted(run: Run) -> SwarmTurn:
    return SwarmTurn.objects.get(run=run)


def counters(run: Run, stage: str, phase: str = "") -> dict[str, int]:
    """All that a stage counted in a turn."""
    total: dict[str, int] = {}
    for entry in run.trace:
        if entry["stage"] == stage and phase in ("", entry["phase"]):
            for name, number in entry.get("counters", {}).items():
                total[name] = total.get(name, 0) + number
    return total


def milliseconds(run: Run) -> dict[str, float]:
    """How long the stages took to prepare the turn and to review its draft."""
    return {entry["stage"]: entry["ms"] for entry in run.trace if entry["phase"] in ("prepare", "review")}
