"""Saying something: what the stages do with a draft, and whom a direct message calls on."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, MemoryPassage, Run
from agents.turn.pipeline import Turn
from agents.turn.send_message import RequiredStageFailed, send_message
from tests.agents.turn import stages
from tests.agents.turn.playing import join, texts
from tests.factories import make_channel

pytestmark = pytest.mark.django_db
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


def test_two_direct_messages_in_a_row_get_one_reply_to_the_later_one(ada: Agent, bob: Agent) -> None:
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
