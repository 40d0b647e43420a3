"""An agent's turn with the real SDK against a loopback server: how it begins and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import (
    Agent,
    Channel,
    ChannelMember,
    Message,
    Run,
    RunStep,
    owner_name,
)
from agents.turn.orchestrator import TurnRefused, run_turn, start_turn, work_one
from tests.agents.turn import stages
from tests.agents.turn.playing import answer_text, answers, join, plays, take_turn, texts
from tests.factories import make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
HERE = "tests.agents.turn.stages."
SAY = ("send_message", {"channel": "office", "text": "No."})


# -- how a turn ends
def test_a_turn_that_says_something_and_ends(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, SAY, "done")

    run = take_turn(ada, office)

    message = Message.objects.get()
    assert (run.status, run.stop_reason, run.error, run.lease_owner) == ("completed", "end_turn", "", "")
    assert (message.text, message.agent, message.run) == ("No.", ada, run)
    assert run.finished_at is not None
    assert llm_server.calls == 2
    assert answer_text(answers(llm_server.bodies[1])[0]) == "Said in office as message 1."


def test_a_turn_that_chooses_to_do_nothing(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, ("do_nothing", {"reason": "nobody asked"}))

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("completed", "end_turn")
    assert texts(office) == []
    assert llm_server.calls == 1, "the model is not asked again"


def test_a_model_that_only_writes_text_has_said_nothing(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, "Hello everybody!")

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("completed", "no_tool_call")
    assert "nothing was said" in run.error
    assert texts(office) == []


def test_a_turn_stops_at_the_agents_number_of_model_calls(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    Agent.objects.filter(pk=ada.pk).update(max_turns=3)
    llm_server.respond = lambda body: {"tool_calls": [("search_memory", {"query": "stamps"})]}

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("completed", "max_steps")
    assert "3 model calls" in run.error
    assert llm_server.calls == 3
    assert RunStep.objects.filter(kind="tool_call").count() == 3, "what the last call asked for is still done"


@pytest.mark.parametrize("fault", [{"status": 400}, {"stop_reason": "max_tokens"}, {"stop_reason": "refusal"}])
def test_a_model_that_fails_fails_the_turn_with_its_reason(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings, fault: dict[str, Any]
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    llm_server.always(text="half a", **fault)

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("failed", "error")
    assert run.error.startswith("the model call failed: ")
    assert stages.heard == [("finish", "")], "the stages finish all the same"
    assert RunStep.objects.get().detail["status"] in ("rejected", "truncated", "refused")


def test_a_garbled_tool_call_is_asked_for_once_more(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    llm_server.reply(tool_calls=[{"type": "tool_use", "id": "t", "name": "send_message", "input": "no object"}])
    plays(llm_server, SAY, "done")

    run = take_turn(ada, office)

    assert run.stop_reason == "end_turn"
    assert texts(office) == ["No."]
    assert RunStep.objects.filter(kind="model_call").count() == 3


def test_an_empty_answer_after_a_tool_ends_the_turn(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, SAY)
    llm_server.reply(text="")

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("completed", "end_turn")


def test_a_crash_is_marked_and_the_agent_can_act_again(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["nowhere.at.all"]
    run = start_turn(agent=ada, channel=office)
    assert work_one(owner=owner_name())
    run.refresh_from_db()
    assert (run.status, run.stop_reason, run.lease_owner) == ("errored", "error", "")
    assert run.error.startswith("ModuleNotFoundError")

    settings.TURN_PIPELINE = []
    plays(llm_server, SAY, "done")

    assert take_turn(ada, office).status == "completed"


def test_what_changed_before_a_turn_began_fails_it_in_words(ada: Agent, office: Channel) -> None:
    inactive = start_turn(agent=ada, channel=office)
    Agent.objects.filter(pk=ada.pk).update(is_active=False)
    assert "is inactive" in run_turn(inactive, owner=owner_name()).error
    Agent.objects.filter(pk=ada.pk).update(is_active=True)

    left = start_turn(agent=ada, channel=office)
    ChannelMember.objects.all().delete()
    assert "no longer a member of channel 'office'" in run_turn(left, owner=owner_name()).error
    join(office, ada)

    gone = start_turn(agent=ada, channel=office)
    Channel.objects.all().delete()
    ended = run_turn(Run.objects.get(pk=gone.pk), owner=owner_name())
    assert (ended.status, ended.error) == ("failed", "the channel of this turn was deleted")


# -- starting one
def test_a_turn_is_queued_once_per_key(ada: Agent, bob: Agent, office: Channel) -> None:
    first = start_turn(agent=ada, channel=office, idempotency_key="k", prompt="Speak.")

    assert start_turn(agent=ada, channel=office, idempotency_key="k") == first
    assert (first.status, first.prompt) == ("pending", "Speak.")
    with pytest.raises(TurnRefused, match="'k' was used for another turn"):
        start_turn(agent=bob, channel=office, idempotency_key="k")


def test_a_turn_that_cannot_be_taken_is_refused_with_what_is_allowed(ada: Agent, office: Channel) -> None:
    attic = make_channel("attic")
    with pytest.raises(TurnRefused, match="not a member of channel 'attic'; allowed: office"):
        start_turn(agent=ada, channel=attic)
    with pytest.raises(TurnRefused, match="is not in channel 'office'"):
        start_turn(agent=ada, channel=office, trigger=say(attic, "Zed", "Hi."))
    ada.is_active = False
    with pytest.raises(TurnRefused, match="'ada' is inactive"):
        start_turn(agent=ada, channel=office)
