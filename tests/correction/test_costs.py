"""Costs are sums over the ledger: nothing left out, nothing counted twice, unpriced calls never counted as free (AC-7.3.10)."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import hypothesis
import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.models import LedgerHour, LLMCall, Rollup
from agents.kit.ops.sums import LEDGER, prunable_before, roll_up
from agents.models import Agent
from correction.costs import (
    CORRECTION,
    GROUPINGS,
    CostRow,
    CostSummary,
    CostSums,
    Grouping,
    get_cost_summary,
    spent_today,
)
from evaluation.windows import MessageWindow
from tests.api_client import Program, program
from tests.console import superuser
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def keys(summary: CostSummary, grouping: Grouping) -> list[str]:
    return [row.key for row in summary.by[grouping]]


def row(summary: CostSummary, grouping: Grouping, key: str, purpose: str = "") -> CostRow:
    (got,) = (r for r in summary.by[grouping] if r.key == key and purpose in ("", r.purpose))
    return got


def test_tokens_of_every_kind_calls_and_dollars_are_summed_ac_7_3_5(ada: Agent) -> None:
    call(ada, input_tokens=100, output_tokens=20, cache_read_tokens=4000, cache_write_tokens=500, cost="0.00000001")
    call(ada, input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost="1.5")

    total = get_cost_summary(agent=ada, window="1d").total

    assert (total.calls, total.input_tokens, total.output_tokens) == (2, 101, 22)
    assert (total.cache_read_tokens, total.cache_write_tokens) == (4003, 504)
    assert total.cost_usd == Decimal("1.50000001")


def test_days_are_those_of_utc_whatever_zone_times_are_shown_in(ada: Agent, settings: Settings) -> None:
    settings.TIME_ZONE = zone = "Pacific/Auckland"
    call(ada, at=datetime(2026, 11, 1, 23, 59, 59, tzinfo=UTC))
    call(ada, at=datetime(2026, 11, 2, 0, 0, 0, tzinfo=UTC))

    with timezone.override(zone):
        summary = get_cost_summary(agent=ada, window="all", by=["day"])

    assert keys(summary, "day") == ["2026-11-01", "2026-11-02"]


# -- the command
def run(*args: str) -> str:
    out = io.StringIO()
    call_command("costs", *args, stdout=out, no_color=True)
    return out.getvalue()


def test_the_command_shows_the_tables_asked_for_or_one_json_object(ada: Agent) -> None:
    call(ada, purpose="intervention", mechanism="variety", cost="0.1234")
    call(ada, purpose="turn", cost=None)

    out = run("Ada", "--window", "24h", "--by", "mechanism,day")
    assert "2 calls, $0.1234 + 1 unpriced; correction alone: 1 calls, $0.1234" in out
    assert [title in out for title in ("By mechanism", "By day", "By model")] == [True, True, False]

    shown: dict[str, Any] = json.loads(run("--json", "--by", "mechanism,agent"))
    assert (shown["agent"], shown["total"]["cost_usd"]) == (None, 0.1234)
    assert shown["by"]["mechanism"][0]["mechanism"] == "variety"
    assert shown["by"]["agent"][0]["agent"] == "ada"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["adda"], "did you mean ada?"),
        (["--by", "moon"], "by 'moon': allowed: mechanism, dimension, model, day, agent"),
    ],
)
def test_the_command_refuses_what_it_does_not_understand(ada: Agent, arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError) as refused:
        run(*arguments)

    assert message in str(refused.value)
    assert refused.value.returncode in (2, 3)


BEGIN = datetime(2026, 1, 30, 20, 0, tzinfo=UTC)  # two hours of a day, the last of January, and some of February
HOURS = 52


@dataclass(frozen=True)
class Call:
    """A row of the ledger, as a person would note it."""

    minutes: int
    agent: str | None
    purpose: str
    mechanism: str
    dimension: str
    model: str
    cost: str | None
    tokens: int | None

    @property
    def at(self) -> datetime:
        return BEGIN + timedelta(minutes=self.minutes)


CALLS = st.builds(
    Call,
    minutes=st.one_of(st.integers(0, HOURS * 60), st.integers(0, HOURS).map(lambda hour: hour * 60)),
    agent=st.sampled_from(["ada", "bob", None]),
    purpose=st.sampled_from(["gate", "evaluation", "turn"]),
    mechanism=st.sampled_from(["", "variety"]),
    dimension=st.sampled_from(["", "fluency"]),
    model=st.sampled_from(["small", "large"]),
    cost=st.sampled_from([None, "0.00000001", "0.25", "3.1"]),
    tokens=st.one_of(st.none(), st.integers(0, 10**6)),
)
EDGES = st.one_of(
    st.none(),
    st.integers(-60, HOURS * 60 + 60).map(lambda minutes: BEGIN + timedelta(minutes=minutes)),
    st.integers(-1, HOURS + 1).map(lambda hours: BEGIN + timedelta(hours=hours)),
)
_KEYS: dict[Grouping, Callable[[Call], str]] = {
    "mechanism": lambda c: (c.mechanism or c.purpose) if c.purpose in CORRECTION else c.purpose,
    "dimension": lambda c: c.dimension,
    "model": lambda c: c.model,
    "day": lambda c: c.at.date().isoformat(),
    "agent": lambda c: c.agent or "",
}


def store(calls: Iterable[Call], agents: dict[str, Agent]) -> None:
    rows = [
        LLMCall(
            agent=agents.get(c.agent or ""), role="judge", purpose=c.purpose, mechanism=c.mechanism, dimension=c.dimension,
            provider="anthropic", model=c.model, status="ok", cost_usd=None if c.cost is None else Decimal(c.cost),
            input_tokens=c.tokens, cache_read_tokens=c.tokens,
        )
        for c in calls
    ]  # fmt: skip
    LLMCall.objects.bulk_create(rows)
    for row, c in zip(rows, calls, strict=True):
        row.created_at = c.at
    LLMCall.objects.bulk_update(rows, ["created_at"])


def by_hand(calls: Iterable[Call]) -> CostSums:
    chosen = list(calls)
    tokens = sum(c.tokens or 0 for c in chosen)
    return CostSums(
        calls=len(chosen),
        input_tokens=tokens,
        output_tokens=0,
        cache_read_tokens=tokens,
        cache_write_tokens=0,
        cost_usd=sum((Decimal(c.cost) for c in chosen if c.cost is not None), Decimal(0)),
        unpriced=sum(c.cost is None for c in chosen),
    )


def expect(calls: list[Call], window: MessageWindow, agent: Agent | None) -> None:
    chosen = [
        c
        for c in calls
        if (agent is None or c.agent == agent.slug)
        and (window.start is None or c.at >= window.start)
        and (window.end is None or c.at <= window.end)
    ]
    summary = get_cost_summary(window=window) if agent is None else get_cost_summary(agent=agent, window=window)
    assert summary.total == by_hand(chosen)
    assert summary.correction == by_hand(c for c in chosen if c.purpose in CORRECTION)
    for grouping in GROUPINGS:
        groups: dict[tuple[str, str], list[Call]] = {}
        for c in chosen:
            purpose = c.purpose if grouping in ("mechanism", "dimension") else ""
            groups.setdefault((purpose, _KEYS[grouping](c)), []).append(c)
        got = {
            (row.purpose, row.key): CostSums(**{n: getattr(row, n) for n in CostSums.model_fields})
            for row in summary.by[grouping]
        }
        assert got == {key: by_hand(group) for key, group in groups.items()}
        assert len(got) == len(summary.by[grouping])


@hypothesis.settings(max_examples=8)
@given(
    st.lists(CALLS, max_size=25),
    st.integers(0, HOURS + 3),
    st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=2),
    st.booleans(),
)
def test_sums_are_what_adding_the_rows_by_hand_gives(
    calls: list[Call], closed: int, windows: list[tuple[datetime | None, datetime | None]], twice: bool
) -> None:
    for model in (LLMCall, LedgerHour, Rollup, Agent):
        model.objects.all().delete()
    agents = {slug: make_agent(slug) for slug in ("ada", "bob")}
    store(calls, agents)
    for hours in (closed // 2, closed) if twice else (closed,):
        roll_up(LEDGER, now=BEGIN + timedelta(hours=hours, minutes=10))

    for start, end in windows:
        for agent in (None, agents["ada"]):
            expect(calls, MessageWindow("", start=start, end=end), agent)


@pytest.fixture
def month() -> list[Call]:
    """Three calls an hour."""
    return [
        Call(
            20 * n, ("ada", "bob", None)[n % 3], ("gate", "turn")[n % 2], "", "", "small", ("0.5", None)[n % 5 == 0], n
        )
        for n in range(HOURS * 3)
    ]


NOW = BEGIN + timedelta(hours=HOURS, minutes=5)


@time_machine.travel(NOW, tick=False)
def test_figures_stay_when_retention_deletes_the_rows(month: list[Call]) -> None:
    agents = {slug: make_agent(slug) for slug in ("ada", "bob")}
    store(month, agents)
    before = prunable_before(LEDGER, NOW - timedelta(hours=20))
    assert before == BEGIN + timedelta(hours=HOURS - 20)

    LLMCall.objects.filter(created_at__lt=before).delete()

    for agent in (None, agents["ada"]):
        for start in (None, BEGIN + timedelta(hours=7), before + timedelta(minutes=30)):
            for end in (None, BEGIN + timedelta(hours=30), before + timedelta(minutes=50)):
                # An edge on a whole hour of deleted rows includes the moment itself of no row.
                end = end - timedelta(microseconds=1) if end == BEGIN + timedelta(hours=30) else end
                stored = end is None or end >= before
                expect(month, MessageWindow("", start=start, end=end), agent) if stored else None
    roll_up(LEDGER, now=NOW + timedelta(hours=5))
    assert get_cost_summary(window="all").total == by_hand(month)


def test_a_budget_counts_a_call_at_once_whatever_is_summed_up() -> None:
    ada = make_agent("ada")
    with time_machine.travel(datetime(2026, 2, 1, 9, 0, tzinfo=UTC), tick=False):
        call(ada, cost="0.5")
    with time_machine.travel(datetime(2026, 2, 1, 12, 0, tzinfo=UTC), tick=False):
        roll_up(LEDGER)
        call(ada, cost="0.25")

        assert spent_today(ada).cost_usd == Decimal("0.75")


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

    got = client.get(f"{COSTS}?agent=ada").json()

    assert (got["agent"], got["until"] > got["since"]) == ("ada", True)
    assert got["total"]["cost_usd"] == 1.25
    assert (got["correction"]["cost_usd"], got["correction"]["unpriced"]) == (0.25, 1)
    assert [(r["purpose"], r["mechanism"], r["calls"]) for r in got["by"]["mechanism"]] == [
        ("gate", "gate", 2),
        ("evaluation", "evaluation", 1),
    ]
    gate = next(r for r in got["by"]["dimension"] if (r["purpose"], r["dimension"]) == ("gate", "fluency"))
    assert (gate["input_tokens"], gate["output_tokens"], gate["cost_usd"]) == (10, 2, 0.25)
    assert client.get(COSTS).json()["total"]["cost_usd"] == 8.25


def test_a_stretch_of_time_and_the_groupings_can_be_asked_for(client: Program) -> None:
    for day in (1, 2, 3):
        call(make_agent(f"a{day}"), at=datetime(2026, 11, day, 12, tzinfo=UTC))

    got = client.get(f"{COSTS}?since=2026-11-02&until=2026-11-03T00:00:00Z&by=day,agent").json()

    assert list(got["by"]) == ["day", "agent"]
    assert [row["day"] for row in got["by"]["day"]] == ["2026-11-02"]
    assert [row["agent"] for row in got["by"]["agent"]] == ["a2"]
    assert client.get(f"{COSTS}?window=all").json()["total"]["calls"] == 3
    assert client.get(f"{COSTS}?since=2026-11-02T13:00:00%2B01:00").json()["total"]["calls"] == 2


@pytest.mark.parametrize(
    ("query", "name", "message"),
    [
        ("window=last:5", "window", "allowed: all, or a duration such as 24h, 7d, 4w"),
        ("since=yesterday", "since", "allowed: a date or time such as 2026-11-22"),
        ("since=2026-11-02&until=2026-11-01", "until", "is not after since"),
        ("since=2026-11-02&window=7d", "window", "not both"),
    ],
)
def test_a_wrong_parameter_is_a_400_that_says_what_is_allowed(
    client: Program, query: str, name: str, message: str
) -> None:
    make_agent("ada")

    answer = client.get(f"{COSTS}?{query}")

    assert answer.status_code == 400
    assert message in answer.json()["errors"][name][0]


def test_the_answer_costs_six_queries_however_many_calls_and_groupings(client: Program) -> None:
    ada = make_agent("ada")
    for n in range(20):
        call(ada, model=f"m{n}")

    with CaptureQueriesContext(connection) as seen:
        client.get(f"{COSTS}?agent=ada&by=mechanism,dimension,model,day,agent")

    assert len(seen) == 6  # token with user, agent, and four for all groupings
