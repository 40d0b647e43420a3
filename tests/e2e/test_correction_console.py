"""An operator tunes corrections in the browser: a switch, a threshold tried before it is saved, a false alarm marked."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Agent, Run
from correction.config.configure import config_history
from correction.config.settings import resolve_config
from correction.interventions.models import InterventionLog
from correction.models import AgentEvaluationConfig, CorrectionLog
from tests.console import list_of, page_of
from tests.correction.judged_drafts import OFFLINE, make_log, verdict
from tests.e2e.conftest import Visitor
from tests.evaluation.change.measured import flattened
from tests.factories import make_agent, make_channel, say

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

MATRIX = list_of(AgentEvaluationConfig)
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def ada(live_server: LiveServer) -> Agent:
    """An agent with four judged drafts, the last of which failed and was sent back."""
    agent, channel = make_agent(), make_channel()
    make_agent("bob")
    for score in (8.0, 6.0, 4.0):
        message = say(channel, agent, f"Remark {score} {HOSTILE}")
        make_log(agent, {"adherence": score}, message=message, committed=True, channel=channel, judge=OFFLINE)
    make_log(
        agent, {"adherence": 2.0, "fluency": 8.0}, text=f"Hooray! {HOSTILE}", outcome="corrected", judge=OFFLINE,
        feedback="Drier, please.", result={"reasoning": HOSTILE},
    )  # fmt: skip
    return agent


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


def test_the_defaults_are_changed_after_a_question_and_changed_back(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    before = resolve_config(ada)
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)
    visitor.open(MATRIX)
    switch = page.get_by_role("switch", name="adherence of the defaults")
    switch.click()
    expect(page.get_by_text("2 agents inherit this")).to_be_visible()
    expect(page.get_by_text("Drafts that fail adherence are sent back from now on.")).to_be_visible()
    assert visitor.fits
    assert resolve_config(ada) == before

    page.get_by_role("button", name="Change it for 2 agents").click()
    expect(switch).to_have_attribute("aria-checked", "true")
    expect(page.get_by_text("Drafts that fail adherence are sent back from now on.")).to_be_visible()
    assert visitor.fits
    assert resolve_config(ada).gate_mode == "enforce"

    page.get_by_role("button", name="Undo").click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.get_by_text("no draft is checked from now on")).to_be_visible()
    assert resolve_config(ada) == before


def test_what_fell_is_observed_and_nothing_is_held_back(
    visit: Callable[..., Visitor], ada: Agent, operator: User
) -> None:
    flattened(ada)
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(reverse("admin:evaluation_drift_overview"))
    page.get_by_role("link", name="Observe it at the gate").click()
    expect(page.get_by_role("radio", name="Observe")).to_be_checked()
    assert visitor.fits
    page.get_by_role("button", name="Save").click()

    expect(page.get_by_text("Messages are no longer blocked")).to_be_visible()
    expect(page.locator("#changes").get_by_role("button", name="Undo")).to_be_visible()
    assert visitor.fits
    assert resolve_config(ada).gate_mode == "observe"


def test_a_threshold_is_changed_in_the_cell(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(MATRIX)
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
    visitor = visit()
    page = visitor.page
    visitor.enter(operator)
    visitor.open(MATRIX)
    page.get_by_role("switch", name="fluency of Ada").focus()
    page.keyboard.press("Space")
    expect(page.get_by_role("switch", name="fluency of Ada")).to_have_attribute("aria-checked", "true")
    page.get_by_role("link", name="fluency of Ada: settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_false_alarm_is_marked_and_unmarked(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    failed = CorrectionLog.objects.get(outcome="corrected")
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)
    visitor.open(list_of(CorrectionLog))
    expect(page.locator(".pl-failed")).to_have_count(2)
    assert visitor.fits
    page.locator("#result_list").get_by_role("link", name=re.compile("attempt 1")).first.click()
    expect(page.locator(".pl-timeline")).to_contain_text(HOSTILE)
    assert visitor.fits

    page.get_by_role("button", name="False alarm").click()
    expect(page.locator(".pl-marks")).to_contain_text("Marked false alarm")
    assert verdict(failed).mark == "false_alarm"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="False alarm")).to_be_visible()
    assert verdict(failed).mark == ""


def test_the_other_pages_can_be_read(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    run = Run.objects.create(agent=ada, channel=make_channel("den"), prompt=HOSTILE, trace=[{"stage": "gate", "ms": 1}])
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(page_of(ada))
    page.locator("summary", has_text="Corrections").first.click()
    expect(page.locator("#config")).to_contain_text("anti-convergence")
    page.locator("#config").get_by_role("link", name="Change").click()
    expect(page.locator("#pl-form")).to_contain_text("inherit: off (built-in)")
    assert visitor.fits
    visitor.open(page_of(run))
    page.locator("summary", has_text="Cancel …").click()
    page.get_by_role("button", name="Cancel this turn").click()
    expect(page.get_by_text(f"Turn {run.pk} is cancelled.")).to_be_visible()
    assert visitor.fits
    condition = {"kind": "functional", "text": "silence(at_least=3)", "held": True, "reasoning": f"{HOSTILE} " * 9}
    log = InterventionLog.objects.create(name="quiet", fired=True, agent=ada, preconditions=[condition, condition])
    visitor.open(page_of(log))
    expect(page.locator("td", has_text="silence(at_least=3)").first).to_be_visible()
    assert visitor.fits
    visitor.open("/admin/interventions/intervention/add/")
    expect(page.get_by_text("Functions and their parameters")).to_be_visible()
    assert visitor.fits


def test_the_log_is_narrowed_to_a_range_of_days(visit: Callable[..., Visitor], ada: Agent, operator: User) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(list_of(CorrectionLog))
    page.locator("a", has_text="Filters").first.click()
    page.locator("[name=created_at_to]").fill("2020-01-01")
    page.get_by_role("button", name="Apply Filters").click()

    expect(page.locator("#result_list tbody")).to_have_count(0)
