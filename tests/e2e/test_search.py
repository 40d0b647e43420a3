"""The search of the console by keyboard, in real Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console import superuser
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ctrl_k_a_name_and_enter_lead_to_the_agent(visit: Callable[..., Visitor], scheme: str) -> None:
    agent = make_agent("pam", display_name="Pamela Beesly")
    visitor = visit(scheme=scheme)
    visitor.enter(superuser())
    visitor.open("/admin/")
    page = visitor.page
    expect(page.get_by_role("button", name="Search")).to_be_visible()

    page.keyboard.press("Control+k")
    page.locator("#search-input-command").press_sequentially("pamel")
    expect(page.locator("#command-results-list")).to_contain_text("Pamela Beesly")
    page.keyboard.press("ArrowDown")
    assert grave_faults(page) == []
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/admin/agents/agent/{agent.pk}/change/")
    assert visitor.problems == []


def test_the_field_of_the_sidebar_opens_it_and_escape_closes_it(visit: Callable[..., Visitor]) -> None:
    visitor = visit()
    visitor.enter(superuser())
    visitor.open("/admin/")

    visitor.page.get_by_role("button", name="Search").click()
    expect(visitor.page.locator("#search-input-command")).to_be_focused()
    visitor.page.keyboard.press("Escape")

    expect(visitor.page.locator("#search-input-command")).to_be_hidden()
    assert visitor.problems == []
