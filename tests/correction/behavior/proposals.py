"""Behaviour requests as the tiers leave them, for tests of what people then do with them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from agents.models import Agent, Channel
from correction.behavior.models import BehaviorRequest
from correction.behavior.trait_change import as_value, find_trait
from tests.factories import make_channel, say

CONCISE: dict[str, Any] = {
    "name": "concise replies",
    "description": "Answers in few words.",
    "sentiment": 0.0,
    "strength": 0.7,
}
Status, Operation = BehaviorRequest.Status, BehaviorRequest.Operation


def proposed(
    agent: Agent,
    text: str = "Could you keep it shorter?",
    *,
    after: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    status: str = Status.PENDING_REVIEW,
    **fields: Any,
) -> BehaviorRequest:
    """A request that waits for a person, with the change the tiers made of it; `after` {} for none.

    `before` is the trait as it is, unless given: the one the mapping replaces, or the one that is called so.
    """
    channel = Channel.objects.filter(slug="desk").first() or make_channel("desk", kind="dm")
    after = CONCISE if after is None else after
    if before is None and after:
        known = find_trait((fields.get("map_result") or {}).get("replaces_trait") or after["name"], agent.traits.all())
        before = asdict(as_value(known)) if known is not None else None
    values = {
        "message": say(channel, "Zoe", text),
        "gate_result": {"has_request": True, "confidence": "medium", "reason": "asks for it"},
        "extract_result": {"behavior_name": "length", "current_state": "long", "requested_change": "shorter"},
        "map_result": {**after, "is_new": before is None, "replaces_trait": (before or {}).get("name")},
        "confidence": "medium",
        "judge": "test-model",
        "operation": Operation.UPDATE if before else Operation.ADD,
        "trait_name": after.get("name", ""),
        "trait_before": before,
        "trait_after": after or None,
        "why": "its confidence is medium",
        **fields,
    }
    row: BehaviorRequest = BehaviorRequest.objects.create(agent=agent, status=status, **values)
    return row
