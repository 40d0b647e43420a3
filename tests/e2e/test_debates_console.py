"""A debate in the browser: started in the form on a phone, watched while a worker plays it, asked for another round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from agents.debates.debate import work_one
from agents.debates.models import Debate
from agents.kit.models import owner_name
from tests.agents.debates.finished import make_debate, says
from tests.agents.debates.seats import TOPIC, seated
from tests.console import page_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.picking import pick

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_a_mode_is_chosen_with_the_keyboard_or_by_a_click_on_its_card(
    visit: Callable[..., Visitor], operator: User
) -> None:
    visitor = visit(operator, "/admin/debates/debate/add/")
    page = visitor.page
    page.get_by_label("Collaborative", exact=True).focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Adversarial", exact=True)).to_be_checked()
    page.locator(".pl-choice-card", has_text="Nobody knows who said what").click()
    expect(page.get_by_label("Delphi", exact=True)).to_be_checked()
    for scheme in ("light", "dark"):
        visitor.dress(scheme)
        assert visitor.faults() == []


def test_a_debate_is_started_and_followed(visit: Callable[..., Visitor], operator: User) -> None:
    seated(3)
    visitor = visit(operator, "/admin/debates/debate/add/", width=390, scheme="dark")
    page = visitor.page
    assert visitor.faults() == []
    page.get_by_label("Question").fill(TOPIC)
    page.get_by_label("Delphi", exact=True).check()
    for name in ("Cleo", "Ada", "Bob"):
        pick(page, name)
    page.locator("li", has_text="Cleo").locator(".select2-selection__choice__remove").click()  # Cleo shall speak last
    pick(page, "Cleo")
    assert visitor.faults() == []
    page.get_by_role("button", name="Start with one round").click()
    expect(page.get_by_text("It waits for a worker")).to_be_visible()
    assert list(Debate.objects.get().seats.values_list("agent__slug", flat=True)) == ["ada", "bob", "cleo"]
    assert visitor.fits

    assert work_one(owner=owner_name())
    expect(page.get_by_text("waits for its next round")).to_be_visible()  # without a reload
    expect(page.get_by_role("columnheader", name="Round 1")).to_be_visible()
    assert visitor.fits
    page.get_by_label("What you say to the seats").fill("What would it cost?")
    page.get_by_role("button", name="Say it").click()
    expect(page.get_by_text("operator said since: What would it cost?")).to_be_visible()
    page.get_by_role("button", name="Play to the end").click()
    expect(page.get_by_text("All rounds that are left are queued.")).to_be_visible()

    assert work_one(owner=owner_name())
    expect(page.get_by_text("Ended by")).to_be_visible()  # it reloads itself
    assert visitor.fits
    for scheme in ("light", "dark"):
        visitor.dress(scheme)
        assert grave_faults(page) == []


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_two_debates_are_read_side_by_side(
    visit: Callable[..., Visitor], operator: User, width: int, scheme: str
) -> None:
    agents = seated(2)
    debate = make_debate([[says(1, "yes"), says(2, "no")]], agents=agents, slug="one")
    make_debate([[says(1, "no"), says(2, "no")]], agents=agents[::-1], slug="two", mode="adversarial")
    visitor = visit(operator, page_of(debate), width=width, scheme=scheme)
    page = visitor.page
    page.get_by_role("link", name="side by side with debate").click()
    expect(page.get_by_role("heading", name="side by side")).to_be_visible()
    expect(page.get_by_text("Seat 2 says no.")).to_have_count(2)
    assert visitor.faults() == []
