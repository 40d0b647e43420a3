"""Short dialogs, and what is remembered of them without a model: answers, decisions, units, meals."""

from __future__ import annotations

import pytest

from agents.models import Agent, Channel, Message
from agents.swarm.intents import intent_of
from agents.swarm.memory import memory_section
from agents.swarm.models import DialogState, SwarmTurn
from agents.swarm.stages import Calibration
from agents.swarm.state import entries, folded
from agents.turn.pipeline import TraceEntry
from agents.turn.prompt import new_turn
from tests.agents.swarm.speaking import with_swarm
from tests.factories import say


def talked(*turns: str) -> DialogState:
    """The state after Mia and the agent said these in turn; a line that begins with ``- `` is the agent's."""
    agent = with_swarm(sample_lines=["Hm."])
    channel = Channel.objects.get(slug="dm")
    for text in turns:
        if text.startswith("- "):
            say(channel, agent, text.removeprefix("- "))
        else:
            read(agent, channel, say(channel, "Mia", text))
    state: DialogState = DialogState.objects.get()
    return state


def read(agent: Agent, channel: Channel, message: Message) -> None:
    turn = new_turn(agent=agent, channel=channel, trigger=message)
    turn.running.append(TraceEntry("calibration", "prepare"))
    Calibration().prepare(turn)


# -- answers
@pytest.mark.parametrize(
    ("asked", "question", "answer"),
    [
        ("I need a dose of the medicine for my dog.", "How much does your dog weigh?", "12 kg"),
        ("Recommend a phone.", "Sure. What is your budget?", "About 400 euros."),
        ("Suggest a dinner.", "Do you have any allergies?", "No."),
        ("I want to learn the guitar.", "Nice. How old are you?", "I'm 14."),
    ],
)
def test_the_answer_to_the_agents_question_is_a_fact_with_its_question(
    asked: str, question: str, answer: str, db: None
) -> None:
    state = talked(asked, f"- {question}", answer)

    [fact] = [fact for fact in entries(state, "facts") if fact.quote == answer]
    assert folded(fact.text) == folded(f"{question.removeprefix('Sure. ').removeprefix('Nice. ')} {answer}")
    assert f"“{answer}” (Mia, 3)" in memory_section(state, None, {}, "abc")


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("Which city are you flying from?", "Why do you need that?"),
        ("Are you vegetarian?", "Never mind, tell me a joke instead."),
        ("How much do you weigh?", "I don't know."),
        ("What would you like to eat?", "Please forget that I am vegetarian."),
        ("I would go to Rome.", "Twelve days."),
        ("You know Ryan. Right?", "Yes."),
    ],
)
def test_what_is_no_answer_is_no_fact(before: str, text: str, db: None) -> None:
    assert entries(talked("Plan a trip.", f"- {before}", text), "facts") == []


def test_the_answer_to_a_question_that_was_asked_back_is_pinned(db: None) -> None:
    state = talked("How much ibuprofen can I give my son?")
    question = state.pending["question"]
    agent, channel = Agent.objects.get(), Channel.objects.get(slug="dm")
    say(channel, agent, question)

    read(agent, channel, say(channel, "Mia", "18 kg"))

    state.refresh_from_db()
    assert [(fact.text, fact.pinned) for fact in entries(state, "facts")] == [(f"{question} 18 kg", True)]


def test_money_is_no_body_weight(db: None) -> None:
    talked("It cost me 20 pounds. How much ibuprofen can I give my son?")

    assert SwarmTurn.objects.latest("pk").calibration["reading"]["missing"] == ["body weight"]


# -- decisions
@pytest.mark.parametrize(
    "text",
    [
        "Summarise what we decided.",
        "Did we agree on Friday?",
        "Can you remind me what we agreed on",
        "I don't remember whether we agreed on Tuesday.",
        "When did we agree to meet",
        "Tell me again what we decided",
    ],
)
def test_a_question_is_no_decision(text: str, db: None) -> None:
    assert entries(talked(text), "decisions") == []


@pytest.mark.parametrize(
    "text",
    [
        "Let's go with the blue one.",
        "We decided on the blue one.",
        "I'll take the second.",
        "OK, what we decided is to sell.",
        "When we arrive I'll take the tram.",
    ],
)
def test_a_decision_is_one(text: str, db: None) -> None:
    assert [entry.quote for entry in entries(talked(text), "decisions")] == [text]


# -- units
@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("My rent is 900 pounds a month.", None),
        ("I lost 10 pounds at the casino.", None),
        ("I weigh 150 pounds.", "imperial"),
        ("Buy 2 pounds of butter.", "imperial"),
        ("She is 5 feet tall.", "imperial"),
    ],
)
def test_an_amount_of_money_is_no_unit_system(text: str, units: str | None, db: None) -> None:
    talked(text)

    assert SwarmTurn.objects.latest("pk").calibration["reading"]["units"] == units


# -- meals
@pytest.mark.parametrize(
    "text",
    [
        "I had pizza yesterday.",
        "When I was a kid I ate snails.",
        "My daughter had oatmeal this morning.",
        "I ate two eggs on Sunday.",
        "Two weeks ago I had pizza in Naples.",
        "Log the pizza my wife ate.",
        "I usually eat a banana.",
        "She said I ate the cake.",
    ],
)
def test_a_meal_of_another_day_or_person_is_not_logged(text: str) -> None:
    assert intent_of(text) != "food_log"


@pytest.mark.parametrize(
    "text",
    [
        "Yesterday was long. I ate two eggs.",
        "I had a salad for lunch.",
        "I've eaten two apples.",
        "I ate a sandwich two hours ago.",
    ],
)
def test_ones_own_meal_of_today_is_logged(text: str) -> None:
    assert intent_of(text) == "food_log"
