"""Swarms in the browser: what an agent remembers is changed on a phone; the pages of a swarm and of a turn can be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from agents.chat import begin_chat, exchange
from agents.swarm.models import DialogState, SwarmTurn
from agents.swarm.state import Entry, add_quoted, entries, updating
from tests.agents.swarm.speaking import with_swarm
from tests.console import page_of, superuser
from tests.e2e.axe import grave_faults
from tests.e2e.conftest import Visitor

pytestmark = [pytest.mark.e2e, pytest.mark.django_db(transaction=True)]


def test_entries_are_changed_and_pages_of_swarms_can_be_read(visit: Callable[..., Visitor]) -> None:
    ada = with_swarm(sample_lines=["To sum up, I would take the blue one for 40 euros."])
    channel = begin_chat(ada)
    exchange(ada, channel, "I am allergic to peanuts. I want to plan a picnic in Delft.")
    with updating(ada, channel) as state:
        add_quoted(state, "decisions", [Entry(text="picnic", position=1, quote="picnic")], list(channel.messages.all()))
    remembered = DialogState.objects.get(channel=channel)
    visitor = visit(superuser("c"), page_of(remembered), width=390, scheme="dark")
    page = visitor.page
    assert visitor.faults() == []

    page.get_by_label("text of the entry").first.fill("a picnic with a guest who is allergic")
    page.get_by_role("button", name="Change its text").first.click()
    expect(page.get_by_text("Changed; the agent's next turn reads it so.")).to_be_visible()
    page.get_by_role("button", name="Pin", exact=True).first.click()
    expect(page.get_by_role("button", name="Unpin")).to_have_count(2)
    remembered.refresh_from_db()
    [anchor] = entries(remembered, "anchor")
    assert anchor.text == "a picnic with a guest who is allergic"
    assert [entry.pinned for entry in entries(remembered, "facts", "decisions")] == [True, True]

    visitor.open(page_of(ada.swarms.get()))
    assert visitor.fits
    visitor.open(page_of(SwarmTurn.objects.get()))
    for scheme in ("light", "dark"):
        visitor.dress(scheme)
        assert visitor.fits
        assert grave_faults(page) == []
