"""An operator makes a schedule, sees a score fall and acknowledges the alert, on a desk screen and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationSchedule
from tests.console import list_of, page_of
from tests.e2e.conftest import Visitor
from tests.evaluation.change.drift.scheduling import fallen

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_an_operator_follows_an_alert_to_the_agent(visit: Callable[..., Visitor], operator: User) -> None:
    schedule, agent = fallen()
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)

    visitor.open(list_of(EvaluationSchedule))
    expect(page.locator("#result_list")).to_contain_text("alerts at 0.8 points")
    assert visitor.fits
    visitor.open(page_of(schedule))
    expect(page.locator(".pl-panel", has_text="What it measured")).to_contain_text("completed")
    assert visitor.fits

    visitor.open(list_of(DriftAlert))
    page.locator("#result_list").get_by_role("link", name=re.compile(r"alert \d")).click()
    expect(page.locator(".pl-drift canvas").first).to_be_visible()
    assert visitor.fits
    visitor.open(page_of(agent))
    chart = page.locator(".pl-drift").first
    expect(chart.locator("canvas").first).to_be_visible()
    expect(chart).to_contain_text("adherence fell from")
    assert visitor.fits


def test_a_schedule_is_made_in_the_browser(visit: Callable[..., Visitor], operator: User) -> None:
    visitor = visit()
    page = visitor.page
    visitor.enter(operator)
    visitor.open(reverse("admin:evaluation_evaluationschedule_add"))
    page.locator("[name=name]").fill("nightly")
    page.locator("[name=every]").fill("soon")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("body")).to_contain_text("allowed: minutes, hours, days or weeks")
    page.locator("[name=every]").fill("12h")
    page.get_by_label("Fluency").check()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("#result_list")).to_contain_text("24h every 12h")

    assert EvaluationSchedule.objects.get().dimensions == ["fluency"]
