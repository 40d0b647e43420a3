"""A judge's answers, and what a request asked: for tests that talk to the loopback server."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from agents.kit.llm import Label
from evaluation.propositions.schema import Proposition
from evaluation.scorers.context import Context, Event, Window

LABEL = Label(purpose="test", work_id="evaluation_run:0")
CONTEXT = Context(
    agent_name="Ada",
    persona="You are Ada, a dry and careful clerk.",
    window=Window((Event("stimulus", "Ada", "Who broke it?", speaker="Bob"), Event("action", "Ada", "Not me.")), 0, ()),
    message=Event("action", "Ada", "Not me."),
    channel_name="#office",
)


def claim(name: str = "terse", text: str = "{{agent_name}} is terse", **fields: Any) -> Proposition:
    return Proposition(dimension="adherence", id=name, claim=text, **fields)


def entry(value: Any = 7, **changes: Any) -> dict[str, Any]:
    """What a judge says about one claim."""
    return {
        "evidence": "present",
        "reasoning": "Two words, no more.",
        "justification": "“Not me.”",
        "value": value,
        "confidence": 0.8,
        **changes,
    }


def prompt_of(body: dict[str, Any]) -> str:
    """Everything the judge read: system prompt and turns."""
    blocks = [*body.get("system", []), *(part for turn in body["messages"] for part in turn["content"])]
    return "\n".join(block["text"] for block in blocks)


def tail_of(body: dict[str, Any]) -> str:
    """The last block of a request: the message judged and the claims."""
    return str(body["messages"][-1]["content"][-1]["text"])


def claims_of(body: dict[str, Any]) -> dict[str, str]:
    """The claims a request asked, by key; a single one under ``p1``."""
    tail = tail_of(body)
    found = re.findall(r"^- (p\d+): (.*)$", tail, re.MULTILINE)
    return dict(found) if found else {"p1": tail.rpartition("Claim: ")[2].strip()}


def answers(decide: Callable[[str], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A server that answers each claim with what `decide` makes of its text: a whole entry, or just its value."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for key, text in claims_of(body).items():
            decided = decide(text)
            found[key] = decided if isinstance(decided, dict) else entry(decided)
        return {"json": found if len(found) > 1 else found["p1"]}

    return respond
