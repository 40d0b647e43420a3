"""Who may hand in whose words, and where: an Operator's programs what members of their channels say, an Editor the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.models import Agent, Channel, ChannelMember, Message
from tests.agents.turn.playing import join
from tests.api_client import Program, program
from tests.console import in_group, superuser
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
INGEST, TRANSCRIPTS = "/api/messages/ingest/", "/api/transcripts/"


@pytest.fixture
def operator() -> Program:
    return program(in_group("Operator"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


@pytest.fixture
def desk(ada: Agent) -> Channel:
    channel = make_channel("desk")
    join(channel, ada)
    return channel


def ingested(client: Program, channel: str, **author: str) -> Any:
    return client.post(INGEST, {"channel": channel, "messages": [{"external_id": "m-1", "text": "Hm.", **author}]})


def imported(client: Program, channel: str, **author: str) -> Any:
    head = json.dumps({"plumbline": "transcript", "version": 1, "channel": channel})
    speaker = next(iter(author.values()))
    line = json.dumps({"id": "m-1", "channel": channel, "speaker": speaker, "text": "Hm.", **author})
    return client.post(TRANSCRIPTS, {"content": f"{head}\n{line}"})


WAYS = pytest.mark.parametrize("submit", [ingested, imported])


@WAYS
def test_an_operator_s_program_hands_in_what_members_and_outsiders_say(
    operator: Program, desk: Channel, submit: Any
) -> None:
    assert submit(operator, "desk", agent="ada").json()["imported"] == 1
    Message.objects.all().delete()
    assert submit(operator, "desk", outsider="Customer").json()["imported"] == 1


@WAYS
@pytest.mark.parametrize(
    ("channel", "agent", "fault", "permission"),
    [
        ("lobby", "ada", "no channel 'lobby'", "agents.add_channel"),
        ("desk", "michael", "agent 'michael' is not a member of channel 'desk'", "agents.add_channelmember"),
    ],
)
def test_an_operator_makes_no_channel_and_no_member_by_handing_messages_in(
    operator: Program, desk: Channel, submit: Any, channel: str, agent: str, fault: str, permission: str
) -> None:
    make_agent("michael")

    answer = submit(operator, channel, agent=agent)

    assert answer.status_code == 403
    assert fault in answer.json()["detail"]
    assert permission in answer.json()["detail"]
    assert not Message.objects.exists()
    assert list(ChannelMember.objects.values_list("channel__slug", "agent__slug")) == [("desk", "ada")]


def test_an_operator_puts_no_words_into_another_user_s_mouth(operator: Program, desk: Channel) -> None:
    superuser("boss")

    answer = ingested(operator, "desk", user="boss")

    assert answer.status_code == 403
    assert "user 'boss' in channel 'desk'" in answer.json()["detail"]
    assert not Message.objects.exists()
    assert ingested(operator, "desk", user="operator").json()["imported"] == 1


@WAYS
def test_an_editor_has_channels_made_and_agents_join_them(ada: Agent, submit: Any) -> None:
    make_channel("desk")
    editor = program(in_group("Editor"))

    assert submit(editor, "lobby", agent="ada").json()["imported"] == 1
    assert submit(editor, "desk", agent="ada").json()["imported"] == 1
    assert set(ChannelMember.objects.values_list("channel__slug", "agent__slug")) == {("lobby", "ada"), ("desk", "ada")}


def test_an_editor_hands_in_what_users_said(desk: Channel) -> None:
    superuser("boss")

    assert ingested(program(in_group("Editor")), "desk", user="boss").json()["imported"] == 1
