"""Costs read from sums are those of the raw rows, to the row: at window edges inside an hour, late, deleted and pruned rows included."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import hypothesis
import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from agents.llm.ledger import Totals
from agents.models import Agent, LedgerHour, LLMCall, Rollup
from agents.ops.sums import LEDGER, prunable_before, roll_up, verify
from correction.costs import CORRECTION, GROUPINGS, Grouping, get_cost_summary, spent_today
from evaluation.scorers.windows import MessageWindow
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

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


def by_hand(calls: Iterable[Call]) -> Totals:
    chosen = list(calls)
    tokens = sum(c.tokens or 0 for c in chosen)
    return Totals(
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
        found = {(row.purpose, row.key): row.totals for row in summary.by[grouping]}
        assert found == {key: by_hand(group) for key, group in groups.items()}
        assert len(found) == len(summary.by[grouping])


@hypothesis.settings(max_examples=15)
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

    assert not verify(LEDGER).differences


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
                kept = end is None or end >= before
                expect(month, MessageWindow("", start=start, end=end), agent) if kept else None
    roll_up(LEDGER, now=NOW + timedelta(hours=5))
    assert get_cost_summary(window="all").total == by_hand(month)


@time_machine.travel(NOW, tick=False)
def test_a_window_that_cuts_a_pruned_hour_has_its_whole_hours(month: list[Call]) -> None:
    store(month, {})
    before = prunable_before(LEDGER, NOW)
    LLMCall.objects.filter(created_at__lt=before).delete()

    window = MessageWindow("", start=BEGIN + timedelta(minutes=90), end=BEGIN + timedelta(minutes=270))

    assert get_cost_summary(window=window).total.calls == 2 * 3  # 22:00 to 24:00, of 21:30 to 00:30


def test_a_deleted_agent_s_sums_become_those_of_none(month: list[Call]) -> None:
    agents = {slug: make_agent(slug) for slug in ("ada", "bob")}
    store(month, agents)
    roll_up(LEDGER, now=NOW + timedelta(days=40))

    agents["ada"].delete()

    summary = get_cost_summary(window="all", by=["agent"])
    assert {row.key: row.totals.calls for row in summary.by["agent"]} == {"": HOURS * 2, "bob": HOURS}
    assert not verify(LEDGER).differences


def test_a_summary_is_the_same_number_of_queries_when_rows_are_summed_up(
    month: list[Call], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    store(month, {})
    roll_up(LEDGER, now=NOW)

    with django_assert_num_queries(3):  # there is no agent to be named
        get_cost_summary(window="all")


def test_a_budget_counts_a_call_at_once_whatever_is_summed_up() -> None:
    ada = make_agent("ada")
    with time_machine.travel(datetime(2026, 2, 1, 9, 0, tzinfo=UTC), tick=False):
        call(ada, cost="0.5")
    with time_machine.travel(datetime(2026, 2, 1, 12, 0, tzinfo=UTC), tick=False):
        roll_up(LEDGER)
        call(ada, cost="0.25")

        assert spent_today(ada).cost_usd == Decimal("0.75")
