"""Plain functions for tests of turns: members, turns taken here and now, and what the model was sent."""

from __future__ import annotations

from typing import Any

from agents.kit.models import owner_name
from agents.models import Agent, Channel, ChannelMember, Message, Run
from agents.turn.orchestrator import run_turn, start_turn
from tests.llm_server import LLMServer


def join(channel: Channel, *agents: Agent) -> None:
    for agent in agents:
        ChannelMember.objects.create(channel=channel, agent=agent)


def take_turn(agent: Agent, channel: Channel, **fields: Any) -> Run:
    """A turn, queued and taken."""
    return run_turn(start_turn(agent=agent, channel=channel, **fields), owner=owner_name())


def plays(server: LLMServer, *steps: tuple[str, dict[str, Any]] | str) -> None:
    """Each model call of the turn: a tool with its input, or a text without a tool."""
    for step in steps:
        if isinstance(step, str):
            server.reply(text=step)
        else:
            server.reply(tool_calls=[step])


def texts(channel: Channel) -> list[str]:
    return list(Message.objects.filter(channel=channel).order_by("position").values_list("text", flat=True))


def answers(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools' answers in a request, oldest first."""
    return [part for message in body["messages"] for part in message["content"] if part["type"] == "tool_result"]


def answer_text(part: dict[str, Any]) -> str:
    content = part.get("content", "")
    return content if isinstance(content, str) else "".join(piece["text"] for piece in content)


def shown(body: dict[str, Any]) -> str:
    """Everything the model reads in a request but its own words and the tools' answers."""
    system = "\n\n".join(part["text"] for part in body["system"])
    user = "\n\n".join(
        part["text"]
        for message in body["messages"]
        if message["role"] == "user"
        for part in message["content"]
        if part["type"] == "text"
    )
    return f"{system}\n\n{user}"
