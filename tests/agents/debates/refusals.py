"""What no debate can be started with, at any door."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from agents.debates.models import Debate, DebateSeat, DebateTurn
from agents.models import Channel, ChannelMember, Message, Run

GOOD: dict[str, Any] = {"topic": "Should we move?", "mode": "delphi", "agents": ["ada", "bob", "cleo"]}
WRITTEN: tuple[type[Model], ...] = (Debate, DebateSeat, DebateTurn, Channel, ChannelMember, Message, Run)
MODES = ("collaborative", "adversarial", "socratic", "expert-panel", "devils-advocate", "delphi", "red-team-blue-team")
# Changes of a good debate, the field that is named, and what the sentence says is allowed. dora is inactive, eve is busy.
CASES: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"agents": ["ada"]}, "agents", ("2 to",)),
    ({"agents": ["ada", "bob", "ada"]}, "agents", ("'ada'", "different")),
    ({"agents": ["ada", "dora"]}, "agents", ("'dora'", "inactive", "allowed: active agents")),
    ({"agents": ["ada", "eve"]}, "agents", ("'eve'", "busy", "allowed")),
    ({"mode": "shouting"}, "mode", ("'shouting'", *MODES)),
    ({"perspectives": ["technical"]}, "perspectives", ("delphi", "consensus")),
    ({"mode": "expert-panel", "perspectives": ["technical"], "assignment": "explicit"}, "perspectives", ("one for each",)),
    ({"mode": "expert-panel", "assignment": "by-vote"}, "assignment", ("'by-vote'", "round-robin")),
    ({"agents": ["ada", "nobody"]}, "agents", ("'nobody'",)),
    ({"agents": ["ada"] * 21}, "agents", ("at most 20",)),
    ({"rounds": 101}, "rounds", ("101", "allowed: less than or equal to 100")),
    ({"topic": "  "}, "topic", ("0 characters", "allowed: 1 to 2,000")),
    ({"topic": "why " * 1_000}, "topic", ("allowed: 1 to 2,000",)),
    ({"consensus": 1.5}, "consensus", ("1.5", "less than or equal to 1")),
    ({"convergence_rounds": 1}, "convergence_rounds", ("1", "greater than or equal to 2")),
    ({"mode": "expert-panel", "seed": 2**31}, "seed", ("2147483648", "less than")),
    ({"models": {"7": "offline:scripted"}}, "models", ("'7'", "allowed: 1")),
]  # fmt: skip


def written() -> list[int]:
    return [model._default_manager.count() for model in WRITTEN]
