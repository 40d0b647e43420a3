"""A conversation is read in the browser: a corrected message is opened, compared and marked; a log is narrowed and taken along."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.models import Message
from correction.models import CorrectionLog, GateDimensionResult
from tests.console import list_of, page_of
from tests.correction.judged_drafts import corrected
from tests.e2e.conftest import Visitor
from tests.factories import make_agent

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def message(live_server: LiveServer) -> Message:
    """What Ada said in the end, after a draft that was sent back."""
    return corrected(make_agent(), text=f"Hooray, it is done! {HOSTILE}", said="It is done.", feedback="Drier, please.")


def test_a_corrected_message_is_compared_with_its_draft_and_marked(
    visit: Callable[..., Visitor], message: Message, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)
    visitor.open(page_of(message.channel, "transcript"))
    page.locator(".pl-gate-note").get_by_role("link", name="gate, 2 attempts").click()
    draft = page.locator("#attempt-1")

    expect(draft.locator(".pl-diff del").first).to_contain_text("Hooray")
    expect(draft).to_contain_text(HOSTILE)
    assert visitor.fits
    draft.get_by_role("button", name="False alarm").first.click()
    expect(draft).to_contain_text("Marked false alarm")
    assert GateDimensionResult.objects.get(mark="false_alarm").log.attempt == 1
    draft.get_by_role("button", name="Undo").click()
    expect(draft.get_by_role("button", name="Right").first).to_be_visible()
    assert not GateDimensionResult.objects.exclude(mark="").exists()


def test_the_log_is_narrowed_and_what_is_left_is_taken_along(
    visit: Callable[..., Visitor], message: Message, operator: User
) -> None:
    visitor = visit(width=390)
    page = visitor.page
    visitor.enter(operator)
    visitor.open(list_of(CorrectionLog, "?outcome__exact=corrected&failed=adherence"))
    expect(page.locator("#result_list .field-outcome_mark")).to_have_count(1)
    assert visitor.fits
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    text = Path(started.value.path()).read_text()
    assert started.value.suggested_filename.endswith(".csv")
    assert text.count("corrected") == 1
    assert "Hooray, it is done!" in text

    page.get_by_role("link", name="Remove filter outcome").click()
    expect(page.locator("#result_list .field-outcome_mark")).to_have_count(2)
    page.locator("#result_list a", has_text="attempt 1").click()
    expect(page.locator(".pl-waterfall")).to_contain_text("Attempt 2")
    assert visitor.fits
