"""Sums of whole hours: made once, made anew when their rows change, kept when their rows are pruned, and never by two at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum
from django.utils import timezone

from agents.models import Agent, LedgerAgentTotal, LedgerSum, LedgerTotal, LLMCall, Rollup, Span, StaleHour
from agents.rollup import LEDGER, sum_up
from agents.rollups import Rolled, mark_stale, prunable_before, roll_up, verify
from tests.factories import make_agent

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def call(at: datetime, agent: Agent | None = None, *, cost: str | None = "0.01") -> LLMCall:
    row = LLMCall.objects.create(
        agent=agent, role="judge", purpose="gate", provider="anthropic", model="m", status="ok", input_tokens=7,
        cost_usd=None if cost is None else Decimal(cost), latency_ms=100,
    )  # fmt: skip
    LLMCall.objects.filter(pk=row.pk).update(created_at=at)
    return row


def close(at: datetime, owner: str = "me") -> int:
    return roll_up(LEDGER, owner=owner, now=at, seconds=None)


def summed(span: int = Span.HOUR) -> dict[datetime, int]:
    return dict(LedgerSum.objects.filter(span=span).values_list("start").annotate(Sum("calls")))


# -- closing hours
@pytest.mark.django_db
def test_an_hour_is_summed_up_once_it_is_over_and_transactions_have_had_time_to_end() -> None:
    call(NOON + timedelta(minutes=59))

    assert close(NOON + timedelta(minutes=69)) == 0
    assert close(NOON + timedelta(minutes=70)) == 1
    assert close(NOON + timedelta(minutes=75)) == 0
    assert summed() == {NOON: 1}


@pytest.mark.django_db
def test_tokens_dollars_and_unpriced_calls_are_added_per_agent_and_for_all() -> None:
    ada = make_agent("ada")
    call(NOON, ada, cost="0.00000001")
    call(NOON, ada, cost=None)
    call(NOON, None, cost="2")

    close(NOON + timedelta(hours=2))

    of_ada = LedgerSum.objects.get(agent=ada)
    assert (of_ada.calls, of_ada.unpriced, of_ada.input_tokens, of_ada.output_tokens) == (2, 1, 14, 0)
    assert (of_ada.cost_usd, of_ada.latency_ms) == (Decimal("0.00000001"), 200)
    everybody = LedgerTotal.objects.get()
    assert (everybody.calls, everybody.cost_usd) == (3, Decimal("2.00000001"))


@pytest.mark.django_db
def test_days_and_months_are_summed_up_when_they_are_over() -> None:
    ada = make_agent("ada")
    for moment in (datetime(2026, 1, 31, 23, tzinfo=UTC), datetime(2026, 2, 1, 0, tzinfo=UTC), NOON):
        call(moment, ada)

    close(datetime(2026, 2, 1, 1, 30, tzinfo=UTC))
    assert summed(Span.DAY) == {datetime(2026, 1, 31, tzinfo=UTC): 1}
    close(NOON + timedelta(hours=30))

    assert summed(Span.DAY) == {datetime(2026, 1, 31, tzinfo=UTC): 1, datetime(2026, 2, 1, tzinfo=UTC): 1}
    months = LedgerAgentTotal.objects.filter(span=Span.MONTH).values_list("start", "calls")
    assert dict(months) == {datetime(2026, 1, 1, tzinfo=UTC): 1, datetime(2026, 2, 1, tzinfo=UTC): 1}
    assert not verify(LEDGER).differences


@pytest.mark.django_db
def test_summing_up_again_changes_nothing() -> None:
    for hour in range(5):
        call(NOON + timedelta(hours=hour))
    close(NOON + timedelta(days=3))
    before = list(LedgerSum.objects.values("span", "start", "calls", "cost_usd"))

    mark_stale("ledger", NOON)

    assert close(NOON + timedelta(days=3)) == 1
    assert sorted(map(str, LedgerSum.objects.values("span", "start", "calls", "cost_usd"))) == sorted(map(str, before))


@pytest.mark.django_db
def test_it_stops_after_its_time_and_the_next_call_goes_on() -> None:
    for hour in range(3):
        call(NOON + timedelta(hours=hour))

    done = [roll_up(LEDGER, owner="me", now=NOON + timedelta(days=1), seconds=0) for _ in range(4)]

    assert done == [1, 1, 1, 0]


# -- rows that come or change later
@pytest.mark.django_db
def test_a_row_whose_transaction_ended_late_is_counted_when_the_next_hour_is_closed() -> None:
    call(NOON)
    close(NOON + timedelta(hours=2))
    call(NOON + timedelta(minutes=59))  # was written then, and seen only now
    call(NOON + timedelta(hours=1, minutes=30))

    close(NOON + timedelta(hours=3))

    assert summed() == {NOON: 2, NOON + timedelta(hours=1): 1}


@pytest.mark.django_db
def test_a_late_row_is_counted_however_often_other_hours_are_summed_up_anew_before() -> None:
    call(NOON - timedelta(hours=1))
    call(NOON)
    close(NOON + timedelta(hours=2))
    call(NOON + timedelta(minutes=59))  # was written then, and seen only now
    for minutes in (5, 6, 7):
        StaleHour.objects.create(name="ledger", hour=NOON - timedelta(hours=1))
        close(NOON + timedelta(hours=2, minutes=minutes))
    call(NOON + timedelta(hours=1, minutes=30))

    close(NOON + timedelta(hours=3))

    assert summed()[NOON] == 2


@pytest.mark.django_db
def test_a_late_row_that_is_older_than_one_seen_already_is_counted() -> None:
    call(NOON)
    late = call(NOON + timedelta(minutes=10))
    LLMCall.objects.filter(pk=late.pk).delete()  # not committed yet, as far as others can see
    newer = call(NOON + timedelta(hours=1))
    close(NOON + timedelta(hours=2, minutes=20))
    assert newer.pk > late.pk
    late.save(force_insert=True)
    LLMCall.objects.filter(pk=late.pk).update(created_at=NOON + timedelta(minutes=10))
    state = Rollup.objects.get(name="ledger")
    Rollup.objects.update(seen_pk=late.pk, older_pk=late.pk - 1)  # it was inserted after the time before
    assert state.closed_before == NOON + timedelta(hours=2)
    call(NOON + timedelta(hours=2))

    close(NOON + timedelta(hours=3, minutes=20))

    assert summed()[NOON] == 2


@pytest.mark.django_db
def test_an_hour_that_was_pruned_keeps_its_sums_even_when_it_is_marked() -> None:
    rows = [call(NOON + timedelta(minutes=n)) for n in range(3)]
    close(NOON + timedelta(hours=2))
    LLMCall.objects.filter(pk__in=[row.pk for row in rows[:2]]).delete()
    mark_stale("ledger", NOON)

    assert close(NOON + timedelta(hours=2)) == 0

    assert summed() == {NOON: 3}
    assert not StaleHour.objects.exists()


@pytest.mark.django_db
def test_rows_that_are_pruned_between_looking_and_summing_anew_keep_their_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    call(NOON)
    call(NOON)
    close(NOON + timedelta(hours=2))
    mark_stale("ledger", NOON)
    is_whole = Rolled.is_whole

    def pruned_just_then(rolled: Rolled, hour: datetime) -> bool:
        found = is_whole(rolled, hour)
        LLMCall.objects.all().delete()
        return found

    monkeypatch.setattr(Rolled, "is_whole", pruned_just_then)
    close(NOON + timedelta(hours=2))
    LLMCall.objects.all().delete()  # what the transaction that was undone brought back

    assert summed() == {NOON: 2}
    assert close(NOON + timedelta(hours=2)) == 0
    assert (summed(), StaleHour.objects.count()) == ({NOON: 2}, 0)


@pytest.mark.django_db
def test_what_may_be_pruned_is_whole_hours_that_are_summed_up() -> None:
    now = timezone.now().replace(minute=30)
    call(now - timedelta(days=3))
    call(now)

    assert prunable_before(LEDGER, now - timedelta(days=2)) == LEDGER_CLOSED()
    assert prunable_before(LEDGER, now - timedelta(days=9)) == (now - timedelta(days=9)).replace(
        minute=0, second=0, microsecond=0
    )


def LEDGER_CLOSED() -> datetime | None:
    return Rollup.objects.get(name="ledger").closed_before


# -- one at a time
@pytest.mark.django_db
def test_two_workers_do_not_sum_up_at_once() -> None:
    call(NOON)
    Rollup.objects.create(name="ledger", claimed_by="other:1:x", lease_expires_at=timezone.now() + timedelta(minutes=1))

    assert close(NOON + timedelta(days=1)) == 0
    Rollup.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=1))  # the other died

    assert close(NOON + timedelta(days=1)) == 1


@pytest.mark.django_db
def test_an_hour_of_which_the_claim_was_lost_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    call(NOON)
    fill = type(LEDGER).fill

    def slow(rolled: object, span: int, start: datetime) -> None:
        fill(LEDGER, span, start)
        Rollup.objects.update(claimed_by="somebody else")

    monkeypatch.setattr(type(LEDGER), "fill", slow)

    assert close(NOON + timedelta(days=1)) == 0
    assert summed() == {}


@pytest.mark.django_db
def test_the_chore_sums_up_everything_there_is() -> None:
    call(timezone.now() - timedelta(days=2))

    assert (sum_up(), sum_up()) == (1, 0)
