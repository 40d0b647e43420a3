"""What PostgreSQL shows of it: positions appear in their order, and who waits holds no connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from agents.events import Stream, join
from agents.events.conversations import Conversation
from agents.models import Channel
from agents.turn.send_message import append
from tests.factories import make_channel
from tests.machinery import wait_until

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _needs_postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("needs PostgreSQL: set DATABASE_URL")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        yield pool


def others() -> list[str]:
    """What the other connections to this database do."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state, wait_event_type FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return [f"{state} {waits}" for state, waits in cursor.fetchall()]


def test_a_writer_that_commits_late_holds_up_the_next_so_no_message_appears_below_one_that_was_seen(
    threads: ThreadPoolExecutor,
) -> None:
    channel = make_channel()
    taken, commit = threading.Event(), threading.Event()

    def write(text: str, hold: bool) -> None:
        try:
            with transaction.atomic():
                append(channel=channel, outsider="Zoe", text=text, external_id=text)
                taken.set()
                if hold:
                    assert commit.wait(20)
        finally:
            connection.close()

    feed = Conversation(channel.pk)
    feed.look()
    slow = threads.submit(write, "slow", True)
    assert taken.wait(20)
    fast = threads.submit(write, "fast", False)
    wait_until(lambda: "active Lock" in others(), timeout=20, what="the second writer waits for the first")
    feed.look()
    assert feed.since("0") == []
    commit.set()
    slow.result(20), fast.result(20)
    feed.look()

    assert [(event.id, event.what.text) for event in feed.since("0")] == [("1", "slow"), ("2", "fast")]
    assert Channel.objects.get(pk=channel.pk).next_position == 3


def test_who_waits_holds_no_connection(threads: ThreadPoolExecutor) -> None:
    channel = make_channel()
    listener = join(("channel", channel.pk), lambda: Conversation(channel.pk), "eve")
    assert listener.wait(10)
    listener.cursor = "0"
    stream = Stream(listener, lambda event: event.what.text)
    threads.submit(next, stream).result(10)
    told = threads.submit(next, stream)
    seen = []
    until = time.monotonic() + 3  # three looks
    while time.monotonic() < until:
        seen.append(others())
    with transaction.atomic():
        append(channel=channel, outsider="Zoe", text="hello", external_id="1")

    assert b"hello" in told.result(20)
    assert not any("idle in transaction" in state for states in seen for state in states)
    assert sum(not states for states in seen) > len(seen) / 2
    stream.close()
