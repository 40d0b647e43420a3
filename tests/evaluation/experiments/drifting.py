"""A conversation with an agent that drifts at a turn, and a scripted actor that goes on so: a reminder repairs it for some turns."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from agents.models import Agent, Channel, ChannelMember
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, make_channel, say
from tests.llm_server import example_of

DRIFTS_AT = 60
IN_CHARACTER = "I would build a wall there"
DRIFTED = "I would just relax about it"
STATED_RULE = "I am one who speaks of walls."
REMINDER = "A reminder: you are Ada"
RULE = """
dimension: adherence
agent_id: ada
propositions:
  - {id: walls, claim: '{{agent_name}} speaks of walls', rule: {contains_any: [wall]}}
"""


def conversation(propositions: PropositionFolder, *, turns: int, drifts_at: int = DRIFTS_AT) -> tuple[Channel, Agent]:
    """A real conversation with so many turns of Ada, who speaks of walls up to one turn; and what she is measured by."""
    propositions.write("adherence/ada.yaml", RULE)
    channel, ada = make_channel("street"), make_agent("ada")
    ChannelMember.objects.create(channel=channel, agent=ada)
    for turn in range(1, turns + 1):
        say(channel, "Kim", f"Question {turn}: what now?")
        say(channel, ada, f"{said_at(turn, drifts_at=drifts_at)} ({turn}).")
    return channel, ada


def said_at(turn: int, *, drifts_at: int) -> str:
    """What Ada says at a turn: in character before the drift but for every ninth turn, out of it since but for every eighth."""
    if turn < drifts_at:
        return DRIFTED if turn % 9 == 0 else IN_CHARACTER
    return IN_CHARACTER if turn % 8 == 0 else DRIFTED


def judge(body: dict[str, Any]) -> dict[str, Any]:
    """A judge of answers to control questions, which reads nothing but text: they agree, and state a rule where they say so."""
    answer = example_of(body["output_config"]["format"]["schema"])
    if isinstance(answer["value"], bool):
        return {"json": {**answer, "value": True, "evidence": "present"}}
    return {"json": {**answer, "value": 8 if STATED_RULE in json.dumps(body["messages"]) else 1}}


def actor(*, works_for: int = 0, slips: float = 0.1) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An actor that has drifted, and is in character for so many turns after a reminder; now and then it slips to the other.

    It reads nothing but its prompt: since when it was reminded it writes into what it says.
    """

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        if body["model"] == "judge-model":
            return judge(body)
        text = json.dumps(body["messages"], ensure_ascii=False)
        if "tool_result" in text:
            return {"text": "done"}
        channel = re.search(r"talk-\d+-\d+(-questions)?", text)
        assert channel is not None
        if channel.group(1):  # a control question
            answer = STATED_RULE if "Which rules" in text else "My name is Ada."
            return {"tool_calls": [("send_message", {"channel": channel.group(), "text": answer})]}
        turns = [int(left) for left in re.findall(r"\[(\d+) left\]", text)]
        left = turns[-1] - 1 if turns else 0
        if REMINDER in text:
            left = works_for
        chance = (
            int(
                hashlib.sha256(
                    re.sub(r"[0-9a-f]{12}|talk-\d+-|\d{4}-\d\d-\d\d \d\d:\d\d", "", text).encode()
                ).hexdigest(),
                16,
            )
            % 1000
            / 1000
        )
        is_in_character = (left > 0) != (chance < slips)
        said = f"{IN_CHARACTER if is_in_character else DRIFTED}, number {int(chance * 1000)}."
        if left > 0:
            said += f" [{left} left]"
        return {"tool_calls": [("send_message", {"channel": channel.group(), "text": said})]}

    return respond
