"""A judge that is down is noticed from the ledger, and so is that it answers again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.alerts.judge import IN_A_ROW, check_alerts
from agents.alerts.models import Alert
from agents.kit.models import LLMCall

pytestmark = pytest.mark.django_db


def asked(*statuses: str, model: str = "big", minutes_ago: float = 1) -> None:
    for status in statuses:
        call = LLMCall.objects.create(role="judge", purpose="gate", provider="anthropic", model=model, status=status)
        LLMCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - timedelta(minutes=minutes_ago))


def state() -> list[tuple[str, bool]]:
    check_alerts()
    return [(alert.about, alert.ended_at is None) for alert in Alert.objects.order_by("pk")]


def test_a_judge_with_its_last_calls_unanswered_is_down_until_it_answers() -> None:
    asked("ok", minutes_ago=5)
    asked(*["timeout"] * (IN_A_ROW - 1))
    assert state() == []

    asked("unavailable", minutes_ago=0.5)
    assert state() == [("big at ", True)]
    assert state() == [("big at ", True)], "it lasts, and is not raised again"
    assert Alert.objects.get().times == 1

    asked("malformed", minutes_ago=0)
    assert state() == [("big at ", False)], "what cannot be read is an answer"


def test_another_judge_and_old_failures_say_nothing() -> None:
    asked(*["timeout"] * IN_A_ROW, minutes_ago=60)
    asked(*["timeout"] * IN_A_ROW, model="small")

    assert state() == [("small at ", True)]


def test_a_few_failures_among_answers_are_no_outage() -> None:
    for status in ("timeout", "ok", "timeout", "timeout", "timeout", "timeout"):
        asked(status)

    assert state() == []
