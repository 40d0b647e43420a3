"""Hourly sums: made when an hour is over, once more for late rows, kept when rows are pruned; `manage.py rollup`."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Sum
from django.utils import timezone

from agents.kit.models import LedgerHour, LLMCall
from agents.kit.ops.sums import LEDGER, prunable_before, roll_up, sum_up
from agents.models import Agent
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
ONE = timedelta(hours=1)


def call(at: datetime, agent: Agent | None = None, *, cost: str | None = "0.01") -> LLMCall:
    row = LLMCall.objects.create(
        agent=agent, role="judge", purpose="gate", provider="anthropic", model="m", status="ok", input_tokens=7,
        cost_usd=None if cost is None else Decimal(cost), latency_ms=100,
    )  # fmt: skip
    LLMCall.objects.filter(pk=row.pk).update(created_at=at)
    return row


def close(at: datetime) -> int:
    return roll_up(LEDGER, now=at)


def summed() -> dict[datetime, int]:
    return dict(LedgerHour.objects.values_list("hour").annotate(Sum("calls")))


def rollup(*args: str) -> str:
    out = io.StringIO()
    call_command("rollup", *args, stdout=out)
    return out.getvalue()


def test_an_hour_is_summed_once_its_transactions_have_had_time_to_end() -> None:
    call(NOON + timedelta(minutes=59))

    assert close(NOON + timedelta(minutes=69)) == 0
    assert close(NOON + timedelta(minutes=70)) == 1
    assert close(NOON + timedelta(minutes=75)) == 0
    assert summed() == {NOON: 1}


def test_tokens_dollars_and_unpriced_calls_are_added_per_agent() -> None:
    ada = make_agent("ada")
    call(NOON, ada, cost="0.00000001")
    call(NOON, ada, cost=None)
    call(NOON, None, cost="2")

    close(NOON + 2 * ONE)

    row = LedgerHour.objects.get(agent=ada)
    assert (row.calls, row.unpriced, row.input_tokens, row.output_tokens) == (2, 1, 14, 0)
    assert (row.cost_usd, row.latency_ms) == (Decimal("0.00000001"), 200)
    assert LedgerHour.objects.get(agent=None).cost_usd == 2


def test_late_rows_and_changes_count_while_the_next_two_hours_are_closed() -> None:
    row = call(NOON)
    close(NOON + ONE + timedelta(minutes=10))
    call(NOON + timedelta(minutes=59))  # committed late
    LLMCall.objects.filter(pk=row.pk).update(status="malformed")

    close(NOON + 2 * ONE + timedelta(minutes=10))
    assert dict(LedgerHour.objects.values_list("status", "calls")) == {"ok": 1, "malformed": 1}
    call(NOON + timedelta(minutes=58))
    close(NOON + 3 * ONE + timedelta(minutes=10))
    assert summed() == {NOON: 3}

    call(NOON + timedelta(minutes=57))
    close(NOON + 4 * ONE + timedelta(minutes=10))
    assert summed() == {NOON: 3}, "later than that, `rollup --since` is needed"
    rollup("--since", "2026-03-02")
    assert summed() == {NOON: 4}


def test_an_hour_of_which_rows_were_pruned_keeps_its_sums() -> None:
    rows = [call(NOON + timedelta(minutes=n)) for n in range(3)]
    close(NOON + 2 * ONE)
    LLMCall.objects.filter(pk__in=[row.pk for row in rows[:2]]).delete()

    assert roll_up(LEDGER, since=NOON) == 0

    assert summed() == {NOON: 3}


def test_what_may_be_pruned_is_whole_hours_that_are_summed() -> None:
    now = timezone.now().replace(minute=30, second=7)
    assert prunable_before(LEDGER, now) is None
    call(now - timedelta(days=3))
    call(now)

    assert prunable_before(LEDGER, now - timedelta(days=2)) == (now - timedelta(days=2)).replace(
        minute=0, second=0, microsecond=0
    )
    assert prunable_before(LEDGER, now + timedelta(days=2)) == LEDGER.closed_before()


def test_the_chore_sums_everything_there_is() -> None:
    call(timezone.now() - timedelta(days=2))

    assert (sum_up(), sum_up()) == (1, 0)


def test_the_command_sums_again_from_a_day_on() -> None:
    for days in (9, 2):
        call(timezone.now() - timedelta(days=days))
    assert "ledger: 2 hours summed" in rollup()
    LedgerHour.objects.update(input_tokens=0)

    assert "ledger: 1 hour summed" in rollup("--since", (timezone.now() - timedelta(days=4)).date().isoformat())

    assert list(LedgerHour.objects.order_by("hour").values_list("input_tokens", flat=True)) == [0, 7]


def test_a_moment_that_is_none_is_a_wrong_argument() -> None:
    with pytest.raises(CommandError, match="argument --since: 'soon': allowed: a UTC date or time in the past"):
        rollup("--since", "soon")
