"""An operator adds a receiver, tests it, hears of an alert under the bell and acknowledges it, on a desk and on a phone."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect
from pytest_django import Settings

from agents.alerts.delivery import work_one
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import raise_alert
from tests.agents.alerts.receiving import listening
from tests.console import HOSTILE, list_of, page_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_an_alert_is_met_under_the_bell_and_acknowledged_with_a_note(
    visit: Callable[..., Visitor], operator: User
) -> None:
    ada = make_agent("ada")
    alert = raise_alert(kind="drift", about="a", title=f"Adherence of {HOSTILE} fell", agent=ada, page=ada)
    visitor = visit(operator, "/admin/", width=390, scheme="dark")
    page = visitor.page
    bell = page.get_by_label("1 alert to acknowledge")
    bell.focus()
    page.keyboard.press("Enter")
    assert visitor.faults() == []
    page.locator(".pl-bell-list").get_by_role("link", name="Adherence of").click()
    expect(page.get_by_role("link", name="the agent", exact=True)).to_have_attribute("href", page_of(ada))
    page.get_by_label("Note for your colleagues").fill("looking at the persona")
    page.get_by_role("button", name="Acknowledge", exact=True).click()
    expect(page.get_by_label("Alerts: none to acknowledge")).to_be_visible()
    expect(page.locator("body")).to_contain_text("looking at the persona")
    assert visitor.faults() == []
    page.get_by_role("button", name="Take the acknowledgement back").click()
    expect(page.get_by_label("1 alert to acknowledge")).to_be_visible()

    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.note) == (None, "")
    visitor.open(list_of(Alert))
    assert visitor.faults() == []


def test_a_receiver_is_added_and_tested(visit: Callable[..., Visitor], operator: User, settings: Settings) -> None:
    settings.WEBHOOK_PRIVATE_HOSTS = ["127.0.0.1"]
    visitor = visit(operator, reverse("admin:alerts_receiver_add"), width=390)
    page = visitor.page
    page.locator("[name=name]").fill("pager")
    page.locator("[name=channel]").select_option("webhook")
    page.locator("[name=address]").fill("https://10.0.0.1/hook")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator("body")).to_contain_text("WEBHOOK_PRIVATE_HOSTS can allow it")
    assert grave_faults(page) == []
    with listening() as hook:
        page.locator("[name=address]").fill(hook.url)
        page.get_by_role("button", name="Save", exact=True).click()
        page.get_by_role("button", name="Send a test alert").click()
        expect(page.locator("body")).to_contain_text("waiting")
        assert work_one(owner="test")
        page.reload()
        expect(page.get_by_role("region", name="Deliveries")).to_contain_text("delivered")
    page.get_by_text("What is sent, and how to verify it").click()
    expect(page.locator("code", has_text=re.compile("^whsec_"))).to_be_visible()
    assert visitor.faults() == []
    for model in (Receiver, Delivery):
        visitor.open(list_of(model))
        assert grave_faults(page) == []
        assert visitor.fits
