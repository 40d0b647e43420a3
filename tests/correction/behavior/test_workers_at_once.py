"""Several workers look at requests to one agent at once, on PostgreSQL: no change is lost, none is made twice."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from agents.kit.models import owner_name
from correction.behavior import work
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from tests.correction.behavior.asking import CONCISE, SHORTER, YES, dm_with, judge, tier_of, traits_of, write
from tests.evaluation.judging import prompt_of
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.service, pytest.mark.django_db(transaction=True)]
WORKERS = 3


@pytest.fixture(autouse=True)
def _postgresql() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("DATABASE_URL names no PostgreSQL: threads cannot share an in-memory SQLite")


def works(_: int) -> int:
    done, owner = 0, owner_name()
    try:
        while work_one(owner=owner):
            done += 1
        return done
    finally:
        connection.close()


def test_requests_at_once_all_land(llm_server: LLMServer) -> None:
    agent, channel = dm_with(behavior_daily_limit=100)
    for n in range(WORKERS):
        write(channel, f"Please do trick {n}")

    def trick(prompt: str) -> str:
        return str(re.findall(r"trick \d", prompt)[-1])

    answers = judge(
        gate=YES,
        extract=lambda prompt: {**SHORTER, "behavior_name": trick(prompt), "requested_change": "do it"},
        map=lambda prompt: {**CONCISE, "name": trick(prompt.rpartition("What was asked for")[2])},
    )
    llm_server.respond = lambda body: {"latency": 0.2, **answers(body)}

    with ThreadPoolExecutor(WORKERS) as pool:
        done = list(pool.map(works, range(WORKERS)))

    asked = Counter(tier_of(body) for body in llm_server.bodies)
    assert sum(done) == WORKERS
    assert set(BehaviorRequest.objects.values_list("status", flat=True)) == {"applied"}
    assert traits_of(agent) == {f"trick {n}": 0.5 for n in range(WORKERS)}
    assert agent.persona_versions.count() == 1 + WORKERS
    assert (asked["gate"], asked["extract"]) == (WORKERS, WORKERS)
    assert asked["map"] <= WORKERS * work.MOST_MAPPINGS
    last = next(body for body in reversed(llm_server.bodies) if tier_of(body) == "map")
    assert len(re.findall(r'"name": "trick \d"', prompt_of(last))) == WORKERS - 1  # it saw what the others had made


def test_a_message_heard_by_many_at_once_is_looked_at_once(llm_server: LLMServer) -> None:
    agent, channel = dm_with()
    message = write(channel, "Be more concise")
    BehaviorRequest.objects.all().delete()

    def hears(_: int) -> Any:
        try:
            request = work.queue(message=message, agent=agent)
            return request and request.pk
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        heard = set(pool.map(hears, range(16)))

    assert heard == {BehaviorRequest.objects.get().pk}
