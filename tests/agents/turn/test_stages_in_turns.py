"""What the stages of the pipeline do in a whole turn."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import (
    Agent,
    Channel,
    Message,
)
from tests.agents.turn import stages
from tests.agents.turn.playing import answer_text, answers, plays, take_turn, texts
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
HERE = "tests.agents.turn.stages."
SAY = ("send_message", {"channel": "office", "text": "No."})


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
