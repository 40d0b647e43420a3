"""Saving a view of a list and coming back to it, in real Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.console import superuser
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("width", [1440, 390])
def test_a_search_is_saved_opened_again_and_deleted(visit: Callable[..., Visitor], width: int) -> None:
    make_agent("pam", display_name="Pamela Beesly")
    make_agent("jim", display_name="Jim Halpert")
    visitor = visit(superuser(), "/admin/agents/agent/?q=pam", scheme="dark")
    page = visitor.page
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_text("Save this view").click()
    assert visitor.faults() == []
    page.get_by_label("Name", exact=True).fill("Reception")
    page.get_by_label("shared with everyone").check()
    page.get_by_role("button", name="Save").click()

    page.goto(f"{visitor.home}/admin/agents/agent/")
    page.get_by_role("link", name="Reception").click()
    expect(page.get_by_text("Pamela Beesly").first).to_be_visible()
    expect(page.get_by_text("Jim Halpert")).to_have_count(0)
    page.get_by_text("Change this view").click()
    assert visitor.faults() == []
    page.get_by_role("button", name="Delete this view").click()

    expect(page.get_by_text("is deleted")).to_be_visible()
    expect(page.get_by_role("link", name="Reception")).to_have_count(0)
    assert visitor.problems == []
