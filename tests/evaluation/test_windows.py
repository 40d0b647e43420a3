"""Which messages are measured: what was really said, in a window, with given tags."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agents.models import Agent, Message, Run, RunMessage
from evaluation.scorers.context import Event, cut_window
from evaluation.scorers.selection import messages_of_agent
from evaluation.scorers.subjects import Subject
from evaluation.windows import MessageWindow, parse_window
from tests.factories import MONDAY, make_agent, make_channel, say, speaking, talk


def texts(agent: Agent, window: MessageWindow | None = None, where: dict[str, str] | None = None) -> list[str]:
    return [m.text for m in messages_of_agent(agent=agent, window=window or MessageWindow(), where=where)]


def subject(agent: Agent, **fields: object) -> Subject:
    values: dict[str, object] = {
        "agent": agent,
        "persona": "",
        "window": MessageWindow(),
        "where": {},
        "samples": 20,
        "seed": 0,
    }
    return Subject(**{**values, **fields})  # type: ignore[arg-type]


# -- how people write a window
@pytest.mark.parametrize(("spec", "hours"), [("24h", 24), ("7d", 168), ("4w", 672), (" 7D ", 168)])
def test_a_duration_reaches_back_from_now(spec: str, hours: int) -> None:
    window = parse_window(spec, now=MONDAY)

    assert (window.start, window.end, window.last) == (MONDAY - timedelta(hours=hours), MONDAY, None)


@pytest.mark.parametrize(
    "spec",
    ["", "7", "-7d", "7m", "last", "last:0", "0d", "last:9999999"],
)
def test_a_window_that_is_not_understood_is_named_with_what_is_allowed(spec: str) -> None:
    with pytest.raises(ValueError, match=r"window .*allowed: all, last:N .* or a duration such as 24h, 7d, 4w"):
        parse_window(spec)


# -- what was really said
@pytest.mark.django_db
def test_only_committed_messages_of_the_agent_are_its_speech_ac_6_1_1() -> None:
    ada, bob, channel = make_agent("ada"), make_agent("bob"), make_channel()
    talk(ada, ["said"], channel=channel)
    talk(bob, ["by another"], channel=channel)
    say(channel, "A customer", "by an outsider")
    run = Run.objects.create(agent=ada, channel=channel)
    rejected = {"tool": "send_message", "input": {"text": "a draft that was rejected"}}
    RunMessage.objects.create(run=run, number=1, role="assistant", tool_name="send_message", content=rejected)

    assert texts(ada) == ["said"]


@pytest.mark.django_db
def test_speech_is_in_order_of_time_over_all_channels() -> None:
    ada, one, two = make_agent("ada"), make_channel("one"), make_channel("two")
    say(one, ada, "third", sent_at=MONDAY + timedelta(hours=2))
    say(two, ada, "second", sent_at=MONDAY)
    say(one, ada, "without a time")
    say(two, ada, "fourth", sent_at=MONDAY + timedelta(hours=2))

    assert texts(ada) == ["second", "third", "fourth", "without a time"]


@pytest.mark.django_db
def test_a_stretch_of_time_includes_its_ends_and_nothing_without_a_time() -> None:
    ada = speaking("ada", [str(minute) for minute in range(6)])
    talk(ada, ["no time"], sent_at=None)
    window = MessageWindow("1h", start=MONDAY + timedelta(minutes=1), end=MONDAY + timedelta(minutes=4))

    assert texts(ada, window) == ["1", "2", "3", "4"]


@pytest.mark.django_db
@pytest.mark.parametrize(("last", "expected"), [(1, ["?"]), (3, ["2", "3", "?"]), (99, ["0", "1", "2", "3", "?"])])
def test_the_last_messages_are_the_newest_in_order(last: int, expected: list[str]) -> None:
    ada = speaking("ada", ["0", "1", "2", "3"])
    talk(ada, ["?"], sent_at=None)

    assert texts(ada, parse_window(f"last:{last}")) == expected


@pytest.mark.django_db
def test_the_last_messages_are_counted_among_those_with_the_tags() -> None:
    ada = speaking("ada", ["a", "b", "c"], tags={"build": "40"})
    say(Message.objects.latest("pk").channel, ada, "newest", sent_at=MONDAY + timedelta(days=1), tags={"build": "41"})

    assert texts(ada, parse_window("last:2"), {"build": "40"}) == ["b", "c"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"build": "41"}, ["b", "c"]),
        ({"build": "41", "locale": "en"}, ["c"]),
        ({"build": "4"}, []),
        ({"my_key__gt": "1"}, ["d"]),
        ({"a.b": "x", "flag": "true"}, ["d"]),
        ({"nothing": "x"}, []),
        ({}, ["a", "b", "c", "d"]),
    ],
)
def test_tags_are_compared_whole_and_keys_taken_as_they_are(where: dict[str, str], expected: list[str]) -> None:
    ada, channel = make_agent("ada"), make_channel()
    for text, tags in (
        ("a", {"build": "40"}),
        ("b", {"build": "41"}),
        ("c", {"build": "41", "locale": "en"}),
        ("d", {"my_key__gt": "1", "a.b": "x", "flag": "true"}),
    ):
        say(channel, ada, text, tags=tags)

    assert texts(ada, where=where) == expected


@pytest.mark.django_db
def test_more_are_sampled_at_random_repeatably_and_in_order_ac_6_1_2() -> None:
    ada = make_agent("ada")
    said = [m.pk for m in talk(ada, map(str, range(60)))]

    drawn = subject(ada, seed=1).sample()

    assert len(drawn) == len(set(drawn)) == 20
    assert set(drawn) < set(said)
    assert drawn == sorted(drawn) == subject(ada, seed=1).sample()
    assert drawn != subject(ada, seed=2).sample()
    assert drawn != said[:20]
    assert drawn != said[-20:]


# -- windows of events out of the database
@pytest.mark.django_db
def test_in_a_channel_the_agent_acts_and_all_others_are_stimuli_ac_6_0_13() -> None:
    ada, bob, channel = make_agent("ada"), make_agent("bob", display_name="Bob B."), make_channel()
    say(channel, bob, "Morning.")
    say(channel, ada, "Hm.")
    last = say(channel, "Mr. Customer", "Hello?")

    assert subject(ada).window_around(last, 10, 10)[0].events == (
        Event("stimulus", "Ada", "Morning.", speaker="Bob B."),
        Event("action", "Ada", "Hm."),
        Event("stimulus", "Ada", "Hello?", speaker="Mr. Customer"),
    )


@pytest.mark.django_db
def test_a_long_channel_costs_no_more_than_a_short_one(django_assert_num_queries: object) -> None:
    ada, channel = make_agent("ada"), make_channel()
    last = talk(ada, map(str, range(60)), channel=channel)[-1]
    asked = subject(ada)

    with django_assert_num_queries(3):  # type: ignore[operator]
        asked.window_around(last, 2, 30)
    with django_assert_num_queries(0):  # type: ignore[operator]
        asked.window_around(Message(channel=channel, position=41), 2, 30)


@pytest.mark.django_db
def test_further_stretches_of_a_channel_do_not_read_its_beginning_again(django_assert_num_queries: object) -> None:
    ada, channel = make_agent("ada"), make_channel()
    messages = talk(ada, map(str, range(90)), channel=channel)
    asked = subject(ada)
    asked.window_around(messages[-1], 2, 30)

    with django_assert_num_queries(1):  # type: ignore[operator]
        window, _ = asked.window_around(messages[50], 2, 30)

    assert [event.text for event in window.events[:2]] == ["0", "1"]


class WindowsFromTheDatabase(TestCase):
    """Every window that is read from the database is the one cut from the whole list."""

    @given(count=st.integers(0, 12), first_n=st.integers(0, 6), last_n=st.integers(0, 6), timed=st.booleans())
    def test_they_never_overlap_or_repeat(self, count: int, first_n: int, last_n: int, timed: bool) -> None:
        ada, channel = make_agent("ada"), make_channel()
        messages = talk(ada, map(str, range(count)), channel=channel, **({} if timed else {"sent_at": None}))
        everything = [Event("action", "Ada", str(n)) for n in range(count)]

        assert subject(ada).own_window(first_n, last_n) == cut_window(everything, first_n=first_n, last_n=last_n)
        for place, message in enumerate(messages, 1):
            found = subject(ada).window_around(message, first_n, last_n)
            shown = cut_window(everything[:place], first_n=first_n, last_n=last_n + (last_n > 0))
            assert found == (shown, place if last_n or place <= first_n else None)
