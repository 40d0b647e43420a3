"""How every kind of answer ends, through the real SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.llm import InvalidAnswer, Status, Usage, complete
from tests.agents.llm.asking import Score, judge_request, text_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


GOOD = {"score": 7, "reason": "calm"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"```json\n{json.dumps(GOOD, indent=2)}\n```",
        f"Sure! Here is my evaluation of {{name}}:\n{json.dumps(GOOD)}\nLet me know if you need more.",
    ],
    ids=["plain", "fenced", "in prose"],
)
def test_one_json_object_is_ok_wherever_it_stands(llm_server: LLMServer, text: str) -> None:
    llm_server.reply(text=text)

    reply = complete(judge_request())

    assert (reply.status, reply.value, reply.text) == (Status.OK, Score(score=7, reason="calm"), text)
    assert reply.ok
    assert reply.error == ""


def test_a_thinking_block_before_the_answer_is_skipped(llm_server: LLMServer) -> None:
    llm_server.reply(json=GOOD, thinking='Maybe {"score": 2, "reason": "a first thought"}?')

    assert complete(judge_request()).value == Score(score=7, reason="calm")


def test_a_reply_says_who_answered_and_what_it_used(llm_server: LLMServer) -> None:
    usage = {"input_tokens": 12, "output_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
    llm_server.reply(json=GOOD, model="served-model", usage=usage)

    reply = complete(judge_request())

    assert reply.usage == Usage(12, 3, 40, 5)
    assert (reply.provider, reply.endpoint) == ("anthropic", llm_server.url)
    assert (reply.model, reply.served_model) == ("test-model", "served-model")
    assert (reply.request_id, reply.attempts, reply.stop_reason) == ("req_1", 1, "end_turn")


def test_tokens_that_a_server_does_not_report_are_unknown_not_zero(llm_server: LLMServer) -> None:
    llm_server.reply(json=GOOD, usage=None)

    reply = complete(judge_request())

    assert reply.ok
    assert reply.usage == Usage(None, None, None, None)


def test_without_a_schema_the_text_is_the_answer(llm_server: LLMServer) -> None:
    llm_server.reply(text="Good evening. {not json}")

    reply = complete(text_request())

    assert (reply.status, reply.text, reply.value) == (Status.OK, "Good evening. {not json}", None)


def test_an_empty_text_is_malformed(llm_server: LLMServer) -> None:
    llm_server.reply(text=" ")

    reply = complete(text_request())

    assert (reply.status, reply.error) == (Status.MALFORMED, "the answer is empty")


def test_a_refusal_is_refused(llm_server: LLMServer) -> None:
    llm_server.reply(stop_reason="refusal")

    reply = complete(judge_request())

    assert (reply.status, reply.value, reply.stop_reason) == (Status.REFUSED, None, "refusal")


@pytest.mark.parametrize("stop_reason", ["max_tokens", "model_context_window_exceeded"])
def test_a_cut_answer_is_truncated_even_when_it_parses(llm_server: LLMServer, stop_reason: str) -> None:
    llm_server.reply(json=GOOD, stop_reason=stop_reason)

    reply = complete(judge_request(max_tokens=64))

    assert (reply.status, reply.value) == (Status.TRUNCATED, None)
    assert reply.error.startswith("the answer was cut at")


@pytest.mark.parametrize("score", [97, -1, "7", 7.5, None, True, [7], {"value": 7}])
def test_a_score_that_is_not_an_integer_from_0_to_9_is_malformed(llm_server: LLMServer, score: Any) -> None:
    llm_server.reply(json={"score": score, "reason": "calm"})

    reply = complete(judge_request())

    assert (reply.status, reply.value) == (Status.MALFORMED, None)
    assert reply.error.startswith("score: ")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"score": 7, "reason": "a"} {"score": 2, "reason": "b"}', "more than one JSON object"),
        ("{'score': 7, 'reason': None}", "not JSON"),
        ('{"score": NaN, "reason": "a"}', "NaN"),
        ('{"score": 7, "score": 2, "reason": "a"}', "twice"),
        ('{"score": 7', "not JSON"),
        ("seven out of nine", "no JSON object"),
        ("", "empty"),
        ('{"reason": "calm"}', "score: Field required"),
        ('{"score": 7, "reason": "a", "mood": "b"}', "mood: Extra inputs"),
        ('[{"score": 7, "reason": "a"}]', "list of objects"),
    ],
)
def test_an_answer_that_is_not_the_object_asked_for_is_malformed(llm_server: LLMServer, text: str, error: str) -> None:
    llm_server.reply(text=text)

    reply = complete(judge_request())

    assert (reply.status, reply.value, reply.text) == (Status.MALFORMED, None, text)
    assert error in reply.error


def test_the_callers_own_complaint_is_the_error(llm_server: LLMServer) -> None:
    def parse(result: Any) -> None:
        raise InvalidAnswer("propositions[2]: no score")

    reply = complete(judge_request(parse=parse))

    assert (reply.status, reply.error) == (Status.MALFORMED, "propositions[2]: no score")


def test_a_parse_that_crashes_costs_one_answer_not_the_run(
    llm_server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    reply = complete(judge_request(parse=lambda result: result["no such key"]))

    assert reply.status is Status.MALFORMED
    assert reply.error == "reading the answer failed: KeyError: 'no such key'"
    assert "parse of task score failed" in caplog.text
