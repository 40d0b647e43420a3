"""A conversation as people know it: who goes on speaking, who answers whom, what was said on a day."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from agents.admin import transcript
from agents.admin.transcript import transcript_page
from tests.console import page_of, plain, read
from tests.factories import MONDAY, make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def test_messages_of_one_speaker_in_a_row_are_shown_under_one_name(root: Client) -> None:
    channel, ada, bob = make_channel(), make_agent(), make_agent("bob")
    for author, minutes in ((ada, 0), (ada, 2), (bob, 3), (ada, 4), (ada, 20)):
        say(channel, author, "Noted.", sent_at=MONDAY + timedelta(minutes=minutes))
    for days in (1, 1, 2):
        say(channel, ada, "Noted.", sent_at=MONDAY + timedelta(days=days))
    say(channel, ada, "Nobody knows when.")
    say(channel, ada, "Nor this.")

    continued = [line["continued"] for line in transcript_page(channel=channel).lines]
    assert continued == [False, True, False, False, False, False, True, False, False, False]
    html = read(root, page_of(channel, "transcript"))
    assert html.count("pl-continued") == 2
    assert plain(html).count("Ada") >= 8  # read aloud, each message has its speaker


def test_a_message_says_how_often_it_was_answered_and_leads_there(root: Client) -> None:
    channel = make_channel()
    question, other = say(channel, "A", "Question?"), say(channel, "B", "Another?")
    for text in ("One.", "Two."):
        say(channel, "C", text, parent=question)
    say(channel, "C", "Three.", parent=other)
    html = read(root, page_of(channel, "transcript"))

    assert [text for text in ("2 replies", "1 reply") if text in plain(html)] == ["2 replies", "1 reply"]
    assert html.count("the first of them") == 2
    assert "?at=3#m3" in html


def test_one_goes_to_a_day(root: Client) -> None:
    channel = make_channel()
    for days in (0, 5, 9):
        say(channel, "A", f"Day {days}.", sent_at=MONDAY + timedelta(days=days))
    url = page_of(channel, "transcript")

    assert root.get(f"{url}?day=2026-11-04")["Location"] == "?at=2#m2"
    assert 'id="m2" class="pl-message pl-depth-0 pl-by-outsider pl-wanted"' in read(root, f"{url}?at=2")
    html = read(root, f"{url}?day=2026-12-24")
    assert "Nothing was said on or after 24 Dec 2026." in plain(html)
    assert 'id="m3"' in html
    assert 'id="m3"' in read(root, f"{url}?day=nonsense")


def test_a_long_channel_is_counted_no_further_than_anybody_reads(root: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MOST_COUNTED", 3)
    channel = make_channel()
    for number in range(3):
        say(channel, "A", f"{number}.")
    assert "3 messages" in plain(read(root, page_of(channel, "transcript")))
    say(channel, "A", "One more.")

    assert "more than 3 messages" in plain(read(root, page_of(channel, "transcript")))
