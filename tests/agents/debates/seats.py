"""Agents that sit in debates, and the models behind them on loopback: plain functions for tests that play debates."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from agents.debates.debate import ask_rounds, play
from agents.debates.models import Debate, DebateRound, DebateTurn
from agents.debates.starting import start_debate
from agents.kit.models import owner_name
from agents.models import Agent, Message
from tests.factories import make_agent
from tests.llm_server import LLMServer

TOPIC = "Should the office move to Stamford?"
NAMES = ("ada", "bob", "cleo", "dan", "eve", "fay")
LINES = (
    "The rent there is lower. We would save a third of it.",
    "Our customers are here. Half of them come by on foot.",
    "The trains to Stamford are late every week. I would rather stay.",
)


def seated(number: int = 3) -> list[Agent]:
    """So many agents, each of which names itself in its persona."""
    return [
        make_agent(slug, system_prompt=f"You are {slug}, a clerk.", sample_lines=[f"{slug}: {line}" for line in LINES])
        for slug in NAMES[:number]
    ]


def played(debate: Debate, rounds: int | None = None) -> Debate:
    """Ask for rounds and play them here."""
    return play(ask_rounds(debate, rounds), owner=owner_name())


def debated(number: int = 3, *, mode: str = "adversarial", **options: Any) -> Debate:
    """A debate of so many new agents, played to its end."""
    return played(start_debate(topic=TOPIC, mode=mode, agents=seated(number), **options))


def typed(seat: str, turn: int, **fields: Any) -> dict[str, Any]:
    """The fields of an answer that no other seat or round gives."""
    return {
        "text": f"{seat} speaks for the {turn}th time.",
        "position": f"{seat} holds position {turn * 7 + len(seat)}",
        "reasoning": f"{seat} has reason {turn}.",
        "confidence": 0.5,
        "stance": "yes",
        **fields,
    }


class Panel:
    """Stands behind all seats and the judge. Answers with `typed`, changed by `fields`; `replies` replaces the answer of a model call.

    Both are called with the agent's slug and the number of its turn, from 0. A seat may be called in several threads at the same time.
    """

    def __init__(
        self,
        server: LLMServer,
        *,
        fields: Callable[[str, int], Mapping[str, Any]] = lambda seat, turn: {},
        replies: Callable[[str, int], Mapping[str, Any] | None] = lambda seat, turn: None,
        agreement: float | None = 0.5,
    ) -> None:
        self.fields, self.replies, self.agreement = fields, replies, agreement
        self.turns: dict[str, int] = {}
        self.judged = 0
        self._lock = threading.Lock()
        server.respond = self

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        if "tools" not in body:
            self.judged += 1
            summary = f"After {self.judged} rounds."
            empty: dict[str, list[str]] = {"clusters": [], "common_ground": [], "disagreements": []}
            return {"json": {"agreement": self.agreement, "summary": summary, **empty}}
        seat = seat_of(body)
        with self._lock:
            begins = len(body["messages"]) == 1
            turn = self.turns[seat] = self.turns.get(seat, -1) + begins
        if (reply := self.replies(seat, turn)) is not None:
            return dict(reply)
        allowed = body["tools"][0]["input_schema"]["properties"]
        answer = {"channel": channel_of(body), **typed(seat, turn, **self.fields(seat, turn))}
        return {"tool_calls": [("send_message", {k: v for k, v in answer.items() if k in allowed})]}


def seat_of(body: Mapping[str, Any]) -> str:
    """The slug of the agent that a request is for."""
    system = "\n".join(part["text"] for part in body["system"])
    return next(slug for slug in NAMES if f"You are {slug}, a clerk." in system)


def channel_of(body: Mapping[str, Any]) -> str:
    text = "\n".join(part["text"] for part in body["messages"][0]["content"])
    found = re.search(r"^(debate-[\w-]+): ", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def record(debate: Debate) -> dict[str, Any]:
    """What a debate came to, without keys and times: two debates that went the same way have the same."""
    debate.refresh_from_db()
    rounds = DebateRound.objects.filter(debate=debate).order_by("number")
    turns = DebateTurn.objects.filter(debate=debate).order_by("round", "seat__number")
    said = Message.objects.filter(channel=debate.channel_id).order_by("agent__slug", "position")
    return {
        "status": debate.status,
        "error": debate.error,
        "exit": (debate.exit_reason, debate.exit_details),
        "rounds": list(rounds.values_list("number", "consensus", "groupthink", "statistics", "exit")),
        "turns": list(turns.values_list("round", "seat__number", "status", "violation", "error")),
        "said": list(said.values_list("agent__slug", "text", "payload")),
    }
