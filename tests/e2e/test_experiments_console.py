"""An experiment in the browser: a scenario is chosen among cards, agents are picked, and pairs of conversations are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from evaluation.experiments.models import Experiment
from tests.e2e.conftest import Visitor
from tests.e2e.picking import pick
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
ADD = "/admin/experiments/experiment/add/"


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_an_experiment_is_started_with_a_card_and_picked_agents(
    visit: Callable[..., Visitor], operator: User, width: int, scheme: str
) -> None:
    for slug in ("ada", "bob", "cleo"):
        make_agent(slug, sample_lines=["Well."])
    visitor = visit(operator, ADD, width=width, scheme=scheme)
    page = visitor.page
    page.locator(".pl-choice-card", has_text="Each of the 16 office agents").click()
    for name in ("Cleo", "Ada"):
        pick(page, name)
    page.get_by_role("button", name="Estimate this").click()
    expect(page.get_by_text("4, of 16 turns together")).to_be_visible()
    assert visitor.faults() == []

    page.get_by_role("button", name="Start it").click()
    expect(page.get_by_text("conversations to play")).to_be_visible()
    assert Experiment.objects.get().scenario["cast"] == ["cleo", "ada"]
    assert visitor.faults() == []
