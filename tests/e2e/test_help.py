"""Help as people find it: from a list to its page, to a word of the glossary, to a document; and a bulk action that asks first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from agents.models import Agent
from tests.console import list_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_help_is_found_from_a_list_and_leads_on(visit: Callable[..., Visitor], operator: User) -> None:
    visitor = visit(operator, list_of(Agent), width=390, scheme="dark")
    page = visitor.page
    page.get_by_role("link", name="What is this?").click()
    expect(page.get_by_role("heading", name="Where rows come from")).to_be_visible()
    sound(visitor)
    page.get_by_role("link", name="strength").click()
    expect(page.locator("#trait-strength")).to_be_in_viewport()
    sound(visitor)
    visitor.open(reverse("admin:settings"))
    expect(page.get_by_role("heading", name="Models")).to_be_visible()
    sound(visitor)
    visitor.open(reverse("admin:document", args=["explanation/scores"]))
    page.get_by_role("link", name="passport").first.click()
    expect(page.get_by_role("heading", name="Calibrate a judge").first).to_be_visible()
    assert visitor.fits


def sound(visitor: Visitor) -> None:
    assert grave_faults(visitor.page) == []
    assert visitor.fits
