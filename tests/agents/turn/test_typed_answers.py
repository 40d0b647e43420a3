"""Typed answers: a stage asks for one, the agent gives it with `send_message`, its fields become the message's payload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents.debates.answers import Position
from agents.models import Agent, Channel, Message, Run, RunMessage
from agents.turn.orchestrator import finish_turn
from agents.turn.scripted import DONE
from tests.agents.turn.playing import answer_text, answers, join, plays, shown, take_turn, texts
from tests.factories import make_channel
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
TOOLS_BEFORE = Path(__file__).with_name("snapshots") / "tools.json"
HERE = "tests.agents.turn.stages."
FIELDS: dict[str, Any] = {
    "position": "Order paper.",
    "reasoning": "There is none.",
    "confidence": 0.75,
    "citations": ["the cupboard"],
}
GIVEN: dict[str, Any] = {"channel": "office", "text": "Paper, please.", **FIELDS}


@pytest.fixture
def asking(settings: Settings) -> None:
    settings.TURN_PIPELINE = [HERE + "Asking"]


def without(*names: str, **other: Any) -> dict[str, Any]:
    return {name: value for name, value in GIVEN.items() if name not in names} | other


@pytest.mark.usefixtures("asking")
def test_the_fields_become_the_payload_and_the_turn_ends(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, ("send_message", GIVEN))

    run = take_turn(ada, office)

    message = Message.objects.get()
    assert (run.status, llm_server.calls) == ("completed", 1)
    assert (message.text, message.payload) == ("Paper, please.", FIELDS)


@pytest.mark.usefixtures("asking")
def test_fields_that_may_be_left_out_have_their_defaults_in_the_payload(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("send_message", without("citations", confidence=1)))

    take_turn(ada, office)

    payload = Message.objects.get().payload
    assert (payload["citations"], payload["confidence"]) == ([], 1)


@pytest.mark.usefixtures("asking")
def test_the_agent_is_offered_send_message_alone_with_the_fields(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, ("send_message", GIVEN))

    take_turn(ada, office)

    (tool,) = llm_server.bodies[0]["tools"]
    assert tool["name"] == "send_message"
    assert set(tool["input_schema"]["properties"]) == {"channel", "text", *FIELDS}
    for name in Position.model_fields:
        assert name in shown(llm_server.bodies[0])


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (without("position"), "The field position is missing; allowed: "),
        (without(position=" \n"), "The field position is ' \\n'"),
        (without(confidence="high"), "The field confidence is 'high'"),
        (without(citations=["", "b"]), "The field citations.0 is ''"),
    ],
)
def test_an_unusable_answer_is_named_and_may_be_given_again(
    ada: Agent, office: Channel, llm_server: LLMServer, given: dict[str, Any], problem: str
) -> None:
    plays(llm_server, ("send_message", given), ("send_message", GIVEN))

    run = take_turn(ada, office)

    assert (run.status, texts(office)) == ("completed", ["Paper, please."])
    (refused,) = answers(llm_server.bodies[1])
    assert problem in answer_text(refused)


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize(
    "calls",
    [
        [("send_message", without(channel="cellar")), ("send_message", without("position"))],
        [("shout", {}), ("do_nothing", {"reason": "no"})],
    ],
)
def test_two_unusable_answers_in_a_row_fail_the_turn_with_the_reason(
    ada: Agent, office: Channel, llm_server: LLMServer, calls: list[tuple[str, dict[str, Any]]]
) -> None:
    plays(llm_server, *calls, ("send_message", GIVEN))

    run = take_turn(ada, office)

    assert (run.status, llm_server.calls, texts(office)) == ("failed", 2, [])
    assert run.error.startswith("no valid answer: The") or "There is no tool 'do_nothing'" in run.error


def test_an_answer_that_was_sent_back_is_no_unusable_one(
    ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = [HERE + "AskingInDetail"]
    unusable, timid = ("send_message", without("position")), ("send_message", without(confidence=0.1))
    plays(llm_server, unusable, timid, unusable, ("send_message", GIVEN))

    run = take_turn(ada, office)

    assert (run.status, texts(office)) == ("completed", ["Paper, please."])
    assert Message.objects.get().payload["confidence"] == 0.75


@pytest.mark.usefixtures("asking")
def test_an_answer_is_given_in_the_turns_channel_only(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    cellar = make_channel("cellar")
    join(cellar, ada)
    plays(llm_server, ("send_message", without(channel="cellar")), ("send_message", GIVEN))

    take_turn(ada, office)

    assert (texts(cellar), texts(office)) == ([], ["Paper, please."])
    (refused,) = answers(llm_server.bodies[1])
    assert "The field channel is 'cellar'; allowed: office." in answer_text(refused)


@pytest.mark.usefixtures("asking")
def test_several_answers_at_once_are_one(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    llm_server.reply(tool_calls=[("send_message", GIVEN), ("send_message", without(text="And again."))])

    run = take_turn(ada, office)

    assert (run.status, texts(office)) == ("completed", ["Paper, please."])


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize(
    "given",
    [
        without(mood="good", cites=3),
        without("channel"),
    ],
)
def test_an_answer_is_not_lost_over_unknown_fields_or_a_missing_channel(
    ada: Agent, office: Channel, llm_server: LLMServer, given: dict[str, Any]
) -> None:
    plays(llm_server, ("send_message", given))

    run = take_turn(ada, office)

    message = Message.objects.get()
    assert (run.status, llm_server.calls) == ("completed", 1)
    assert (message.channel, message.text, message.payload) == (office, "Paper, please.", FIELDS)


@pytest.mark.usefixtures("asking")
def test_text_without_an_answer_is_asked_for_once_more(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, "Order paper, I would say.", ("send_message", GIVEN))

    run = take_turn(ada, office)

    assert (run.status, llm_server.calls, texts(office)) == ("completed", 2, ["Paper, please."])
    assert "with the tool `send_message`" in shown(llm_server.bodies[1])


@pytest.mark.usefixtures("asking")
def test_text_a_second_time_says_nothing(ada: Agent, office: Channel, llm_server: LLMServer) -> None:
    plays(llm_server, "I would rather not.", "No.", ("send_message", GIVEN))

    run = take_turn(ada, office)

    assert (run.status, run.stop_reason, texts(office)) == ("completed", "no_tool_call", [])
    assert llm_server.calls == 2


@pytest.mark.usefixtures("asking")
def test_a_turn_killed_after_the_reminder_is_resumed_without_a_second_one(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, "I would rather not.", "No.")
    run = take_turn(ada, office)
    RunMessage.objects.filter(run=run).latest("number").delete()
    Run.objects.filter(pk=run.pk).update(status="pending", stop_reason="", finished_at=None)
    plays(llm_server, "Still no.", ("send_message", GIVEN))

    resumed = finish_turn(Run.objects.get(pk=run.pk))

    assert (resumed.stop_reason, texts(office)) == ("no_tool_call", [])
    assert RunMessage.objects.filter(run=run, role="user").count() == 2


@pytest.mark.usefixtures("asking")
@pytest.mark.parametrize("lines", [None, ["A line of the script."]])
def test_the_scripted_actor_gives_the_answer_it_is_given(
    ada: Agent, office: Channel, settings: Settings, lines: list[str] | None
) -> None:
    settings.ACTOR_MODEL = "offline:scripted-1"
    overrides = {"says": {"text": "Paper.", **FIELDS}, **({"lines": lines} if lines else {})}

    run = take_turn(ada, office, overrides=overrides)

    message = Message.objects.get()
    assert (run.status, message.text, message.payload) == ("completed", "Paper.", FIELDS)
    assert DONE not in texts(office)


# -- without a typed answer
def test_without_a_typed_answer_the_tools_are_unchanged_to_the_byte(
    ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    plays(llm_server, "done")

    run = take_turn(ada, office)

    offered = json.dumps(llm_server.bodies[0]["tools"], indent=1, ensure_ascii=False) + "\n"
    assert offered == TOOLS_BEFORE.read_text(encoding="utf-8")
    assert "answer" not in RunMessage.objects.get(run=run, role="system").content
