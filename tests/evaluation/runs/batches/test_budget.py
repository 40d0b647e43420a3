"""Budgets and batches: what is out counts, and what has no room is not handed in."""

from __future__ import annotations

from decimal import Decimal

import pytest

from agents.kit.models import ModelPrice
from agents.models import Agent
from correction.config.configure import configure
from correction.config.settings import resolve_config
from correction.costs import over_budget
from correction.models import AgentEvaluationConfig
from evaluation.models import EvaluationRun
from evaluation.runs.execute import work_one
from tests.batch_server import BatchServer
from tests.evaluation.runs.batches.working import check_batches, handed_in, only_batch, work
from tests.factories import make_channel, speaking


@pytest.mark.django_db
def test_nothing_is_handed_in_that_the_budget_has_no_room_for(
    ada: Agent, server: BatchServer, price: ModelPrice
) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, budget_enabled=True, daily_budget_usd="0.0001")
    run = handed_in(ada)
    assert (run.status, server.made()) == ("paused_budget", 0)
    assert "has no room for about $0.0" in run.error
    assert not work_one(owner="anybody")  # nobody tries it over and over
    AgentEvaluationConfig.objects.update(daily_budget_usd="1")
    EvaluationRun.objects.update(lease_expires_at=None)  # ten minutes later
    assert (work(run).status, server.made()) == ("pending", 1)


@pytest.mark.django_db
def test_what_an_agents_open_batches_will_cost_counts_against_its_budget(
    ada: Agent, server: BatchServer, price: ModelPrice
) -> None:
    """By their estimate, for its other evaluations and its gate; the ledger counts once they are answered."""
    bob = speaking("bob", ["one", "two", "three"], channel=make_channel("bobs"))
    first = handed_in(ada)
    planned = only_batch().planned_usd
    assert 0 < planned < Decimal("0.01")
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": round(planned * Decimal("1.5"), 4)})

    second = handed_in(ada, seed=2)
    assert (second.status, server.made()) == ("paused_budget", 1)
    assert f"about ${planned:.4f} more in open batches" in second.error
    assert handed_in(bob).status == "pending"  # another agent has a budget of its own

    configure(agent=ada, changes={"daily_budget_usd": round(planned, 4) - Decimal("0.0001")})
    assert over_budget(ada, resolve_config(ada))
    server.end()
    check_batches()
    assert not over_budget(ada, resolve_config(ada))  # it cost less than was expected
    assert work(first).status == "completed"
