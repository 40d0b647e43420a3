"""The example of a role swarm: what is looked up can be logged without a second look-up, and a log is a turn's own record."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Run, RunMessage
from agents.swarm.models import DialogState
from agents.turn.pipeline import Turn
from tests.agents.turn.playing import answer_text, answers, join, plays, take_turn, texts
from tests.factories import make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


class Meals:
    """Offers the example's tools, as a role swarm does."""

    name = "meals"

    def prepare(self, turn: Turn) -> None:
        turn.tools = ["look_up", "log", "undo", "day"]


@pytest.fixture
def kitchen(settings: Settings) -> Channel:
    settings.TURN_PIPELINE = ["tests.agents.swarm.test_food.Meals"]
    return make_channel("kitchen")


@pytest.fixture
def ada(kitchen: Channel) -> Agent:
    agent = make_agent(sample_lines=["Hm."])
    join(kitchen, agent)
    return agent


def asked(agent: Agent, channel: Channel, text: str) -> Run:
    return take_turn(agent, channel, trigger=say(channel, "Priya", text))


def tools(run: Run) -> list[tuple[str, bool, str]]:
    rows = RunMessage.objects.filter(run=run, role="tool").exclude(tool_name="send_message").order_by("number")
    return [(row.tool_name, row.content["is_error"], row.content["text"]) for row in rows]


EGGS = {"foods": [{"food": "egg", "amount": 2}]}


def test_what_is_logged_already_is_not_logged_again_by_log_that(
    ada: Agent, kitchen: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("log", EGGS), ("log", {}), ("day", {}), ("undo", {}), ("log", {}), "Done.")

    run = asked(ada, kitchen, "I ate two eggs. Log that. How much is it? Undo that. Log that.")

    assert [is_error for _, is_error, _ in tools(run)] == [False, True, False, False, False]
    assert "It is logged already (2 egg, 156 kcal" in tools(run)[1][2]
    assert "156 kcal" in tools(run)[2][2]


def test_there_is_nothing_to_log_before_something_was_looked_up(
    ada: Agent, kitchen: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("log", {}), "Done.")

    run = asked(ada, kitchen, "Log that")

    [(name, is_error, text)] = tools(run)
    assert (name, is_error) == ("log", True)
    assert "allowed: the field foods" in text
    assert answer_text(answers(llm_server.bodies[1])[0]) == text


def test_a_day_adds_up_what_was_logged_and_not_taken_back(ada: Agent, kitchen: Channel, llm_server: LLMServer) -> None:
    banana = {"foods": [{"food": "banana"}, {"food": "Toast", "amount": 0.5}]}
    plays(llm_server, ("log", EGGS), ("log", banana), ("undo", {}), ("log", EGGS), ("day", {"goal": 2000}), "Done.")

    run = asked(ada, kitchen, "Sort out my day.")

    assert tools(run)[2][2] == "Removed: 1 banana and toast (0.5 x slice), 145 kcal, 3 g protein."
    assert tools(run)[-1][2] == "Logged today: 312 kcal, 25 g protein. Left of 2000 kcal: 1688 kcal."


def test_a_message_that_is_tried_again_logs_and_takes_back_nothing_twice(
    ada: Agent, kitchen: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("log", EGGS), "Done.")
    asked(ada, kitchen, "I ate two eggs")
    question = say(kitchen, "Priya", "And again two eggs.")
    plays(llm_server, ("log", EGGS))
    llm_server.reply(status=400)
    assert take_turn(ada, kitchen, trigger=question).status == "failed"

    plays(llm_server, ("log", EGGS), ("day", {}), "Done.")
    again = tools(take_turn(ada, kitchen, trigger=question))

    assert again[0] == ("log", False, "Logged already: 2 egg, 156 kcal, 13 g protein.")
    assert "312 kcal" in again[1][2]

    question = say(kitchen, "Priya", "Take the last one back.")
    plays(llm_server, ("undo", {}))
    llm_server.reply(status=400)
    assert take_turn(ada, kitchen, trigger=question).status == "failed"
    plays(llm_server, ("undo", {}), ("day", {}), "Done.")
    again = tools(take_turn(ada, kitchen, trigger=question))

    assert again[0] == ("undo", False, "Removed already: 2 egg, 156 kcal, 13 g protein.")
    assert "156 kcal" in again[1][2]


def test_a_message_that_is_tried_again_logs_what_is_new_and_brings_nothing_back(
    ada: Agent, kitchen: Channel, llm_server: LLMServer
) -> None:
    banana = {"food": "banana"}
    question = say(kitchen, "Priya", "Two eggs, no, take them back, a banana.")
    plays(llm_server, ("log", EGGS), ("undo", {}), ("log", {"foods": [banana]}))
    llm_server.reply(status=400)
    assert take_turn(ada, kitchen, trigger=question).status == "failed"

    plays(
        llm_server, ("log", EGGS), ("undo", {}), ("log", {"foods": [banana, {"food": "toast"}]}), ("day", {}), "Done."
    )
    again = tools(take_turn(ada, kitchen, trigger=question))

    assert again[2][2] == "Logged: toast (1 x slice), 80 kcal, 3 g protein."
    assert again[3][2].startswith("Logged today: 185 kcal"), "of a banana and toast"


def test_a_log_belongs_to_its_conversation(ada: Agent, kitchen: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, ("log", EGGS), "Done.")
    asked(ada, kitchen, "I ate two eggs")
    garden = make_channel("garden")
    join(garden, ada)
    plays(llm_server, ("day", {}), ("undo", {}), "Done.")

    run = asked(ada, garden, "How much did I eat today?")

    assert [(name, is_error) for name, is_error, _ in tools(run)] == [("day", False), ("undo", True)]
    assert "0 kcal" in tools(run)[0][2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"foods": [{"food": "gravel"}]},
        {"foods": [{"food": "egg", "amount": 1e9}]},
        {"food": "egg"},
    ],
)
def test_unknown_foods_and_fields_are_refused_with_what_is_allowed(
    ada: Agent, kitchen: Channel, llm_server: LLMServer, wrong: dict[str, Any]
) -> None:
    plays(llm_server, ("log", wrong), "Done.")

    [(_, is_error, text)] = tools(asked(ada, kitchen, "I ate something"))

    assert is_error
    assert "field" in text
    assert not DialogState.objects.filter(agent=ada, channel=kitchen).exists()


@pytest.mark.parametrize(
    ("message", "reply"),
    [
        ("I had a banana and toast for breakfast", "Logged: 1 banana and toast (1 x slice), 185 kcal, 4 g protein."),
        ("How many calories are in an egg?", "1 egg, 78 kcal, 6 g protein."),
        ("How many calories have I eaten today?", "Logged today: 0 kcal, 0 g protein."),
        ("I ate sushi", "Hm."),  # the table does not hold it, so the script logs nothing
        ("Log that", "Hm."),  # nothing was looked up
        ("What a day.", "Hm."),
    ],
)
def test_offline_the_scripted_actor_uses_the_tools_and_says_what_they_answered(
    ada: Agent, kitchen: Channel, settings: Settings, message: str, reply: str
) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"

    run = asked(ada, kitchen, message)

    assert run.status == "completed"
    assert texts(kitchen)[-1] == reply


@pytest.mark.parametrize(
    ("said", "logged"),
    [
        ("I ate seven eggs", "Logged: 7 eggs,"),
        ("I ate a dozen eggs", ""),
        ("I ate 1,5 eggs", "Logged: 1.5 eggs,"),
        ("I ate an egg", "Logged: 1 egg,"),
        ("I ate 1/2 eggs", ""),
        ("I ate 10-12 eggs", ""),
    ],
)
def test_offline_an_amount_that_cannot_be_read_is_not_logged(
    said: str, logged: str, ada: Agent, kitchen: Channel, settings: Settings
) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"

    answered = [text for _, _, text in tools(asked(ada, kitchen, said))]

    assert [text[: len(logged)] for text in answered] == ([logged] if logged else [])
