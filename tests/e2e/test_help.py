"""Help as people find it: from a list to its page, to a word of the glossary, to a document; and a bulk action that asks first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.console import list_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_help_is_found_from_a_list_and_leads_on(
    visit: Callable[..., Visitor], operator: User, width: int, scheme: str
) -> None:
    visitor = visit(width=width, scheme=scheme)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(list_of(Agent))
    page.get_by_role("link", name="What is this?").click()
    expect(page.get_by_role("heading", name="Where rows come from")).to_be_visible()
    sound(visitor)
    page.get_by_role("link", name="strength").click()
    expect(page.locator("#trait-strength")).to_be_in_viewport()
    sound(visitor)
    visitor.open(reverse("admin:settings"))
    expect(page.get_by_role("heading", name="Models")).to_be_visible()
    sound(visitor)
    visitor.open(reverse("admin:document", args=["measuring"]))
    page.get_by_role("link", name="What it costs").first.click()
    expect(page.get_by_role("heading", name="What it costs")).to_be_in_viewport()
    assert fits(visitor)


def test_capturing_baselines_of_a_list_asks_first(visit: Callable[..., Visitor], operator: User) -> None:
    make_agent("ada")
    visitor = visit()
    visitor.enter(operator)
    visitor.open(list_of(Agent))
    page = visitor.page
    page.locator("input.action-select").first.check()
    page.locator("select[name=action]").select_option("capture_baseline")
    page.locator("button[name=index]").first.click()
    expect(page.get_by_role("heading", name="Capture baseline: 1 agent")).to_be_visible()
    sound(visitor)
    assert not EvaluationRun.objects.exists()
    page.get_by_role("link", name="Leave everything as it is").click()
    page.wait_for_url(f"**{list_of(Agent)}")


def sound(visitor: Visitor) -> None:
    assert grave_faults(visitor.page) == []
    assert fits(visitor)


def fits(visitor: Visitor) -> bool:
    return bool(visitor.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
