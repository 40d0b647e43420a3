"""Pages that show what happens elsewhere while they are open, under the shipped security policy."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import expect

from agents.models import Run, RunStep
from tests.console import page_of
from tests.e2e.conftest import Visitor
from tests.factories import make_agent, make_channel, say

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]
PATIENCE = 30_000  # milliseconds; the machine may be busy


def test_a_conversation_goes_on_before_one_s_eyes(visit: Callable[..., Visitor], operator: User) -> None:
    channel = make_channel()
    say(channel, "Zoe", "Good morning.")
    visitor = visit(operator, reverse("admin:agents_channel_transcript", args=[channel.pk]))
    expect(visitor.page.get_by_text("Good morning.")).to_be_visible()

    say(channel, "Zoe", "<b>Is anybody here?</b>")
    expect(visitor.page.get_by_text("<b>Is anybody here?</b>")).to_be_visible(timeout=PATIENCE)
    say(channel, "Bob", "I am.")
    expect(visitor.page.get_by_text("I am.")).to_be_visible(timeout=PATIENCE)
    expect(visitor.page.locator(".pl-message")).to_have_count(3)


def test_a_turn_s_page_shows_each_step_as_it_is_done(visit: Callable[..., Visitor], operator: User) -> None:
    run = Run.objects.create(agent=make_agent(), channel=make_channel(), status="running")
    visitor = visit(operator, page_of(run))
    live = visitor.page.locator("[data-live]")
    expect(live.get_by_text("No step was taken")).to_be_visible()

    RunStep.objects.create(run=run, number=1, kind="tool_call", detail={"tool": "send_message", "committed": True})
    expect(live.get_by_text("send_message")).to_be_visible(timeout=PATIENCE)
    Run.objects.filter(pk=run.pk).update(status="completed", stop_reason="end_turn")
    expect(visitor.page.get_by_text("completed", exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(live).to_have_count(0)
