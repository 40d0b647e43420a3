"""People read what the API takes and try it, on a phone, too."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from agents.models import Agent
from correction.config.configure import config_history
from correction.config.settings import resolve_config
from tests.e2e.conftest import Visitor
from tests.factories import make_agent, talk

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def michael(operator: User) -> Agent:
    agent = make_agent("michael")
    talk(agent, ["Good morning, Scranton!", "That is what she said."])
    return agent


def test_the_docs_describe_the_routes_and_try_them(
    visit: Callable[..., Visitor], operator: User, michael: Agent
) -> None:
    visitor = visit(operator, "/api/docs/", width=390)
    page = visitor.page

    page.locator("#operations-tag-agents").click(timeout=60_000)  # the schema is made on first use
    page.locator("#operations-agents-get_agents .opblock-summary-control").click()
    page.get_by_role("button", name="Execute").click()

    expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    expect(page.locator(".live-responses-table")).to_contain_text('"slug": "michael"')
    assert visitor.fits


def test_a_threshold_is_changed_by_following_links_and_filling_in_a_form(
    visit: Callable[..., Visitor], operator: User, michael: Agent
) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.sign_in(operator)
    visitor.open("/api/")
    page.get_by_role("link", name="/api/evaluations/config/", exact=False).click()
    page.get_by_role("link", name="/api/evaluations/config/michael/", exact=False).first.click()
    assert visitor.fits

    field = page.locator("#put-object-form [name=gate_adherence_threshold]")
    field.fill("7.5")
    page.locator("#put-object-form [name=reason]").fill("tried")
    page.locator("#put-object-form").get_by_role("button", name="PUT").click()
    expect(page.locator(".response-info")).to_contain_text('"gate_adherence_threshold": 7.5')
    expect(field).to_have_value("7.5")

    page.get_by_role("link", name="Raw data").click()
    page.locator("#put-generic-content-form textarea").fill('{"gate_adherence_threshold": 6.5}')
    page.get_by_role("button", name="PATCH").click()
    expect(page.locator(".response-info")).to_contain_text('"gate_adherence_threshold": 6.5')

    assert [change.reason for change in config_history(michael)[:2]] == ["", "tried"]
    assert resolve_config(michael)["gate_adherence_threshold"] == Decimal("6.5")
