"""End users of another platform: who is not heard, and how the sending program learns of it."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import ChannelMember
from correction.behavior.work import work_one
from correction.config.configure import configure
from tests.agents.test_admin_home import home
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
STEP = "Requests of people who are no members do not count"


@pytest.fixture
def client() -> Program:
    agent, channel = make_agent("ada"), make_channel("desk", kind="dm")
    ChannelMember.objects.create(channel=channel, agent=agent)
    ChannelMember.objects.create(channel=channel, user=superuser("member"))
    return program(superuser("bridge"))


@pytest.mark.parametrize(
    ("config", "body", "noted"),
    [
        ({}, {"outsider": "Zed"}, "an outsider is not a member of the channel"),
        ({}, {}, "'bridge' is not a member of the channel"),
        ({"behavior_requesters": "anyone"}, {"outsider": "Zed"}, ""),
        ({"behavior_requesters": "named"}, {"outsider": "Zed"}, "behavior_named_requesters"),
        ({"behavior_requests_enabled": False}, {"outsider": "Zed"}, ""),
    ],
    ids=["outsider", "no member", "anyone", "named", "off"],
)
def test_who_is_not_heard_is_said_in_the_answer_with_the_setting(
    client: Program, config: dict[str, Any], body: dict[str, str], noted: str
) -> None:
    if config:
        configure(agent=None, changes=config)

    answer = client.post("/api/messages/", {"channel": "desk", "text": "Be brief, please.", **body}, format="json")

    notes = answer.json()["notes"]
    assert answer.status_code == 201
    assert len(notes) == bool(noted)
    if noted:
        assert notes[0].startswith("ada: not read for behaviour requests: ")
        assert noted in notes[0]
        assert "behavior_" in notes[0]
    assert client.get(answer.json()["url"]).json()["notes"] == notes


@pytest.mark.parametrize(("author", "noted"), [({"outsider": "Zed"}, True), ({"agent": "ada"}, False)])
def test_messages_from_elsewhere_are_not_read_and_the_answer_says_so(
    client: Program, author: dict[str, str], noted: bool
) -> None:
    body = {"channel": "desk", "messages": [{"external_id": "1", "text": "Be brief.", **author}]}

    notes = client.post("/api/messages/ingest/", body, format="json").json()["notes"]
    again = client.post("/api/messages/ingest/", body, format="json").json()["notes"]

    assert (len(notes), again) == (noted, [])
    if noted:
        assert "behavior_requesters" in notes[0]
        assert "default here: members" in notes[0]
    assert not work_one(owner="w")


def test_the_set_up_step_stays_until_requesters_are_decided(client: Program) -> None:
    root = superuser()
    assert STEP not in home(root)
    client.post("/api/messages/", {"channel": "desk", "text": "Be brief.", "outsider": "Zed"}, format="json")
    assert work_one(owner="w")

    html = home(root)
    assert STEP in html
    assert "behavior_requesters=anyone" in html

    configure(agent=None, changes={"behavior_requesters": "members"})
    assert STEP not in home(root)
