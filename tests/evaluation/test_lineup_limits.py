"""The voice line-up where there is little to compare, and where there is very much."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from agents.models import Message
from evaluation.lineup import line_up
from tests.evaluation.lining_up import SHARED, THINGS, VOICES, chat, left_out, voices
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db


# -- where there is no figure
def test_an_empty_channel_has_none() -> None:
    result = line_up(channel=make_channel())

    assert (result.reason, result.balanced_accuracy, result.distinct, result.lines) == (
        "nobody spoke here",
        None,
        None,
        0,
    )


def test_a_single_speaker_has_nobody_to_be_taken_for() -> None:
    channel = make_channel()
    chat(channel, voices("formal"), 20)

    assert line_up(channel=channel).reason == "only one speaker: there is nobody to be taken for"


def test_a_channel_of_outsiders_has_none_without_everybody() -> None:
    channel = make_channel()
    for number in range(6):
        say(channel, "Ms One", VOICES["formal"].format(number))
        say(channel, "Mr Two", VOICES["shouty"].format(number))

    assert line_up(channel=channel).reason == "no agent spoke here"
    assert line_up(channel=channel, everybody=True).balanced_accuracy == 1


def test_too_few_lines_leave_a_speaker_out_and_are_said() -> None:
    channel, (formal, shouty, mumbly) = make_channel(), voices("formal", "shouty", "mumbly")
    chat(channel, [formal, shouty], 8)
    chat(channel, [mumbly], 4)

    default, more = line_up(channel=channel), line_up(channel=channel, min_lines=9)

    assert [v.speaker for v in default.voices] == ["formal", "shouty"]
    assert left_out(default) == {"mumbly": "fewer than 5 lines"}
    assert "none of 3 speakers has 9 lines" in more.reason
    assert len(left_out(more)) == 3


def test_who_spoke_in_one_stretch_only_is_left_out() -> None:
    channel, (formal, shouty, mumbly) = make_channel(), voices("formal", "shouty", "mumbly")
    chat(channel, [mumbly], 6)
    chat(channel, [formal, shouty], 40)

    result = line_up(channel=channel)

    assert [v.speaker for v in result.voices] == ["formal", "shouty"]
    assert left_out(result) == {"mumbly": "spoke in one stretch of time only"}


def test_lines_of_nothing_but_names_are_no_lines() -> None:
    channel, (formal, shouty) = make_channel(), voices("formal", "shouty")
    for _ in range(9):
        say(channel, formal, "Shouty @shouty")
        say(channel, shouty, "formal")

    result = line_up(channel=channel)

    assert result.compared == 0
    assert set(left_out(result).values()) == {"fewer than 5 lines that are more than names"}


def test_one_message_each_and_one_monologue_each_are_defined() -> None:
    one_each, monologues = make_channel("one"), make_channel("two")
    formal, shouty = voices("formal", "shouty")
    chat(one_each, [formal, shouty], 1)
    for agent in (formal, shouty):
        chat(monologues, [agent], 20)

    assert line_up(channel=one_each).balanced_accuracy is None
    assert "two stretches of time" in line_up(channel=monologues).reason


@pytest.mark.parametrize(
    ("option", "value"), [("min_lines", 1), ("permutations", 18), ("permutations", 100_001), ("seed", -1)]
)
def test_an_option_out_of_range_is_refused(option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{option} is {value}; allowed: "):
        line_up(channel=make_channel(), **{option: value})  # type: ignore[arg-type]


# -- large channels
def test_fifty_thousand_messages_take_bounded_time_and_memory_and_the_cap_is_said() -> None:
    channel, agents, rng = make_channel(), voices(*VOICES), random.Random(5)
    Message.objects.bulk_create(
        (
            Message(
                channel=channel,
                position=position,
                external_id=str(position),
                agent=(agent := agents[rng.randrange(3)]),
                text=(VOICES[agent.slug] if position % 3 else SHARED[0]).format(rng.choice(THINGS))
                + " lorem" * (400 if position % 9 == 0 else 1),
            )
            for position in range(1, 50_001)
        ),
        batch_size=2000,
    )
    tracemalloc.start()
    result = line_up(channel=channel, permutations=99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert (result.lines, result.compared) == (50_000, 3 * 666)
    assert result.distinct is True
    cut = int(result.notes[1].split()[1])
    assert cut == pytest.approx(1998 / 9, rel=0.3)
    assert result.notes == (
        "At most 666 lines of each speaker were compared, evenly spread over all of them.",
        f"Of {cut} lines only the first 2,000 characters were compared.",
    )
    assert peak < 300e6


def test_of_many_speakers_those_who_said_most_are_compared() -> None:
    channel = make_channel()
    for number in range(6):
        for speaker in range(53):
            if number < 5 or speaker >= 3:
                say(
                    channel,
                    f"Guest {chr(65 + speaker // 26)}{chr(65 + speaker % 26)}",
                    f"{THINGS[number]} and {speaker}",
                )

    result = line_up(channel=channel, everybody=True, permutations=19)

    assert len(result.voices) == 50
    assert left_out(result) == dict.fromkeys(["Guest AA", "Guest AB", "Guest AC"], "not among the 50 who said most")
