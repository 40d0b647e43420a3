"""People browse the API and try it, on a desk and on a phone; nothing on the pages comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from agents.models import Agent
from correction.config.settings import resolve_config
from evaluation.models import EvaluationRun
from tests.e2e.conftest import Visitor
from tests.factories import make_agent, talk

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def michael(operator: User) -> Agent:
    agent = make_agent("michael")
    talk(agent, ["Good morning, Scranton!", "That is what she said."])
    return agent


def test_an_evaluation_is_asked_for_with_the_form_and_found_by_its_link(
    visit: Callable[..., Visitor], operator: User, michael: Agent
) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open("/api/")
    page.locator("pre a", has_text="/api/evaluations/").first.click()
    expect(page.get_by_role("heading", name="Evaluations List")).to_be_in_viewport()

    page.get_by_role("button", name="POST").click()

    expect(page.get_by_text("HTTP 202 Accepted")).to_be_visible()
    run = EvaluationRun.objects.get()
    page.locator("pre a", has_text=f"/api/evaluations/{run.pk}/").first.click()
    expect(page.get_by_role("heading", name="Evaluations Instance")).to_be_in_viewport()
    assert visitor.fits


def test_a_configuration_is_changed_with_the_form(
    visit: Callable[..., Visitor], operator: User, michael: Agent
) -> None:
    visitor = visit()
    visitor.enter(operator)
    visitor.open("/api/evaluations/config/michael/")

    visitor.page.get_by_role("button", name="PATCH").click()

    expect(visitor.page.get_by_text("HTTP 200 OK")).to_be_visible()
    visitor.page.wait_for_function("document.body.innerText.includes('\"gate_adherence_enabled\": true')")
    assert resolve_config(michael)["gate_adherence_enabled"] is True


def test_the_docs_describe_the_routes_and_try_them(
    visit: Callable[..., Visitor], operator: User, michael: Agent
) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open("/api/docs/")

    page.locator("#operations-tag-agents").click(timeout=60_000)  # the schema is made on first use
    page.locator("#operations-agents-get_agents .opblock-summary-control").click()
    page.get_by_role("button", name="Execute").click()

    expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    expect(page.locator(".live-responses-table")).to_contain_text('"slug": "michael"')
    assert visitor.fits
