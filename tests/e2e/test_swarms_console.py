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


@pytest.mark.parametrize("width", [390, 1440])
def test_a_lane_is_read_and_one_of_its_phases_changed(visit: Callable[..., Visitor], width: int) -> None:
    ada = with_swarm(sample_lines=["To sum up, I would take the blue one for 40 euros."])
    exchange(ada, begin_chat(ada), "I am allergic to peanuts. I want to plan a picnic in Delft.")
    swarm = ada.swarms.get()
    visitor = visit(superuser("c"), page_of(swarm), width=width)
    page = visitor.page
    lane = page.locator(".pl-lane > li")
    first, last = lane.first.bounding_box(), lane.last.bounding_box()
    assert first is not None
    assert last is not None
    assert (first["y"] == last["y"]) == (width == 1440), "side by side where there is room, else one below the other"
    for scheme in ("light", "dark"):
        visitor.dress(scheme)
        assert visitor.fits
        own_faults = [fault for fault in grave_faults(page) if "select2" not in fault]  # Django's field of agents
        assert own_faults == []

    page.get_by_role("link", name="core-responder").click()
    page.get_by_label("Prompt").fill("Answer in rhyme.")
    assert visitor.faults() == []
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("core-responder is saved. It is version 2 now.")).to_be_visible()
    assert swarm.phases.get(name="core-responder").prompt == "Answer in rhyme."

    visitor.open(page_of(SwarmTurn.objects.get()))
    assert visitor.faults() == []


def test_the_dialog_state_stands_beside_a_chat_and_is_folded_on_a_phone(visit: Callable[..., Visitor]) -> None:
    ada = with_swarm(sample_lines=["I would take the blue one."])
    chat = begin_chat(ada)
    for _ in range(4):
        exchange(ada, chat, "I am allergic to peanuts. I want to plan a picnic in Delft.")
    wide = visit(superuser("c"), page_of(chat, "chat"))
    phone = visit(superuser("d"), page_of(chat, "chat"), width=390)

    expect(wide.page.locator("#beside-state h3").first).to_be_in_viewport()
    assert wide.faults() == []
    expect(phone.page.locator("#beside-state h3").first).to_be_hidden()
    phone.page.locator("#beside-state > summary").click()
    expect(phone.page.locator("#beside-state h3").first).to_be_visible()
    assert phone.faults() == []

    with updating(ada, chat) as state:
        add_quoted(state, "decisions", [Entry(text="picnic", position=1, quote="picnic")], list(chat.messages.all()))
    expect(wide.page.locator("#beside-state").get_by_text("decisions")).to_be_visible()
