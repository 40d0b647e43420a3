"""What an agent keeps of a conversation rests on what was said, has limits, and is changed by one writer at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Agent, Channel, Message
from agents.swarm import state as states
from agents.swarm.models import DialogEntry, DialogState
from agents.swarm.state import (
    MOST_PINNED,
    MOST_UNPINNED,
    Entry,
    StateRefused,
    add_quoted,
    advance,
    entries,
    folded,
    pin,
    pinned,
    quoted,
    unpin,
    updating,
)
from tests.factories import make_agent, make_channel, say

SAID = "I don’t eat  fish.\nI weigh 72 kg, and my sister Lena weighs 61 kg! Can you plan a week?"


@pytest.fixture
def room(db: None) -> tuple[Agent, Channel, Message]:
    agent, channel = make_agent(), make_channel()
    return agent, channel, say(channel, "Mia", SAID)


@pytest.mark.parametrize(
    ("quote", "sentence"),
    [
        ("I weigh 72 kg", "I weigh 72 kg, and my sister Lena weighs 61 kg!"),
        ("i WEIGH\n72  kg", "I weigh 72 kg, and my sister Lena weighs 61 kg!"),
        ("I don't eat fish", "I don’t eat fish."),
        ("eat fish", "I don’t eat fish."),  # words cut out of a denial bring the denial along
        ("fish. I weigh", "I don’t eat fish. I weigh 72 kg, and my sister Lena weighs 61 kg!"),
        ("I weigh 73 kg", ""),
        ("I weigh 7", ""),  # whole words only
        ("plan", "Can you plan a week?"),
        ("I eat fish", ""),
        ("…", ""),
        ("", ""),
    ],
)
def test_a_quote_is_the_sentence_it_stands_in(quote: str, sentence: str) -> None:
    assert quoted(quote, SAID) == sentence


@given(st.text(max_size=40), st.text(max_size=200))
def test_a_quote_is_always_in_the_message(quote: str, message: str) -> None:
    assert folded(quoted(quote, message)) in folded(message)


@given(st.text(alphabet="ab .!\n’", max_size=60).filter(lambda text: any(map(str.isalnum, text))))
def test_a_message_is_a_quote_of_itself(message: str) -> None:
    assert quoted(message, message)


def test_what_was_not_said_is_dropped_and_counted(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, message = room
    new = [
        Entry(text="User weighs 72 kg", position=1, quote="I weigh 72 kg"),
        Entry(text="User weighs 72 kg, which is a lot", position=1, quote="my sister Lena"),
        Entry(text="User likes fish", position=1, quote="I like fish"),
        Entry(text="User weighs 72 kg", position=2, quote="I weigh 72 kg"),
        Entry(text="User weighs 72 kg", position=1, quote="I weigh 72 kg"),
    ]

    with updating(agent, channel) as state:
        dropped = add_quoted(state, "facts", new, [message])

    kept = entries(DialogState.objects.get(), "facts")
    assert (dropped, DialogState.objects.get().dropped) == (2, 2)
    assert [(entry.text, entry.author) for entry in kept] == [
        ("I weigh 72 kg, and my sister Lena weighs 61 kg!", "Mia")
    ]


def test_the_anchor_stays_and_the_goal_follows(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, first = room
    second = say(channel, "Mia", "Now I want a list of shops.")
    with updating(agent, channel) as state:
        for kind in ("anchor", "goal"):
            add_quoted(state, kind, [Entry(text="plan a week", position=1, quote="plan a week")], [first])
            add_quoted(state, kind, [Entry(text="wants shops", position=2, quote="a list of shops")], [second])

    state = DialogState.objects.get()
    assert [entry.position for kind in ("anchor", "goal") for entry in entries(state, kind)] == [1, 2]


def test_a_message_counts_once(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, message = room
    counted = []
    for _ in range(2):
        with updating(agent, channel) as state:
            counted.append(advance(state, message))

    assert (counted, DialogState.objects.get().turn, DialogState.objects.get().position) == ([True, False], 1, 1)


def test_nothing_of_a_change_that_failed_is_stored(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, message = room

    def fail(state: DialogState) -> None:
        advance(state, message)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), updating(agent, channel) as state:
        fail(state)

    assert not DialogState.objects.filter(turn=1).exists()


def _facts(channel: Channel, count: int, **fields: Any) -> tuple[list[Entry], list[Message]]:
    messages = [say(channel, "Mia", f"Box {number} is blue.") for number in range(count)]
    return [Entry(text=m.text, position=m.position, quote=m.text, **fields) for m in messages], messages


def key(state: DialogState, place: int) -> int:
    return entries(state, "facts")[place].pk


def test_a_sentence_may_be_goal_and_fact_and_each_is_removed(
    room: tuple[Agent, Channel, Message],
) -> None:
    agent, channel, message = room
    own = Entry(text="User weighs 72 kg", position=1, quote="I weigh 72 kg")
    with updating(agent, channel) as state:
        add_quoted(state, "goal", [own], [message])
        add_quoted(state, "facts", [own], [message])
        states.remove(state, key(state, 0))

    assert entries(DialogState.objects.get(), "facts") == []
    assert [entry.text for entry in entries(DialogState.objects.get(), "goal")] == [
        "I weigh 72 kg, and my sister Lena weighs 61 kg!"
    ]


def test_the_oldest_rule_pinned_entry_makes_room_and_waits_for_a_summary(
    room: tuple[Agent, Channel, Message],
) -> None:
    agent, channel, _ = room
    new, messages = _facts(channel, MOST_PINNED + 2, pinned=True)
    with updating(agent, channel) as state:
        add_quoted(state, "facts", new[:1], messages)
        pin(state, key(state, 0))
        add_quoted(state, "facts", new[1:], messages)

    held = pinned(DialogState.objects.get())
    assert len(held) == MOST_PINNED + 2
    assert [entry.text for entry in held if entry.leaving] == ["Box 1 is blue.", "Box 2 is blue."]
    assert sum(entry.pinned for entry in held) == MOST_PINNED


def test_of_what_is_not_pinned_the_oldest_goes(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, _ = room
    new, messages = _facts(channel, MOST_UNPINNED + 3)
    with updating(agent, channel) as state:
        add_quoted(state, "decisions", new, messages)

    assert [entry.text for entry in entries(DialogState.objects.get(), "decisions")] == [e.text for e in new[3:]]


def test_people_may_pin_thirty_and_no_more(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, _ = room
    new, messages = _facts(channel, MOST_PINNED + 1, pinned=True)
    with updating(agent, channel) as state:
        for entry in new[:MOST_PINNED]:
            add_quoted(state, "facts", [entry], messages)
            pin(state, key(state, -1))
        add_quoted(state, "facts", new[MOST_PINNED:], messages)
        with pytest.raises(StateRefused, match="at most 30"):
            pin(state, key(state, MOST_PINNED))
        unpin(state, key(state, 0))
        pin(state, key(state, MOST_PINNED))

        assert sum(entry.pinned for entry in pinned(state)) == MOST_PINNED


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: states.add(s, "wishes", {}), "kind: 'wishes'; allowed: anchor, goal, facts"),
        (lambda s: states.add(s, "facts", {"text": "x", "position": 1}), "facts.quote: "),
        (lambda s: states.add(s, "facts", {"text": "x", "position": 1, "quote": "I eat fish"}), "facts.quote: "),
        (
            lambda s: states.add(s, "facts", {"text": "x", "position": 9, "quote": "fish"}),
            "in message 9; allowed",
        ),
        (lambda s: states.add(s, "facts", {"text": "x" * 301, "position": 1, "quote": "fish"}), "1 to 300"),
        (lambda s: states.add(s, "facts", {"text": "x", "position": 0, "quote": "fish"}), "facts.position: "),
        (lambda s: states.add(s, "facts", {"text": "x", "by": "model"}), "facts.by: unknown; allowed: text"),
        (lambda s: states.edit(s, 0, "x"), "id: there is no entry 0; allowed: none"),
        (lambda s: states.remove(s, 0), "id: "),
        (lambda s: states.pin(s, 0), "id: "),
    ],
)
def test_a_change_by_a_person_that_is_not_allowed_says_what_is(
    change: Any, says: str, room: tuple[Agent, Channel, Message]
) -> None:
    agent, channel, _ = room
    with pytest.raises(StateRefused, match=re.escape(says)), updating(agent, channel) as state:
        change(state)


def test_people_add_edit_and_remove(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, _ = room
    with updating(agent, channel) as state:
        entry = states.add(state, "facts", {"text": "No fish", "position": 1, "quote": "eat fish", "pinned": True})
        states.edit(state, entry.pk, "Never serve fish")

    held = entries(DialogState.objects.get(), "facts")
    assert [(e.text, e.quote, e.by, e.pinned) for e in held] == [
        ("Never serve fish", "I don’t eat fish.", "person", True)
    ]
    with updating(agent, channel) as state:
        states.remove(state, entry.pk)
    assert entries(DialogState.objects.get(), "facts") == []


def test_what_a_person_removed_enters_again_only_by_a_person(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, message = room
    fish = Entry(text="x", position=1, quote="eat fish")
    with updating(agent, channel) as state:
        add_quoted(state, "facts", [fish], [message])
        states.remove(state, key(state, 0))
    for kind in ("facts", "decisions", "goal"):
        with updating(agent, channel) as state:
            add_quoted(state, kind, [fish, fish.model_copy(update={"quote": "fish. I weigh 72 kg"})], [message])
            assert entries(state, kind) == []

    with updating(agent, channel) as state:
        states.add(state, "facts", {"text": "No fish", "position": 1, "quote": "eat fish"})
        add_quoted(state, "decisions", [fish], [message])

    state = DialogState.objects.get()
    assert [len(entries(state, kind)) for kind in ("facts", "decisions")] == [1, 1]


def test_an_assumption_is_noted_with_its_latest_message(
    room: tuple[Agent, Channel, Message],
) -> None:
    agent, channel, _ = room
    for text in ("Is it good?", " " * 400 + "Is it good now?"):
        with updating(agent, channel) as state:
            states.assume(state, "the printer on this floor", say(channel, "Mia", text))

    noted = entries(DialogState.objects.get(), "assumptions")
    assert [(entry.text, entry.position, entry.quote) for entry in noted] == [
        ("the printer on this floor", 3, "Is it good now?")
    ]


@pytest.mark.parametrize(
    ("kind", "quotes"),
    [
        ("anchor", ["I live in Oslo.", "I own a cat."]),
        ("goal", ["I live in Oslo.", "I own a cat."]),
        ("facts", ["I live in Oslo."] * 2),
    ],
)
def test_the_database_keeps_one_anchor_one_goal_and_each_quote_once(
    room: tuple[Agent, Channel, Message], kind: str, quotes: list[str]
) -> None:
    agent, channel, message = room
    with updating(agent, channel) as state:
        pass
    fields = {"state": state, "kind": kind, "message": message, "position": 1}
    first, second = (DialogEntry(text=quote, quote=quote, **fields) for quote in quotes)
    first.save()

    with pytest.raises(IntegrityError), transaction.atomic():
        second.save()
    DialogEntry.objects.update(removed=True)
    second.save()


def test_a_preview_reads_what_would_be_remembered_and_stores_nothing(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, message = room
    with updating(agent, channel, stored=False) as state:
        add_quoted(state, "facts", [Entry(text="x", position=1, quote="eat fish")], [message])

    assert [entry.quote for entry in entries(state, "facts")] == ["I don’t eat fish."]
    assert not DialogState.objects.exists()
    assert not DialogEntry.objects.exists()


def test_the_words_of_an_agent_are_no_goal_of_the_person(room: tuple[Agent, Channel, Message]) -> None:
    agent, channel, _ = room
    said = say(channel, agent, "I want to sell you a boat.")

    with updating(agent, channel) as state:
        add_quoted(state, "goal", [Entry(text="a boat", position=said.position, quote="sell you a boat")], [said])

    assert entries(DialogState.objects.get(), "goal") == []


LONG = f"I would never say, {'as he does ' * 26}that I eat fish, though I {'really ' * 60}like the sea"


@pytest.mark.parametrize(
    ("quote", "beginning"),
    [("I would never say", "I would never say, as"), ("that I eat fish", ""), ("like the sea", "")],
)
def test_a_long_sentence_is_quoted_with_its_beginning_or_not_at_all(quote: str, beginning: str) -> None:
    words = quoted(quote, f"Hello. {LONG}. Bye.")

    assert bool(words) == bool(beginning)
    assert words.startswith(beginning)
    assert len(words) <= 302
    assert quoted(words, f"Hello. {LONG}. Bye.") == words


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Forget that I am vegetarian.", ["My budget is 50 euros."]),
        ("Hm. Please forget what I said about Oslo, it was wrong.", ["My budget is 50 euros."]),
        ("Actually, can you forget my budget?", ["I am vegetarian and live in Oslo."]),
        ("Don't forget that I am vegetarian.", ["I am vegetarian and live in Oslo.", "My budget is 50 euros."]),
        ("Forget it, I will take the bus.", ["I am vegetarian and live in Oslo.", "My budget is 50 euros."]),
        ("Forget that I own a dog.", ["I am vegetarian and live in Oslo.", "My budget is 50 euros."]),
    ],
)
def test_asking_to_forget_removes_entries_and_states_no_fact(
    room: tuple[Agent, Channel, Message], text: str, left: list[str]
) -> None:
    agent, channel, _ = room
    told = say(channel, "Guest", "I am vegetarian and live in Oslo. My budget is 50 euros.")
    asked = say(channel, "Guest", text)
    said = ["I am vegetarian and live in Oslo.", "My budget is 50 euros."]
    with states.updating(agent, channel) as state:
        add_quoted(
            state, "facts", [Entry(text=one, position=told.position, quote=one, pinned=True) for one in said], [told]
        )
        states.forget_asked(state, asked)
        asking = text.removeprefix("Hm. ")
        new = [Entry(text=asking, position=asked.position, quote=asking, pinned=True)]
        add_quoted(state, "facts", new, [asked])

    facts = [entry.quote for entry in states.entries(state, "facts")]
    assert [one for one in facts if one in said] == left
    assert facts == [*left, *([text] if text.startswith(("Don't", "Forget it")) else [])]


def test_another_person_makes_nothing_forgotten_nor_does_anybody_what_a_person_pinned(
    room: tuple[Agent, Channel, Message],
) -> None:
    agent, channel, _ = room
    told = say(channel, "Guest", "I am vegetarian. I am allergic to nuts.")
    with states.updating(agent, channel) as state:
        new = [
            Entry(text=one, position=told.position, quote=one, pinned=True)
            for one in ("I am vegetarian.", "I am allergic to nuts.")
        ]
        add_quoted(state, "facts", new, [told])
        states.pin(state, key(state, 1))

        removed = [
            states.forget_asked(state, say(channel, who, what))
            for who, what in [("Zed", "Forget that I am vegetarian."), ("Guest", "Forget that I am allergic.")]
        ]

    assert removed == [0, 0]
