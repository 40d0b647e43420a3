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
from correction.admin.matrix import gate_url
from correction.config.configure import configure
from evaluation.change.models import DriftAlert
from evaluation.change.stored import store_ended
from tests.console import page_of, tab_of
from tests.correction.judged_drafts import make_log
from tests.correction.ledger import call
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor
from tests.e2e.test_console import HOSTILE
from tests.evaluation.change.measured import scored
from tests.evaluation.judged import LLM, make_baseline, make_score
from tests.factories import make_agent, talk

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

CONTRAST = """
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgb = color => {
        canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
        return canvas.getImageData(0, 0, 1, 1).data;
    };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const under = light(rgb(getComputedStyle(document.getElementById("main")).backgroundColor));
    const contrasts = colours => colours.map(line => {
        const over = light(rgb(line));
        return (Math.max(over, under) + 0.05) / (Math.min(over, under) + 0.05);
    });
"""
OF_SPARKLINES = (
    "() => {"
    + CONTRAST
    + """
    return contrasts([
        ...[...document.querySelectorAll(".pl-spark polyline")].map(line => getComputedStyle(line).stroke),
        ...[...document.querySelectorAll(".pl-spark text")].map(text => getComputedStyle(text).fill)]);
}"""
)
OF_CHARTS = (
    "() => {"
    + CONTRAST
    + """
    return contrasts(Object.values(Chart.instances).flatMap(chart =>
        [...chart.getSortedVisibleDatasetMetas().map(({dataset}) => dataset.options.borderColor),
         ...chart.data.markers.map(({colour}) => getComputedStyle(document.documentElement).getPropertyValue(colour))]));
}"""
)


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


def test_an_operator_sees_who_fell_what_the_night_cost_and_opens_both(
    visit: Callable[..., Visitor], morning: Agent, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.sign_in(operator)

    now = page.locator("#drift")
    expect(now).to_have_attribute("data-drifted", "1")
    row = now.get_by_role("listitem")
    expect(row).to_contain_text("8.0 → 3.0")
    expect(row.get_by_role("img")).to_be_visible()
    expect(page.locator(".pl-card", has_text="Spend today")).to_contain_text("$0.2000 of $0.5000 in 1 budget")
    expect(page.locator(".pl-card", has_text="Judge")).to_contain_text("Passport")
    expect(page.locator(".pl-setup")).to_contain_text("manage.py work")
    assert visitor.fits
    contrasts = page.evaluate(OF_SPARKLINES)
    assert len(contrasts) == 3
    assert [round(ratio, 2) for ratio in contrasts if ratio < 4.5] == []
    assert grave_faults(page) == []

    row.get_by_role("link", name="Set the gate").click()
    page.wait_for_url(f"**{gate_url(morning)}")
    page.go_back()
    row.get_by_role("link", name="Read").click()
    page.wait_for_url(f"**{page_of(morning)}#change")
    expect(page.locator("#change")).to_be_in_viewport()


DRAWN = "window.Chart && Chart.getChart(document.querySelector('#drift canvas'))?.scales.x !== undefined"
AXIS = "Chart.getChart(document.querySelector('#drift canvas')).data.axis.map((at) => at / 86400)"


def test_a_stretch_of_time_is_chosen_by_button_keyboard_or_dragging(
    visit: Callable[..., Visitor], morning: Agent, operator: User
) -> None:
    visitor = visit(width=1440)
    page = visitor.page
    visitor.sign_in(operator)
    url = f"{tab_of(morning, 'history')}#drift"
    visitor.open(url)
    page.wait_for_function(DRAWN)
    contrasts = page.evaluate(OF_CHARTS)
    assert len(contrasts) >= 2
    assert [round(ratio, 2) for ratio in contrasts if ratio < 4.5] == []
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
    assert page.url.endswith(url), "dragging opens nothing"
