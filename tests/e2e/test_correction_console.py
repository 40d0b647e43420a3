"""An operator tunes corrections in the browser: a switch, and a threshold in a dialog, by mouse and keyboard."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Agent
from correction.config.configure import config_history
from correction.config.settings import resolve_config
from correction.models import AgentEvaluationConfig
from tests.console import list_of
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

MATRIX = list_of(AgentEvaluationConfig)


@pytest.fixture
def ada(live_server: LiveServer) -> Agent:
    return make_agent()


def test_a_switch_is_flipped_and_taken_back_in_the_matrix(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.sign_in(operator)
    visitor.open(list_of(AgentEvaluationConfig))
    switch = page.get_by_role("switch", name="adherence of Ada")
    cell = page.locator(f"#cell-{ada.pk}-adherence")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(cell).to_contain_text("built-in")
    assert visitor.fits

    switch.click()
    expect(switch).to_have_attribute("aria-checked", "true")
    expect(cell).to_contain_text("partly own")
    expect(page.locator(f"#cell-{ada.pk}-gate")).to_contain_text("enforce")
    assert resolve_config(ada)["gate_adherence_enabled"] is True
    assert config_history(ada)[0].user == "operator"

    page.get_by_role("button", name="adherence of Ada: inherit again").click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(cell).to_contain_text("built-in")
    assert resolve_config(ada).provenance["gate_adherence_enabled"] == "built-in"


def test_a_threshold_is_changed_in_the_cell(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    visitor = visit(operator, MATRIX, width=390)
    page = visitor.page
    page.get_by_role("link", name="adherence of Ada: settings").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    dialog.get_by_label("adherence threshold").fill("7")
    assert not AgentEvaluationConfig.objects.exists()
    dialog.get_by_label("on", exact=True).first.check()
    dialog.get_by_label("Why").fill("too loud")
    dialog.get_by_role("button", name="Save").click()

    expect(page.locator(f"#cell-{ada.pk}-adherence")).to_contain_text("≥ 7")
    assert resolve_config(ada)["gate_adherence_threshold"] == Decimal("7.0")
    assert config_history(ada)[0].reason == "too loud"


def test_the_dialog_is_worked_with_the_keyboard(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    visitor = visit(operator, MATRIX)
    page = visitor.page
    page.get_by_role("switch", name="fluency of Ada").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("switch", name="fluency of Ada")).to_have_attribute("aria-checked", "true")
    page.get_by_role("link", name="fluency of Ada: settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
