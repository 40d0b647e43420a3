"""Who drifted, why, and what is done about it: the drift overview and an agent's page in real Chromium."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Agent, ChannelMember, Run
from agents.personas.persona import TraitValue, save_persona
from evaluation.models import EvaluationRun
from evaluation.runs.execute import work_one
from tests.console import page_of
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.test_console import HOSTILE
from tests.evaluation.change.measured import flattened
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PATIENCE = 30_000  # milliseconds; the machine may be busy


@pytest.fixture
def ada(live_server: LiveServer) -> Agent:
    """One of two agents, who lost what she was known for; her persona has two versions."""
    agent = make_agent(title=f"Clerk {HOSTILE}", traits=[TraitValue("dry", "Says little.", strength=0.8)])
    agent.system_prompt = "You are Ada, a loud and careful clerk."
    save_persona(agent=agent, traits=[TraitValue("dry", "Says little.", strength=0.0)], note="less dry")
    make_agent("bob")
    flattened(agent)
    ChannelMember.objects.create(channel=agent.messages.latest("pk").channel, agent=agent)
    return agent


def test_an_evaluation_is_estimated_asked_for_and_watched_to_its_end(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    visitor = visit(operator, page_of(ada), width=390)
    page = visitor.page
    page.get_by_role("link", name="Evaluate", exact=True).click()
    expect(page.get_by_text("What it takes")).to_be_visible()
    assert visitor.faults() == []
    page.get_by_label("Messages", exact=True).fill("4")
    page.get_by_role("button", name="Estimate this").click()
    expect(page.get_by_label("Messages", exact=True)).to_have_value("4")
    page.get_by_role("button", name="Evaluate now").click()

    expect(page.locator("[data-live]").get_by_text("pending", exact=True)).to_be_visible()
    assert work_one(owner="test")
    expect(page.get_by_text("completed", exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.locator("[data-live]")).to_have_count(0)
    assert EvaluationRun.objects.filter(agent=ada).latest("pk").samples == 4


def test_a_version_is_restored_a_prompt_read_and_a_turn_asked_for(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    visitor = visit(operator, page_of(ada, "versions"), width=390, scheme="dark")
    page = visitor.page
    expect(page.locator("#v2")).to_contain_text("dry 0.8 → 0")
    assert visitor.faults() == []
    page.locator("#v1").get_by_text("Restore version 1 …").click()
    page.get_by_role("button", name="Restore version 1").click()
    expect(page.locator("#v3")).to_contain_text("restored version 1")

    visitor.open(page_of(ada, "prompt"))
    page.locator("summary", has_text="Persona").click()
    expect(page.get_by_text("You are Ada, a dry and careful clerk.")).to_be_visible()
    assert visitor.faults() == []
    visitor.open(page_of(ada, "turn"))
    assert grave_faults(page) == []
    page.get_by_label("What you ask of this turn").fill("Say hello.")
    page.get_by_role("button", name="Run the turn").click()
    expect(page.locator("[data-live]")).to_contain_text("Say hello.")
    assert Run.objects.get().agent == ada
