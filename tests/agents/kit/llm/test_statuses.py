"""How every kind of answer ends, through the real SDK of each provider."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import InvalidAnswer, Status, ToolCall, Usage, complete
from agents.kit.models import LLMCall, LLMPayload
from tests.agents.kit.llm.asking import Score, act_request, judge_request, row_of, text_request
from tests.agents.kit.llm.conftest import Wire, over_open_wires
from tests.llm_server import LLMServer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("wire")]

GOOD = {"score": 7, "reason": "calm"}


def test_an_answer_says_who_gave_it_and_what_it_used(llm_server: LLMServer, wire: Wire) -> None:
    """A first thought of the model, in a block of its own, is no answer."""
    usage = {"input_tokens": 12, "output_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
    text = f"```json\n{json.dumps(GOOD)}\n```"
    llm_server.reply(text=text, thinking='Maybe {"score": 2, "reason": "x"}?', model="served-model", usage=usage)
    llm_server.reply(json=GOOD, usage=None)

    reply = complete(judge_request())
    uncounted = complete(judge_request())

    assert (reply.status, reply.value, reply.text, reply.error) == (Status.OK, Score(score=7, reason="calm"), text, "")
    assert (reply.provider, reply.endpoint) == (wire.name, wire.url(llm_server))
    assert (reply.model, reply.served_model) == (wire.model("test-model"), "served-model")
    assert (reply.request_id, reply.attempts, reply.stop_reason) == ("req_1", 1, "end_turn")
    assert reply.usage == Usage(12, 3, 40, 5)
    assert (uncounted.ok, uncounted.usage) == (True, Usage(None, None, None, None)), "unknown, not zero"


def test_without_a_schema_the_text_is_the_answer_unless_it_is_empty(llm_server: LLMServer) -> None:
    llm_server.reply(text="Good evening. {not json}")
    llm_server.reply(text=" ")

    said, empty = complete(text_request()), complete(text_request())

    assert (said.status, said.text, said.value) == (Status.OK, "Good evening. {not json}", None)
    assert (empty.status, empty.error) == (Status.MALFORMED, "the answer is empty")


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        ({"stop_reason": "refusal"}, Status.REFUSED, ""),
        ({"json": GOOD, "stop_reason": "max_tokens"}, Status.TRUNCATED, "the answer was cut at"),
        ({"json": GOOD, "stop_reason": "model_context_window_exceeded"}, Status.TRUNCATED, "the answer was cut at"),
        ({"json": {**GOOD, "score": 97}}, Status.MALFORMED, "score: "),
        ({"json": {**GOOD, "score": "7"}}, Status.MALFORMED, "score: "),
        ({"json": {"reason": "calm"}}, Status.MALFORMED, "score: Field required"),
        ({"json": {**GOOD, "mood": "b"}}, Status.MALFORMED, "mood: Extra inputs"),
        ({"text": "seven out of nine"}, Status.MALFORMED, "no JSON object"),
    ],
    ids=str,
)
def test_an_answer_that_is_not_the_object_asked_for_has_no_value(
    llm_server: LLMServer, sent: dict[str, Any], status: Status, error: str
) -> None:
    llm_server.reply(**sent)

    reply = complete(judge_request())

    assert (reply.status, reply.value) == (status, None)
    assert error in reply.error
    assert reply.text == sent.get("text", reply.text)


def test_a_callers_complaint_is_the_error_and_its_crash_costs_one_answer(
    llm_server: LLMServer, caplog: pytest.LogCaptureFixture
) -> None:
    def complain(result: Any) -> None:
        raise InvalidAnswer("propositions[2]: no score")

    complained = complete(judge_request(parse=complain))
    crashed = complete(judge_request(parse=lambda result: result["no such key"]))

    assert (complained.status, complained.error) == (Status.MALFORMED, "propositions[2]: no score")
    assert (crashed.status, crashed.error) == (Status.MALFORMED, "reading the answer failed: KeyError: 'no such key'")
    assert "parse of task score failed" in caplog.text


# -- What a model wants to do with its tools, and what of it must never be carried out
def block(**fields: Any) -> dict[str, Any]:
    """A block of tool use as a server might write it."""
    return {"type": "tool_use", "id": "a", "name": "look_around", "input": {}} | fields


@pytest.mark.parametrize("text", [None, "I shall greet them."])
def test_tool_calls_are_an_answer_with_text_or_without(llm_server: LLMServer, text: str | None) -> None:
    llm_server.reply(text=text, tool_calls=[("send_message", {"text": "Hello."}), ("look_around", {})])

    reply = complete(act_request())

    assert (reply.status, reply.text, reply.stop_reason) == (Status.OK, text or "", "tool_use")
    assert reply.tool_calls == (
        ToolCall("toolu_1_1", "send_message", {"text": "Hello."}),
        ToolCall("toolu_1_2", "look_around", {}),
    )


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"text": 'send_message({"text": "Hello."})'}, Status.OK),  # a server that ignores tools
        ({"text": "\n", "thinking": "What to say?"}, Status.MALFORMED),
        ({"tool_calls": [("send_message", {"text": "I would n"})], "stop_reason": "max_tokens"}, Status.TRUNCATED),
        ({"tool_calls": [("send_message", {"text": "I would n"})], "stop_reason": "refusal"}, Status.REFUSED),
    ],
    ids=["text", "nothing", "cut", "refused"],
)
def test_no_tool_call_is_handed_out_that_was_not_made_whole(
    llm_server: LLMServer, sent: dict[str, Any], status: Status
) -> None:
    llm_server.reply(**sent)

    reply = complete(act_request())

    assert (reply.status, reply.tool_calls, llm_server.calls) == (status, (), 1)


def test_tool_calls_that_nobody_asked_for_are_left_alone(llm_server: LLMServer) -> None:
    llm_server.reply(text="Hello.", tool_calls=[("send_message", {"text": "Hello."})])

    reply = complete(text_request())

    assert (reply.status, reply.text, reply.tool_calls) == (Status.OK, "Hello.", ())


def test_an_input_may_be_left_out_or_written_as_json_text(llm_server: LLMServer) -> None:
    inputs = [None, "", "{}", '{"text": "Hello\\u0000."}']
    llm_server.reply(tool_calls=[("look_around", given) for given in inputs])

    assert [call.input for call in complete(act_request()).tool_calls] == [{}, {}, {}, {"text": "Hello\ufffd."}]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"input": ["Hello."]}, "the input of the tool look_around must be an object, not list"),
        (
            {"input": "Hello."},
            "the input of the tool look_around is not a JSON object: the answer holds no JSON object",
        ),
        ({"name": ""}, "a tool call names '', which is no name of a tool"),
        ({"name": "x" * 65}, f"a tool call names '{'x' * 64}', which is no name of a tool"),
    ],
)
def test_a_tool_call_that_makes_no_sense_is_malformed(llm_server: LLMServer, wrong: dict[str, Any], error: str) -> None:
    llm_server.reply(text="Well.", tool_calls=[("look_around", {}), block(**wrong)])

    reply = complete(act_request())

    assert (reply.status, reply.error, reply.tool_calls, reply.text) == (Status.MALFORMED, error, (), "Well.")


RAW_TOOL_CALLS = {
    "messages": (
        '{"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": '
        '[{"type": "tool_use", "id": "a", "name": "look_around", "input": {"x": HERE}}]}'
    ),
    "chat completions": (
        '{"choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": '
        '[{"type": "function", "id": "a", "function": {"name": "look_around", "arguments": {"x": HERE}}}]}}]}'
    ),
}


@pytest.mark.parametrize("value", ["NaN", '{"a":' * 700 + "1" + "}" * 700], ids=["no number", "deep"])
def test_an_input_that_no_database_takes_is_malformed_and_kept_as_such(
    llm_server: LLMServer, settings: Settings, wire: Wire, value: str
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    llm_server.reply(raw=RAW_TOOL_CALLS[wire.protocol].replace("HERE", value))

    reply = complete(act_request())

    assert reply.status is Status.MALFORMED
    assert LLMPayload.objects.get(call=row_of(reply)).tool_calls == [
        {"id": "a", "name": "look_around", "input": "unreadable dict"}
    ]


def test_every_tool_call_has_an_id_of_its_own(llm_server: LLMServer) -> None:
    llm_server.reply(tool_calls=[block(id="a"), block(id="a"), block(id=None), block(id=3), block(id="call_1")])

    assert [call.id for call in complete(act_request()).tool_calls] == ["a", "call_1", "call_2", "call_3", "call_4"]


def test_parse_sees_the_text_beside_tool_calls_and_can_refuse_it(llm_server: LLMServer) -> None:
    def no_shouting(text: str) -> str:
        if text.isupper():
            raise InvalidAnswer("no shouting")
        return text.strip()

    for text in (" calm ", "LOUD", None):
        llm_server.reply(text=text, tool_calls=[block()])

    calm, loud, silent = (complete(act_request(parse=no_shouting)) for _ in range(3))

    assert (calm.value, len(calm.tool_calls)) == ("calm", 1)
    assert (loud.status, loud.error, loud.tool_calls) == (Status.MALFORMED, "no shouting", ())
    assert (silent.status, silent.value, len(silent.tool_calls)) == (Status.OK, None, 1)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"status": 400, "message": "tools param requires --jinja flag"}, Status.REJECTED),
        ({"raw": '{"error": {"code": 400, "message": "tools param requires --jinja flag"}}'}, Status.REJECTED),
    ],
)
def test_a_server_that_refuses_tools_says_so_once(
    llm_server: LLMServer, answer: dict[str, Any], status: Status
) -> None:
    llm_server.always(**answer)

    reply = complete(act_request())

    assert reply.status is status
    assert "tools param requires --jinja" in reply.error
    assert reply.error.endswith("(the request offers tools: a model that cannot use them cannot be an actor)")
    assert llm_server.calls == 1


# -- How a call ends that brings no usable answer: servers, networks, keys and addresses that fail
@pytest.mark.parametrize(
    ("http_status", "status"),
    [
        (400, Status.REJECTED),
        (422, Status.REJECTED),
        (408, Status.UNAVAILABLE),
        (409, Status.UNAVAILABLE),
        (500, Status.UNAVAILABLE),
        (529, Status.UNAVAILABLE),
        (429, Status.RATE_LIMITED),
    ],
)
def test_an_http_error_is_a_value(llm_server: LLMServer, wire: Wire, http_status: int, status: Status) -> None:
    llm_server.always(status=http_status, message="the server's words")

    reply = complete(text_request())

    assert reply.status is status
    assert reply.error.startswith(f"HTTP {http_status}: the server's words")
    # A server of Chat Completions that names nothing may mean what few of them know: that the model is not to think.
    is_asked_again = wire.name == "openai" and http_status in (400, 422)
    assert reply.attempts == llm_server.calls == (2 if is_asked_again else 1)
    assert LLMCall.objects.get().status == status


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        ({"message": "model: nope"}, "(check the model's name)"),
        (
            {"raw": "<html><h1>404 Not Found</h1></html>", "content_type": "text/html"},
            "(this server has no {path}: check the base URL http://127.0.0.1:",
        ),
    ],
)
def test_a_404_names_its_cause(llm_server: LLMServer, wire: Wire, answer: dict[str, Any], cause: str) -> None:
    llm_server.always(status=404, **answer)

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert reply.error.startswith("HTTP 404: ")
    assert cause.format(path=wire.added_path) in reply.error


@pytest.mark.parametrize("http_status", [301, 307])
def test_a_redirect_is_not_followed_and_is_named(llm_server: LLMServer, wire: Wire, http_status: int) -> None:
    with LLMServer() as other:
        llm_server.always(status=http_status, headers={"location": other.url + "/v1/messages"})

        reply = complete(text_request())

        assert (reply.status, llm_server.calls, other.calls) == (Status.REJECTED, 1, 0)
        assert f"HTTP {http_status}" in reply.error
        assert "redirects are not followed" in reply.error


@over_open_wires
def test_an_error_that_repeats_the_key_does_not_show_it(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.reply(status=401, message="invalid key sk-test-secret")

    assert complete(text_request()).error == f"HTTP 401: invalid key *** (check {wire.key_setting})"


def test_a_connection_dropped_without_an_answer_is_unavailable(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.reply(drop=True)

    reply = complete(text_request())

    assert reply.status is Status.UNAVAILABLE
    assert reply.error.startswith(f"no answer from {wire.url(llm_server)}: ")


@pytest.mark.parametrize("raw", ["not json", '{"error": {"message": "model not loaded"}}', "[]"])
def test_a_200_that_is_no_message_is_rejected(llm_server: LLMServer, raw: str) -> None:
    llm_server.reply(raw=raw)

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "answered 200 with" in reply.error


@over_open_wires
@pytest.mark.parametrize("key", ["sk-\u00e9", "sk test", "sk-test\n"])
def test_a_key_that_no_header_can_carry_is_named_but_not_shown(
    llm_server: LLMServer, settings: Settings, wire: Wire, key: str
) -> None:
    setattr(settings, wire.key_setting, key)

    reply = complete(text_request())

    assert (reply.status, llm_server.calls) == (Status.REJECTED, 0)
    assert wire.key_setting in reply.error
    assert key not in reply.error


@over_open_wires
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
def test_a_base_url_that_cannot_be_used_is_rejected_and_never_shown(settings: Settings, wire: Wire, url: str) -> None:
    settings.ACTOR_BASE_URL = url
    settings.ACTOR_MODEL = wire.model("test-model")

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "ACTOR_BASE_URL" in reply.error
    assert "s3cret" not in reply.endpoint + reply.error
    assert LLMCall.objects.get().status == reply.status


def test_a_spend_limit_is_not_retried(llm_server: LLMServer, wire: Wire) -> None:
    llm_server.always(status=429, message="limit reached", error_code=wire.quota_code)

    reply = complete(text_request(retries=2))

    assert (reply.status, llm_server.calls) == (Status.RATE_LIMITED, 1)
    assert wire.quota_words in reply.error


@over_open_wires
@pytest.mark.parametrize("role", ["judge", "actor"])
def test_nothing_is_sent_without_a_key_and_errors_say_what_to_set(settings: Settings, wire: Wire, role: str) -> None:
    setattr(settings, wire.key_setting, "")
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = ""

    reply = complete(judge_request(role=role))

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    for name in (wire.key_setting, f"{role.upper()}_BASE_URL", f"{role.upper()}_MODEL=offline:"):
        assert name in reply.error
    assert LLMCall.objects.get().cost_usd == 0


@over_open_wires
def test_a_server_of_ones_own_needs_no_key(llm_server: LLMServer, settings: Settings, wire: Wire) -> None:
    setattr(settings, wire.key_setting, "")

    assert complete(text_request()).ok
    assert llm_server.headers[0]["authorization"] == "Bearer no-key-configured"


@pytest.mark.parametrize("deadline", [0, float("nan")])
def test_a_deadline_must_be_positive(deadline: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        complete(text_request(), deadline=deadline)
