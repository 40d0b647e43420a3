"""Saying something: who may, what may be said, what it costs, and that a key never says it twice."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Accept, Draft, Turn
from agents.turn.send_message import SendRefused, append, commit, send_message
from tests.agents.turn.playing import join, texts
from tests.factories import make_channel, say

pytestmark = pytest.mark.django_db


def statements(captured: CaptureQueriesContext) -> list[str]:
    """The SQL, transaction control left out."""
    control = ("SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT")
    return [query["sql"] for query in captured.captured_queries if not query["sql"].startswith(control)]


# -- saying something
def test_what_is_said_is_the_next_message_of_the_channel(ada: Agent, office: Channel) -> None:
    say(office, "Zed", "Morning.")

    result = send_message(agent=ada, channel=office, text="No.", payload={"mood": 3}, tags={"build": "41"})

    message = Message.objects.get(agent=ada)
    assert (result.committed, result.outcome, result.text, result.message) == (True, "sent", "No.", message)
    assert (message.position, message.text, message.payload, message.tags) == (2, "No.", {"mood": 3}, {"build": "41"})
    assert message.persona_version == ada.persona_versions.get()
    assert message.sent_at is not None
    assert not message.synthetic
    assert say(office, "Zed", "Why?").position == 3


def test_an_answer_in_a_thread_stays_in_it(ada: Agent, office: Channel) -> None:
    first = say(office, "Zed", "Lunch?")
    second = say(office, "Zed", "Ada?", parent=first)

    inside = send_message(agent=ada, channel=office, text="No.", trigger=second).message
    outside = send_message(agent=ada, channel=office, text="No!", trigger=first).message
    chosen = send_message(agent=ada, channel=office, text="No?", parent=first).message

    assert [m.parent for m in (inside, outside, chosen) if m is not None] == [first, None, first]


def test_a_thread_is_of_one_channel(ada: Agent, office: Channel) -> None:
    elsewhere = say(make_channel("kitchen"), "Bob", "Tea?")
    with pytest.raises(SendRefused, match=f"parent {elsewhere.pk} is not in channel 'office'"):
        send_message(agent=ada, channel=office, text="Yes.", parent=elsewhere)
    assert Message.objects.filter(channel=office).count() == 0


def test_in_a_channel_that_is_played_speech_is_marked(ada: Agent) -> None:
    stage = make_channel("stage")
    Channel.objects.filter(pk=stage.pk).update(synthetic=True)  # after our copy was read
    join(stage, ada)

    result = send_message(agent=ada, channel=stage, text="To be.")

    assert result.message is not None
    assert result.message.synthetic


# -- who may, and what
def test_only_members_may_speak(ada: Agent) -> None:
    attic = make_channel("attic")
    join(make_channel("cellar"), ada)

    with pytest.raises(SendRefused, match=r"'ada' is not a member of channel 'attic'; allowed: cellar, office"):
        send_message(agent=ada, channel=attic, text="Boo.")

    assert texts(attic) == []


def test_an_inactive_agent_says_nothing_even_if_the_caller_does_not_know_it(ada: Agent, office: Channel) -> None:
    Agent.objects.filter(pk=ada.pk).update(is_active=False)

    with pytest.raises(SendRefused, match="'ada' is inactive; allowed: active agents"):
        send_message(agent=ada, channel=office, text="Boo.")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the text is empty"),
        (" \n\t\u2003", "the text is empty"),
        ("a\x00b", "NUL character"),
        ("a\ud800b", "half of a surrogate pair"),
        ("x" * 100_001, r"100,001 characters; allowed: at most 100,000"),
    ],
)
def test_a_text_that_cannot_be_said_gets_a_sentence(ada: Agent, office: Channel, text: str, complaint: str) -> None:
    with pytest.raises(SendRefused, match=complaint):
        send_message(agent=ada, channel=office, text=text)

    assert texts(office) == []


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"idempotency_key": "k" * 201}, "idempotency_key has 201 characters; allowed: at most 200"),
        ({"tags": {"1st": "x"}}, "Tag key '1st'"),
        ({"tags": {"build": 41}}, "Tags are pairs of texts"),
    ],
)
def test_what_comes_with_a_text_is_checked_too(
    ada: Agent, office: Channel, fields: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SendRefused, match=complaint):
        send_message(agent=ada, channel=office, text="Hi.", **fields)


def test_a_channel_deleted_meanwhile_is_refused(ada: Agent, office: Channel) -> None:
    turn = Turn(agent=ada, channel=office)
    Channel.objects.get(pk=office.pk).delete()

    with pytest.raises(SendRefused, match="channel 'office' no longer exists"):
        commit(turn=turn, draft=Draft("Hello?"))


# -- the same key never says it twice
def test_the_same_key_returns_the_first_message(ada: Agent, office: Channel) -> None:
    first = send_message(agent=ada, channel=office, text="One.", idempotency_key="k")

    again = send_message(agent=ada, channel=office, text="Another.", idempotency_key="k")

    assert (again.committed, again.message, again.text) == (True, first.message, "One.")
    assert texts(office) == ["One."]


def test_a_key_belongs_to_one_agent_and_one_channel(ada: Agent, bob: Agent, office: Channel) -> None:
    cellar = make_channel("cellar")
    join(cellar, ada)
    send_message(agent=ada, channel=office, text="One.", idempotency_key="k")

    for agent, channel in ((bob, office), (ada, cellar)):
        with pytest.raises(SendRefused, match=r"'k' was used for another message .by Ada in office."):
            send_message(agent=agent, channel=channel, text="One.", idempotency_key="k")
        with pytest.raises(SendRefused, match="'k' was used for another message"):
            commit(turn=Turn(agent=agent, channel=channel), draft=Draft("One."), idempotency_key="k")

    assert texts(office) == ["One."]
    assert texts(cellar) == []


def test_a_key_taken_between_the_look_and_the_commit_returns_the_first_message(ada: Agent, office: Channel) -> None:
    """The other caller commits while the stages review; the database's constraint decides, and the transaction around it lives on."""
    first = send_message(agent=ada, channel=office, text="Faster.", idempotency_key="k").message

    message, _ = commit(turn=Turn(agent=ada, channel=office), draft=Draft("Slower."), idempotency_key="k")

    assert message == first
    assert send_message(agent=ada, channel=office, text="Next.").committed
    assert [m.position for m in Message.objects.order_by("position")] == [1, 2]


class SaidElsewhere:
    """A stage during whose review another caller says something under the same key."""

    name = "elsewhere"

    def review(self, turn: Turn, draft: Draft) -> Accept:
        if turn.draft_key and draft.text == "Slower.":
            send_message(agent=turn.agent, channel=turn.channel, text="Faster.", idempotency_key=turn.draft_key)
        turn.reports["elsewhere"] = {"verdict on": draft.text}
        return Accept(draft, "praised")


def test_who_comes_second_with_a_key_hears_what_was_said_and_not_of_the_lost_draft(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.SaidElsewhere"]
    result = send_message(agent=ada, channel=office, text="Slower.", idempotency_key="k")
    assert (result.outcome, result.text, texts(office)) == ("sent", "Faster.", ["Faster."])
    assert result.reports == {}


# -- what it costs
@pytest.mark.parametrize("key", ["", "k"])
@pytest.mark.parametrize("real", [False, True])
def test_with_everything_off_it_costs_at_most_three_statements_more_than_saving(
    ada: Agent, office: Channel, settings: Settings, key: str, real: bool
) -> None:
    if real:
        settings.TURN_PIPELINE = REAL_PIPELINE
        send_message(agent=ada, channel=office, text="Warm.")  # what a process looks up once
    with CaptureQueriesContext(connection) as saving:
        append(channel=office, agent=ada, text="Saved.")
    with CaptureQueriesContext(connection) as sending:
        send_message(agent=ada, channel=office, text="Sent.", idempotency_key=key)

    assert len(statements(saving)) == 2
    assert len(statements(sending)) - len(statements(saving)) <= 3, "\n".join(statements(sending))


REAL_PIPELINE = [
    "correction.stages.RepetitionSuppression",
    "correction.stages.Interventions",
    "correction.stages.ActionGate",
]


def test_what_it_costs_does_not_grow_with_the_channel(ada: Agent, bob: Agent, office: Channel) -> None:
    counts = []
    for size in (1, 60):
        for n in range(size):
            say(office, bob, f"line {n}")
        with CaptureQueriesContext(connection) as captured:
            send_message(agent=ada, channel=office, text="Sent.")
        counts.append(len(statements(captured)))

    assert counts[0] == counts[1]
