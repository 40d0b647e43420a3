"""Measuring a window costs as much after a long history as after a short one: counted in steps of the database's machine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from agents.models import Agent, Channel, Message
from evaluation.scorers import subjects
from evaluation.scorers.reading import read_ends
from evaluation.scorers.subjects import Halves, Subject
from evaluation.windows import parse_window
from tests.factories import MONDAY, make_agent, make_channel

pytestmark = pytest.mark.django_db


def spoken(agent: Agent, channel: Channel, count: int) -> None:
    """Messages of one agent, a minute apart."""
    Message.objects.bulk_create(
        Message(
            channel=channel,
            agent=agent,
            position=n,
            text=f"line {n}",
            sent_at=MONDAY + timedelta(minutes=n),
        )
        for n in range(1, count + 1)
    )


def steps(work: Callable[[], object]) -> int:
    """Hundreds of steps that SQLite's machine takes for `work`."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    connection.ensure_connection()
    connection.connection.set_progress_handler(count, 100)
    try:
        work()
    finally:
        connection.connection.set_progress_handler(None, 0)
    return taken


def subject(agent: Agent, window: str = "last:50") -> Subject:
    return Subject(agent=agent, persona="", window=parse_window(window), where={}, samples=20, seed=1)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="counts steps of SQLite")
def test_a_window_takes_as_many_steps_after_five_times_the_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "MOST_HISTORY", 50)

    def measure(count: int) -> int:
        agent, channel = make_agent(f"a{count}"), make_channel(f"c{count}")
        spoken(agent, channel, count)
        last = Message.objects.get(channel=channel, position=count)
        return steps(lambda: (subject(agent).halves(), subject(agent).window_around(last, 10, 100)))

    assert measure(2_500) <= 1.2 * measure(500)


def test_of_a_long_history_its_two_ends_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subjects, "MOST_HISTORY", 3)
    agent, channel = make_agent("ada"), make_channel("room")
    spoken(agent, channel, 44)

    halves = subject(agent, "last:2").halves()

    said = dict(Message.objects.values_list("pk", "text"))
    assert [said[pk] for pk in halves.current] == ["line 43", "line 44"]
    history = [said[pk] for pk in halves.history]
    assert history == sorted(history, key=lambda text: int(text.split()[1])), "oldest first"
    assert {"line 1", "line 3", "line 42", "line 40"} <= set(history)
    assert "line 20" not in history
    assert set(halves.channel_of.values()) == {channel.pk}


@pytest.mark.parametrize("window", ["last:1", "last:7", "last:100", "all"])
def test_no_message_stands_both_now_and_before(window: str) -> None:
    agent, channel = make_agent("ada"), make_channel("room")
    spoken(agent, channel, 12)
    halves: Halves = subject(agent, window).halves()

    assert not set(halves.current) & set(halves.history)
    if window != "all":
        assert len(halves.current) + len(halves.history) == 12


@pytest.mark.parametrize("ends", [(2, 3), (0, 5), (5, 0)])
@pytest.mark.parametrize("count", [0, 5, 6, 30])
def test_the_ends_of_a_conversation_and_how_much_lies_between(ends: tuple[int, int], count: int) -> None:
    agent, channel = make_agent("ada"), make_channel("room")
    spoken(agent, channel, count)
    Message.objects.filter(channel=channel, position=4).delete()
    there = [message.position for message in Message.objects.filter(channel=channel)]
    first_n, last_n = ends

    got = read_ends(Message.objects.filter(channel=channel), first_n, last_n)

    assert len(got.first) + got.omitted + len(got.last) == len(there)
    shown = [row.position for row in (*got.first, *got.last)]
    assert shown == (there if len(there) <= sum(ends) else there[:first_n] + there[len(there) - last_n :])


@pytest.mark.parametrize(
    "gone", [(), (4, 300, 301, 305), tuple(range(150, 340))], ids=["whole", "a few deleted", "most deleted"]
)
def test_windows_that_are_read_ahead_are_those_that_are_read_one_by_one(gone: tuple[int, ...]) -> None:
    agent, channel, short = make_agent("ada"), make_channel("room"), make_channel("short")
    spoken(agent, channel, 420)
    spoken(agent, short, 7)
    Message.objects.filter(channel=channel, position__in=gone).delete()
    sampled = list(Message.objects.filter(channel=channel, position__in=range(1, 421, 30)))
    sampled += Message.objects.filter(channel=short, position=5)
    ahead, one_by_one = subject(agent), subject(agent)
    ahead.read_ahead(sampled)

    for message in sampled:
        for ends in ((10, 100), (0, 5), (10, 200)):
            assert ahead.window_around(message, *ends) == one_by_one.window_around(message, *ends)


def test_windows_around_many_messages_are_read_in_few_queries(django_assert_max_num_queries: Any) -> None:
    agent, channel = make_agent("ada"), make_channel("room")
    spoken(agent, channel, 1_000)
    sampled = list(Message.objects.filter(channel=channel, position__in=range(20, 1_000, 50)))
    looking = subject(agent)

    with django_assert_max_num_queries(3):
        looking.read_ahead(sampled)
        for message in sampled:
            looking.window_around(message, 10, 100)
