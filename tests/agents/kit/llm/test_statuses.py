"""How every kind of answer ends, through the real SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import InvalidAnswer, Status, ToolCall, Usage, complete
from agents.kit.models import LLMCall, LLMPayload
from tests.agents.kit.llm.asking import Score, act_request, judge_request, row_of, text_request
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
def test_a_score_other_than_an_integer_from_0_to_9_is_malformed(llm_server: LLMServer, score: Any) -> None:
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


# -- What a model wants to do with its tools, and what of it must never be carried out
def block(**fields: Any) -> dict[str, Any]:
    """A block of tool use as a server might write it."""
    return {"type": "tool_use", "id": "a", "name": "look_around", "input": {}} | fields


@pytest.mark.parametrize("text", [None, "I shall greet them.", " "])
def test_tool_calls_are_an_answer_with_text_or_without(llm_server: LLMServer, text: str | None) -> None:
    llm_server.reply(text=text, tool_calls=[("send_message", {"text": "Hello."}), ("look_around", {})])

    reply = complete(act_request())

    assert (reply.status, reply.text, reply.stop_reason) == (Status.OK, text or "", "tool_use")
    assert reply.tool_calls == (
        ToolCall("toolu_1_1", "send_message", {"text": "Hello."}),
        ToolCall("toolu_1_2", "look_around", {}),
    )


def test_a_server_that_ignores_tools_gives_a_text(llm_server: LLMServer) -> None:
    llm_server.reply(text='send_message({"text": "Hello."})')

    reply = complete(act_request())

    assert (reply.status, reply.text, reply.tool_calls) == (Status.OK, 'send_message({"text": "Hello."})', ())
    assert llm_server.calls == 1


@pytest.mark.parametrize("fields", [{"text": ""}, {"text": "\n", "thinking": "What to say?"}])
def test_neither_text_nor_tool_call_is_malformed(llm_server: LLMServer, fields: dict[str, Any]) -> None:
    llm_server.reply(**fields)

    reply = complete(act_request())

    assert (reply.status, reply.error) == (Status.MALFORMED, "the answer is empty")


@pytest.mark.parametrize(
    ("stop_reason", "status"),
    [
        ("max_tokens", Status.TRUNCATED),
        ("model_context_window_exceeded", Status.TRUNCATED),
        ("refusal", Status.REFUSED),
    ],
)
def test_a_cut_or_refused_tool_call_is_not_handed_out(llm_server: LLMServer, stop_reason: str, status: Status) -> None:
    llm_server.reply(text="Well.", tool_calls=[("send_message", {"text": "I would n"})], stop_reason=stop_reason)

    reply = complete(act_request())

    assert (reply.status, reply.tool_calls) == (status, ())


def test_tool_calls_that_nobody_asked_for_are_left_alone(llm_server: LLMServer) -> None:
    llm_server.reply(text="Hello.", tool_calls=[("send_message", {"text": "Hello."})])

    reply = complete(text_request())

    assert (reply.status, reply.text, reply.tool_calls) == (Status.OK, "Hello.", ())


@pytest.mark.parametrize("input_", [{}, None, "", "{}"])
def test_an_input_left_out_is_an_empty_one(llm_server: LLMServer, input_: Any) -> None:
    llm_server.reply(tool_calls=[("look_around", input_)])

    assert complete(act_request()).tool_calls == (ToolCall("toolu_1_1", "look_around", {}),)


def test_an_input_written_as_json_text_is_read(llm_server: LLMServer) -> None:
    llm_server.reply(tool_calls=[("send_message", '{"text": "Hello\\u0000."}')])

    assert complete(act_request()).tool_calls[0].input == {"text": "Hello\ufffd."}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"input": ["Hello."]}, "the input of the tool look_around must be an object, not list"),
        ({"input": 7}, "the input of the tool look_around must be an object, not int"),
        (
            {"input": "Hello."},
            "the input of the tool look_around is not a JSON object: the answer holds no JSON object",
        ),
        ({"name": ""}, "a tool call names '', which is no name of a tool"),
        ({"name": "x" * 65}, f"a tool call names '{'x' * 64}', which is no name of a tool"),
        ({"name": None}, "a tool call names 'None', which is no name of a tool"),
    ],
)
def test_a_tool_call_that_makes_no_sense_is_malformed(llm_server: LLMServer, wrong: dict[str, Any], error: str) -> None:
    llm_server.reply(text="Well.", tool_calls=[("look_around", {}), block(**wrong)])

    reply = complete(act_request())

    assert (reply.status, reply.error, reply.tool_calls, reply.text) == (Status.MALFORMED, error, (), "Well.")


@pytest.mark.parametrize("value", ["NaN", "1e999", '{"a":' * 700 + "1" + "}" * 700])
def test_an_input_that_no_database_takes_is_malformed_and_kept_as_such(
    llm_server: LLMServer, settings: Settings, value: str
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    call = json.dumps(block(input={"x": "HERE"})).replace('"HERE"', value)
    llm_server.reply(raw=f'{{"type": "message", "role": "assistant", "content": [{call}], "stop_reason": "tool_use"}}')

    reply = complete(act_request())

    assert reply.status is Status.MALFORMED
    assert LLMPayload.objects.get(call=row_of(reply)).tool_calls == [
        {"id": "a", "name": "look_around", "input": "unreadable dict"}
    ]


@pytest.mark.parametrize(
    ("sent", "made"),
    [
        ([block(id="a"), block(id="a")], ["a", "call_1"]),
        ([block(id=None), block(id=""), block(id=3)], ["call_1", "call_2", "call_3"]),
        ([block(id=None), block(id="call_1")], ["call_1", "call_2"]),
    ],
    ids=["twice", "none", "one like ours"],
)
def test_every_tool_call_has_an_id_of_its_own(
    llm_server: LLMServer, sent: list[dict[str, Any]], made: list[str]
) -> None:
    llm_server.reply(tool_calls=sent)

    assert [call.id for call in complete(act_request()).tool_calls] == made


def test_parse_sees_the_text_and_can_refuse_it(llm_server: LLMServer) -> None:
    def no_shouting(text: str) -> str:
        if text.isupper():
            raise InvalidAnswer("no shouting")
        return text.strip()

    llm_server.reply(text=" calm ", tool_calls=[block()])
    llm_server.reply(text="LOUD", tool_calls=[block()])
    llm_server.reply(tool_calls=[block()])

    calm, loud, silent = (complete(act_request(parse=no_shouting)) for _ in range(3))

    assert (calm.value, len(calm.tool_calls)) == ("calm", 1)
    assert (loud.status, loud.error, loud.tool_calls) == (Status.MALFORMED, "no shouting", ())
    assert (silent.status, silent.value, len(silent.tool_calls)) == (Status.OK, None, 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"status": 400, "message": "tools param requires --jinja flag"}, "HTTP 400: tools param requires --jinja"),
        ({"status": 500, "message": "tool_use is not supported"}, "HTTP 500: tool_use is not supported"),
        (
            {"raw": '{"error": {"code": 400, "message": "tools param requires --jinja flag"}}'},
            "answered 200 with: {'code': 400, 'message': 'tools param",
        ),
    ],
)
def test_a_server_that_refuses_tools_says_so_once(llm_server: LLMServer, answer: dict[str, Any], error: str) -> None:
    llm_server.always(**answer)

    reply = complete(act_request())

    assert reply.status is (Status.UNAVAILABLE if answer.get("status") == 500 else Status.REJECTED)
    assert error in reply.error
    assert reply.error.endswith("(the request offers tools: a model that cannot use them cannot be an actor)")
    assert llm_server.calls == 1


# -- How a call ends that brings no usable answer: servers, networks, keys and addresses that fail, through the rea
@pytest.mark.parametrize(
    ("http_status", "status"),
    [
        (400, Status.REJECTED),
        (401, Status.REJECTED),
        (402, Status.REJECTED),
        (403, Status.REJECTED),
        (404, Status.REJECTED),
        (413, Status.REJECTED),
        (422, Status.REJECTED),
        (408, Status.UNAVAILABLE),
        (409, Status.UNAVAILABLE),
        (500, Status.UNAVAILABLE),
        (503, Status.UNAVAILABLE),
        (529, Status.UNAVAILABLE),
        (429, Status.RATE_LIMITED),
    ],
)
def test_an_http_error_is_a_value(llm_server: LLMServer, http_status: int, status: Status) -> None:
    llm_server.always(status=http_status, message="the server's words")

    reply = complete(text_request())

    assert reply.status is status
    assert reply.error.startswith(f"HTTP {http_status}: the server's words")
    assert reply.attempts == llm_server.calls == 1
    assert LLMCall.objects.get().status == status


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({"message": "model: nope"}, "(check the model's name)"),
        ({"raw": '{"error": {"message": "The model `x` does not exist.", "code": 404}}'}, "(check the model's name)"),
        ({"message": "File Not Found"}, "(this server has no /v1/messages: check the base URL http://127.0.0.1:"),
        ({"raw": '{"detail": "Not Found"}'}, "(this server has no /v1/messages: check the base URL http://127.0.0.1:"),
        (
            {"raw": "<html><h1>404 Not Found</h1></html>", "content_type": "text/html"},
            "(this server has no /v1/messages: check the base URL http://127.0.0.1:",
        ),
    ],
)
def test_a_404_names_its_cause(llm_server: LLMServer, answer: dict[str, Any], cause: str) -> None:
    llm_server.always(status=404, **answer)

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert reply.error.startswith("HTTP 404: ")
    assert cause in reply.error


def test_an_error_that_repeats_the_key_does_not_show_it(llm_server: LLMServer) -> None:
    llm_server.reply(status=401, message="invalid key sk-test-secret")

    reply = complete(text_request())

    assert reply.error == "HTTP 401: invalid key *** (check ANTHROPIC_API_KEY)"


def test_a_connection_dropped_without_an_answer_is_unavailable(llm_server: LLMServer) -> None:
    llm_server.reply(drop=True)

    reply = complete(text_request())

    assert reply.status is Status.UNAVAILABLE
    assert reply.error.startswith(f"no answer from {llm_server.url}: ")


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        ("<html>It works!</html>", "text/html"),
        ("not json", "application/json"),
        ('{"error": {"message": "model not loaded"}}', "application/json"),
        ("[]", "application/json"),
    ],
)
def test_a_200_that_is_no_message_is_rejected(llm_server: LLMServer, raw: str, content_type: str) -> None:
    llm_server.reply(raw=raw, content_type=content_type)

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "answered 200 with" in reply.error


@pytest.mark.parametrize("key", ["sk-\u00e9", "sk-test\n", "sk test"])
def test_a_key_that_no_header_can_carry_is_named_but_not_shown(
    llm_server: LLMServer, settings: Settings, key: str
) -> None:
    settings.ANTHROPIC_API_KEY = key

    reply = complete(text_request())

    assert (reply.status, llm_server.calls) == (Status.REJECTED, 0)
    assert reply.error == "ANTHROPIC_API_KEY holds a blank or a character that no key has: copy it again"


@pytest.mark.parametrize(
    "url",
    [
        "gopher://127.0.0.1:70",
        "http://[bad",
        "http://h:notaport",
        "user:s3cret@127.0.0.1:1",
        "http://user:s3cret@127.0.0.1:1",
    ],
)
def test_a_base_url_that_cannot_be_used_is_rejected_and_never_shown(settings: Settings, url: str) -> None:
    settings.ACTOR_BASE_URL = url
    settings.ACTOR_MODEL = "test-model"

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "ACTOR_BASE_URL" in reply.error
    assert "s3cret" not in reply.endpoint + reply.error
    assert LLMCall.objects.get().status == reply.status


def test_retries_are_made_as_the_request_says(llm_server: LLMServer) -> None:
    llm_server.reply(status=500, headers={"retry-after-ms": "1"})

    reply = complete(text_request(retries=1))

    assert (reply.status, reply.attempts, llm_server.calls) == (Status.OK, 2, 2)


def test_a_spend_limit_is_not_retried(llm_server: LLMServer) -> None:
    llm_server.always(status=429, message="limit reached", error_code="enforced_spend_limit_reached")

    reply = complete(text_request(retries=2))

    assert (reply.status, llm_server.calls) == (Status.RATE_LIMITED, 1)
    assert "a spend limit is reached" in reply.error


@pytest.mark.parametrize("role", ["judge", "actor"])
def test_nothing_is_sent_without_a_key_and_errors_say_what_to_set(settings: Settings, role: str) -> None:
    settings.ANTHROPIC_API_KEY = settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = ""
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = "claude-haiku-5-5"

    reply = complete(judge_request(role=role))

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    for name in ("ANTHROPIC_API_KEY", f"{role.upper()}_BASE_URL", f"{role.upper()}_MODEL=offline:"):
        assert name in reply.error
    assert LLMCall.objects.get().cost_usd == 0


def test_a_server_of_ones_own_needs_no_key(llm_server: LLMServer, settings: Settings) -> None:
    settings.ANTHROPIC_API_KEY = ""

    assert complete(text_request()).ok
    assert llm_server.headers[0]["authorization"] == "Bearer no-key-configured"


@pytest.mark.parametrize("deadline", [0, -1, float("nan")])
def test_a_deadline_must_be_positive(deadline: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        complete(text_request(), deadline=deadline)
