"""Costs over the API: the same sums as in the terminal, for the window and groupings asked for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.api_client import Program, program
from tests.console import superuser
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

COSTS = "/api/evaluations/costs/"


@pytest.fixture
def client() -> Program:
    return program(superuser())


def test_costs_are_broken_down_by_mechanism_and_dimension_ac_7_3_6(client: Program) -> None:
    ada = make_agent("ada")
    call(ada, dimension="fluency", cost="0.25", input_tokens=10, output_tokens=2)
    call(ada, dimension="adherence", cost=None)
    call(ada, purpose="evaluation", mechanism="fluency", dimension="fluency", cost="1")
    call(None, cost="7")

    found = client.get(f"{COSTS}?agent=ada").json()

    assert (found["agent"], found["until"] > found["since"]) == ("ada", True)
    assert found["total"]["cost_usd"] == 1.25
    assert (found["correction"]["cost_usd"], found["correction"]["unpriced"]) == (0.25, 1)
    assert [(r["purpose"], r["mechanism"], r["calls"]) for r in found["by"]["mechanism"]] == [
        ("gate", "gate", 2),
        ("evaluation", "evaluation", 1),
    ]
    gate = next(r for r in found["by"]["dimension"] if (r["purpose"], r["dimension"]) == ("gate", "fluency"))
    assert (gate["input_tokens"], gate["output_tokens"], gate["cost_usd"]) == (10, 2, 0.25)
    assert client.get(COSTS).json()["total"]["cost_usd"] == 8.25


def test_a_stretch_of_time_and_the_groupings_can_be_asked_for(client: Program) -> None:
    for day in (1, 2, 3):
        call(make_agent(f"a{day}"), at=datetime(2026, 11, day, 12, tzinfo=UTC))

    found = client.get(f"{COSTS}?since=2026-11-02&until=2026-11-03T00:00:00Z&by=day,agent").json()

    assert list(found["by"]) == ["day", "agent"]
    assert [row["day"] for row in found["by"]["day"]] == ["2026-11-02"]
    assert [row["agent"] for row in found["by"]["agent"]] == ["a2"]
    assert client.get(f"{COSTS}?window=all").json()["total"]["calls"] == 3
    assert client.get(f"{COSTS}?since=2026-11-02T13:00:00%2B01:00").json()["total"]["calls"] == 2


@pytest.mark.parametrize(
    ("query", "name", "told"),
    [
        ("agent=nobody", "agent", "there is no agent"),
        ("window=last:5", "window", "allowed: all, or a duration such as 24h, 7d, 4w"),
        ("window=999999w", "window", "is not understood"),
        ("since=yesterday", "since", "allowed: a date or time such as 2026-11-22"),
        ("since=2026-13-45", "since", "allowed: a date or time"),
        ("since=9999-12-31T23:59:59-12:00", "since", "allowed: a date or time"),
        ("until=0001-01-01T00:00:00%2B14:00", "until", "allowed: a date or time"),
        ("since=2026-11-02&until=2026-11-01", "until", "is not after since"),
        ("since=2026-11-02&window=7d", "window", "not both"),
        ("by=moon", "by", "allowed: mechanism, dimension, model, day, agent"),
        ("agents=ada", "agents", "there is no parameter 'agents'; allowed: agent, window, since, until, by"),
        ("agent=%00", "agent", "NUL"),
    ],
)
def test_a_question_that_is_not_understood_is_a_400_that_says_what_is(
    client: Program, query: str, name: str, told: str
) -> None:
    make_agent("ada")

    answer = client.get(f"{COSTS}?{query}")

    assert answer.status_code == 400
    assert told in answer.json()["errors"][name][0]


def test_the_answer_costs_six_queries_however_many_calls_and_groupings(client: Program) -> None:
    ada = make_agent("ada")
    for n in range(20):
        call(ada, model=f"m{n}")

    with CaptureQueriesContext(connection) as seen:
        client.get(f"{COSTS}?agent=ada&by=mechanism,dimension,model,day,agent")

    assert len(seen) == 6  # token with user, agent, and four for all groupings
