"""The specification's criteria 2, 4 and 5 through the real SDK, from message to reply. (1 and 3: see ``test_stages``.)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Run, RunMessage
from agents.swarm.assign import assign_swarms
from agents.swarm.food import ensure_food_swarms
from agents.swarm.models import DialogState
from agents.swarm.phases import ensure_default_swarm
from agents.swarm.state import entries
from tests.agents.swarm.speaking import Mind, asks, noted, prompt_of, system_of, with_swarm
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
DOSE = {
    "risk": 0.9,
    "missing": ["body weight"],
    "question": "How much does she weigh?",
    "cannot": "Not without her weight.",
}


@pytest.fixture(autouse=True)
def _swarm_alone(settings: Settings) -> None:
    settings.TURN_PIPELINE = ["agents.swarm.stages.Calibration", "agents.swarm.stages.Polish"]


def eating() -> Agent:
    """An agent with the personality swarm and the role swarms of the example."""
    agent = with_swarm()
    assign_swarms(agent=agent, swarms=[ensure_default_swarm(), *ensure_food_swarms()])
    return agent


def tools(run: Run) -> list[tuple[str, str]]:
    rows = RunMessage.objects.filter(run=run, role="tool").exclude(tool_name="send_message").order_by("number")
    return [(row.tool_name, row.content["text"]) for row in rows]


# -- criterion 2: at most one question, only where it blocks
@pytest.mark.slow
def test_only_turns_that_a_guess_would_spoil_ask_a_question_and_once(
    llm_server: LLMServer,
) -> None:
    mind, agent = Mind(llm_server), with_swarm()
    conversation: list[tuple[str, Mapping[str, Any], bool]] = [
        ("Hello, how are you?", {}, False),
        ("Which of them is louder?", {"risk": 0.7, "question": "Louder than what, the radio or the fan?"}, True),
        ("The fan.", {"risk": 0.7, "question": "Which fan, the old or the new one?", "assumption": "the old fan"}, False),
        ("And which is cheaper?", {"risk": 0.3, "question": "Cheaper to buy or to run?", "assumption": "to buy"}, False),
        ("Which of them is louder, again?", {"risk": 0.8, "question": "Louder than what, the radio or the fan?"}, False),
        ("How much paracetamol may my daughter have?", DOSE, True),
        ("No idea.", {**DOSE, "assumption": "20 kg"}, False),
    ]  # fmt: skip

    asked = []
    for text, reading, _ in conversation:
        mind.reading, mind.calls, mind.says = dict(reading), [], ["Fine, thanks."]
        _, said = asks(agent, text)
        asked.append("turn" not in mind.calls)
        assert len(said) == 1
        assert said[0].text.count("?") == int(asked[-1])

    assert asked == [question for _, _, question in conversation]
    last = system_of(mind.bodies["turn"][-1])
    assert re.search(r"<<<MISSING \w+>>>\nNot without her weight\.\n<<<END", last)
    assert "20 kg" not in last, "what is required is never assumed"
    state = DialogState.objects.get(agent=agent)
    assert [entry.text for entry in entries(state, "assumptions")] == ["the old fan", "to buy"]
    assert state.pending == {}


def test_offline_rules_ask_for_the_weight_once(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    agent = with_swarm(sample_lines=["I am only a script."])

    replies = [
        asks(agent, text)[1][-1].text for text in ("How much ibuprofen can my son take?", "I don't know his weight.")
    ]

    assert replies == ["How much does the person who takes it weigh?", "I am only a script."]
    assert noted(Run.objects.order_by("pk").last()).calibration["decision"]["kind"] == "cannot"  # type: ignore[arg-type]


# -- criterion 4: "I ate ..." is logged
def test_what_a_person_ate_is_logged_and_confirmed_in_one_line(llm_server: LLMServer) -> None:
    agent = eating()
    mind = Mind(llm_server, says=[("log", {"foods": [{"food": "egg", "amount": 2}]}), "Logged: two eggs, 156 kcal."])

    run, said = asks(agent, "I ate two eggs")

    assert tools(run) == [("log", "Logged: 2 egg, 156 kcal, 13 g protein.")]
    assert [message.text for message in said] == ["Logged: two eggs, 156 kcal."]
    row = noted(run)
    assert (row.intent, row.swarm and row.swarm.name) == ("food_log", "tmwya")
    first = mind.bodies["turn"][0]
    assert {"log", "look_up", "undo"} <= {tool["name"] for tool in first["tools"]}
    assert "in one short line" in system_of(first)
    polishers = prompt_of(mind.bodies["post"][0])
    assert "Logged: 2 egg, 156 kcal, 13 g protein." in polishers, "they see what the tool did"


@pytest.mark.parametrize("text", ["What is the capital of Peru?"])
def test_what_is_not_about_food_is_offered_no_tool_for_it(llm_server: LLMServer, text: str) -> None:
    mind = Mind(llm_server)

    run, _ = asks(eating(), text)

    assert "log" not in {tool["name"] for tool in mind.bodies["turn"][0]["tools"]}
    assert noted(run).swarm.name == "personality"  # type: ignore[union-attr]


def test_offline_a_meal_is_logged_too(settings: Settings) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"

    run, said = asks(eating(), "I ate two eggs")

    assert tools(run) == [("log", "Logged: 2 eggs, 156 kcal, 13 g protein.")]
    assert [message.text for message in said] == ["Logged: 2 eggs, 156 kcal, 13 g protein."]


# -- criterion 5: "log that"
@pytest.mark.parametrize("asked", ["log that", "Can you log that for me, please?"])
def test_log_that_uses_the_food_that_was_looked_up_before(llm_server: LLMServer, asked: str) -> None:
    agent = eating()
    banana = {"foods": [{"food": "banana", "amount": 1}]}
    mind = Mind(llm_server, says=[("look_up", banana), "A banana has 105 kcal."])
    looked_up, _ = asks(agent, "How many calories are in a banana?")
    mind.says = [("log", {}), "Logged: the banana, 105 kcal."]

    logged, said = asks(agent, asked)

    assert [name for name, _ in tools(looked_up)] == ["look_up"]
    assert tools(logged) == [("log", "Logged: 1 banana, 105 kcal, 1 g protein.")]
    assert said[-1].text == "Logged: the banana, 105 kcal."
    assert [noted(run).intent for run in (looked_up, logged)] == ["food_question", "food_log"]
