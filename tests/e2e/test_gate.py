"""The gate of an agent in the browser: its messages are judged, a threshold is chosen, a sentence is checked."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from correction.config.settings import resolve_config
from correction.gate.observe import work_one
from correction.models import CorrectionLog
from tests.console import page_of
from tests.correction.gating import by_text
from tests.e2e.conftest import Visitor
from tests.factories import speaking
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PATIENCE = 30_000  # milliseconds; the machine may be busy
SAID = ["Noted.", "Filed it.", "Hooray, what a wonderful day it is for all of us!", "Noted."]


def test_a_product_owner_has_messages_judged_and_chooses_a_threshold(
    visit: Callable[..., Visitor], operator: User, llm_server: LLMServer
) -> None:
    ada = speaking("ada", SAID)
    llm_server.respond = by_text(Hooray=4, Noted=7, Filed=8)
    visitor = visit(operator, page_of(ada), width=390, scheme="dark")
    page = visitor.page

    page.locator(".pl-toolbar").get_by_role("link", name="Set the gate").click()
    expect(page.get_by_text("None of the last 4 messages is scored")).to_be_visible()
    page.get_by_role("button", name="Judge the 4 not judged").click()
    expect(page.get_by_role("status")).to_contain_text("4 of them wait to be judged")
    assert visitor.fits
    while work_one(owner="w"):
        pass
    card = page.locator("#threshold-adherence")
    expect(card).to_contain_text("1 of 4 (25 %) scored messages would have been sent back", timeout=PATIENCE)
    card.get_by_label("Lowest score that passes").fill("7.5")
    expect(card).to_contain_text("3 of 4 (75 %)")
    card.get_by_label("Lowest score that passes").fill("6")
    page.get_by_role("radio", name="Observe").check()
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_text("Messages are sent at once and judged for")).to_be_visible()
    config = resolve_config(ada)
    assert (config.gate_mode, config.gate_dimensions, config.threshold("adherence")) == (
        "observe",
        ("adherence",),
        Decimal(6),
    )
    assert visitor.faults() == []


def test_a_sentence_is_checked_from_the_agent_s_page(
    visit: Callable[..., Visitor], operator: User, llm_server: LLMServer
) -> None:
    ada = speaking("ada", SAID)
    llm_server.respond = by_text(Hooray=2)
    visitor = visit(operator, page_of(ada), width=390)
    page = visitor.page
    page.get_by_role("link", name="Check", exact=True).click()
    page.get_by_label("What Ada would say").fill("Hooray <b>all</b>!")
    page.get_by_role("button", name="Check", exact=True).click()

    said = page.locator("#check").get_by_role("status")
    expect(said).to_contain_text("sent back")
    expect(said).to_contain_text("Your draft was sent back")
    expect(said).to_contain_text("Hooray <b>all</b>!")
    assert visitor.faults() == []
    page.get_by_role("link", name="Its log entry").click()
    expect(page.get_by_text("external").first).to_be_visible()
    assert CorrectionLog.objects.get().session.source == "external"
