"""The review queue in the browser, worked with the keyboard alone, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Run
from correction.models import CorrectionLog, GateDimensionResult
from tests.console import HOSTILE, page_of
from tests.correction.judged_drafts import make_log, verdict
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

QUEUE = "/admin/review/"


@pytest.fixture
def alarms(live_server: LiveServer) -> list[GateDimensionResult]:
    """Four alarms, the newest first, and a turn that failed."""
    ada = make_agent()
    Run.objects.create(agent=ada, status="failed", error=f"It broke {HOSTILE}")
    made = [verdict(make_log(ada, {"adherence": 2}, text=f"draft {n} {HOSTILE}")) for n in range(4)]
    return made[::-1]


def test_the_queue_is_worked_with_the_keyboard(
    visit: Callable[..., Visitor], alarms: list[GateDimensionResult], operator: User
) -> None:
    visitor = visit(operator, QUEUE, width=390, scheme="dark")
    page = visitor.page
    number = page.locator(".pl-review-item .pl-number").first
    expect(number).to_have_text("1 of 5")
    assert visitor.faults() == []

    page.keyboard.press("j")
    expect(number).to_have_text("2 of 5")
    page.keyboard.press("f")
    expect(page.get_by_text("is marked a false alarm.")).to_be_visible()
    expect(number).to_have_text("2 of 4")
    page.keyboard.press("u")
    expect(number).to_have_text("2 of 5")
    page.keyboard.press("r")
    expect(page.get_by_text("is marked right.")).to_be_visible()
    expect(number).to_have_text("2 of 4")
    page.keyboard.press("ArrowRight")
    expect(number).to_have_text("3 of 4")
    page.keyboard.press("k")
    expect(number).to_have_text("2 of 4")
    page.get_by_label("Assigned to").last.focus()
    page.keyboard.press("r")  # chooses in the list of people, decides nothing
    expect(number).to_have_text("2 of 4")
    assert [GateDimensionResult.objects.get(pk=one.pk).mark for one in alarms] == ["", "right", "", ""]


def test_entries_of_a_log_are_read_one_after_the_other_with_keys(
    visit: Callable[..., Visitor], alarms: list[GateDimensionResult], operator: User
) -> None:
    newest, before, *_ = CorrectionLog.objects.order_by("-pk")
    visitor = visit(operator, page_of(newest))
    page = visitor.page
    page.keyboard.press("j")
    page.wait_for_url(f"**{page_of(before)}")
    page.keyboard.press("k")
    page.wait_for_url(f"**{page_of(newest)}")
