"""Costs are sums over the ledger: nothing left out, nothing counted twice, unpriced calls never taken for free (AC-7.3.10)."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from agents.models import Agent, LLMCall
from correction.costs import GROUPINGS, CostRow, CostSummary, Grouping, get_cost_summary
from evaluation.scorers.windows import MessageWindow
from tests.correction.ledger import call
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def keys(summary: CostSummary, grouping: Grouping) -> list[str]:
    return [row.key for row in summary.by[grouping]]


def row(summary: CostSummary, grouping: Grouping, key: str, purpose: str = "") -> CostRow:
    (found,) = (r for r in summary.by[grouping] if r.key == key and purpose in ("", r.purpose))
    return found


def test_tokens_of_every_kind_calls_and_dollars_are_summed_ac_7_3_5(ada: Agent) -> None:
    call(ada, input_tokens=100, output_tokens=20, cache_read_tokens=4000, cache_write_tokens=500, cost="0.00000001")
    call(ada, input_tokens=1, output_tokens=2, cache_read_tokens=3, cache_write_tokens=4, cost="1.5")

    total = get_cost_summary(agent=ada, window="1d").total

    assert (total.calls, total.input_tokens, total.output_tokens) == (2, 101, 22)
    assert (total.cache_read_tokens, total.cache_write_tokens) == (4003, 504)
    assert total.cost_usd == Decimal("1.50000001")


def test_a_ledger_without_rows_costs_nothing(ada: Agent) -> None:
    summary = get_cost_summary(agent=ada)

    assert (summary.total.calls, summary.total.cost_usd, summary.total.unpriced) == (0, Decimal(0), 0)
    assert set(summary.by) == set(GROUPINGS)
    assert not any(summary.by.values())


def test_unpriced_calls_and_unknown_tokens_are_counted_apart_and_never_as_zero_dollars(ada: Agent) -> None:
    call(ada, cost=None, input_tokens=None, output_tokens=None)
    call(ada, cost="0.02")

    summary = get_cost_summary(agent=ada)

    assert (summary.total.calls, summary.total.unpriced, summary.total.cost_usd) == (2, 1, Decimal("0.02"))
    assert summary.total.input_tokens == 100


def test_mechanisms_of_correction_come_first_and_what_is_not_correction_stands_apart(ada: Agent) -> None:
    call(ada, purpose="evaluation", mechanism="adherence", cost="5")
    call(ada, purpose="evaluation", mechanism="fluency", cost="2")
    call(ada, purpose="turn", cost="9")
    call(ada, purpose="gate", cost="0.01")
    call(ada, purpose="intervention", mechanism="anti_convergence", cost="0.03")
    call(ada, purpose="intervention", mechanism="variety", cost="0.02")

    summary = get_cost_summary(agent=ada, by=["mechanism"])

    assert keys(summary, "mechanism") == ["anti_convergence", "variety", "gate", "turn", "evaluation"]
    assert row(summary, "mechanism", "evaluation").totals.cost_usd == 7
    assert summary.correction.cost_usd == Decimal("0.06")
    assert summary.correction.calls == 3
    assert summary.total.cost_usd == Decimal("16.06")


def test_a_dimension_s_gate_and_its_measuring_are_told_apart(ada: Agent) -> None:
    call(ada, dimension="fluency", cost="0.01")
    call(ada, purpose="evaluation", dimension="fluency", cost="0.5")
    call(ada, purpose="turn", cost="0.1")

    summary = get_cost_summary(agent=ada, by=["dimension"])

    assert row(summary, "dimension", "fluency", "gate").totals.cost_usd == Decimal("0.01")
    assert row(summary, "dimension", "fluency", "evaluation").totals.cost_usd == Decimal("0.5")
    assert row(summary, "dimension", "", "turn").totals.calls == 1


def test_models_and_agents_are_told_apart_dearest_first(ada: Agent) -> None:
    bob = make_agent("bob", display_name="Bob B.")
    call(ada, model="small", cost="0.1")
    call(bob, model="large", cost="0.5")
    call(None, model="large", cost="0.2", purpose="evaluation")

    summary = get_cost_summary(window="all", by=["model", "agent"])

    assert keys(summary, "model") == ["large", "small"]
    assert keys(summary, "agent") == ["bob", "", "ada"]
    assert row(summary, "agent", "bob").name == "Bob B."


def test_each_grouping_adds_up_to_the_total(ada: Agent) -> None:
    bob = make_agent("bob")
    for n in range(40):
        call(
            (ada, bob, None)[n % 3], purpose=("gate", "evaluation", "turn", "intervention")[n % 4], model=f"m{n % 5}",
            dimension=("", "fluency")[n % 2], cost=(None, "0.00000007", "0.3")[n % 3],
            at=timezone.now() - timedelta(hours=5 * n),
        )  # fmt: skip

    summary = get_cost_summary(window="30d")

    for rows in summary.by.values():
        assert sum(r.totals.calls for r in rows) == summary.total.calls == 40
        assert sum(r.totals.unpriced for r in rows) == summary.total.unpriced == 14
        assert sum(r.totals.cost_usd for r in rows) == summary.total.cost_usd
        assert sum(r.totals.input_tokens for r in rows) == summary.total.input_tokens


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "America/Los_Angeles"])
def test_days_are_those_of_utc_whatever_zone_times_are_shown_in(ada: Agent, zone: str, settings: Settings) -> None:
    settings.TIME_ZONE = zone
    call(ada, at=datetime(2026, 11, 1, 23, 59, 59, tzinfo=UTC))
    call(ada, at=datetime(2026, 11, 2, 0, 0, 0, tzinfo=UTC))

    with timezone.override(zone):
        summary = get_cost_summary(agent=ada, window="all", by=["day"])

    assert keys(summary, "day") == ["2026-11-01", "2026-11-02"]


def test_a_window_reaches_back_from_now(ada: Agent) -> None:
    now = timezone.now()
    call(ada, at=now - timedelta(hours=23, minutes=59))
    call(ada, at=now - timedelta(hours=24, minutes=1))

    assert get_cost_summary(agent=ada, window="24h").total.calls == 1
    assert get_cost_summary(agent=ada, window="2d").total.calls == 2
    assert get_cost_summary(agent=ada, window="all").total.calls == 2
    stretch = MessageWindow("", start=now - timedelta(days=2), end=now - timedelta(days=1))
    assert get_cost_summary(agent=ada, window=stretch).total.calls == 1


@pytest.mark.parametrize("window", ["", "last:5", "7", "0d", "7 days", "-1d", "999999w"])
def test_a_window_that_is_none_is_refused_with_what_is_allowed(ada: Agent, window: str) -> None:
    with pytest.raises(ValueError, match="allowed: all, or a duration such as 24h, 7d, 4w"):
        get_cost_summary(agent=ada, window=window)


def test_an_agent_s_costs_are_its_own(ada: Agent) -> None:
    call(make_agent("bob"))
    call(None)

    assert get_cost_summary(agent=ada).total.calls == 0
    assert get_cost_summary().total.calls == 2


def test_the_cost_of_a_deleted_agent_s_calls_stays(ada: Agent) -> None:
    call(ada, cost="0.5")
    ada.delete()

    summary = get_cost_summary(by=["agent"])

    assert (keys(summary, "agent"), summary.total.cost_usd) == ([""], Decimal("0.5"))


def test_a_summary_is_a_handful_of_queries_however_many_rows(
    ada: Agent, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for n in range(30):
        call(ada, model=f"m{n}", purpose="gate" if n % 2 else "turn")

    with django_assert_num_queries(4):
        get_cost_summary(window="7d")
    with django_assert_num_queries(1):
        get_cost_summary(agent=ada, window="7d", by=["mechanism"])


# -- the command
def run(*args: str) -> str:
    out = io.StringIO()
    call_command("costs", *args, stdout=out, no_color=True)
    return out.getvalue()


def test_the_command_shows_the_tables_asked_for_and_says_what_is_unpriced(ada: Agent) -> None:
    call(ada, purpose="intervention", mechanism="variety", cost="0.1234")
    call(ada, purpose="turn", cost=None)

    out = run("Ada", "--window", "24h", "--by", "mechanism,day")

    assert "2 calls, $0.1234 + 1 unpriced; correction alone: 1 calls, $0.1234" in out
    assert "By mechanism" in out
    assert "By day" in out
    assert "By model" not in out
    assert "Unpriced calls are not in the dollars" in out


def test_the_command_s_json_is_one_object_with_numbers(ada: Agent) -> None:
    call(ada, dimension="fluency", cost="0.25")

    shown: dict[str, Any] = json.loads(run("--json", "--by", ",".join(GROUPINGS)))

    assert shown["agent"] is None
    assert shown["total"]["cost_usd"] == 0.25
    assert shown["by"]["dimension"][0]["dimension"] == "fluency"
    assert shown["by"]["mechanism"][0]["purpose"] == "gate"
    assert shown["by"]["agent"][0]["agent"] == "ada"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["adda"], "did you mean ada?"),
        (["--window", "soon"], "window 'soon' is not understood; allowed: all, or a duration"),
        (["--by", "moon"], "by 'moon': allowed: mechanism, dimension, model, day, agent"),
    ],
)
def test_the_command_refuses_what_it_does_not_understand(ada: Agent, arguments: list[str], told: str) -> None:
    with pytest.raises(CommandError) as refused:
        run(*arguments)

    assert told in str(refused.value)
    assert refused.value.returncode == 2


def test_the_command_without_calls_says_so(ada: Agent) -> None:
    with time_machine.travel(datetime(2026, 11, 2, 12, 0, tzinfo=UTC)):
        assert "since 2026-10-26 12:00 UTC: 0 calls, $0.0000" in run()
    assert LLMCall.objects.count() == 0
