"""Two people change swarms at once on PostgreSQL: what one of them may not do is refused, whichever comes second."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.db import connection, transaction

from agents.swarm.assign import SwarmRefused, assign_swarms, save_swarm
from agents.swarm.models import Swarm
from tests.factories import make_agent

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def _postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")


def at_once(*changes: Callable[[], object]) -> list[str]:
    """Make changes side by side; what was said of those refused."""
    both = Barrier(len(changes))

    def attempt(change: Callable[[], object]) -> str:
        try:
            with transaction.atomic():
                connection.ensure_connection()
                both.wait(10)
                change()
        except SwarmRefused as refused:
            return str(refused)
        finally:
            connection.close()
        return ""

    with ThreadPoolExecutor(len(changes)) as pool:
        return sorted(filter(None, pool.map(attempt, changes)))


def test_of_two_swarms_that_take_an_intent_at_once_one_gets_it() -> None:
    agent = make_agent()
    first = save_swarm({"name": "first", "intents": ["food_log"]})
    second = save_swarm({"name": "second", "intents": ["food_undo"]})
    assign_swarms(agent=agent, swarms=[first, second])

    for _ in range(5):
        save_swarm({"name": "first", "intents": ["food_log"]}, swarm=first)
        save_swarm({"name": "second", "intents": ["food_undo"]}, swarm=second)
        refused = at_once(
            lambda: save_swarm({"name": "first", "intents": ["general"]}, swarm=Swarm.objects.get(name="first")),
            lambda: save_swarm({"name": "second", "intents": ["general"]}, swarm=Swarm.objects.get(name="second")),
        )

        assert len(refused) == 1
        assert "'general' of agent 'ada' is answered by" in refused[0]


def test_of_two_swarms_of_one_name_made_at_once_one_is_refused() -> None:
    values = {"name": "same", "intents": ["general"]}

    refused = at_once(lambda: save_swarm(values), lambda: save_swarm(values))

    assert refused == ["name: 'same' is in use; allowed: another name"]
    assert Swarm.objects.count() == 1
