"""Channels over the API: listed, made, changed with their members, and read."""

from __future__ import annotations

import pytest

from agents.models import Agent, Channel, ChannelMember
from tests.api_client import Program, listed, paged
from tests.console import superuser
from tests.factories import make_channel, say, talk

pytestmark = pytest.mark.django_db

CHANNELS = "/api/channels/"


def test_a_channel_is_made_with_its_members(client: Program, ada: Agent, bob: Agent) -> None:
    body = {
        "slug": "dm-1", "name": "Ada and Bob", "kind": "dm", "topic": "ships", "tags": {"build": "41"},
        "agents": ["bob", "ada", "bob"], "users": ["eve"],
    }  # fmt: skip

    answer = client.post(CHANNELS, body)

    assert answer.status_code == 201
    shown = answer.json()
    assert shown == client.get(answer["Location"]).json() == {**shown, **body, "agents": ["ada", "bob"]}
    assert (shown["last_position"], shown["synthetic"]) == (0, False)


def test_the_list_is_filtered_and_ordered(client: Program, ada: Agent, bob: Agent, office: Channel) -> None:
    annex = make_channel("annex", kind="private", name="Zed")
    Channel.objects.filter(pk=annex.pk).update(topic="Where Toby sits", tags={"build": "41"})
    annex.memberships.create(agent=bob)

    assert listed(client, CHANNELS, "slug") == ["annex", "office"]
    assert listed(client, f"{CHANNELS}?ordering=-created_at", "slug") == ["annex", "office"]
    assert listed(client, f"{CHANNELS}?kind=public", "slug") == ["office"]
    assert listed(client, f"{CHANNELS}?search=toby", "slug") == ["annex"]
    assert listed(client, f"{CHANNELS}?agent=ada", "slug") == ["office"]
    assert listed(client, f"{CHANNELS}?tag=build=41", "slug") == ["annex"]
    assert listed(client, f"{CHANNELS}?tag=build=4", "slug") == []
    assert paged(client, f"{CHANNELS}?page_size=1", "slug") == ["annex", "office"]


def test_a_change_leaves_what_is_not_named(client: Program, ada: Agent, bob: Agent, office: Channel) -> None:
    office.memberships.create(user=superuser("joe"))
    say(office, ada, "one")

    changed = client.patch(f"{CHANNELS}office/", {"topic": "paper", "agents": ["bob"]}).json()

    assert (changed["topic"], changed["name"], changed["agents"], changed["users"]) == (
        "paper",
        "office",
        ["bob"],
        ["joe"],
    )
    assert changed["last_position"] == 1
    assert client.patch(f"{CHANNELS}office/", {"users": []}).json()["users"] == []
    assert ChannelMember.objects.filter(channel=office).count() == 1


def test_a_refused_change_leaves_the_members(client: Program, ada: Agent, office: Channel) -> None:
    assert client.patch(f"{CHANNELS}office/", {"agents": ["nobody"], "topic": "x"}).status_code == 400
    assert client.patch(f"{CHANNELS}office/", {}).status_code == 400
    assert client.patch(f"{CHANNELS}nowhere/", {"topic": "x"}).status_code == 404
    office.refresh_from_db()
    assert (office.topic, office.memberships.count()) == ("", 1)


def test_what_was_said_is_read_from_either_end(client: Program, ada: Agent, office: Channel) -> None:
    talk(ada, ["one", "two", "three", "four", "five"])
    say(make_channel("annex"), ada, "elsewhere")
    url = client.get(f"{CHANNELS}office/").json()["messages_url"]

    assert listed(client, url, "text") == ["five", "four", "three", "two", "one"]
    assert paged(client, f"{url}?ordering=position&page_size=2", "text") == ["one", "two", "three", "four", "five"]
    assert paged(client, f"{url}?page_size=2&search=f", "text") == ["five", "four"]
    assert client.get(f"{url}?ordering=text").status_code == 400
    assert client.get(f"{url}?channel=office").status_code == 400
    assert client.get(f"{CHANNELS}nowhere/messages/").status_code == 404


def test_what_is_said_is_no_change_of_the_channel(client: Program, ada: Agent, office: Channel) -> None:
    etag = client.get(f"{CHANNELS}office/")["ETag"]
    say(office, ada, "Good morning.")

    assert client.patch(f"{CHANNELS}office/", {"topic": "ships"}, headers={"If-Match": etag}).status_code == 200
