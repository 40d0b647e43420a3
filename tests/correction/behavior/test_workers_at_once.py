"""Several workers look at requests to one agent at once, on PostgreSQL: no change is lost, none is made twice."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from agents.kit.models import owner_name
from agents.models import Message, Trait
from correction.behavior import work
from correction.behavior.applying import settle_request
from correction.behavior.models import BehaviorRequest
from correction.behavior.work import work_one
from correction.config.configure import configure
from tests.console import superuser
from tests.correction.behavior.asking import CONCISE, SHORTER, YES, dm_with, judge, tier_of, traits_of, write
from tests.correction.behavior.proposals import CONCISE as PROPOSAL
from tests.correction.behavior.proposals import Status, proposed
from tests.evaluation.judging import prompt_of
from tests.factories import make_agent
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


# -- settled at once by workers whose tiers have answered
OWNER = "host:1:test"


def settle_at_once(names: list[str], *, limit: int) -> list[str]:
    """Have a thread settle each request for a trait of these names, made by Zoe to one agent; returns the statuses, sorted."""
    agent, zoe = make_agent(), superuser("zoe")
    configure(agent=agent, changes={"behavior_daily_limit": limit})
    known: dict[str, Any] = {"status": Status.RUNNING, "confidence": "high", "lease_owner": OWNER}
    requests = [proposed(agent, f"Be {name}.", after={**PROPOSAL, "name": name}, **known) for name in names]
    Message.objects.update(user=zoe, outsider="")

    def settles(key: int) -> str:
        try:
            request = BehaviorRequest.objects.get(pk=key)
            settle_request(request=request, owner=OWNER)
            return str(request.status)
        finally:
            connection.close()

    with ThreadPoolExecutor(len(names)) as pool:
        return sorted(pool.map(settles, [request.pk for request in requests]))


def test_the_limit_of_a_day_is_not_run_over() -> None:
    statuses = settle_at_once([f"new {n}" for n in range(6)], limit=2)

    assert statuses == ["applied"] * 2 + ["pending_review"] * 4
    assert Trait.objects.count() == 2


def test_requests_for_the_same_new_trait_make_one() -> None:
    statuses = settle_at_once(["Brevity", "BREVITY", "brevity", "ßharp", "SSharp"], limit=100)

    assert statuses == ["applied"] * 2 + ["detected"] * 3
    assert Trait.objects.count() == 2
