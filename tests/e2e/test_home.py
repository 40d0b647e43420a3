"""An operator opens the console in the morning: the first page in real Chromium, on a desk screen and on a phone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Agent
from correction.config.configure import configure
from evaluation.change.models import DriftAlert
from evaluation.change.stored import store_ended
from tests.correction.judged_drafts import make_log
from tests.correction.ledger import call
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.test_console import HOSTILE
from tests.evaluation.change.measured import scored
from tests.evaluation.judged import LLM, make_baseline, make_score
from tests.factories import make_agent, talk

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

CONTRASTS = """
() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgb = color => {
        canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return canvas.getImageData(0, 0, 1, 1).data;
    };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const under = light(rgb(getComputedStyle(document.getElementById("main")).backgroundColor));
    const used = Object.values(Chart.instances).flatMap(chart =>
        [...chart.getSortedVisibleDatasetMetas().map(({dataset}) => dataset.options.borderColor),
         ...chart.data.markers.map(({colour}) => getComputedStyle(document.documentElement).getPropertyValue(colour))]);
    return used.map(line => {
        const over = light(rgb(line));
        return (Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05);
    });
}
"""


@pytest.fixture
def morning(live_server: LiveServer) -> Agent:
    """Nine agents of whom one fell overnight, with what was changed before, what the gate did, and what it cost."""
    for number in range(9):
        agent = make_agent(f"agent-{number}", display_name=f"Agent {number}" if number else f"Ada {HOSTILE}")
        first = scored(agent, 8, days_ago=40)
        make_baseline(agent, first, score=7.5)
        scored(agent, 7, days_ago=6)
        newest = scored(agent, 7 if number else 3, days_ago=1)
        make_log(agent, {"adherence": 7.0}, outcome="passed", score_sum=7)
        if not number:
            ada, fell = agent, newest
            for run, score in ((first, 8), (newest, 3)):
                at = timezone.now() - timedelta(days=40 if run == first else 2)
                for message in talk(ada, [f"Line {n} of {run.pk}." for n in range(6)], sent_at=at):
                    make_score(run, score, message=message)
            store_ended(fell)
    configure(agent=ada, changes={"budget_enabled": True, "daily_budget_usd": "0.5"}, reason="trial")
    call(ada, cost="0.20")
    make_log(ada, {"adherence": 2.0}, outcome="forced_through", attempt=3)
    names = {"dimension": "adherence", "judge": LLM, "procedure": "plumbline"}
    since = timezone.now() - timedelta(days=5)
    DriftAlert.objects.create(agent=ada, evaluation_run=fell, since=since, before=7.5, after=3.0, **names)
    return ada


def test_an_operator_sees_who_fell_and_what_the_night_cost(
    visit: Callable[..., Visitor], morning: Agent, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.sign_in(operator)

    now = page.locator("#drift")
    expect(now.get_by_role("heading")).to_contain_text("Drifting now: 1 of 9 agents")
    expect(now.locator(".pl-who")).to_contain_text("dry 8.0 → 3.0")
    expect(page.locator(".pl-card", has_text="Spend today")).to_contain_text("$0.2000 of $0.5000 in 1 budget")
    expect(page.locator(".pl-setup")).to_contain_text("manage.py work")
    expect(page.locator(".pl-legend li")).to_have_count(5)
    expect(page.locator(".pl-legend li").first).to_contain_text("baseline 7.5")
    assert visitor.fits
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) >= 10
    assert [round(ratio, 2) for ratio in contrasts if ratio < 4.5] == []
    drawn = page.locator(".pl-plot canvas").bounding_box()
    assert drawn is not None
    assert drawn["height"] > 150, "it keeps its height on a phone"
    assert grave_faults(page) == []

    now.locator("summary", has_text="As a table").click()
    expect(now.locator("table")).to_contain_text("3.0")
    assert visitor.fits
    now.locator("summary", has_text="Choose").click()
    page.get_by_role("checkbox", name="Agent 3").check()
    page.get_by_role("button", name="Show", exact=True).click()
    now.locator("summary", has_text="As a table").click()
    expect(now.locator("table th", has_text="Agent 3")).to_be_visible()
    assert "agent=agent-3" in page.url


DRAWN = "window.Chart && Chart.getChart(document.querySelector('#drift canvas'))?.scales.x !== undefined"
AXIS = "Chart.getChart(document.querySelector('#drift canvas')).data.axis.map((at) => at / 86400)"


def test_a_stretch_of_time_is_chosen_by_button_keyboard_or_dragging(
    visit: Callable[..., Visitor], morning: Agent, operator: User
) -> None:
    visitor = visit()
    page = visitor.page
    visitor.sign_in(operator)
    page.wait_for_function(DRAWN)
    whole = page.evaluate(AXIS)
    assert whole[1] - whole[0] == pytest.approx(40, abs=0.1)

    page.get_by_role("button", name="7 d").focus()
    page.keyboard.press("Enter")
    assert page.evaluate(AXIS) == pytest.approx([whole[1] - 7, whole[1]])
    expect(page.get_by_role("button", name="7 d")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="All").click()
    assert page.evaluate(AXIS) == pytest.approx(whole)

    canvas = page.locator("#drift canvas").first
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()
    low, high = page.evaluate(AXIS)
    assert high - low == pytest.approx(10, abs=1)
    assert page.url.endswith("/admin/"), "dragging opens nothing"
