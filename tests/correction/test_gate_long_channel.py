"""What a judge at the gate is shown of a long channel: its ends, and how much lies between, at the same price for any length."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from agents.models import Message
from agents.turn.send_message import send_message
from correction.config.configure import configure
from tests.factories import MONDAY, make_agent, make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_events_left_out_are_counted(llm_server: LLMServer) -> None:
    ada, channel = make_agent("ada"), make_channel("office")
    channel.memberships.create(agent=ada)
    for n in range(40):
        say(channel, "Bob", f"line {n}", sent_at=MONDAY + timedelta(minutes=n))
    Message.objects.filter(channel=channel, position__in=range(10, 15)).delete()
    configure(agent=ada, changes={"gate_mode": "enforce", "gate_adherence_enabled": True})

    send_message(agent=ada, channel=channel, text="Noted.")

    (body,) = llm_server.bodies
    shown = body["messages"][0]["content"][0]["text"]
    assert re.findall(r"line (\d+)", shown) == [str(n) for n in (*range(5), *range(30, 40))]
    assert re.findall(r"\[… (\d+) events left out here …\]", shown) == ["20"]
