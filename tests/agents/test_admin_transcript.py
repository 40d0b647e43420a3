"""A channel's page reads as a conversation, however long it is."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.admin import transcript
from agents.admin.transcript import PAGE_SIZE, transcript_page
from agents.models import Channel, Message, Reaction
from tests.console import page_of, plain, queries, read, signed_in, superuser
from tests.factories import MONDAY, make_agent, make_channel, say

pytestmark = pytest.mark.django_db


@pytest.fixture
def console() -> Client:
    return signed_in(superuser())


def long_channel(messages: int, *, step: int = 1) -> Channel:
    """A channel whose messages stand at every `step`-th position from `step` on."""
    channel, agent = make_channel("long"), make_agent("long")
    positions = range(step, messages * step + 1, step)
    Message.objects.bulk_create(
        [Message(channel=channel, position=p, agent=agent, text=f"number {p}") for p in positions]
    )
    return channel


def shown(html: str) -> list[int]:
    return [int(position) for position in re.findall(r'<li id="m(\d+)"', html)]


def test_everybody_is_shown_as_who_they_are(console: Client) -> None:
    channel, ada = make_channel(), make_agent(avatar_color="#112233")
    say(channel, ada, "I am an agent.", sent_at=MONDAY, tags={"build": "41"})
    say(channel, "Visitor", "I am not known here.")
    person = User.objects.create_user("grace", first_name="Grace", last_name="Hopper")
    Message.objects.create(channel=channel, position=3, user=person, text="I am a person.", synthetic=True)
    html = read(console, page_of(channel, "transcript"))

    assert page_of(ada) in html
    assert "background:#112233;color:#ffffff" in html
    assert 'datetime="2026-11-02T09:00:00+00:00"' in html
    assert "build=41" in html
    assert re.search(r"Visitor.*?outsider.*?I am not known here", html, flags=re.S)
    assert re.search(r"Grace Hopper.*?user.*?synthetic.*?I am a person", html, flags=re.S)


def test_a_reply_to_a_message_of_another_page_links_to_it() -> None:
    channel = long_channel(PAGE_SIZE + 5)
    first = Message.objects.get(position=1)
    say_late = Message.objects.create(channel=channel, position=PAGE_SIZE + 6, outsider="B", text="Late.", parent=first)
    line = transcript_page(channel=channel).lines[-1]

    assert (line["message"], line["depth"]) == (say_late, 1)
    assert (line["reply_to"], line["reply_to"].position) == (first, 1)


def test_pages_show_each_message_once_and_lead_to_each_other(console: Client) -> None:
    step = 7
    channel = long_channel(2 * PAGE_SIZE + 50, step=step)
    url = page_of(channel, "transcript")
    seen: list[int] = []
    html = read(console, url)
    assert shown(html)[-1] == (2 * PAGE_SIZE + 50) * step
    while True:
        seen = shown(html) + seen
        older = re.search(r'href="(\?before=\d+)"', html)
        if older is None:
            break
        html = read(console, url + older.group(1))

    everything = list(range(step, (2 * PAGE_SIZE + 50) * step + 1, step))
    assert seen == everything
    html = read(console, f"{url}?after=0")
    seen = shown(html)
    while newer := re.search(r'href="(\?after=[1-9]\d*)"', html):
        html = read(console, url + newer.group(1))
        seen += shown(html)
    assert seen == everything
    assert f"{2 * PAGE_SIZE + 50} messages" in html


def test_the_number_of_queries_does_not_depend_on_the_length(console: Client) -> None:
    channel = long_channel(3)
    url = page_of(channel, "transcript")
    Reaction.objects.create(message=channel.messages.all()[0], agent=make_agent("fan"), emoji="+1")
    few = queries(console, url)
    agents = [make_agent(f"a{n}") for n in range(4)]
    for n in range(20):
        parent = Message.objects.get(channel=channel, position=n + 1)
        message = Message.objects.create(channel=channel, position=4 + n, agent=agents[n % 4], text="x", parent=parent)
        Reaction.objects.create(message=message, agent=agents[0], emoji="+1")

    assert len(queries(console, url)) == len(few)


def test_a_long_channel_is_counted_no_further_than_anybody_reads(
    console: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "MOST_COUNTED", 3)
    channel = make_channel()
    for number in range(3):
        say(channel, "A", f"{number}.")
    assert "3 messages" in plain(read(console, page_of(channel, "transcript")))
    say(channel, "A", "One more.")

    assert "more than 3 messages" in plain(read(console, page_of(channel, "transcript")))
