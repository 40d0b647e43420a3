"""What a turn leaves behind: steps, messages, ledger rows, and the replies it causes."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import (
    Agent,
    Channel,
    MemoryPassage,
    Message,
    Reaction,
    Run,
    RunMessage,
    owner_name,
)
from agents.turn.orchestrator import start_turn, work_one
from tests.agents.turn.playing import answers, join, plays, shown, take_turn, texts
from tests.factories import make_channel, say
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SAY = ("send_message", {"channel": "office", "text": "No."})


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


def test_the_same_call_id_twice_says_both_messages(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    """Some servers number their calls anew in each answer."""
    for text in ("One.", "Two."):
        call = {
            "type": "tool_use",
            "id": "call_0",
            "name": "send_message",
            "input": {"channel": "office", "text": text},
        }
        llm_server.reply(tool_calls=[call])
    plays(llm_server, "done")

    take_turn(ada, office)

    assert texts(office) == ["One.", "Two."]


def test_a_call_id_of_any_length_is_taken(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    for n in range(2):
        call = {
            "type": "tool_use",
            "id": "x" * 500 + str(n),
            "name": "send_message",
            "input": {"channel": "office", "text": f"{n}"},
        }
        llm_server.reply(tool_calls=[call])
    plays(llm_server, "done")

    assert take_turn(ada, office).status == "completed"
    assert texts(office) == ["0", "1"]
    assert all(len(m.idempotency_key or "") <= 200 for m in Message.objects.all())


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


def test_without_depth_nobody_answers_by_itself(
    ada: Agent, bob: Agent, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_MAX_REPLY_DEPTH = 0
    dm = make_channel("dm", kind="dm")
    join(dm, ada, bob)
    plays(llm_server, ("send_message", {"channel": "dm", "text": "Psst."}), "done")

    take_turn(ada, dm)

    assert Run.objects.count() == 1


def test_run_messages_hold_the_exchange_as_it_was_sent(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, SAY, "done")

    run = take_turn(ada, office)

    system = RunMessage.objects.get(run=run, role="system").content["blocks"]
    assert [block["text"] for block in system] == [part["text"] for part in llm_server.bodies[0]["system"]]
