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

LATE_FRAMES = """
const nextFrame = window.requestAnimationFrame;
window.requestAnimationFrame = draw => setTimeout(() => nextFrame(draw), 300);
"""  # as of a machine with much to do


def test_ctrl_k_a_name_and_enter_lead_to_the_agent_however_fast_one_types(visit: Callable[..., Visitor]) -> None:
    agent = make_agent("pam", display_name="Pamela Beesly")
    visitor = visit(superuser(), "/admin/", scheme="dark")
    page = visitor.page
    page.add_init_script(LATE_FRAMES)
    page.reload()
    page.get_by_role("button", name="Search").click()
    expect(page.locator("#search-input-command")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#search-input-command")).to_be_hidden()

    page.keyboard.press("Control+k")
    page.keyboard.type("pamel")
    expect(page.locator("#command-results-list")).to_contain_text("Pamela Beesly")
    page.keyboard.press("ArrowDown")
    assert grave_faults(page) == []
    page.keyboard.press("Enter")

    page.wait_for_url(f"**/admin/agents/agent/{agent.pk}/change/")
    assert visitor.problems == []
