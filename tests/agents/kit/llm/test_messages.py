"""The body of a request, and what the SDK adds to it on the wire."""

from __future__ import annotations

import pytest

from agents.kit.llm import Block, Tool, ToolCall, ToolResult, Turn, complete, request_digest
from agents.kit.llm.anthropic_api import body_of
from agents.kit.models import LLMCall
from tests.agents.kit.llm.asking import act_request, judge_request, text_request
from tests.llm_server import LLMServer


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-haiku-5-5-20261007", {"type": "disabled"}),
        ("claude-haiku-4-5", None),
        ("smollm2", None),
    ],
)
def test_thinking_is_switched_off_where_it_is_on_by_default(model: str, thinking: object) -> None:
    assert body_of(judge_request(), model=model, structured=True, example=False).get("thinking") == thinking


def test_cache_breakpoints_are_sent_and_only_the_last_four() -> None:
    system = tuple(Block(f"s{number}", cache=True) for number in range(3))
    turns = (Turn("user", (Block("t0", cache=True), Block("t1", cache=True), Block("t2"))),)

    body = body_of(judge_request(system=system, turns=turns), model="m", structured=True, example=True)

    parts = [*body["system"], *(part for message in body["messages"] for part in message["content"])]
    cached = [part["text"] for part in parts if part.get("cache_control") == {"type": "ephemeral"}]
    assert cached == ["s1", "s2", "t0", "t1"]


@pytest.mark.django_db
def test_no_sampling_parameters_are_sent_and_no_facts(llm_server: LLMServer) -> None:
    complete(text_request(facts={"secret": "never sent"}))

    (body,) = llm_server.bodies
    assert set(body) == {"model", "max_tokens", "system", "messages"}
    assert "never sent" not in str(body)


@pytest.mark.django_db
def test_headers_of_a_request_are_sent_and_never_stored_or_shown(llm_server: LLMServer) -> None:
    request = text_request(headers={"x-mark": "only the gateway"})

    reply = complete(request)

    (headers,) = llm_server.headers
    assert headers["x-mark"] == "only the gateway"
    assert headers["authorization"] == "Bearer sk-test-secret"
    assert request_digest(request) == request_digest(text_request())
    assert "only the gateway" not in str([request, reply, llm_server.bodies, *LLMCall.objects.values()])


@pytest.mark.django_db
def test_nothing_of_the_sdks_environment_is_sent(llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-stray: 1\nauthorization: Bearer stray")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "stray")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "stray")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")

    for retries in (0, 2):
        assert complete(text_request(retries=retries)).ok

    for headers in llm_server.headers:
        assert headers["authorization"] == "Bearer sk-test-secret"
        assert headers["anthropic-version"] == "2026-10-21"
        assert "stray" not in str(headers)


@pytest.mark.django_db
def test_a_conversation_with_tools_is_sent_in_the_order_the_api_takes(llm_server: LLMServer) -> None:
    turns = (
        Turn("user", (Block("Your turn."),)),
        Turn("assistant", (Block("Let me see."),), tool_calls=(ToolCall("a", "look_around", {"where": {"x": [1]}}),)),
        Turn("user", (Block("Go on."),), tool_results=(ToolResult("a", "Nobody.", is_error=True),)),
    )

    complete(act_request(turns=turns))

    assert llm_server.bodies[0]["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "a", "name": "look_around", "input": {"where": {"x": [1]}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "Nobody.", "is_error": True},
                {"type": "text", "text": "Go on."},
            ],
        },
    ]


@pytest.mark.django_db
def test_empty_texts_are_never_sent(llm_server: LLMServer) -> None:
    turns = (
        Turn("user", (Block("Your turn."),)),
        Turn("assistant", (Block("\n"),), tool_calls=(ToolCall("a", "look_around", {}),)),
        Turn("user", (Block(""),), tool_results=(ToolResult("a", ""),)),
        Turn("assistant", (Block(" "),)),
    )

    complete(act_request(turns=turns))

    assert llm_server.bodies[0]["messages"][1:] == [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look_around", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]},
    ]


@pytest.mark.django_db
def test_what_cannot_be_sent_is_replaced_in_tools_inputs_and_results(llm_server: LLMServer) -> None:
    bad = "a\x00b\ud800"
    turns = (
        Turn("user", (Block("Your turn."),)),
        Turn("assistant", tool_calls=(ToolCall("a", "send_message", {"text": bad, "list": [bad]}),)),
        Turn("user", tool_results=(ToolResult("a", bad),)),
    )

    assert complete(act_request(turns=turns, tools=(Tool(name="t", description=bad, input_schema={}),))).ok

    good = "a\ufffdb\ufffd"
    body = llm_server.bodies[0]
    assert body["messages"][1]["content"][0]["input"] == {"text": good, "list": [good]}
    assert body["messages"][2]["content"][0]["content"] == good
    assert body["tools"][0]["description"] == good
