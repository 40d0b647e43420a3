"""Turns: how stretches of them are written, and which messages are drawn from them."""

from __future__ import annotations

import re
import tracemalloc
from collections import Counter
from collections.abc import Iterable

import pytest

from agents.models import Agent, Message
from evaluation.change.position import Bin, parse_bins, positions_of, sample_by_position
from evaluation.planning import RunSpec
from evaluation.windows import MessageWindow, parse_window, spoken_by
from tests.evaluation.drift.talking import BINS, chat
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db

LINE = re.compile(r"line (\d+)")


# -- bins as people write them
@pytest.mark.parametrize(
    ("text", "bins"),
    [
        ("1-5,6-15,16-30,31+", BINS),
        (" 1-5 , 10+ ", ((1, 5), (10, None))),
        ("1,2,3-3", ((1, 1), (2, 2), (3, 3))),
    ],
)
def test_bins_are_read(text: str, bins: tuple[Bin, ...]) -> None:
    assert parse_bins(text) == bins


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *(("", "''"), ("5-1", "5-1"), ("1-5,5-9", "5-9"), ("1+,9+", "9+"), ("0-3", "0-3"), ("a-b", "'a-b'")),
        *(("1-5,", "''"), ("-5", "'-5'"), (",".join(map(str, range(1, 14))), "13 bins")),
    ],
)
def test_bins_that_cannot_be_meant_are_refused_with_what_is_allowed(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=r"allowed: up to 12 stretches .* such as 1-5,6-15,16-30,31\+") as caught:
        parse_bins(text)
    assert named in str(caught.value)


def test_a_spec_has_at_least_one_message_for_each_bin() -> None:
    with pytest.raises(ValueError, match="samples 3: at least one for each of the 4 bins"):
        RunSpec(agent=make_agent(), samples=3, position_bins=BINS)


# -- what is drawn
def draw(agent: Agent, *, samples: int = 20, seed: int = 0, bins: Iterable[Bin] = BINS, **window: str) -> list[int]:
    eligible = spoken_by(agent=agent, window=parse_window(window.get("window", "all")))
    return sample_by_position(agent=agent, eligible=eligible, bins=tuple(bins), samples=samples, seed=seed)


def turns(agent: Agent, drawn: list[int]) -> list[int]:
    return sorted(turn for _, turn in positions_of(drawn, agent=agent).values())


def per_bin(agent: Agent, drawn: list[int]) -> list[int]:
    found = turns(agent, drawn)
    return [sum(first <= turn <= (last or turn) for turn in found) for first, last in BINS]


def test_a_turn_is_the_rank_among_the_agents_own_messages_in_that_channel() -> None:
    ada, bea = make_agent("ada"), make_agent("bea")
    office, attic = make_channel("office"), make_channel("attic")
    say(office, bea, "first")
    said = [
        say(office, ada, "one"),
        say(attic, ada, "one there"),
        say(office, ada, "two"),
        say(attic, ada, "two there"),
    ]
    say(office, ada, "   ")
    said.append(say(office, ada, "three"))

    found = positions_of([m.pk for m in said], agent=ada)

    assert [found[m.pk] for m in said] == [(m.channel_id, turn) for m, turn in zip(said, (1, 1, 2, 2, 3), strict=True)]


def test_the_sample_is_even_over_the_stretches_and_repeatable() -> None:
    ada = make_agent("ada")
    chat(ada, "long", 60)

    drawn = draw(ada, samples=20)

    assert per_bin(ada, drawn) == [5, 5, 5, 5]
    assert len(set(drawn)) == 20
    assert drawn == draw(ada, samples=20)
    assert drawn != draw(ada, samples=20, seed=1)


def test_what_a_short_or_empty_stretch_leaves_goes_to_the_others() -> None:
    ada = make_agent("ada")
    chat(ada, "middling", 17)

    assert per_bin(ada, draw(ada, samples=12)) == [5, 5, 2, 0]
    assert per_bin(ada, draw(ada, samples=100)) == [5, 10, 2, 0]


def test_early_and_late_turns_come_from_the_same_conversations_where_they_can() -> None:
    ada = make_agent("ada")
    long = {chat(ada, f"long-{n}", 35).pk for n in range(4)}
    for n in range(12):
        chat(ada, f"short-{n}", 4)

    found = positions_of(draw(ada, samples=16), agent=ada).values()

    assert Counter(channel for channel, _ in found) == dict.fromkeys(long, 4)
    assert all(Counter(c for c, t in found if a <= t <= (b or t)) == dict.fromkeys(long, 1) for a, b in BINS)


def test_turns_count_from_the_conversations_start_whatever_the_window_is() -> None:
    ada = make_agent("ada")
    chat(ada, "long", 40)

    assert turns(ada, draw(ada, window="last:3")) == [38, 39, 40]


def test_played_speech_and_other_agents_are_not_drawn() -> None:
    ada, bea = make_agent("ada"), make_agent("bea")
    channel = chat(ada, "long", 3)
    talk(bea, ["mine"], channel=channel)
    say(channel, ada, "simulated", synthetic=True)

    assert turns(ada, draw(ada)) == [1, 2, 3]


def test_a_sample_keeps_tags() -> None:
    ada = make_agent("ada")
    for n in range(1, 9):
        talk(ada, [f"line {n}"], tags={"build": str(n % 2)})

    eligible = spoken_by(agent=ada, window=MessageWindow(), where={"build": "0"})
    drawn = sample_by_position(agent=ada, eligible=eligible, bins=parse_bins("1-4,5+"), samples=20, seed=0)

    assert turns(ada, drawn) == [2, 4, 6, 8]


# -- long conversations
def test_a_conversation_of_twenty_thousand_messages_is_sampled_in_little_memory() -> None:
    ada, channel = make_agent("ada"), make_channel()

    def grow(first: int, last: int) -> None:
        Message.objects.bulk_create(
            [Message(channel=channel, agent=ada, position=n, text=f"line {n}") for n in range(first, last)],
            batch_size=1000,
        )

    def peak() -> int:
        tracemalloc.start()
        try:
            assert len(draw(ada, samples=40)) == 40
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    grow(1, 2_001)
    peak()  # loads what is loaded once
    short = peak()
    grow(2_001, 20_001)

    assert peak() < short + 1_000_000, "ten times the messages"
