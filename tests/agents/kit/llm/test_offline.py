"""The provider with no key and no network."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import InvalidAnswer, LLMRequest, Status, ToolCall, Usage, complete
from tests.agents.kit.llm.asking import Score, act_request, judge_request, row_of
from tests.declaring import declare

pytestmark = pytest.mark.django_db

HERE = "tests.agents.kit.llm.test_offline"


def score_from_facts(request: LLMRequest) -> dict[str, Any]:
    return {"score": request.facts["score"], "reason": "looked up"}


def say_hello(request: LLMRequest) -> str:
    return "Hello."


def acts_on_facts(request: LLMRequest) -> Any:
    return dict(request.facts)


def has_nothing_to_say(request: LLMRequest) -> Any:
    raise LookupError("no cue of this claim occurs; it needs an LLM judge")


def finds_it_senseless(request: LLMRequest) -> Any:
    raise InvalidAnswer("facts: no messages")


def crashes(request: LLMRequest) -> Any:
    raise ZeroDivisionError


@pytest.fixture(autouse=True)
def offline(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.JUDGE_MODEL, settings.ACTOR_MODEL = "offline:lexical-1", "offline:scripted-1"
    declare(monkeypatch, "offline_responders", {"score": f"{HERE}.score_from_facts", "act": f"{HERE}.say_hello"})


def test_the_responder_of_the_task_answers_from_the_facts() -> None:
    reply = complete(judge_request(facts={"score": 4}))

    assert (reply.status, reply.value) == (Status.OK, Score(score=4, reason="looked up"))
    assert (reply.provider, reply.model, reply.served_model) == ("offline", "offline:lexical-1", "offline:lexical-1")
    assert (reply.endpoint, reply.attempts, reply.usage) == ("", 0, Usage(0, 0, 0, 0))
    row = row_of(reply)
    assert (row.cost_usd, row.input_tokens, row.provider) == (Decimal(0), 0, "offline")


def test_its_answer_is_checked_like_any_other() -> None:
    reply = complete(judge_request(facts={"score": 97}))

    assert (reply.status, reply.value) == (Status.MALFORMED, None)
    assert reply.error.startswith("score: Input should be less than or equal to 9")


def test_a_responder_can_use_the_tools_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "offline_responders", {"act": f"{HERE}.acts_on_facts"})
    calls = [{"name": "send_message", "input": {"text": "Hello."}}, {"name": "look_around", "input": {}}]

    reply = complete(act_request(facts={"text": "I greet them.", "tool_calls": calls}))

    assert (reply.status, reply.text, reply.provider) == (Status.OK, "I greet them.", "offline")
    assert reply.tool_calls == (
        ToolCall("call_1", "send_message", {"text": "Hello."}),
        ToolCall("call_2", "look_around", {}),
    )


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            {"tool_calls": "send_message"},
            "the responder's text must be a string and its tool_calls a list of objects",
        ),
        (
            {"tool_calls": [{"name": "send_message", "input": ["Hello."]}]},
            "the input of the tool send_message must be an object, not list",
        ),
    ],
)
def test_its_tool_calls_are_checked_like_any_others(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], error: str
) -> None:
    declare(monkeypatch, "offline_responders", {"act": f"{HERE}.acts_on_facts"})

    reply = complete(act_request(facts=given))

    assert (reply.status, reply.error, reply.tool_calls) == (Status.MALFORMED, error, ())


def test_a_task_nobody_answers_offline_is_rejected() -> None:
    reply = complete(judge_request(task="persuade"))

    assert reply.status is Status.REJECTED
    assert reply.error == ("no offline responder for task 'persuade' (there are: act, score); this needs an LLM")


@pytest.mark.parametrize(
    ("responder", "status", "error"),
    [
        ("has_nothing_to_say", Status.REJECTED, "no cue of this claim occurs; it needs an LLM judge"),
        ("finds_it_senseless", Status.MALFORMED, "facts: no messages"),
        ("crashes", Status.REJECTED, "the offline responder failed: ZeroDivisionError: "),
        ("does_not_exist", Status.REJECTED, "the offline responder failed: ImportError: "),
    ],
)
def test_what_a_responder_raises_becomes_a_status(
    monkeypatch: pytest.MonkeyPatch, responder: str, status: Status, error: str
) -> None:
    declare(monkeypatch, "offline_responders", {"score": f"{HERE}.{responder}"})

    reply = complete(judge_request())

    assert reply.status is status
    assert reply.error.startswith(error.strip())
