"""An operator has the voices of a channel measured, and reads the card, on a desk screen and on a phone, in light and in dark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from agents.kit.models import owner_name
from agents.models import Channel
from evaluation.lineup.measuring import work_one
from tests.console import page_of
from tests.e2e.conftest import Visitor
from tests.evaluation.conversing import DRY, LEARNED, LOUD, converse, in_turn
from tests.factories import make_channel, say

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def trio(live_server: LiveServer) -> Channel:
    channel = converse(make_channel("trio"), in_turn(DRY * 4, LOUD * 4, LEARNED * 4))
    say(channel, "A visitor with quite a long name", "May I come in?")
    return channel


def test_an_operator_has_the_voices_of_a_channel_measured(
    visit: Callable[..., Visitor], trio: Channel, operator: User
) -> None:
    visitor = visit(width=390, scheme="dark")
    page = visitor.page
    visitor.enter(operator)
    visitor.open(page_of(trio))
    card = page.locator("#line-up")
    expect(card).to_contain_text("Not measured yet")

    card.get_by_role("button", name="Measure voices").click()
    page.wait_for_load_state("networkidle")
    expect(card).to_contain_text("being measured")
    expect(card.get_by_role("button", name="Measure voices")).to_have_count(0)
    assert work_one(owner=owner_name())
    say(trio, "A visitor with quite a long name", "Hello?")

    visitor.open(page_of(trio))
    expect(card).to_contain_text("voices can be told apart")
    expect(card).to_contain_text("1 line since then")
    expect(card.locator("tbody").first.locator("tr")).to_have_count(3)
    assert visitor.fits
