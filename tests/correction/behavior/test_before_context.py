"""What a judge of a single message is shown before it: the last two things really said, read for many messages at once."""

from __future__ import annotations

import pytest
from pytest_django import DjangoAssertNumQueries

from agents.models import Message
from correction.behavior.before_after import messages_before
from correction.behavior.models import MOST_MESSAGES
from evaluation.scorers.subjects import Event
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db


def shown(events: tuple[Event, ...]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.speaker, event.text) for event in events]


def test_the_last_two_of_the_same_channel_are_shown_in_their_order() -> None:
    ada, desk, hall = make_agent("ada"), make_channel("desk"), make_channel("hall")
    say(desk, "Bob", "One")
    say(hall, "Bob", "Elsewhere")
    say(desk, ada, "Two")
    say(desk, "Zoe", "Three")
    last, first = say(desk, ada, "Four"), say(hall, ada, "Five")

    found = messages_before(ada, [last, first])

    assert [text for _, _, text in shown(found[last.pk])] == ["Two", "Three"]
    assert [kind for kind, _, _ in shown(found[last.pk])] == ["action", "stimulus"]
    assert shown(found[last.pk])[1][1] == "Zoe"
    assert [text for _, _, text in shown(found[first.pk])] == ["Elsewhere"]


def test_what_was_played_is_passed_over_however_much_of_it_there_is() -> None:
    ada, desk = make_agent("ada"), make_channel("desk")
    for text in ("One", "Two"):
        say(desk, "Bob", text)
    for number in range(8):
        say(desk, ada, f"Simulated {number}", synthetic=True)
    last = say(desk, ada, "Three")
    assert [text for _, _, text in shown(messages_before(ada, [last])[last.pk])] == ["One", "Two"]


def test_many_messages_are_read_in_two_queries(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    ada, desk = make_agent("ada"), make_channel("desk")
    for number in range(2 * MOST_MESSAGES):
        say(desk, ada, f"Line {number}")
    messages = list(Message.objects.order_by("position"))
    with django_assert_num_queries(2):
        found = messages_before(ada, messages)
    assert [len(found[message.pk]) for message in messages[:3]] == [0, 1, 2]
    assert shown(found[messages[-1].pk])[-1][2] == f"Line {2 * MOST_MESSAGES - 2}"
