"""The actor that follows a script: the persona's own lines, the same for the same facts, and never passed off as a model's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import Block, Label, LLMRequest, Reply, Status, Tool, Turn, complete

pytestmark = pytest.mark.django_db

LINES = ["Numbers first.", "I have checked it twice.", "That is not my department.", "Please use the form."]


def tool(name: str, *fields: str) -> Tool:
    return Tool(
        name=name, description=name, input_schema={"type": "object", "properties": {field: {} for field in fields}}
    )


TOOLS = (tool("send_message", "channel", "text"), tool("do_nothing", "reason"))


@pytest.fixture(autouse=True)
def offline(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"


def step(*, tools: tuple[Tool, ...] = TOOLS, **facts: Any) -> LLMRequest:
    """One step of a turn of Ada's."""
    known: dict[str, Any] = {
        "agent": "ada",
        "channel": "office",
        "sample_lines": LINES,
        "said": [],
        "rejected": [],
        "step": 1,
        "sent": False,
        "trigger": "Hello?",
    }
    return LLMRequest(
        role="actor",
        task="turn",
        system=(Block("You are Ada."),),
        turns=(Turn("user", (Block("Hello?"),)),),
        tools=tools,
        facts=known | facts,
        label=Label(purpose="turn"),
    )


def act(**facts: Any) -> Reply:
    reply = complete(step(**facts))
    assert reply.status is Status.OK, reply.error
    return reply


def line(**facts: Any) -> str:
    """What Ada says."""
    (call,) = act(**facts).tool_calls
    assert call.name == "send_message"
    return str(call.input["text"])


def talk(count: int, **facts: Any) -> list[str]:
    """What Ada says in so many turns, one after the other."""
    said: list[str] = []
    for _ in range(count):
        said.append(line(said=said, **facts))
    return said


def test_it_says_a_sample_line_in_the_channel_it_is_in() -> None:
    (call,) = act().tool_calls

    assert call.name == "send_message"
    assert call.input.keys() == {"channel", "text"}
    assert call.input["channel"] == "office"
    assert call.input["text"] in LINES


def test_every_line_is_said_before_one_is_said_again() -> None:
    assert sorted(talk(4)) == sorted(LINES)


def test_when_all_are_said_the_oldest_comes_again() -> None:
    said = talk(8)

    assert said[4:] == said[:4]


def test_a_rejected_line_is_not_said_again_in_the_turn() -> None:
    rejected: list[str] = []
    for _ in LINES:
        rejected.append(line(rejected=rejected))

    assert sorted(rejected) == sorted(LINES)


@pytest.mark.parametrize(
    "said",
    [
        [],
        LINES,
    ],
)
def test_when_every_line_was_rejected_it_says_nothing_and_why(said: Sequence[str]) -> None:
    (call,) = act(rejected=LINES, said=said).tool_calls

    assert call.name == "do_nothing"
    assert call.input == {
        "reason": "no sample line left: every one was sent back, and the scripted actor does not repeat a rejected line"
    }


@pytest.mark.parametrize("lines", [[], ["", " \n"]])
def test_without_sample_lines_it_does_nothing_and_says_why(lines: list[str]) -> None:
    (call,) = act(sample_lines=lines).tool_calls

    assert call.name == "do_nothing"
    assert str(call.input["reason"]).startswith("no sample lines: ")


def test_once_it_has_said_something_it_ends_the_turn() -> None:
    reply = act(sent=True)

    assert reply.tool_calls == ()
    assert reply.text == "(The scripted actor has said its line and ends the turn.)"


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        ({"lines": ["Noted.", "Later."]}, "Noted."),
        ({"lines": ["Noted.", "Later."], "said": ["Noted."]}, "Noted."),
        ({"lines": ["Noted.", "Later."], "rejected": [" Noted. "]}, "Later."),
        ({"lines": ["Noted.", "Later."], "rejected": ["Noted.", "Later."]}, ""),
    ],
)
def test_lines_given_for_a_turn_are_said_unchanged_in_their_order(facts: dict[str, Any], line: str) -> None:
    assert act(**facts).tool_calls[0].input.get("text", "") == line
