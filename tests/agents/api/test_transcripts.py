"""Conversations go in and out of the API as files."""

from __future__ import annotations

import json

import pytest

from agents.models import Agent, Channel, Message
from tests.api_client import Program
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db
URL = "/api/transcripts/"


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def desk(ada: Agent) -> Channel:
    channel = make_channel("desk")
    channel.memberships.create(agent=ada)
    say(channel, "Customer", "Is anybody there?", tags={"build": "40"})
    say(channel, ada, "Yes, \u2028 me.", tags={"build": "41"})
    return channel


def exported(client: Program, **query: str) -> str:
    answer = client.get(URL, query)
    assert answer.status_code == 200
    text: str = answer.getvalue().decode()
    return text


def test_what_is_exported_can_be_imported_again_exactly(client: Program, desk: Channel) -> None:
    content = exported(client, channel="desk")
    Message.objects.all().delete()
    desk.delete()

    answer = client.post(URL, {"content": content})

    assert answer.status_code == 200, answer.json()
    assert answer.json()["imported"] == 2
    assert exported(client, channel="desk") == content
    assert client.post(URL, {"content": content}).json()["duplicates"] == 2


def test_an_export_is_a_file_in_the_form_asked_for(client: Program, desk: Channel) -> None:
    answer = client.get(URL, {"channel": "desk", "as": "csv"}, headers={"Accept": "text/csv"})

    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="desk.csv"'
    assert answer.getvalue().decode().startswith("id,")
    assert "anybody" not in exported(client, channel="desk", tag="build=41")
    assert "assistant" in exported(client, channel="desk", **{"as": "openai"})


def test_a_dry_run_counts_and_stores_nothing(client: Program, ada: Agent) -> None:
    content = json.dumps({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})

    answer = client.post(
        URL,
        {"content": content, "format": "openai", "channel": "desk", "speakers": {"assistant": "ada"}, "dry_run": True},
    )

    assert answer.json()["imported"] == 2
    assert answer.json()["speakers"]["assistant"] == {"agent": "ada", "messages": 1}
    assert not Message.objects.exists()


def test_an_export_of_no_channel_or_of_several_agents_is_refused(client: Program, desk: Channel) -> None:
    assert client.get(URL, {"channel": "attic"}).status_code == 404
    say(desk, make_agent("bob"), "Me too.")
    assert "agent=SLUG" in client.get(URL, {"channel": "desk", "as": "openai"}).json()["errors"]["agent"][0]
