"""OpenAI's Chat Completions, and any server that speaks them: Azure OpenAI, Gemini's compatible endpoint, vLLM, LiteLLM, OpenRouter.

The SDK is an optional extra of the project. Models are named ``openai:NAME``, with the name that the server knows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from django.conf import settings

from agents.kit.llm.providers.base import (
    MAX_DETAIL,
    PLACEHOLDER_KEY,
    Failure,
    Message,
    NoMessage,
    RemoteProvider,
    Route,
    failure_by_status,
    failure_without_answer,
    hint_of_404,
    is_installed,
    is_overflow,
    key_fault,
    no_key,
    token_count,
    url_fault,
    words_of,
)
from agents.kit.llm.requests import (
    UNKNOWN_END,
    Block,
    LLMRequest,
    Role,
    Status,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    Usage,
    short_line,
    tool_block,
)
from agents.kit.text.storable import storable

if TYPE_CHECKING:
    import httpx2
    from openai import APIStatusError

REQUIREMENT = "openai>=3.57,<4"  # as in pyproject.toml
OPENAI_URL = "https://api.openai.com/v1"
PATH = "/chat/completions"
NAME_OF_SCHEMA = "answer"  # the API asks for one

# The words of `read_answer` for those of the API, and of servers that have some of their own: Mistral, Gemini, vLLM and others.
STOP_REASONS = {
    "stop": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "tool_use": "tool_use",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "model_context_window_exceeded",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
}
MAX_STOP_REASON = 32  # characters, as the ledger keeps them
# Codes of an error with which a filter refuses a prompt, and how LiteLLM begins such an error.
FILTER_CODES = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")
FILTER_WORDS = "litellm.ContentPolicyViolationError"
QUOTA_CODES = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
REASONING_WORDS = ("reasoning", "effort", "thinking")
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
# With these a server says that it does not know the name of a field, and not that its value is wrong.
UNKNOWN_WORDS = ("unsupported", "not supported", "unknown", "unrecognized", "unexpected", "permitted", "instead")


class OpenAI(RemoteProvider):
    """OpenAI's own API, or the server that a base URL names."""

    name = "openai"
    own_url = OPENAI_URL
    request_id_headers = ("x-request-id", "request-id", "apim-request-id")
    hopeless_words = QUOTA_CODES
    schema_field = "response_format"

    # -- where it is
    def problem(self, role: Role, model: str, url: str) -> str:
        key = settings.OPENAI_API_KEY
        setting = f"{role.upper()}_BASE_URL"
        if not is_installed("openai"):
            return f"{role.upper()}_MODEL is {model!r}, but openai is not installed: run pip install '{REQUIREMENT}'"
        if not self.bare_name(model):
            return (
                f"{role.upper()}_MODEL is {model!r}: write the model's name after the colon, as in openai:gpt-5.4-mini"
            )
        if fault := key_fault(key):
            return f"OPENAI_API_KEY {fault}"
        if url and (fault := url_fault(url, key_setting="OPENAI_API_KEY")):
            return f"{setting} {fault}"
        if key or url:
            return ""
        return no_key(role, model, key_setting="OPENAI_API_KEY", speaks="Chat Completions")

    def base_url(self, url: str) -> str:
        return url or OPENAI_URL

    def key(self) -> str:
        return settings.OPENAI_API_KEY or PLACEHOLDER_KEY

    # -- the client
    def import_sdk(self) -> None:
        import httpcore2  # noqa: F401
        import openai  # noqa: F401

    def new_pool(self, route: Route, **options: Any) -> httpx2.AsyncClient:
        import openai

        return openai.DefaultAsyncHttpxClient(base_url=route.base_url, **options)

    def new_client(self, route: Route, *, retries: int, pool: httpx2.AsyncClient) -> Any:
        """Return a client that sends nothing of OPENAI_ORG_ID and its like: those for one server would be sent to another."""
        import openai

        client = openai.AsyncOpenAI(api_key=route.key, base_url=route.base_url, max_retries=retries, http_client=pool)
        client.organization = client.project = client.admin_api_key = None
        client._custom_headers = {}
        return client

    # -- one call
    def body(self, request: LLMRequest, route: Route, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the body of a completion. Texts are sent as one string each, which every server takes; blank ones are left out."""
        messages: list[dict[str, Any]] = []
        if system := _joined(request.system):
            messages.append({"role": "system", "content": system})
        for turn in request.turns:
            messages += _messages(turn)
        body: dict[str, Any] = {
            "model": route.model_at_server,
            "messages": messages,
            self._token_limit(route, without): request.max_tokens,
        }
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if request.temperature is not None and "temperature" not in without:
            body["temperature"] = request.temperature
        if request.schema is not None and "schema" not in without:
            body[self.schema_field] = _response_format(request.schema)
        if "reasoning_effort" not in without:
            body["reasoning_effort"] = "none"  # most models think by default, and thoughts count against the limit
        return body

    def _token_limit(self, route: Route, without: Collection[str]) -> str:
        """Return the field that limits the answer: OpenAI's models refuse the old name, many other servers do not know the new one."""
        first, second = TOKEN_LIMITS
        if self.is_own_server(route):
            first, second = second, first
        return second if first in without else first

    async def send(self, client: Any, body: Mapping[str, Any], *, headers: Mapping[str, str], seconds: float) -> object:
        """Send a body and return the answer as the JSON that it is: compatible servers send much that the SDK has no types for."""
        import httpx2

        options = {"headers": dict(headers), "timeout": seconds}
        response = await client.post(PATH, body=dict(body), cast_to=httpx2.Response, options=options)
        answer: object = response.json()
        return answer

    def failure_of(self, problem: Exception, route: Route) -> Failure | None:
        import openai

        if isinstance(problem, openai.APIStatusError):
            return _failure_by_status(problem, route)
        return failure_without_answer(openai, problem, route)

    def read(self, answer: object) -> Message:
        choices = _field(answer, "choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = _field(choice, "message")
        finish_reason = _field(choice, "finish_reason")
        if finish_reason == "error":  # a gateway whose own server broke off
            raise NoMessage(words_of(_field(choice, "error")) or "an error in place of the answer's end")
        if not isinstance(message, dict) and finish_reason != "content_filter":
            # Some servers answer 200 to what they refuse, and a wrong base URL can lead to any web page.
            raise NoMessage(words_of(answer) or "not an answer of Chat Completions; is the base URL right?")
        refusal = _text_of(_field(message, "refusal"))
        return Message(
            text=_text_of(_field(message, "content")) or refusal,
            stop_reason="refusal" if refusal else _stop_reason(finish_reason),
            tool_blocks=_tool_blocks(_field(message, "tool_calls")),
            served_model=_text_of(_field(answer, "model")),
            usage=_usage_of(_field(answer, "usage")),
        )

    # -- what a server takes
    def takes_temperature(self, route: Route) -> bool:
        """Return whether a temperature may be sent: Claude refuses it behind every server."""
        return "claude" not in route.model.lower()

    def blamed(self, route: Route, body: Mapping[str, Any], error: str) -> str:
        """Return what a refusal names: also how the answer's length is limited, and that the model is not to think."""
        words = error.lower()
        if "reasoning_effort" in body and any(word in words for word in REASONING_WORDS):
            return "reasoning_effort"
        usual_limit = self._token_limit(route, ())
        is_unknown = any(word in words for word in UNKNOWN_WORDS) and not is_overflow(error)
        if usual_limit in body and usual_limit in error and is_unknown:
            return usual_limit
        return super().blamed(route, body, error)

    def suspect(self, body: Mapping[str, Any], error: str) -> str:
        """Return first that the model is not to think, which few servers know."""
        if any(limit in error for limit in TOKEN_LIMITS):
            return ""
        if "reasoning_effort" in body:
            return "reasoning_effort"
        return super().suspect(body, error)


PROVIDER = OpenAI()


# -- what is sent
def _joined(blocks: Iterable[Block]) -> str:
    """Return the blocks that say something as one text."""
    text: str = storable("\n\n".join(block.text for block in blocks if block.text.strip()))
    return text


def _messages(turn: Turn) -> list[dict[str, Any]]:
    """Return a turn as messages: a result of a tool is one of its own, and stands before what the user says; an empty turn is none."""
    messages = [_tool_result(result) for result in turn.tool_results]
    text = _joined(turn.blocks)
    message: dict[str, Any] = {"role": turn.role, "content": text or None}
    if turn.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in turn.tool_calls]
    if text or turn.tool_calls:
        messages.append(message)
    return messages


def _tool_result(result: ToolResult) -> dict[str, Any]:
    """Return the message that answers a tool call. The API has no field for an error, so that the text says it."""
    text = f"Error: {result.text}" if result.is_error else result.text
    return {"role": "tool", "tool_call_id": storable(result.call_id), "content": storable(text)}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    """Return the entry of an assistant's message in which the model asked for a tool."""
    arguments = json.dumps(storable(dict(call.input)), ensure_ascii=False)
    return {"id": storable(call.id), "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool(tool: Tool) -> dict[str, Any]:
    """Return the entry of a request's `tools`."""
    function = {
        "name": tool.name,
        "description": storable(tool.description),
        "parameters": storable(dict(tool.input_schema)),
    }
    return {"type": "function", "function": function}


def _response_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    json_schema = {"name": NAME_OF_SCHEMA, "schema": dict(schema), "strict": _may_be_strict(schema)}
    return {"type": "json_schema", "json_schema": json_schema}


def _may_be_strict(schema: object) -> bool:
    """Return whether the API can enforce a schema: then each object in it requires all of its properties and allows no others."""
    if isinstance(schema, Mapping):
        if schema.get("type") == "object":
            has_all = set(schema.get("required", ())) == set(schema.get("properties", {}))
            if not has_all or schema.get("additionalProperties") is not False:
                return False
        return all(_may_be_strict(part) for part in schema.values())
    if isinstance(schema, list):
        return all(_may_be_strict(part) for part in schema)
    return True


# -- what came back
def _field(value: object, name: str) -> Any:
    """Return a field of a JSON object; None where there is none, or no object."""
    return value.get(name) if isinstance(value, dict) else None


def _stop_reason(finish_reason: object) -> str:
    """Return why an answer ended, in the words of `read_answer`; empty where the server does not say."""
    if not isinstance(finish_reason, str) or not finish_reason:
        return ""
    stop_reason = STOP_REASONS.get(finish_reason.lower())
    return stop_reason or storable(f"{UNKNOWN_END}{finish_reason}")[:MAX_STOP_REASON]


def _text_of(content: object) -> str:
    """Return a text, or the texts of a list of parts, joined: some servers send thoughts as parts of another type."""
    if isinstance(content, list):
        texts = [_field(part, "text") for part in content if _field(part, "type") == "text"]
        content = "".join(text for text in texts if isinstance(text, str))
    text: str = storable(content) if isinstance(content, str) else ""
    return text


def _tool_blocks(calls: object) -> tuple[dict[str, Any], ...]:
    """Return the tool calls of an answer as the server wrote them; their inputs are JSON text."""
    if not isinstance(calls, list):
        return ()
    blocks = []
    for call in calls:
        function = _field(call, "function")
        blocks.append(tool_block(_field(call, "id"), _field(function, "name"), _field(function, "arguments")))
    return tuple(blocks)


def _usage_of(usage: object) -> Usage:
    """Return the tokens that an answer took.

    Those read from the cache and written to it are part of the API's `prompt_tokens`; the ledger counts and prices them apart.
    """
    details = _field(usage, "prompt_tokens_details")
    prompt = token_count(_field(usage, "prompt_tokens"))
    read = token_count(_field(details, "cached_tokens"))
    written = token_count(_field(details, "cache_write_tokens"))
    of_cache = (read or 0) + (written or 0)
    if prompt is not None and of_cache <= prompt:  # else the server counts them apart, too
        prompt -= of_cache
    return Usage(
        input_tokens=prompt,
        output_tokens=token_count(_field(usage, "completion_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


# -- what went wrong
def _failure_by_status(problem: APIStatusError, route: Route) -> Failure:
    """Return the failure of an HTTP error, see `failure_by_status`. A prompt that a filter refused is `refused`."""
    words = words_of(problem.body) or "no reason given"
    if _is_filtered(problem.body, words):
        line = short_line(f"HTTP {problem.status_code}: {words}", MAX_DETAIL)
        return Failure(Status.REFUSED, f"a content filter refused the prompt: {line}")
    hint = ""
    if problem.status_code == 401:
        hint = "check OPENAI_API_KEY"
    if problem.status_code == 404:
        hint = _hint_of_404(words, route)
    if problem.status_code == 429 and problem.code in QUOTA_CODES:
        hint = "the account's quota is used up; retrying will not help before it is raised"
    return failure_by_status(problem.status_code, words, hint)


def _is_filtered(body: object, words: str) -> bool:
    inner = _field(body, "innererror") or _field(body, "inner_error")
    codes = (_field(body, "code"), _field(inner, "code"))
    return any(code in FILTER_CODES for code in codes) or words.startswith(FILTER_WORDS)


def _hint_of_404(words: str, route: Route) -> str:
    if "deployment" in words.lower():
        return "check the model's name: on Azure that is the deployment's"
    return hint_of_404(words, route, PATH)
