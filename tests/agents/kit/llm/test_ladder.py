"""From a schema that is enforced to an example that is followed: what is sent, and what is remembered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.kit.llm import Status, complete
from tests.agents.kit.llm.asking import Score, judge_request, text_of
from tests.agents.kit.llm.conftest import Wire, over_open_wires
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire")]

GOOD = {"score": 7, "reason": "calm"}


def shows_example(body: dict[str, Any]) -> bool:
    return any(message["role"] == "assistant" for message in body["messages"])


FIELDS = {
    "anthropic": {"model", "max_tokens", "system", "messages", "output_config"},
    "openai": {"model", "max_tokens", "messages", "response_format", "reasoning_effort"},
}


@over_open_wires
def test_the_schema_is_sent_in_the_form_of_the_provider(llm_server: LLMServer, wire: Wire) -> None:
    assert complete(judge_request()).value == Score(score=7, reason="word")

    (body,) = llm_server.bodies
    assert body[wire.schema_field] == wire.schema_form
    assert set(body) == FIELDS[wire.name]


def test_a_malformed_answer_is_asked_again_once_with_an_example(llm_server: LLMServer) -> None:
    llm_server.reply(text="seven", usage={"input_tokens": 50, "output_tokens": 2})
    llm_server.reply(json=GOOD)

    reply = complete(judge_request(reask=True))

    assert (reply.status, reply.value) == (Status.OK, Score(score=7, reason="calm"))
    assert [(earlier.status, earlier.text) for earlier in reply.earlier] == [(Status.MALFORMED, "seven")]
    first, second = (body["messages"] for body in llm_server.bodies)
    assert [message["role"] for message in second][-3:] == ["user", "assistant", "user"]
    assert json.loads(text_of(second[-2])) == {"score": 3, "reason": "invented"}
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


def test_an_endpoint_refusing_the_schema_is_asked_without_at_once_and_afterwards(
    llm_server: LLMServer, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_schema(body: dict[str, Any]) -> dict[str, Any]:
        if wire.schema_field in body:
            return {"status": 400, "message": f"{wire.schema_field}: Extra inputs are not permitted"}
        return {"json": GOOD}

    llm_server.respond = refuse_schema

    first, second = complete(judge_request()), complete(judge_request())

    assert (first.status, first.attempts, first.earlier) == (Status.OK, 2, ())
    assert (second.status, second.attempts) == (Status.OK, 1)
    assert [wire.schema_field in body for body in llm_server.bodies] == [True, False, False]
    assert caplog.text.count(f"takes no schema for {wire.model('test-model')}") == 1


def test_a_400_for_another_reason_stays_rejected_and_is_not_remembered(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.reply(status=400, message="prompt is too long")

    assert complete(judge_request()).status is Status.REJECTED
    assert llm_server.calls == 1
    assert complete(judge_request()).ok
    assert wire.schema_field in llm_server.bodies[-1]


def test_a_failure_without_the_schema_too_is_not_blamed_on_the_schema(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.reply(status=400, message="busy loading the model")
    llm_server.reply(drop=True)

    first, second = complete(judge_request()), complete(judge_request())

    assert (first.status, first.attempts) == (Status.UNAVAILABLE, 2)
    assert second.ok
    assert wire.schema_field in llm_server.bodies[-1]


def test_one_refusal_by_chance_takes_nothing_from_later_requests(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.always(json=GOOD)
    llm_server.reply(status=400, message="the weights are loading, try again")
    assert complete(judge_request()).ok
    assert complete(judge_request()).ok
    whole = llm_server.bodies[-1]
    llm_server.reply(status=400, message="the weights are loading, try again")
    assert complete(judge_request()).ok

    assert complete(judge_request()).attempts == 1
    assert set(llm_server.bodies[-1]) == set(whole)
    assert wire.schema_field in whole
