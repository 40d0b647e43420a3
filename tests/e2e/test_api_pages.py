"""People read what the API takes and try it, on a phone, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from agents.models import Agent
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
