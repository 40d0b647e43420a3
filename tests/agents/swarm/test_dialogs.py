"""Short dialogs, and what is remembered of them without a model: answers, what a newer statement replaces, decisions, units, meals."""

from __future__ import annotations

import pytest

from agents.models import Agent, Channel, Message
from agents.swarm.intents import intent_of
from agents.swarm.memory import memory_section, queue_summary, quotes_of
from agents.swarm.memory import work_one as summarise_one
from agents.swarm.models import DialogEntry, DialogState, SwarmTurn
from agents.swarm.stages import Calibration
from agents.swarm.state import Entry, add_quoted, entries, folded, pin, updating
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


def held(state: DialogState, kind: str = "facts") -> list[DialogEntry]:
    return [entry for entry in entries(state, kind) if not entry.until]


# -- answers
@pytest.mark.parametrize(
    ("asked", "question", "answer"),
    [
        ("Can you plan my workouts?", "How many days a week can you train?", "Three."),
        ("I need a dose of the medicine for my dog.", "How much does your dog weigh?", "12 kg"),
        ("Recommend a phone.", "Sure. What is your budget?", "About 400 euros."),
        ("Help me write an invitation.", "Who is it for?", "My grandmother's bridge club."),
        ("Suggest a dinner.", "Do you have any allergies?", "No."),
        ("Write a note to the team.", "Should it be formal or casual?", "Casual, please."),
        ("I want to learn the guitar.", "Nice. How old are you?", "I'm 14."),
        ("My laptop is slow.", "Is it a Mac or a PC?", "A Mac, from 2019."),
        ("Plan a trip.", "Do you travel with children?", "Yes, two."),
    ],
)
def test_the_answer_to_the_agents_question_is_a_fact_with_its_question(
    asked: str, question: str, answer: str, db: None
) -> None:
    state = talked(asked, f"- {question}", answer)

    [fact] = [fact for fact in held(state) if fact.quote == answer]
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
    assert held(talked("Plan a trip.", f"- {before}", text)) == []


def test_an_answer_counts_as_required_information(db: None) -> None:
    talked("How much ibuprofen can I give my son?", "- How much does he weigh?", "45 pounds")

    assert SwarmTurn.objects.latest("pk").calibration["reading"]["missing"] == []


def test_the_answer_to_a_question_that_was_asked_back_is_pinned(db: None) -> None:
    state = talked("How much ibuprofen can I give my son?")
    question = state.pending["question"]
    agent, channel = Agent.objects.get(), Channel.objects.get(slug="dm")
    say(channel, agent, question)

    read(agent, channel, say(channel, "Mia", "18 kg"))

    state.refresh_from_db()
    assert [(fact.text, fact.pinned) for fact in held(state)] == [(f"{question} 18 kg", True)]


def test_money_is_no_body_weight(db: None) -> None:
    talked("It cost me 20 pounds. How much ibuprofen can I give my son?")

    assert SwarmTurn.objects.latest("pk").calibration["reading"]["missing"] == ["body weight"]


# -- replacing
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I am vegetarian.", "I'm not vegetarian any more."),
        ("I'm not vegetarian.", "I am vegetarian now."),
        ("I am a vegan and I own a bakery.", "I'm not a vegan anymore."),
        ("I'm pregnant.", "I am no longer pregnant."),
        ("I have a car.", "I don't have a car any more."),
        ("I live in Oslo.", "I live in Bergen now."),
        ("I live in Paris with my cat.", "I've moved to Lyon."),
        ("My budget is 500 euros.", "My budget is 800 euros now."),
        ("My name is Anna.", "Sorry, my name is Hannah."),
        ("I work as a nurse.", "I work as a teacher now."),
        ("My deadline is Friday.", "My deadline is Monday now."),
        ("My deadline is 3 May.", "The deadline is now 10 May."),
        ("My favourite colour is green.", "Actually my favourite colour is red."),
        ("I weigh 80 kg.", "I weigh 76 kg now."),
        ("My budget is 900 euros for the trip.", "My budget is 700 euros for the trip now."),
        ("I live in Oslo.", "I live in Bergen now, if that matters."),
    ],
)
def test_a_newer_statement_replaces_the_one_it_contradicts_which_stays_readable(
    older: str, newer: str, db: None
) -> None:
    state = talked(older, "- Good to know.", newer)

    assert [fact.quote for fact in held(state)] == [newer]
    [past] = [fact for fact in entries(state, "facts") if fact.until]
    assert (past.quote, past.until, past.pinned) == (older, 3, False)
    shown = memory_section(state, None, {}, "abc")
    assert shown.count(f"“{older}” (Mia, 1), until message 3") == 2, "as the anchor, and as a fact"


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I have two cats.", "I have a dog."),
        ("I am allergic to nuts.", "I am allergic to shellfish."),
        ("I am vegetarian.", "My brother is not vegetarian."),
        ("My son is allergic to milk.", "I'm not allergic to milk."),
        ("I work in a bank.", "I work on Saturdays."),
        ("My weight is 80 kg.", "My height is 180 cm."),
        ("My budget is 500 euros.", "My budget for the hotel is 100 euros."),
        ("I am not a nurse and live in Oslo.", "I live in a flat."),
        ("I live in Oslo.", "My sister lives in Rome."),
        ("I live in Rome.", "If I live in Oslo one day, I will ski."),
        ("I live in Rome.", "I live in Oslo when I visit my aunt."),
        ("I live in Rome.", "I moved to Oslo in 2010."),
        ("My name is Bob.", "My mother said my name is silly."),
        ("I live in Oslo.", "I lived in Turin before I moved to Oslo."),
        ("My budget is 2000 euros for the trip.", "And my budget is 50 euros for the gift."),
        ("My knee is not sore.", "My knee was sore."),
    ],
)
def test_statements_that_can_both_be_true_both_stay(older: str, newer: str, db: None) -> None:
    assert {older, newer} <= {fact.quote for fact in held(talked(older, "- Good to know.", newer))}


def test_an_answer_is_replaced_whatever_its_question_asks_with(db: None) -> None:
    state = talked("Plan a party.", "- When is your birthday this year?", "3 May.", "- Fine.", "My birthday is 4 May.")

    assert [fact.quote for fact in held(state)] == ["My birthday is 4 May."]


def test_a_question_answered_anew_replaces_the_old_answer(db: None) -> None:
    state = talked(
        "Recommend a phone.", "- What is your budget?", "400 euros.", "- And?", "My budget is 500 euros now."
    )

    assert [fact.quote for fact in held(state)] == ["My budget is 500 euros now."]


def test_what_replaces_may_follow_a_question_of_another_kind(db: None) -> None:
    state = talked("I am vegetarian and live in Oslo.", "- What do you make of it?", "I'm not vegetarian any more.")

    assert [fact.quote for fact in held(state)] == ["I'm not vegetarian any more."]


def test_another_persons_statement_replaces_nothing(db: None) -> None:
    talked("I live in Oslo.")
    agent, channel = Agent.objects.get(), Channel.objects.get(slug="dm")

    read(agent, channel, say(channel, "Tom", "I live in Bergen."))

    assert len(held(DialogState.objects.get())) == 2


def test_what_a_person_pins_holds_again(db: None) -> None:
    state = talked("I live in Oslo.", "- Good.", "I live in Bergen now.")

    pin(state, next(entry.pk for entry in entries(state, "facts") if entry.until))

    assert [fact.quote for fact in held(state)] == ["I live in Oslo.", "I live in Bergen now."]


def test_no_summary_holds_a_statement_that_was_replaced(db: None) -> None:
    agent, channel = with_swarm(), Channel.objects.get(slug="dm")
    said = [
        say(channel, "Mia", text) for text in ("I live in Oslo.", "I live in Bergen now.", *["We walked far."] * 13)
    ]
    with updating(agent, channel) as state:
        for message in said[:2]:
            add_quoted(state, "facts", [Entry(text=message.text, position=message.position, quote=message.text)], said)
        state.turn, state.position = 4, said[-1].position
        queue_summary(state)
    summarise_one(owner="test")

    quotes = [quote.quote for quote in quotes_of(channel.dialog_summaries.get())]

    assert "I live in Bergen now." in quotes
    assert "I live in Oslo." not in quotes


# -- decisions
@pytest.mark.parametrize(
    "text",
    [
        "Summarise what we decided.",
        "What did we decide about the venue?",
        "Did we agree on Friday?",
        "Should we go with the blue one?",
        "Can you remind me what we agreed on",
        "Please list everything we agreed on so far.",
        "Give me a summary of what we have decided.",
        "I don't remember whether we agreed on Tuesday.",
        "Have we settled on a name",
        "What did we decide",
        "When did we agree to meet",
        "Tell me again what we decided",
    ],
)
def test_a_question_is_no_decision(text: str, db: None) -> None:
    assert held(talked(text), "decisions") == []


@pytest.mark.parametrize(
    "text",
    [
        "Let's go with the blue one.",
        "We decided on the blue one.",
        "We agreed on Tuesday.",
        "I'll take the second.",
        "OK, what we decided is to sell.",
        "When we arrive I'll take the tram.",
    ],
)
def test_a_decision_is_one(text: str, db: None) -> None:
    assert [entry.quote for entry in held(talked(text), "decisions")] == [text]


# -- units
@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("It cost me 20 pounds.", None),
        ("My rent is 900 pounds a month.", None),
        ("A pint costs 6 pounds here.", None),
        ("I lost 10 pounds at the casino.", None),
        ("I weigh 150 pounds.", "imperial"),
        ("Buy 2 pounds of butter.", "imperial"),
        ("She is 5 feet tall.", "imperial"),
        ("I ran 10 km.", "metric"),
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
        "My husband ate a burger.",
        "When I was a kid I ate snails.",
        "Last week I ate a huge steak.",
        "My daughter had oatmeal this morning.",
        "I ate two eggs on Sunday.",
        "Two weeks ago I had pizza in Naples.",
        "Log the pizza my wife ate.",
        "Log my son's banana.",
        "I usually eat a banana.",
        "She said I ate the cake.",
    ],
)
def test_a_meal_of_another_day_or_person_is_not_logged(text: str) -> None:
    assert intent_of(text) != "food_log"


@pytest.mark.parametrize(
    "text",
    [
        "I ate two eggs for breakfast.",
        "I just had a banana.",
        "Yesterday was long. I ate two eggs.",
        "I had a salad for lunch.",
        "I've eaten two apples.",
        "I ate a sandwich two hours ago.",
        "Log that",
    ],
)
def test_ones_own_meal_of_today_is_logged(text: str) -> None:
    assert intent_of(text) == "food_log"
