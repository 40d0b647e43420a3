"""Today's spending against all daily budgets together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from agents.models import Agent
from agents.ops.sums import sum_up
from correction.config.configure import configure
from correction.costs import BudgetDay, budgets_today
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def today() -> BudgetDay:
    return budgets_today(now=NOON)


def with_budget(agent: Agent | None, amount: str) -> None:
    configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": amount})


def test_without_any_budget_there_is_none() -> None:
    call(make_agent(), cost="0.25", at=NOON)
    found = today()

    assert (found.total, found.checking, found.budget, found.budgets) == (Decimal("0.25"), Decimal("0.25"), None, 0)


def test_only_checking_and_measuring_count_and_only_since_midnight_utc() -> None:
    ada = make_agent()
    with_budget(ada, "1")
    call(ada, cost="0.10", at=NOON)
    call(ada, cost="0.20", at=NOON, purpose="evaluation")
    call(ada, cost="5.00", at=NOON, purpose="turn")
    call(ada, cost="7.00", at=NOON - timedelta(hours=13))
    call(ada, cost=None, at=NOON)
    found = today()

    assert (found.total, found.checking, found.capped) == (Decimal("5.30"), Decimal("0.30"), Decimal("0.30"))
    assert found.unpriced == 1


def test_budgets_of_agents_are_added_up_and_others_spending_is_not_held_against_them() -> None:
    ada, bob, eve = (make_agent(slug) for slug in ("ada", "bob", "eve"))
    with_budget(ada, "1")
    with_budget(bob, "2")
    for agent, cost in ((ada, "0.50"), (bob, "0.50"), (eve, "9")):
        call(agent, cost=cost, at=NOON)
    found = today()

    assert (found.capped, found.budget, found.budgets) == (Decimal("1.00"), Decimal("3.0000"), 2)
    assert (found.used_up, found.nearly) == (0, 0)


def test_used_up_and_nearly_used_up_budgets_are_counted() -> None:
    for slug, cost in (("ada", "1.00"), ("bob", "0.80"), ("eve", "0.79")):
        agent = make_agent(slug)
        with_budget(agent, "1")
        call(agent, cost=cost, at=NOON)

    assert (today().used_up, today().nearly) == (1, 1)


def test_the_defaults_give_every_active_agent_a_budget_and_one_to_all_channels() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    make_agent("old", is_active=False)
    with_budget(None, "1")
    configure(agent=bob, changes={"budget_enabled": False})
    call(ada, cost="0.20", at=NOON)
    call(None, cost="1.50", at=NOON, purpose="evaluation")
    found = today()

    assert (found.budgets, found.budget) == (2, Decimal("2.0000")), "Ada's and that of the channels"
    assert (found.capped, found.used_up) == (Decimal("1.70"), 1)


def test_the_figures_are_the_same_once_hours_are_summed_up() -> None:
    ada = make_agent()
    with_budget(ada, "1")
    for hour in (1, 5, 11):
        call(ada, cost="0.10", at=NOON.replace(hour=hour, minute=30))
    before = today()
    sum_up()

    assert today() == before
    assert before.capped == Decimal("0.30")
