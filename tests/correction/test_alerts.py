"""A pass rate that fell and a budget that is used up are noticed, and that they are over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from agents.alerts.models import Alert
from agents.kit.ops.sums import sum_up
from agents.models import Agent
from correction.alerts import check_alerts
from correction.config.configure import configure
from tests.correction.judged_drafts import make_log
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 22, 12, 30, tzinfo=UTC)


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def checked(agent: Agent, *, passed: int, failed: int, days_ago: float, **fields: object) -> None:
    """First drafts of which so many passed; a day's are made in a few hours."""
    with time_machine.travel(NOW - timedelta(days=days_ago), tick=False):
        for number in range(passed + failed):
            make_log(agent, {"adherence": 8.0 if number < passed else 2.0}, **fields)  # type: ignore[arg-type]


def seen(*, summed: bool = False) -> list[str]:
    with time_machine.travel(NOW, tick=False):
        if summed:
            sum_up()
        check_alerts()
    return [alert.title for alert in Alert.objects.filter(ended_at=None).order_by("pk")]


@pytest.mark.parametrize("summed", [False, True])
def test_a_pass_rate_that_fell_clearly_is_an_alert_until_it_rises(ada: Agent, summed: bool) -> None:
    checked(ada, passed=38, failed=2, days_ago=4)
    checked(ada, passed=12, failed=18, days_ago=0.5)

    assert seen(summed=summed) == [
        "40 % (12 of 30) of Ada's messages of the last day passed adherence, 95 % (38 of 40) in the week before "
        "(gate; judge claude-haiku-5-5)"
    ]
    checked(ada, passed=100, failed=0, days_ago=0.005)
    assert seen() == []


@pytest.mark.parametrize(
    ("before", "after"),
    [((38, 2), (5, 10)), ((10, 2), (12, 18)), ((38, 2), (26, 4)), ((20, 8), (11, 11))],
    ids=["few today", "few before", "a small fall", "too few to be sure"],
)
def test_what_is_not_certain_or_not_large_is_none(ada: Agent, before: tuple[int, int], after: tuple[int, int]) -> None:
    checked(ada, passed=before[0], failed=before[1], days_ago=4)
    checked(ada, passed=after[0], failed=after[1], days_ago=0.5)

    assert seen() == []


def test_judges_and_sources_are_never_compared_with_each_other(ada: Agent) -> None:
    checked(ada, passed=38, failed=2, days_ago=4, judge="offline:lexical-1")
    checked(ada, passed=12, failed=18, days_ago=0.5)
    checked(ada, passed=38, failed=2, days_ago=4, judge="small", source="observe")
    checked(ada, passed=12, failed=18, days_ago=0.5, judge="small")

    assert seen() == []


def test_a_used_up_budget_is_an_alert_while_it_lasts(ada: Agent) -> None:
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": "1"})
    call(ada, cost="0.60", at=NOW)
    assert seen() == []

    call(ada, cost="0.60", at=NOW)
    assert seen() == ["The daily budget of Ada is used up: $1.20 of $1.00; checks go on after midnight UTC"]

    configure(agent=ada, changes={"daily_budget_usd": "5"})
    assert seen() == []
    assert Alert.objects.get().agent == ada
