"""A conversation of many messages."""

from __future__ import annotations

import pytest
from django.test import Client

from agents.admin import transcript
from tests.console import page_of, plain, read
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db


def test_a_long_channel_is_counted_no_further_than_anybody_reads(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MOST_COUNTED", 3)
    channel = make_channel()
    for number in range(3):
        say(channel, "A", f"{number}.")
    assert "3 messages" in plain(read(root, page_of(channel, "transcript")))
    say(channel, "A", "One more.")

    assert "more than 3 messages" in plain(read(root, page_of(channel, "transcript")))
