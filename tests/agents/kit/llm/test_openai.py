"""What is particular to Chat Completions; what all providers have in common is tested with the fixture `wire`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents.kit.llm import Block, Status, Tool, ToolCall, ToolResult, Turn, Usage, complete
from agents.kit.llm.endpoints import route_of
from agents.kit.llm.providers import batch_problem
from agents.kit.llm.providers.base import Message, NoMessage
from agents.kit.llm.providers.openai import PROVIDER, REQUIREMENT
from agents.kit.models import LLMPayload, ModelPrice
from tests.agents.kit.llm.asking import SCHEMA, act_request, judge_request, row_of, text_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[4]


def completion(message: Any, **choice: Any) -> str:
    """Return an answer of the API with this message, as JSON."""
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    return json.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": choices})


# -- What is sent
def test_a_conversation_with_tools_is_sent_as_messages_of_each_role(chat_server: LLMServer) -> None:
    turns = (
        Turn("user", (Block("Your turn."), Block("Be quick."))),
        Turn("assistant", (Block("Let me see."),), tool_calls=(ToolCall("a", "look_around", {"where": {"x": [1]}}),)),
        Turn("user", (Block("Go on."),), tool_results=(ToolResult("a", "Nobody."), ToolResult("b", "Lost.", True))),
    )

    complete(act_request(turns=turns))

    (body,) = chat_server.bodies
    call = {"name": "look_around", "arguments": '{"where": {"x": [1]}}'}
    assert chat_server.paths == ["/v1/chat/completions"]
    assert body["model"] == "test-model"
    assert body["messages"] == [
        {"role": "system", "content": "You judge."},
        {"role": "user", "content": "Your turn.\n\nBe quick."},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [{"id": "a", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "Nobody."},
        {"role": "tool", "tool_call_id": "b", "content": "Error: Lost."},
        {"role": "user", "content": "Go on."},
    ]
    assert [tool["function"]["name"] for tool in body["tools"]] == ["send_message", "look_around"]
    assert body["tools"][0]["function"]["parameters"]["required"] == ["text"]


def test_empty_texts_are_never_sent(chat_server: LLMServer) -> None:
    turns = (
        Turn("user", (Block("Your turn."),)),
        Turn("assistant", (Block("\n"),), tool_calls=(ToolCall("a", "look_around", {}),)),
        Turn("user", (Block(""),), tool_results=(ToolResult("a", ""),)),
        Turn("assistant", (Block(" "),)),
    )

    complete(act_request(turns=turns, system=(Block(" "),)))

    call = {"id": "a", "type": "function", "function": {"name": "look_around", "arguments": "{}"}}
    assert chat_server.bodies[0]["messages"] == [
        {"role": "user", "content": "Your turn."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": ""},
    ]


def test_what_cannot_be_sent_is_replaced_everywhere(chat_server: LLMServer) -> None:
    bad, good = "a\x00b\ud800", "a\ufffdb\ufffd"
    turns = (
        Turn("user", (Block(bad),)),
        Turn("assistant", tool_calls=(ToolCall("a", "send_message", {"text": bad, "list": [bad]}),)),
        Turn("user", tool_results=(ToolResult("a", bad),)),
    )

    assert complete(act_request(turns=turns, tools=(Tool(name="t", description=bad, input_schema={}),))).ok

    (body,) = chat_server.bodies
    _, user, assistant, result = body["messages"]
    assert user["content"] == result["content"] == body["tools"][0]["function"]["description"] == good
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"text": good, "list": [good]}


OPTIONAL = {**SCHEMA, "required": ["score"]}
OPEN = {name: value for name, value in SCHEMA.items() if name != "additionalProperties"}


def within(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema whose only property is a list of objects of this one."""
    return {
        **SCHEMA,
        "properties": {"all": {"type": "array", "items": {"$ref": "#/$defs/one"}}},
        "required": ["all"],
    } | {"$defs": {"one": dict(part)}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [(SCHEMA, True), (OPTIONAL, False), (OPEN, False), (within(SCHEMA), True), (within(OPTIONAL), False)],
    ids=["closed", "optional", "open", "closed within", "optional within"],
)
def test_a_schema_is_strict_where_every_object_requires_all_it_allows(
    chat_server: LLMServer, schema: dict[str, Any], strict: bool
) -> None:
    complete(judge_request(schema=schema, parse=None))

    sent = chat_server.bodies[0]["response_format"]["json_schema"]
    assert (sent["schema"], sent["strict"]) == (schema, strict)


def test_nothing_of_the_sdks_environment_is_sent(chat_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "stray")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-stray: 1\nauthorization: Bearer stray")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")

    for retries in (0, 2):
        assert complete(text_request(retries=retries, headers={"x-mark": "one"})).ok

    for headers in chat_server.headers:
        assert (headers["authorization"], headers["x-mark"]) == ("Bearer sk-test-secret", "one")
        assert "stray" not in str(headers)


def test_each_server_gets_the_key_of_its_own_provider(chat_server: LLMServer, settings: Settings) -> None:
    with LLMServer() as messages:
        settings.ANTHROPIC_API_KEY = "sk-ant-secret"
        settings.ACTOR_MODEL, settings.ACTOR_BASE_URL = "claude-haiku-5-5", messages.url

        assert complete(judge_request()).ok
        assert complete(text_request()).ok

        assert "sk-test-secret" in str(chat_server.headers)
        assert "sk-ant-secret" not in str(chat_server.headers)
        assert "sk-ant-secret" in str(messages.headers)
        assert "sk-test-secret" not in str(messages.headers)


# -- What servers and models refuse, each in its way
@pytest.mark.parametrize(
    ("base_url", "field"),
    [("", "max_completion_tokens"), ("https://a.openai.azure.com/openai/v1/", "max_tokens")],
)
def test_openai_gets_its_own_name_for_the_limit_of_tokens(settings: Settings, base_url: str, field: str) -> None:
    settings.JUDGE_MODEL, settings.JUDGE_BASE_URL = "openai:gpt-5.4-mini", base_url
    route = route_of("judge")

    body = PROVIDER.body(judge_request(), route, without=())

    assert {name for name in body if "tokens" in name} == {field}


REFUSED = [
    ("max_tokens", 400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
    ("reasoning_effort", 400, "Unsupported value: 'reasoning_effort' does not support 'none' with this model."),
    ("reasoning_effort", 422, "body.reasoning_effort: Extra inputs are not permitted"),
    ("reasoning_effort", 400, "validation failed: effort must be one of: low medium high"),
]


@pytest.mark.parametrize(("field", "status", "words"), REFUSED)
def test_what_a_model_refuses_is_left_out_at_once_and_afterwards(
    chat_server: LLMServer, field: str, status: int, words: str
) -> None:
    chat_server.respond = lambda body: {"status": status, "message": words} if field in body else {"text": "Fine."}

    first, second = complete(text_request(max_tokens=77)), complete(text_request(max_tokens=77))

    assert (first.status, first.attempts, second.status, second.attempts) == (Status.OK, 2, Status.OK, 1)
    assert [field in body for body in chat_server.bodies] == [True, False, False]
    assert all(77 in body.values() for body in chat_server.bodies), "the answer is always limited"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (400, {"error": {"message": "Invalid value: 'none'.", "param": "reasoning_effort", "code": "invalid_value"}}),
        (422, {"detail": [{"loc": ["body", "reasoning_effort"], "msg": "Extra inputs are not permitted"}]}),
        (400, [{"error": {"message": "Budget 0 is invalid. This model only works in thinking mode.", "code": 400}}]),
    ],
    ids=["OpenAI", "FastAPI", "Gemini"],
)
def test_a_refusal_may_name_its_field_beside_its_words(chat_server: LLMServer, status: int, answer: Any) -> None:
    refusal = {"status": status, "raw": json.dumps(answer)}
    chat_server.respond = lambda body: refusal if "reasoning_effort" in body else None

    assert complete(judge_request()).ok
    assert complete(judge_request()).attempts == 1
    assert all("response_format" in body for body in chat_server.bodies)


def test_a_refusal_that_names_nothing_is_met_without_losing_the_schema(chat_server: LLMServer) -> None:
    refusal = {"status": 422, "message": "Unprocessable Entity"}
    chat_server.respond = lambda body: refusal if "reasoning_effort" in body else None

    replies = [complete(judge_request()) for _ in range(3)]

    assert [(reply.ok, reply.attempts) for reply in replies] == [(True, 2), (True, 2), (True, 1)]
    assert all("response_format" in body for body in chat_server.bodies)


def test_a_limit_of_tokens_that_is_refused_in_both_words_is_an_error(chat_server: LLMServer) -> None:
    chat_server.always(status=400, message="'max_tokens' or 'max_completion_tokens' is not supported")

    assert (complete(text_request()).status, chat_server.calls) == (Status.REJECTED, 2)


@pytest.mark.parametrize(
    "words",
    [
        "max_tokens is too large: 2048. This model supports at most 1024 completion tokens.",
        "'max_tokens' must be at most 1024",
        "This model's maximum context length is 8192 tokens. However, you requested 9000 (max_tokens 2048).",
    ],
)
def test_a_request_that_is_too_large_is_refused_once_and_keeps_its_limit(chat_server: LLMServer, words: str) -> None:
    chat_server.reply(status=400, message=words)

    assert (complete(judge_request()).status, chat_server.calls) == (Status.REJECTED, 1)
    assert complete(judge_request()).ok
    assert {"max_tokens", "response_format", "reasoning_effort"} <= set(chat_server.bodies[-1])


def test_a_model_that_refuses_one_thing_after_the_other_answers_in_the_end(chat_server: LLMServer) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        for field in ("max_tokens", "temperature", "reasoning_effort", "response_format"):
            if field in body:
                return {"status": 400, "message": f"Unsupported parameter: '{field}'"}
        return {"json": {"score": 7, "reason": "calm"}}

    chat_server.respond = answer

    reply = complete(judge_request(temperature=0.4))

    assert (reply.status, reply.attempts, reply.temperature_applied) == (Status.OK, 5, False)
    assert complete(judge_request(temperature=0.4)).attempts == 1


# -- What comes back
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 9}, Usage(100, 9, None, None)),
        ({"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": None}, Usage(100, 9, None, None)),
        (
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}},
            Usage(100, 9, 0, None),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}},
            Usage(36, 9, 64, None),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 9,
                "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
            },
            Usage(6, 9, 64, 30),
        ),
        (  # a server that counts them apart
            {"prompt_tokens": 10, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}},
            Usage(10, 9, 64, None),
        ),
        ({"prompt_tokens": -1, "completion_tokens": True}, Usage()),
        ({"prompt_tokens": 2**40, "completion_tokens": "9", "prompt_tokens_details": [1]}, Usage()),
        ("many", Usage()),
    ],
    ids=str,
)
def test_cached_tokens_are_not_counted_twice(chat_server: LLMServer, usage: Any, expected: Usage) -> None:
    chat_server.reply(
        raw=json.dumps(json.loads(completion({"role": "assistant", "content": "Hello."})) | {"usage": usage})
    )

    reply = complete(text_request())

    row = row_of(reply)
    assert (reply.status, reply.usage) == (Status.OK, expected)
    assert (row.input_tokens, row.cache_read_tokens) == (expected.input_tokens, expected.cache_read_tokens)


def test_the_cost_is_that_of_each_token_once(chat_server: LLMServer) -> None:
    """The server names the dated model; its price has the provider's name before it."""
    ModelPrice.objects.create(
        model="openai:test-model-2026-03-17",
        effective_from=date(2026, 1, 1),
        input_usd=Decimal(1),
        output_usd=Decimal(5),
        cache_write_usd=Decimal("1.25"),
        cache_read_usd=Decimal("0.1"),
    )
    usage = {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 4}
    chat_server.always(text="hello", usage=usage, model="test-model-2026-03-17")

    assert row_of(complete(text_request())).cost_usd == Decimal("0.000158")


@pytest.mark.parametrize(
    ("raw", "status", "text"),
    [
        (
            completion({"role": "assistant", "content": None, "refusal": "I cannot help."}),
            Status.REFUSED,
            "I cannot help.",
        ),
        (completion({"role": "assistant", "content": "Hel"}, finish_reason="content_filter"), Status.REFUSED, "Hel"),
        (completion(None, finish_reason="content_filter"), Status.REFUSED, ""),
        (completion({"role": "assistant", "content": "Hel"}, finish_reason="length"), Status.TRUNCATED, "Hel"),
        (completion({"role": "assistant", "content": None}, finish_reason="length"), Status.TRUNCATED, ""),
        (completion({"role": "assistant", "content": None}), Status.MALFORMED, ""),
        (completion({"role": "assistant", "content": "Hel"}, finish_reason="error"), Status.REJECTED, ""),
        (completion({"role": "assistant", "content": "Hello."}, finish_reason=None), Status.OK, "Hello."),
        (
            completion(
                {
                    "content": [
                        {"type": "thinking", "thinking": "Hm."},
                        {"type": "text", "text": "Hello."},
                        7,
                        {"text": "x"},
                    ]
                }
            ),
            Status.OK,
            "Hello.",
        ),
        (completion("Hello."), Status.REJECTED, ""),
        ('{"choices": []}', Status.REJECTED, ""),
        ('"choices"', Status.REJECTED, ""),
    ],
)
def test_an_answer_ends_as_its_finish_says(chat_server: LLMServer, raw: str, status: Status, text: str) -> None:
    chat_server.reply(raw=raw)

    reply = complete(text_request())

    assert (reply.status, reply.text, chat_server.calls) == (status, text, 1)


@pytest.mark.parametrize(
    ("finish_reason", "status"),
    [
        ("model_length", Status.TRUNCATED),
        ("abort", Status.TRUNCATED),
        ("insufficient_system_resource", Status.TRUNCATED),
        ("SAFETY", Status.REFUSED),
        ("eos", Status.OK),
        ("", Status.OK),
    ],
)
def test_no_answer_is_ok_that_a_server_broke_off(chat_server: LLMServer, finish_reason: str, status: Status) -> None:
    chat_server.reply(raw=completion({"content": "Hel"}, finish_reason=finish_reason))

    reply = complete(text_request())

    assert (reply.status, reply.text, row_of(reply).status) == (status, "Hel", status)


@pytest.mark.parametrize(
    "error",
    [
        {"code": "content_filter", "message": "The response was filtered due to the prompt"},
        {"code": None, "message": "filtered", "innererror": {"code": "ResponsibleAIPolicyViolation"}},
        {"code": "400", "message": "litellm.ContentPolicyViolationError: AzureException"},
    ],
    ids=["Azure", "within", "LiteLLM"],
)
def test_a_prompt_that_a_filter_stops_is_refused_and_not_asked_again(
    chat_server: LLMServer, error: dict[str, Any]
) -> None:
    chat_server.always(status=400, raw=json.dumps({"error": error}))

    reply = complete(judge_request())

    assert (reply.status, chat_server.calls) == (Status.REFUSED, 1)
    assert error["message"] in reply.error


@pytest.mark.parametrize(
    "raw",
    [
        '{"error": {"message": "THE REASON", "code": 400}}',
        '[{"error": {"code": 400, "message": "THE REASON", "status": "INVALID_ARGUMENT"}}]',
        '{"object": "error", "message": "THE REASON", "code": 400}',
        '{"object": "error", "message": {"detail": [{"loc": ["body", "n"], "msg": "THE REASON"}]}}',
        '{"detail": "THE REASON"}',
        '{"error": "THE REASON"}',
        "THE REASON",
    ],
    ids=["OpenAI", "Gemini", "vLLM", "Mistral", "FastAPI", "Ollama", "text"],
)
def test_an_error_gives_the_servers_words_whatever_its_form(chat_server: LLMServer, raw: str) -> None:
    chat_server.always(status=400, raw=raw)

    error = complete(text_request()).error
    assert error.removesuffix(" (of body.n)") == "HTTP 400: THE REASON"


@pytest.mark.parametrize("raw", ["", "{}", "[]", '{"error": 7}', "[" * 500 + "]" * 500])
def test_an_error_without_words_says_so(chat_server: LLMServer, raw: str) -> None:
    chat_server.always(status=500, raw=raw)

    reply = complete(text_request())

    assert (reply.status, reply.error) == (Status.UNAVAILABLE, "HTTP 500: no reason given")


def test_a_deployment_that_azure_does_not_know_is_named_as_such(chat_server: LLMServer) -> None:
    message = "The API deployment for this resource does not exist."
    chat_server.always(status=404, error_code="DeploymentNotFound", message=message)

    assert (
        complete(text_request()).error
        == f"HTTP 404: {message} (check the model's name: on Azure that is the deployment's)"
    )


@pytest.mark.parametrize("arguments", ['{"x": NaN}', '{"text": "Hel', "[1]", '{"a": 1, "a": 2}'])
def test_arguments_that_are_no_json_object_are_malformed_and_kept(
    chat_server: LLMServer, settings: Settings, arguments: str
) -> None:
    settings.LLM_STORE_PAYLOADS = "all"
    chat_server.reply(tool_calls=[("look_around", {}), ("send_message", arguments)])

    reply = complete(act_request())

    assert (reply.status, reply.tool_calls) == (Status.MALFORMED, ())
    assert "the input of the tool send_message is not a JSON object" in reply.error
    kept = LLMPayload.objects.get(call=row_of(reply)).tool_calls
    assert [call["input"] for call in kept] == ["{}", arguments]


NAMES = [
    "choices",
    "message",
    "content",
    "refusal",
    "finish_reason",
    "tool_calls",
    "function",
    "arguments",
    "type",
    "text",
    "id",
    "name",
    "model",
    "error",
    "usage",
    "prompt_tokens",
    "prompt_tokens_details",
    "cached_tokens",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON | JSON.map(lambda inner: {"choices": [inner]}) | JSON.map(lambda inner: {"choices": [{"message": inner}]}))
def test_any_answer_is_a_message_or_none_and_nothing_else(answer: Any) -> None:
    try:
        message = PROVIDER.read(answer)
    except NoMessage:
        return
    assert isinstance(message, Message)
    json.dumps(message.tool_blocks, allow_nan=False)
    assert "\x00" not in message.text + message.served_model


# -- An extra that is not installed
@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Python find no package openai."""
    for name in [name for name in sys.modules if name == "openai" or name.startswith("openai.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "openai", None)


def test_without_the_package_a_call_says_what_to_install(not_installed: None, settings: Settings) -> None:
    settings.JUDGE_MODEL, settings.OPENAI_API_KEY = "openai:gpt-5.4-mini", "sk-test-secret"

    reply = complete(judge_request())

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    assert (
        reply.error
        == f"JUDGE_MODEL is 'openai:gpt-5.4-mini', but openai is not installed: run pip install '{REQUIREMENT}'"
    )


def test_what_it_says_to_install_is_the_projects_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["project"]["optional-dependencies"]["openai"] == [REQUIREMENT]


def test_a_model_without_a_name_is_not_called(chat_server: LLMServer, settings: Settings) -> None:
    settings.ACTOR_MODEL = "openai:"

    reply = complete(text_request())

    assert (reply.status, chat_server.calls) == (Status.REJECTED, 0)
    assert "write the model's name after the colon" in reply.error


def test_its_questions_cannot_go_in_batches() -> None:
    assert batch_problem("openai:gpt-5.4-mini")


def test_no_sdk_is_imported_before_a_model_is_called() -> None:
    script = textwrap.dedent("""
        import sys
        import django
        django.setup()
        from agents.kit.llm.endpoints import route_of
        from agents.kit.llm.providers import providers
        assert {"anthropic", "openai"} <= set(providers())
        route_of("judge", "openai:gpt-5.4-mini")
        sys.stdout.write(" ".join({"anthropic", "openai", "httpx2"} & set(sys.modules)))
    """)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}

    ended = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
