"""The ledger's list over time: how many calls a day or an hour, and how many failed."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.test import Client

from agents.admin import ledger
from agents.models import LLMCall
from tests.console import list_of, plain, queries, read
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db


def call(after: timedelta, **fields: Any) -> None:
    defaults = {"role": "judge", "purpose": "gate", "provider": "anthropic", "model": "m", "status": "ok"}
    made = LLMCall.objects.create(**{**defaults, **fields})
    LLMCall.objects.filter(pk=made.pk).update(created_at=MONDAY + after)


def chart(html: str) -> str:
    """The part of the page that shows the calls over time; empty when there is none."""
    found = re.search(r'<details class="pl-panel pl-over-time">.*?</figure>\s*</details>', html, flags=re.S)
    return found.group() if found else ""


def rows(html: str) -> list[str]:
    return [plain(row) for row in re.findall(r"<tr>.*?</tr>", chart(html), flags=re.S)]


def test_calls_are_counted_by_day_with_the_failed_ones_apart_and_lead_to_that_day(root: Client) -> None:
    for days in (0, 0, 3):
        call(timedelta(days=days))
    call(timedelta(days=3), status="timeout")
    html = read(root, list_of(LLMCall))

    assert rows(html)[1:] == ["2 Nov 2 0", "3 Nov 0 0", "4 Nov 0 0", "5 Nov 1 1"]
    assert "Calls by day" in chart(html)
    link = "?created_at_from=2026-11-05&created_at_to=2026-11-05"
    assert link in unescape(chart(html))
    assert len(re.findall('class="field-status', read(root, list_of(LLMCall, link)))) == 2


def test_what_was_called_within_two_days_is_counted_by_hour_and_the_filters_hold(root: Client) -> None:
    ada = make_agent()
    for hours in (0, 0.5, 2):
        call(timedelta(hours=hours), agent=ada)
    call(timedelta(days=9))
    html = read(root, list_of(LLMCall, f"?agent__id__exact={ada.pk}"))

    assert rows(html)[1:] == ["Mon 09:00 2 0", "Mon 10:00 0 0", "Mon 11:00 1 0"]


def test_a_large_ledger_is_looked_at_no_further_than_its_sums(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "TOTALLED_ROWS", 3)
    for days in range(5):
        call(timedelta(days=days))
    few = len(queries(root, list_of(LLMCall)))
    html = read(root, list_of(LLMCall))

    assert rows(html)[1:] == ["4 Nov 1 0", "5 Nov 1 0", "6 Nov 1 0"]
    assert "of the newest 3" in chart(html)
    for days in range(5, 200):
        call(timedelta(days=days))
    assert len(queries(root, list_of(LLMCall))) == few
