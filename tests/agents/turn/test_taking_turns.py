"""An agent's turn with the real SDK against a loopback server: how it begins and how it ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.models import owner_name
from agents.kit.models.lease import CANDIDATES
from agents.models import Agent, Channel, ChannelMember, MemoryPassage, Message, Reaction, Run, RunMessage, RunStep
from agents.turn.orchestrator import TurnRefused, cancel, run_turn, start_turn, work_one
from tests.agents.turn import stages
from tests.agents.turn.playing import answer_text, answers, join, plays, shown, take_turn, texts
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


def test_a_turn_stops_at_the_agents_number_of_model_calls(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    Agent.objects.filter(pk=ada.pk).update(max_turns=3)
    llm_server.respond = lambda body: {"tool_calls": [("search_memory", {"query": "stamps"})]}

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("completed", "max_steps")
    assert "3 model calls" in run.error
    assert llm_server.calls == 3
    assert RunStep.objects.filter(kind="tool_call").count() == 3, "what the last call asked for is still done"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 400},
        {"stop_reason": "max_tokens"},
    ],
)
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
    assert "no longer a member of" in run_turn(left, owner=owner_name()).error
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


# -- claiming
def test_an_agent_takes_one_turn_at_a_time_and_the_second_waits(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    one, two = start_turn(agent=ada, channel=office), start_turn(agent=ada, channel=office)
    assert one.acquire(owner="another-host:1:a", lease=timedelta(seconds=60))

    assert run_turn(two, owner=owner_name()).status == "pending"
    assert not work_one(owner=owner_name())
    assert not run_turn(Run.objects.get(pk=one.pk), owner=owner_name()).attempt > 1

    one.finish(owner="another-host:1:a", status="completed")
    plays(llm_server, SAY, "done")
    assert work_one(owner=owner_name())
    two.refresh_from_db()
    assert two.status == "completed"


def test_a_busy_agent_holds_up_nobody_else(ada: Agent, bob: Agent, office: Channel, llm_server: LLMServer) -> None:
    running = start_turn(agent=ada, channel=office)
    running.acquire(owner="another-host:1:a", lease=timedelta(seconds=60))
    for _ in range(CANDIDATES + 5):
        start_turn(agent=ada, channel=office)
    last = start_turn(agent=bob, channel=office)
    plays(llm_server, SAY, "done")

    assert work_one(owner=owner_name())

    last.refresh_from_db()
    assert last.status == "completed"


def test_a_lost_turn_is_taken_up_before_its_agents_next_one(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    waiting, lost = start_turn(agent=ada, channel=office), start_turn(agent=ada, channel=office)
    lost.acquire(owner="another-host:1:a", lease=timedelta(seconds=-1))
    plays(llm_server, SAY, "done")

    assert work_one(owner=owner_name())

    lost.refresh_from_db()
    waiting.refresh_from_db()
    assert (lost.status, lost.attempt, waiting.status) == ("completed", 2, "pending")


def test_a_turn_taken_over_by_another_process_is_left_to_it(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Stealing"]

    ended = take_turn(ada, office)

    assert (ended.status, ended.lease_owner) == ("running", "another-host:1:a")
    assert llm_server.calls == 0
    assert not RunMessage.objects.exists()


# -- cancelling
def test_a_turn_that_waits_is_cancelled_at_once(ada: Agent, office: Channel) -> None:
    run = cancel(start_turn(agent=ada, channel=office))

    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert run.finished_at is not None
    assert not work_one(owner=owner_name())


def test_a_turn_under_way_stops_before_its_next_step(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    """It is cancelled while its draft is reviewed, and sent back: nothing more is said, not even the best attempt."""
    settings.TURN_PIPELINE = [HERE + "Strict", HERE + "Cancelling"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "fine"}), SAY)

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("cancelled", "cancelled")
    assert llm_server.calls == 1
    assert texts(office) == ["fine"], "what was under way is finished"
    assert ("finish", "") in stages.heard


def test_a_cancelled_turn_says_no_best_attempt(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Cancelling", HERE + "Strict"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "a bad one"}))

    run = take_turn(ada, office)

    assert run.status == "cancelled"
    assert stages.heard[-1] == ("finish", stages.SESSION)
    assert texts(office) == []


# -- what is recorded
def test_every_step_and_message_is_recorded_once(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    say(office, "Zed", "Hello.")
    llm_server.reply(
        text="Let me see.",
        tool_calls=[("react_to_message", {"message": 1, "emoji": "👍"}), ("store_memory", {"text": "Zed is polite."})],
    )
    plays(llm_server, SAY, "done")

    run = take_turn(ada, office)

    assert list(run.steps.values_list("number", "kind")) == [
        (1, "model_call"), (2, "tool_call"), (3, "tool_call"), (4, "model_call"), (5, "tool_call"), (6, "model_call"),
    ]  # fmt: skip
    assert all(step.duration_ms is not None for step in run.steps.all())
    assert [(m.number, m.role, m.tool_name) for m in run.run_messages.order_by("number")] == [
        (1, "system", ""), (2, "user", ""), (3, "assistant", ""), (4, "tool", "react_to_message"),
        (5, "tool", "store_memory"), (6, "assistant", ""), (7, "tool", "send_message"), (8, "assistant", ""),
    ]  # fmt: skip
    assert run.run_messages.get(number=7).message == Message.objects.get(agent=ada)
    assert Reaction.objects.get().agent == ada
    assert MemoryPassage.objects.get().text == "Zed is polite."


def test_the_answers_of_several_tools_come_in_one_turn_in_their_order(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    llm_server.reply(tool_calls=[("store_memory", {"text": "one"}), ("search_memory", {"query": "one"})])
    plays(llm_server, "done")

    take_turn(ada, office)

    roles = [message["role"] for message in llm_server.bodies[1]["messages"]]
    assert roles == ["user", "assistant", "user"]
    asked = [part["id"] for part in llm_server.bodies[1]["messages"][1]["content"]]
    assert [part["tool_use_id"] for part in answers(llm_server.bodies[1])] == asked


def test_tools_after_do_nothing_are_not_carried_out(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    llm_server.reply(tool_calls=[("do_nothing", {"reason": "tired"}), SAY])

    run = take_turn(ada, office)

    assert texts(office) == []
    assert run.run_messages.order_by("-number")[0].content["is_error"]


def test_call_ids_of_any_length_even_repeated_ones_say_each_message(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    """Some servers number their calls anew in each answer."""
    for call_id, text in (("x" * 500 + "0", "One."), ("x" * 500 + "1", "Two."), ("x" * 500 + "1", "Three.")):
        given = {"channel": "office", "text": text}
        llm_server.reply(tool_calls=[{"type": "tool_use", "id": call_id, "name": "send_message", "input": given}])
    plays(llm_server, "done")

    take_turn(ada, office)

    assert texts(office) == ["One.", "Two.", "Three."]
    assert all(len(message.idempotency_key or "") <= 200 for message in Message.objects.all())


# -- one reply to another
def test_a_conversation_between_two_agents_ends_by_its_depth(
    ada: Agent, bob: Agent, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_MAX_REPLY_DEPTH = 3
    dm = make_channel("dm", kind="dm")
    join(dm, ada, bob)

    def chat(body: dict[str, Any]) -> dict[str, Any]:
        if answers(body):
            return {"text": "done"}
        return {"tool_calls": [("send_message", {"channel": "dm", "text": f"line {llm_server.calls}"})]}

    llm_server.respond = chat
    start_turn(agent=ada, channel=dm)
    while work_one(owner=owner_name()):
        pass

    assert list(Run.objects.order_by("pk").values_list("agent__slug", "depth", "status")) == [
        ("ada", 0, "completed"), ("bob", 1, "completed"), ("ada", 2, "completed"), ("bob", 3, "completed"),
    ]  # fmt: skip
    assert len(texts(dm)) == 4
    assert "wrote message 3 in dm" in shown(llm_server.bodies[-1])


# -- the stages in a turn
def test_a_draft_sent_back_is_written_again(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    plays(
        llm_server,
        ("send_message", {"channel": "office", "text": "a bad word"}),
        ("send_message", {"channel": "office", "text": "a good word"}),
        "done",
    )

    run = take_turn(ada, office)

    assert texts(office) == ["a good word"]
    back = answers(llm_server.bodies[1])[0]
    assert "It holds the word bad." in answer_text(back)
    assert "has not been said" in answer_text(back)
    assert stages.heard[:2] == [("review", "|a bad word"), ("review", f"{stages.SESSION}|a good word")]
    steps = [entry["phase"] for entry in run.trace]
    assert steps == ["review", "review", "committed", "finish"]


def test_a_rejected_draft_is_in_no_other_prompt(
    ada: Agent, bob: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "a bad secret"}), ("do_nothing", {"reason": "hm"}))
    take_turn(ada, office)
    plays(llm_server, "done", "done")

    take_turn(ada, office)
    take_turn(bob, office)

    assert all("secret" not in str(body) for body in (llm_server.bodies[0], *llm_server.bodies[2:]))


def test_doing_nothing_after_feedback_abandons_the_message(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "bad"}), ("do_nothing", {"reason": "never mind"}))

    take_turn(ada, office)

    assert stages.heard[-1] == ("finish", stages.SESSION)
    assert texts(office) == []


def test_a_turn_that_ends_without_sending_again_says_the_best_attempt(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Strict"]
    plays(llm_server, ("send_message", {"channel": "office", "text": "a bad word"}), "I give up.")

    run = take_turn(ada, office)

    assert texts(office) == ["a bad word"]
    assert Message.objects.get().run == run


def test_a_stage_that_answers_at_once_spares_the_model(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Clarifier", HERE + "Shouter"]

    run = take_turn(ada, office)

    message = Message.objects.get()
    assert llm_server.calls == 0
    assert (message.text, message.payload) == ("WHICH OF THE TWO DO YOU MEAN?", {"kind": "question"})
    assert (run.status, run.stop_reason) == ("completed", "end_turn")


def test_stages_that_raise_stop_nothing_and_the_trace_tells(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Broken", HERE + "Hint"]
    plays(llm_server, SAY, "done")

    run = take_turn(ada, office)

    assert run.status == "completed"
    assert texts(office) == ["No."]
    assert [(e["stage"], e["phase"], e["status"]) for e in run.trace] == [
        ("broken", "prepare", "failed"),
        ("hint", "prepare", "ran"),
        ("broken", "review", "failed"),
        ("broken", "committed", "failed"),
        ("broken", "finish", "failed"),
    ]
    assert run.trace[0]["why"] == "RuntimeError: prepare is broken"
    assert run.trace[1]["counters"] == {"hints": 1}
    assert all(entry["ms"] >= 0 for entry in run.trace)


def test_a_required_stage_that_fails_ends_the_turn(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "Required"]
    plays(llm_server, SAY)

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason) == ("failed", "error")
    assert "a required stage failed (anonymous: RuntimeError: review is broken)" in run.error
    assert texts(office) == []
