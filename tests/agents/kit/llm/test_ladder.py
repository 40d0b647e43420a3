"""From a schema that is enforced to an example that is followed: what is sent, and what is remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.kit.llm import Status, complete
from tests.agents.kit.llm.asking import SCHEMA, Score, judge_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

GOOD = {"score": 7, "reason": "calm"}


def shows_example(body: dict[str, Any]) -> bool:
    return any(message["role"] == "assistant" for message in body["messages"])


def test_the_schema_is_sent_as_output_config(llm_server: LLMServer) -> None:
    assert complete(judge_request()).value == Score(score=7, reason="word")

    (body,) = llm_server.bodies
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert set(body) == {"model", "max_tokens", "system", "messages", "output_config"}


def test_a_malformed_answer_is_asked_again_once_with_an_example(llm_server: LLMServer) -> None:
    llm_server.reply(text="seven", usage={"input_tokens": 50, "output_tokens": 2})
    llm_server.reply(json=GOOD)

    reply = complete(judge_request(reask=True))

    assert (reply.status, reply.value) == (Status.OK, Score(score=7, reason="calm"))
    assert [(earlier.status, earlier.text) for earlier in reply.earlier] == [(Status.MALFORMED, "seven")]
    first, second = (body["messages"] for body in llm_server.bodies)
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert json.loads(second[1]["content"][0]["text"]) == {"score": 3, "reason": "invented"}
    assert second[-1] == first[-1]


def test_an_answer_malformed_twice_is_malformed(llm_server: LLMServer) -> None:
    llm_server.always(text="seven")

    reply = complete(judge_request(reask=True))

    assert (reply.status, len(reply.earlier), llm_server.calls) == (Status.MALFORMED, 1, 2)


@pytest.mark.parametrize(
    ("changes", "stop_reason"),
    [({"reask": False}, "end_turn"), ({"reask": True, "example": None}, "end_turn"), ({"reask": True}, "refusal")],
)
def test_nothing_is_asked_again_unless_it_is_malformed_wanted_and_possible(
    llm_server: LLMServer, changes: dict[str, Any], stop_reason: str
) -> None:
    llm_server.always(text="seven", stop_reason=stop_reason)

    assert not complete(judge_request(**changes)).ok
    assert llm_server.calls == 1


def needs_example(body: dict[str, Any]) -> dict[str, Any]:
    return {"json": GOOD} if shows_example(body) else {"text": "a schema? seven!"}


def test_an_endpoint_that_needs_the_example_twice_gets_it_from_the_start(llm_server: LLMServer) -> None:
    llm_server.respond = needs_example
    for _ in range(2):
        assert complete(judge_request(reask=True)).ok
    assert llm_server.calls == 4

    reply = complete(judge_request())  # even where nothing may be asked again, as in the gate

    assert (reply.status, reply.earlier, llm_server.calls) == (Status.OK, (), 5)


def test_an_answer_that_is_good_without_the_example_resets_the_count(llm_server: LLMServer) -> None:
    for _ in range(3):
        llm_server.reply(text="seven")
        llm_server.reply(json=GOOD)
        llm_server.reply(json=GOOD)
        complete(judge_request(reask=True))
        complete(judge_request(reask=True))

    assert [shows_example(body) for body in llm_server.bodies] == [False, True, False] * 3


def without_output_config(body: dict[str, Any]) -> dict[str, Any]:
    if "output_config" in body:
        return {"status": 400, "message": "output_config: Extra inputs are not permitted"}
    return {"json": GOOD}


def test_an_endpoint_refusing_the_schema_is_asked_without_at_once_and_afterwards(
    llm_server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    llm_server.respond = without_output_config

    first, second = complete(judge_request()), complete(judge_request())

    assert (first.status, first.attempts, first.earlier) == (Status.OK, 2, ())
    assert (second.status, second.attempts) == (Status.OK, 1)
    assert ["output_config" in body for body in llm_server.bodies] == [True, False, False]
    assert caplog.text.count("takes no schema for test-model") == 1


def test_a_400_for_another_reason_stays_rejected_and_is_not_remembered(llm_server: LLMServer) -> None:
    llm_server.reply(status=400, message="prompt is too long")
    llm_server.reply(status=400, message="prompt is too long")

    assert complete(judge_request()).status is Status.REJECTED
    assert complete(judge_request()).ok
    assert "output_config" in llm_server.bodies[-1]


def test_a_failure_without_the_schema_too_is_not_blamed_on_the_schema(llm_server: LLMServer) -> None:
    llm_server.reply(status=400, message="busy loading the model")
    llm_server.reply(drop=True)

    first, second = complete(judge_request()), complete(judge_request())

    assert (first.status, first.attempts) == (Status.UNAVAILABLE, 2)
    assert second.ok
    assert "output_config" in llm_server.bodies[-1]
