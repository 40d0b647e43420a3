"""A behaviour request in the browser: found in the queue, read, applied, and taken back."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Agent
from agents.personas.persona import TraitValue
from correction.behavior.models import BehaviorRequest
from tests.console import list_of, page_of
from tests.correction.behavior.proposals import CONCISE, proposed
from tests.e2e.conftest import Visitor
from tests.e2e.test_correction_console import HOSTILE
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
BEFORE = {**CONCISE, "strength": 0.4}


@pytest.fixture
def ada(live_server: LiveServer) -> Agent:
    return make_agent("ada", traits=[TraitValue(**BEFORE), TraitValue("dry wit", "Jokes.", 0.4, 0.6)])


def strengths(agent: Agent) -> dict[str, float]:
    return dict(agent.traits.order_by("name").values_list("name", "strength"))


def test_a_behaviour_request_is_applied_and_reverted_in_the_browser(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    row = proposed(ada, f"Could you keep it shorter? {HOSTILE}", before=BEFORE)
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.sign_in(operator)
    page.get_by_role("link", name="1 behaviour request to decide on").click()
    expect(page.get_by_role("heading", name="concise replies 0.4 → 0.7")).to_be_visible()
    visitor.open(list_of(BehaviorRequest))
    queue = page.locator("#result_list")
    expect(queue).to_contain_text("pending review")
    expect(queue).to_contain_text("concise replies")
    expect(queue).to_contain_text("0.4 → 0.7")
    assert visitor.fits
    queue.get_by_role("link", name=re.compile(f"#{row.pk}$")).click()
    expect(page.get_by_text(f"Could you keep it shorter? {HOSTILE}").first).to_be_visible()
    expect(page.get_by_text("Does it ask for a change?")).to_be_visible()
    assert visitor.fits

    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_text(f"Behaviour request {row.pk} is applied.")).to_be_visible()
    expect(page.get_by_text("persona v1 → v2")).to_be_visible()
    assert strengths(ada) == {"concise replies": 0.7, "dry wit": 0.6}
    assert visitor.fits

    page.get_by_role("button", name="Revert", exact=True).click()
    expect(page.get_by_text("the trait is what it was before", exact=False).first).to_be_visible()
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
    assert strengths(ada) == {"concise replies": 0.4, "dry wit": 0.6}
    assert BehaviorRequest.objects.get().status == "reverted"
    assert visitor.fits


def test_a_page_opened_before_a_request_was_applied_does_not_undo_it(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    row = proposed(ada, before=BEFORE)
    visitor, other = visit(width=390), visit()
    for window in (visitor, other):
        window.enter(operator)
    visitor.open(page_of(ada))
    other.open(page_of(row))
    other.page.get_by_role("button", name="Apply", exact=True).click()
    expect(other.page.get_by_text(f"Behaviour request {row.pk} is applied.")).to_be_visible()

    page = visitor.page
    page.locator("summary", has_text="Name").first.click()
    page.locator("[name=title]").fill("Clerk")
    page.locator("[name=_save]").click()
    expect(page.get_by_text(f"behaviour request {row.pk} by Zoe: concise replies 0.4 → 0.7")).to_be_visible()
    expect(page.locator("[name=title]")).to_have_value("Clerk")
    assert strengths(ada)["concise replies"] == 0.7
    assert visitor.fits

    page.locator("[name=_save]").click()
    page.wait_for_url(f"**{list_of(Agent)}")
    ada.refresh_from_db()
    assert (ada.title, strengths(ada)) == ("Clerk", {"concise replies": 0.7, "dry wit": 0.6})
