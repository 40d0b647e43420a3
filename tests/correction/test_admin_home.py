"""What correcting has on the console's first page: the gate, corrections, spending, and what waits for a person."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from agents.kit.models import LLMCall
from agents.kit.ops import sums
from agents.kit.ops.sums import sum_up
from agents.models import Agent
from correction.config.configure import configure
from correction.models import CorrectionLog
from tests.agents.test_admin_home import HOME, card, home, steps
from tests.console import list_of, plain, queries, read, signed_in, staff, superuser, viewer
from tests.correction.judged_drafts import make_log
from tests.correction.ledger import call
from tests.evaluation.test_admin_home import fell
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


def logged(
    agent: Agent, outcome: str, *, hours_ago: float = 1, score: float | None = 7, **fields: Any
) -> CorrectionLog:
    sums = {"score_sum": score} if score is not None else {}
    log = make_log(agent, {"adherence": score}, outcome=outcome, **{**sums, **fields})
    CorrectionLog.objects.filter(pk=log.pk).update(created_at=timezone.now() - timedelta(hours=hours_ago))
    return log


def corrected(agent: Agent, outcome: str, **fields: Any) -> None:
    """A draft that was sent back, and the attempt that ended the session."""
    first = logged(agent, "corrected", score=2, **fields)
    logged(agent, outcome, session=first.session.uuid, attempt=2, **fields)


def test_spending_stands_against_the_budgets() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": "0.5"})
    call(ada, cost="0.60")
    call(ada, cost="3", at=datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(seconds=1))
    call(bob, cost="0.15", purpose="turn")
    call(bob, cost=None)
    html = home()
    text = card(html, "Spend today")

    assert text.startswith("$0.7500")
    assert "$0.6000 of $0.5000 in 1 budget. 1 used up" in text
    assert "1 unpriced call" in text
    assert f"{list_of(LLMCall)}?cost_usd__isnull=True&" in html.replace("&amp;", "&")
    assert '<section class="pl-card pl-edge-bad">' in html


def test_before_any_hour_was_summed_home_reads_no_long_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what is missing instead of zeros, and shows the figures as soon as a worker summed them."""
    monkeypatch.setattr(sums, "MOST_RAW", 3)
    ada = make_agent("ada")
    midnight = timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(4):
        call(ada, cost="0.10")
    LLMCall.objects.update(created_at=midnight - timedelta(hours=3))
    unsummed = home()

    for title in ("Spend today", "Judge"):
        assert "Not summed up yet" in card(unsummed, title)
    assert "No calls in the last 24 hours" not in plain(unsummed)

    sum_up()
    summed = home(superuser("second"))

    assert "Not summed up yet" not in plain(summed)


def test_home_advises_to_observe_until_that_is_done() -> None:
    ada = make_agent()
    client = signed_in(superuser())
    html = read(client, HOME)
    assert "The gate was never observed" in steps(html)
    assert "manage.py configure defaults gate_adherence_enabled=on gate_mode=observe" in html

    log = logged(ada, "forced_through", score=2)
    assert "how often it is wrong is not known" in plain(read(client, HOME))

    log.dimension_results.update(mark="right")
    assert "The gate was never observed" not in steps(read(client, HOME))

    log.dimension_results.update(mark="")
    logged(ada, "observed", source="observe")
    assert "The gate was never observed" not in steps(read(client, HOME))


def test_an_unmarked_alarm_is_shown_to_those_who_may_mark() -> None:
    ada = make_agent()
    logged(ada, "forced_through", score=2)
    logged(ada, "forced_through", score=2).dimension_results.update(mark="right")

    assert "1 alarm of the gate to mark" in plain(home())
    assert "Waits for you" not in plain(home(viewer()))
    assert "1 alarm of the gate" in plain(home(staff("correction.change_gatedimensionresult")))


def test_the_number_of_queries_does_not_grow_with_what_the_gate_did() -> None:
    client = signed_in(superuser())

    def add(number: int) -> None:
        for _ in range(number):
            agent = make_agent(f"agent-{Agent.objects.count()}")
            corrected(agent, "forced_through")
            logged(agent, "observed", source="observe")
            configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": "0.5"})
            call(agent, cost="0.60")
            fell(agent)

    add(2)
    few = queries(client, HOME)
    add(3)
    many = queries(client, HOME)

    assert len(many) == len(few), "\n".join(many)
