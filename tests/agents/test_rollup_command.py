"""``manage.py rollup``: sums up, makes anew, and compares."""

from __future__ import annotations

import io
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agents.models import LedgerSum, LLMCall, Span
from tests.agents.test_rollup import call


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("rollup", *args, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_sums_up_and_compares() -> None:
    call(timezone.now() - timedelta(days=2))

    assert "ledger: 1 hour summed up" in run()
    assert "ledger: 0 hours summed up" in run()
    assert "no difference" in run("--verify")


@pytest.mark.django_db
def test_where_nothing_is_summed_up_nothing_is_said_to_be_right() -> None:
    out = run("--verify")

    assert "ledger: nothing is summed up yet, so nothing was compared" in out
    assert "no difference" not in out


@pytest.mark.django_db
def test_the_command_names_a_wrong_sum_and_ends_with_1() -> None:
    call(timezone.now() - timedelta(days=2))
    run()
    LedgerSum.objects.filter(span=Span.HOUR).update(calls=5, cost_usd=Decimal("0.03"))
    LLMCall.objects.bulk_create(
        LLMCall(role="judge", purpose="turn", provider="p", model="m", status="ok") for _ in range(4)
    )
    LLMCall.objects.update(created_at=LLMCall.objects.order_by("pk").values("created_at")[:1])

    with pytest.raises(CommandError) as refused:
        run("--verify")

    assert refused.value.returncode == 1
    assert "ledger_sums, hour from" in str(refused.value)
    assert "calls 5 instead of 1" in str(refused.value)


@pytest.mark.django_db
def test_the_command_leaves_out_pruned_hours_and_says_so() -> None:
    call(timezone.now() - timedelta(days=2))
    run()
    LLMCall.objects.all().delete()

    assert "1 pruned, not comparable" in run("--verify")


@pytest.mark.django_db
def test_the_command_sums_up_anew_from_a_day_on() -> None:
    old, new = timezone.now() - timedelta(days=9), timezone.now() - timedelta(days=2)
    call(old), call(new)
    run()
    LedgerSum.objects.update(input_tokens=0)

    assert "ledger: 1 hour summed up" in run("--since", (timezone.now() - timedelta(days=4)).date().isoformat())

    tokens = dict(LedgerSum.objects.filter(span=Span.HOUR).values_list("start", "input_tokens"))
    assert [tokens[start] for start in sorted(tokens)] == [0, 7]
