"""Saying something: who may, what may be said, what it costs, and that a key never says it twice."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.models import Agent, Channel, MemoryPassage, Message, Run
from agents.turn.pipeline import Accept, Draft, Turn
from agents.turn.send_message import RequiredStageFailed, SendRefused, append, commit, send_message
from tests.agents.turn import stages
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


def test_an_inactive_agent_says_nothing_even_if_the_caller_is_unaware(ada: Agent, office: Channel) -> None:
    Agent.objects.filter(pk=ada.pk).update(is_active=False)

    with pytest.raises(SendRefused, match="'ada' is inactive; allowed: active agents"):
        send_message(agent=ada, channel=office, text="Boo.")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
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


def test_a_key_taken_between_look_and_commit_returns_the_first_message(ada: Agent, office: Channel) -> None:
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


def test_who_comes_second_with_a_key_hears_only_what_was_said(ada: Agent, office: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.SaidElsewhere"]
    result = send_message(agent=ada, channel=office, text="Slower.", idempotency_key="k")
    assert (result.outcome, result.text, texts(office)) == ("sent", "Faster.", ["Faster."])
    assert result.reports == {}


# -- what it costs
@pytest.mark.parametrize("real", [False, True])
def test_with_everything_off_it_costs_at_most_three_statements_more_than_saving(
    ada: Agent, office: Channel, settings: Settings, real: bool
) -> None:
    if real:
        settings.TURN_PIPELINE = REAL_PIPELINE
        send_message(agent=ada, channel=office, text="Warm.")  # what a process looks up once
    with CaptureQueriesContext(connection) as saving:
        append(channel=office, agent=ada, text="Saved.")
    with CaptureQueriesContext(connection) as sending:
        send_message(agent=ada, channel=office, text="Sent.", idempotency_key="k")

    assert len(statements(saving)) == 2
    assert len(statements(sending)) - len(statements(saving)) <= 3, "\n".join(statements(sending))


REAL_PIPELINE = [
    "correction.stages.RepetitionSuppression",
    "correction.interventions.stages.Nudges",
    "correction.stages.ActionGate",
]


def test_what_it_costs_does_not_grow_with_the_channel(ada: Agent, bob: Agent, office: Channel) -> None:
    counts = []
    for size in (1, 10):
        for n in range(size):
            say(office, bob, f"line {n}")
        with CaptureQueriesContext(connection) as captured:
            send_message(agent=ada, channel=office, text="Sent.")
        counts.append(len(statements(captured)))

    assert counts[0] == counts[1]


# -- Saying something: what the stages do with a draft, and whom a direct message calls on
HERE = "tests.agents.turn.stages."


# -- the stages
def test_a_stage_may_rewrite_and_name_the_outcome(ada: Agent, office: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Shouter"]

    result = send_message(agent=ada, channel=office, text="no.")

    assert (result.outcome, result.text, texts(office)) == ("shouted", "NO.", ["NO."])
    assert [(entry.stage, entry.phase, entry.status) for entry in result.trace] == [("shouter", "review", "ran")]


def test_a_draft_sent_back_is_not_said_and_continues_under_its_session(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]

    back = send_message(agent=ada, channel=office, text="a bad word")
    retry = send_message(agent=ada, channel=office, text="a good word", session=back.session)
    fresh = send_message(agent=ada, channel=office, text="another")

    assert (back.committed, back.outcome, back.message, back.text) == (False, "corrected", None, "a bad word")
    assert (back.feedback, back.session) == ("It holds the word bad.", stages.SESSION)
    assert (retry.outcome, fresh.outcome) == ("passed_after_retry", "passed")
    assert texts(office) == ["a good word", "another"]
    assert MemoryPassage.objects.count() == 2, "what a stage logs of a message is saved with it"


def test_another_channel_is_the_turns_channel_only_while_it_is_spoken_in(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    cellar = make_channel("cellar")
    join(cellar, ada)
    turn = Turn(agent=ada, channel=office)

    send_message(agent=ada, channel=cellar, text="a bad word", turn=turn)

    assert turn.channel == office
    assert turn.sessions == {cellar.pk: stages.SESSION}
    assert turn.session == ""


def test_a_stage_that_raises_holds_nothing_back_and_the_trace_says_so(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Broken"]

    result = send_message(agent=ada, channel=office, text="Said.")

    assert texts(office) == ["Said."], "also what its failed statement did is undone, and nothing else"
    assert [(entry.phase, entry.status) for entry in result.trace] == [("review", "failed"), ("committed", "failed")]
    assert result.trace[0].why == "RuntimeError: review is broken"
    assert "IntegrityError" in result.trace[1].why


@pytest.mark.parametrize("stage", ["Required", "RequiredLog"])
def test_without_a_required_stage_nothing_is_said(ada: Agent, office: Channel, settings: Settings, stage: str) -> None:
    settings.TURN_PIPELINE = [HERE + stage]

    with pytest.raises(RequiredStageFailed, match="not sent: a required stage failed"):
        send_message(agent=ada, channel=office, text="Said.", idempotency_key="k")

    assert texts(office) == []
    settings.TURN_PIPELINE = []
    assert send_message(agent=ada, channel=office, text="Said.", idempotency_key="k").message is not None


def test_a_stage_that_makes_an_unspeakable_draft_is_passed_over(
    ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Empty"]

    result = send_message(agent=ada, channel=office, text="Said.")

    assert texts(office) == ["Said."]
    assert "the text is empty" in result.trace[-1].why


def test_past_the_cap_on_revisions_a_draft_is_said_as_it_is(ada: Agent, office: Channel, settings: Settings) -> None:
    settings.TURN_PIPELINE, settings.TURN_MAX_REVISIONS = [HERE + "NeverPleased"], 2
    turn = Turn(agent=ada, channel=office)

    results = [send_message(agent=ada, channel=office, text=f"try {n}", turn=turn) for n in range(4)]

    assert [result.committed for result in results] == [False, False, True, False], "each message has its own count"
    assert texts(office) == ["try 2"]
    assert results[2].trace[-1].why == "sent back 2 times already (TURN_MAX_REVISIONS); sent as it is"


# -- direct messages
def test_a_direct_message_queues_the_others_turn(ada: Agent, bob: Agent) -> None:
    dm = make_channel("dm-ada-bob", kind="dm")
    join(dm, ada, bob)

    message = send_message(agent=ada, channel=dm, text="Psst.").message

    run = Run.objects.get()
    assert (run.agent, run.channel, run.trigger, run.depth, run.status) == (bob, dm, message, 1, "pending")


def test_two_direct_messages_in_a_row_get_one_reply_to_the_later(ada: Agent, bob: Agent) -> None:
    dm = make_channel("dm-ada-bob", kind="dm")
    join(dm, ada, bob)

    send_message(agent=ada, channel=dm, text="Psst.")
    second = send_message(agent=ada, channel=dm, text="Psst!").message

    assert Run.objects.get().trigger == second


def test_a_reply_that_is_being_given_does_not_answer_what_came_later(ada: Agent, bob: Agent) -> None:
    dm = make_channel("dm-ada-bob", kind="dm")
    join(dm, ada, bob)

    send_message(agent=ada, channel=dm, text="Psst.")
    Run.objects.update(status="running", attempt=1)
    send_message(agent=ada, channel=dm, text="Psst!")

    assert Run.objects.filter(agent=bob).count() == 2


def test_played_speech_and_inactive_agents_queue_nothing(ada: Agent, bob: Agent) -> None:
    dm = make_channel("dm-ada-bob", kind="dm")
    join(dm, ada, bob)
    Agent.objects.filter(pk=bob.pk).update(is_active=False)
    send_message(agent=ada, channel=dm, text="Anybody?")
    Agent.objects.filter(pk=bob.pk).update(is_active=True)
    Channel.objects.filter(pk=dm.pk).update(synthetic=True)
    send_message(agent=ada, channel=dm, text="To be.")

    assert not Run.objects.exists()
