"""Many speak at once on PostgreSQL: nothing blocks, nothing is lost, nothing is said twice. (On SQLite: see ``test_resume``.)"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from pytest_django import Settings

from agents.models import Agent, Channel, Message, Run
from agents.turn.receive import receive_message
from agents.turn.send_message import send_message
from tests.agents.turn.playing import join
from tests.factories import make_agent, make_channel

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")


def said(job: tuple[Agent, Channel, str]) -> int:
    agent, channel, key = job
    try:
        message = send_message(agent=agent, channel=channel, text=f"{agent.slug}: {key}", idempotency_key=key).message
        assert message is not None
        return message.pk
    finally:
        connection.close()


def test_a_hundred_sends_of_twenty_agents_each_asked_for_twice(settings: Settings) -> None:
    settings.TURN_PIPELINE = ["correction.stages.ActionGate", "tests.agents.turn.stages.Strict"]
    channels = [make_channel("office"), make_channel("attic"), make_channel("dm", kind="dm")]
    agents = [make_agent(f"agent-{n}") for n in range(20)]
    for channel in channels:
        join(channel, *agents)
    jobs = [(agents[n % 20], channels[n % 3], f"k{n}") for n in range(100)]

    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(said, [job for job in jobs for _ in range(2)]))

    assert set(Counter(results).values()) == {2}, "each key gave one message, twice"
    assert Message.objects.count() == 100
    for channel in channels:
        positions = list(
            Message.objects.filter(channel=channel).order_by("position").values_list("position", flat=True)
        )
        channel.refresh_from_db()
        assert positions == list(range(1, channel.next_position))


def test_a_message_received_twice_at_once_is_saved_and_answered_once() -> None:
    dm = make_channel("dm", kind="dm")
    join(dm, make_agent("ada"))

    def receive(_: int) -> int:
        try:
            return receive_message(channel=dm, outsider="Zed", text="Hello?", idempotency_key="k").pk
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        received = set(pool.map(receive, range(8)))

    assert len(received) == 1
    assert (Message.objects.count(), Run.objects.count()) == (1, 1)
