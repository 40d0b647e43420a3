"""Lists over many rows: what is counted, what is searched once, and what is never done to all of them."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from agents.admin import conversations, personas
from agents.kit.console import paging
from agents.kit.console.paging import BoundedPaginator
from agents.models import Agent, Channel, Message
from tests.console import list_of, plain, read
from tests.factories import make_agent, make_channel, say, talk

pytestmark = pytest.mark.django_db


def make_agents(n: int) -> None:
    Agent.objects.bulk_create(Agent(slug=f"agent-{i:03}", display_name=f"Agent {i:03}") for i in range(n))


def test_no_more_rows_are_counted_than_anybody_turns_pages(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MOST_COUNTED", 100)
    make_agents(100)
    assert "100 agents" in plain(read(root, list_of(Agent)))

    Agent.objects.create(slug="one-more", display_name="One more")

    assert "the first 100 agents of more: search or filter to find others" in plain(read(root, list_of(Agent)))


def test_pages_of_a_search_are_in_order_and_complete(root: Client) -> None:
    make_agents(120)

    found = [read(root, list_of(Agent, f"?q=agent&p={page}")) for page in (1, 2, 3)]

    for number in range(120):
        assert [f"Agent {number:03}" in page for page in found].count(True) == 1
        assert f"Agent {number:03}" in found[number // 50]


@pytest.mark.parametrize("is_log", [False, True])
def test_an_address_that_asks_for_all_rows_gets_no_more_than_a_page_of_many(root: Client, is_log: bool) -> None:
    agents = 201
    make_agents(agents)
    model: type[Agent | Message] = Agent
    if is_log:
        model = Message
        talk(Agent.objects.earliest("pk"), ["Noted."] * agents)

    html = read(root, list_of(model, "?all="))

    assert 0 < html.count('name="_selected_action"') + html.count("Noted.") <= 100


def test_few_matches_are_not_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_agents(20)
    pages = BoundedPaginator(Agent.objects.filter(display_name__contains="1").order_by("slug"), 5)

    assert [agent.slug for agent in pages.page(1)] == ["agent-001", "agent-010", "agent-011", "agent-012", "agent-013"]
    monkeypatch.setattr(paging, "MOST_KEPT_KEYS", 2)
    again = BoundedPaginator(Agent.objects.filter(display_name__contains="1").order_by("slug"), 5)
    assert list(again.page(1)) == list(pages.page(1))
    assert again.count == pages.count == 11


def test_an_action_on_all_of_too_many_does_nothing_and_says_so(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "MOST_COUNTED", 2)
    make_agents(3)
    chosen = {"action": "capture_baseline", "select_across": "1", "_selected_action": [Agent.objects.earliest("pk").pk]}

    answer = root.post(list_of(Agent), chosen, follow=True)

    assert "Nothing was done: that would be more than" in plain(answer.content.decode())
    assert not Agent.objects.filter(evaluation_runs__isnull=False).exists()


def test_a_search_looks_at_the_newest_messages_and_with_filter_at_all(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST_SEARCHED", 2)
    channel, ada = make_channel(), make_agent("ada")
    said = [say(channel, ada, f"raccoon {n}") for n in range(4)]

    newest = read(root, list_of(Message, "?q=raccoon"))
    all_of_ada = read(root, list_of(Message, f"?q=raccoon&agent__id__exact={ada.pk}"))

    assert [message.text in newest for message in said] == [False, False, True, True]
    assert "the newest 2 messages" in newest
    assert all(message.text in all_of_ada for message in said)


def test_lists_of_agents_and_channels_count_messages_no_further_than_needed(
    root: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "MOST_MESSAGES", 2)
    monkeypatch.setattr(personas, "MOST_MESSAGES", 2)
    channel, ada, bob = make_channel(), make_agent("ada"), make_agent("bob")
    for author in (ada, ada, ada, bob, bob):
        say(channel, author, "Noted.")

    counts = {
        model: re.findall(r'class="field-message_count[^"]*"[^>]*>\s*([\d,+]+)', read(root, list_of(model)))
        for model in (Agent, Channel)
    }

    assert counts == {Agent: ["2+", "2"], Channel: ["2+"]}
