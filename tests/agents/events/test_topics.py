"""However many listen, one of them looks; and nothing is told twice or never."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError
from pytest_django import Settings

from agents.events import Full, Gone, Listener, Log, Stream, WrongCursor, feeds, join, listeners, stop_when, topics


class Said(Log):
    """A log in memory that counts how often it is read."""

    def __init__(self, *entries: str) -> None:
        self.entries = list(entries)
        self.reads = 0
        self.over = False
        self.problem: Exception | None = None

    def head(self) -> int:
        return len(self.entries)

    def after(self, number: int, most: int) -> Sequence[tuple[int, Any]]:
        self.reads += 1
        if self.problem is not None:
            raise self.problem
        return list(enumerate(self.entries[number : number + most], number + 1))

    def final(self) -> Any:
        return "done" if self.over else None


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(topics, "INTERVAL", 0.02)
    monkeypatch.setattr(topics, "SHARE", 0)
    monkeypatch.setattr(topics, "AFTER_OUTAGE", 0.02)
    settings.EVENT_STREAMS, settings.EVENT_STREAM_SECONDS = 8, 30


def listening(feed: Said, cursor: str | None = None) -> Listener:
    """Somebody new who listens."""
    listener = join("here", lambda: feed, object())
    assert listener.wait(30)
    listener.cursor = listener.feed.start() if cursor is None else cursor
    return listener


def heard(listener: Listener, count: int) -> list[Any]:
    """What the next events say, however long they take."""
    found: list[Any] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        events = listener.news()
        found += [event.what for event in events]
        if not events:
            listener.wait(1)
    return found


def test_one_look_serves_all_who_listen() -> None:
    feed = Said()
    many = [listening(feed) for _ in range(8)]
    begun = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(heard, listener, 3) for listener in many]
        for word in ("one", "two", "three"):
            feed.entries.append(word)
            time.sleep(0.1)
        assert [done.result() for done in waiting] == [["one", "two", "three"]] * 8
    looks, took = feed.reads, time.monotonic() - begun
    for listener in many:
        listener.leave()

    assert looks <= took / 0.02 + 2  # whoever looks
    assert not listeners._topics


def test_nobody_looks_when_nobody_listens() -> None:
    feed = Said()
    listening(feed).leave()
    before = feed.reads
    time.sleep(0.1)

    assert feed.reads == before


def test_who_was_away_is_told_what_was_missed_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "BATCH", 3)
    monkeypatch.setattr(feeds, "KEPT", 4)
    feed = Said(*(f"{n}" for n in range(1, 11)))
    ahead = listening(feed)
    feed.entries += [f"{n}" for n in range(11, 31)]
    assert heard(ahead, 20) == [f"{n}" for n in range(11, 31)]

    for cursor in (0, 9, 25, 28, 30):
        behind = listening(feed, str(cursor))
        assert heard(behind, 30 - cursor) == [f"{n}" for n in range(cursor + 1, 31)]
        assert behind.news() == []
        behind.leave()
    ahead.leave()


def test_a_log_that_is_over_says_so_last_and_once() -> None:
    feed = Said("one")
    listener = listening(feed, "0")
    feed.over = True

    assert heard(listener, 2) == ["one", "done"]
    assert (listener.cursor, listener.news()) == ("1-end", [])
    assert listener.feed.is_over("1-end")
    feed.over = False  # somebody had it go on
    feed.entries.append("two")
    assert heard(listener, 1) == ["two"]
    listener.leave()


@pytest.mark.parametrize("cursor", ["x", "-1", "1.0", "01", "4", "9" * 18, "9" * 40, "2-END"])
def test_an_id_that_no_event_has_is_refused(cursor: str) -> None:
    feed = Said("one", "two", "three")
    feed.look()

    with pytest.raises(WrongCursor):
        feed.check(cursor)


def test_a_database_that_was_away_ends_no_stream() -> None:
    feed = Said()
    listener = listening(feed)
    feed.problem = OperationalError("server closed the connection")
    assert not listener.wait(0.1)
    feed.problem = None
    feed.entries.append("one")

    assert heard(listener, 1) == ["one"]
    listener.leave()


def test_what_is_deleted_ends_every_stream_of_it() -> None:
    feed = Said()
    streams = [Stream(listening(feed), lambda event: event.what) for _ in range(2)]
    for stream in streams:
        assert next(stream).startswith(b"retry: ")
    feed.problem = Gone()

    for stream in streams:
        assert list(stream) == [b"event: gone\ndata: {}\n\n"]
        stream.close()


def test_no_more_streams_than_may_be_and_a_closed_one_makes_room_even_if_it_never_began(settings: Settings) -> None:
    settings.EVENT_STREAMS = 2
    feed = Said()
    first, second = listening(feed), listening(feed)
    with pytest.raises(Full):
        join("elsewhere", lambda: feed, "bob")
    stream = Stream(first, str)
    stream.close()
    stream.close()

    join("elsewhere", lambda: feed, "bob").leave()
    second.leave()
    assert not listeners._topics


def test_one_user_leaves_half_of_the_streams_to_others(settings: Settings) -> None:
    settings.EVENT_STREAMS = 4
    feed = Said()
    first, second = join("here", lambda: feed, "eve"), join("there", lambda: feed, "eve")
    with pytest.raises(Full, match="2 streams of yours are open"):
        join("elsewhere", lambda: feed, "eve")
    others = [join("here", lambda: feed, "bob") for _ in range(2)]
    first.leave()
    with pytest.raises(Full, match="2 streams of yours"):
        join("here", lambda: feed, "bob")
    third = join("elsewhere", lambda: feed, "eve")

    for listener in (second, third, *others):
        listener.leave()
    assert not listeners._topics
    assert not listeners._places


def test_a_silent_stream_says_that_it_is_there_and_ends_in_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.events.streams.HEARTBEAT", 0.2)
    stream = Stream(listening(Said("one")), str)
    assert next(stream).endswith(b"id: 1\n\n")  # a client that is cut off now comes back to here
    assert next(stream) == b": still here\n\n"
    stream.close()

    settings.EVENT_STREAM_SECONDS = 0.5
    short = Stream(listening(Said("one")), str)
    _, *others = list(short)  # it ends
    short.close()
    assert set(others) <= {b": still here\n\n"}


def test_streams_end_when_the_process_stops() -> None:
    stopping = threading.Event()
    stop_when(stopping.is_set)
    stream = Stream(listening(Said()), str)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(list, stream)
        stopping.set()
        assert len(ended.result(timeout=30)) == 1
    stream.close()
    stop_when(lambda: False)
