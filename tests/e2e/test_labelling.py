"""People label in the browser: five judgements with the keyboard alone, on a desk and on a phone, and without scripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from evaluation.calibration.labels import draw_label_set
from evaluation.calibration.models import LabelSet, ScoreLabel
from tests.console import page_of
from tests.e2e.conftest import PASSWORD, Visitor
from tests.evaluation.calibration.labelled import drawn, judgements
from tests.evaluation.judged import LLM
from tests.factories import make_agent, make_channel, say

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

HOSTILE = "<img src=x onerror=alert(1)>"
LONG = "I counted them. " * 12


@pytest.fixture
def label_set(live_server: LiveServer) -> LabelSet:
    agent, channel = make_agent(), make_channel()
    for text in ("Who took the stapler?", f"Not me {HOSTILE}", LONG):
        say(channel, "Cy", text)
    judgements([1, 4, 8, 2, 6], agent=agent)
    return draw_label_set(name="first", judge=LLM, dimension="adherence", n=5)


def test_five_judgements_are_labelled_with_the_keyboard(
    visit: Callable[..., Visitor], label_set: LabelSet, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page, order = visitor.page, drawn(label_set)
    visitor.enter(operator)
    visitor.open(page_of(label_set, "label"))
    expect(page.get_by_text("0 of 5")).to_be_visible()
    expect(page.locator(".pl-claim")).to_have_text("Ada is dry")
    assert "The judge weighed it" not in page.content()
    assert visitor.fits

    page.keyboard.press("2")
    expect(page.get_by_text("1 of 5", exact=True)).to_be_visible()
    expect(page.locator(".pl-revealed")).to_contain_text(f"Judge: {order[0].raw_score}")
    page.keyboard.press("u")
    expect(page.get_by_text("0 of 5")).to_be_visible()
    expect(page.locator("input[name=item]").last).to_have_value(str(order[0].pk))
    page.keyboard.press("3")
    expect(page.locator(".pl-revealed")).to_contain_text("not blind")
    page.keyboard.press("s")
    expect(page.locator("input[name=item]").last).to_have_value(str(order[2].pk))
    note = page.get_by_label("Note")
    note.fill("7 words")
    note.press("5")  # typed, not given
    note.press("Tab")
    page.locator(".pl-claim").click()
    page.keyboard.press("9")
    expect(page.get_by_text("2 of 5", exact=True)).to_be_visible()
    page.keyboard.press("4")
    expect(page.get_by_text("3 of 5", exact=True)).to_be_visible()
    page.keyboard.press("6")
    expect(page.get_by_text("4 of 5", exact=True)).to_be_visible()
    page.keyboard.press("c")
    expect(page.get_by_text("All 5 labelled. Thank you.")).to_be_visible()
    assert visitor.fits

    labels = {label.evaluation_score_id: label for label in ScoreLabel.objects.all()}
    assert [labels[score.pk].value for score in order] == [3, None, 9, 4, 6]
    assert labels[order[2].pk].note == "7 words5"
    assert [labels[score.pk].blind for score in order] == [False, True, True, True, True], (
        "the first was undone and seen"
    )
    assert {label.annotator for label in labels.values()} == {"operator"}


def test_labels_are_given_without_scripts(
    chromium: Browser, live_server: LiveServer, label_set: LabelSet, operator: User
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(live_server.url + "/admin/")
    page.get_by_label("Username").fill(operator.get_username())
    page.locator("[name=password]").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.goto(live_server.url + page_of(label_set, "label"))
    page.get_by_role("button", name="7: mostly true").click()
    expect(page.get_by_text("1 of 5", exact=True)).to_be_attached()
    context.close()

    assert ScoreLabel.objects.values_list("value", flat=True).get() == 7
