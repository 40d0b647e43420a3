"""A small scenario, and an actor and a judge behind a loopback server that read nothing but text."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from evaluation.experiments.scenario import Scenario
from tests.llm_server import example_of

OWN_WORDS = "As I always say, a good wall needs a good neighbour."  # what the judge of adherence looks for
STUMBLE = "Well, er, um, you know, sort of."  # what the judge of fluency looks for


def scenario(**changes: Any) -> Scenario:
    fields: dict[str, Any] = {
        "name": "small",
        "population": {
            "size": 4,
            "about": "people of one street",
            "quotas": [{"property": "age", "values": {"30": 1, "60": 3}}],
        },
        "environments": 2,
        "agents": 2,
        "steps": [{"says": "What should the street buy together?"}, {"says": "And what not?"}],
        "arms": [
            {"name": "plain", "overrides": {"stages": []}},
            {"name": "gated", "overrides": {"gate_mode": "enforce"}},
        ],
        "dimensions": [{"id": "fluency"}, {"id": "convergence"}],
    }
    return Scenario.model_validate(fields | changes)


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """An actor whose second model keeps to its own words but stumbles, and a judge who sees both in the text."""
    text = json.dumps(body["messages"], ensure_ascii=False)
    same = re.sub(r"[0-9a-f]{12}|talk-\d+-\d+|\d{4}-\d\d-\d\d \d\d:\d\d", "", text)  # whenever and wherever it is asked
    draw = int(hashlib.sha256(same.encode()).hexdigest(), 16)
    if body["model"] == "judge-model":
        return {"json": scored(example_of(body["output_config"]["format"]["schema"]), text, draw)}
    if "tools" not in body:
        return {"json": {"persona": f"You are one of the street, number {draw % 97}, and build walls."}}
    if "tool_result" in text:
        return {"text": "done"}
    said = f"Number {draw % 1000}: I would think about it once more."
    if body["model"] == "other-model":
        said = f"{said} {OWN_WORDS} {STUMBLE}"
    channel = re.search(r"talk-\d+-\d+", text)
    assert channel is not None
    return {"tool_calls": [("send_message", {"channel": channel.group(), "text": said})]}


def scored(answer: Any, text: str, draw: int) -> Any:
    """The answer with each value that the text deserves."""
    if isinstance(answer, list):
        return [scored(one, text, draw) for one in answer]
    if not isinstance(answer, dict):
        return answer
    of_fluency = "do not repeat the same" in text or "sound natural" in text
    value = (3 if STUMBLE in text else 7) if of_fluency else (7 if OWN_WORDS in text else 3)
    return {name: value + draw % 2 if name == "value" else scored(one, text, draw) for name, one in answer.items()}
