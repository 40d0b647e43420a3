"""What a model wants to do with its tools, and what of it must never be carried out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from agents.llm import InvalidAnswer, Status, ToolCall, complete
from agents.models import LLMPayload
from tests.agents.llm.asking import act_request, row_of, text_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


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
