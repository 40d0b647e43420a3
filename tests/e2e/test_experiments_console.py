"""An experiment in the browser: a scenario is chosen among cards, agents are picked, and pairs of conversations are read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect

from agents.models import Message
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play
from evaluation.experiments.starting import start_experiment
from tests.console import page_of
from tests.e2e.conftest import Visitor
from tests.e2e.picking import pick
from tests.evaluation.experiments.playing import scenario
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


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_conversations_of_a_pair_are_read_side_by_side(
    visit: Callable[..., Visitor], operator: User, width: int, scheme: str
) -> None:
    population = {"size": 4, "about": "people of one street"}
    experiment = play(start_experiment(scenario(population=population)))
    Message.objects.filter(channel__tags__arm="gated", position=2).update(text="Something else.")
    visitor = visit(operator, page_of(experiment), width=width, scheme=scheme)
    page = visitor.page
    page.get_by_role("link", name="Pair 1, side by side").click()
    expect(page.get_by_role("heading", name="Pair 1 of 2")).to_be_visible()
    assert visitor.faults() == []
    texts = page.locator(".pl-beside:not(.pl-beside-same, .pl-beside-heads)").first.locator("> section")
    left, right = (texts.nth(number).bounding_box() for number in (0, 1))
    assert left
    assert right
    are_beside_each_other = right["x"] > left["x"]
    assert are_beside_each_other == (width > 800)

    page.keyboard.press("j")
    expect(page.get_by_role("heading", name="Pair 2 of 2")).to_be_visible()
    page.get_by_label("Go to pair").fill("1")
    page.get_by_role("button", name="Go", exact=True).click()
    expect(page.get_by_role("heading", name="Pair 1 of 2")).to_be_visible()
