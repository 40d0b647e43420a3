"""Prints what the installed LiteLLM says of its generic guardrail API, as JSON: run with LiteLLM's Python."""

from __future__ import annotations

import inspect
import json
import sys
from importlib.metadata import version
from typing import get_args, get_type_hints

from litellm.proxy.guardrails.guardrail_hooks.generic_guardrail_api.generic_guardrail_api import (
    GenericGuardrailAPI,
    _header_value_allowed,
)
from litellm.types.proxy.guardrails.guardrail_hooks.generic_guardrail_api import (
    GenericGuardrailAPIMetadata,
    GenericGuardrailAPIOptionalParams,
    GenericGuardrailAPIRequest,
    GenericGuardrailAPIResponse,
)


def main() -> None:
    request_types = get_type_hints(GenericGuardrailAPIRequest)
    guardrail = GenericGuardrailAPI(
        api_base="http://127.0.0.1:9/api/litellm", api_key="a-token", guardrail_name="plumbline"
    )
    # A round as LiteLLM would send it, of each kind.
    request = GenericGuardrailAPIRequest(
        input_type="request",
        litellm_call_id="call-1",
        litellm_trace_id="trace-1",
        structured_messages=[
            {"role": "system", "content": "You are Ada."},
            {"role": "user", "content": [{"type": "text", "text": "Where is my file?"}]},
        ],
        texts=["You are Ada.", "Where is my file?"],
        request_data={"user_api_key_end_user_id": "customer-7"},
        request_headers={"x-litellm-session-id": "session-1", "authorization": "[present]"},
        litellm_version=version("litellm"),
        additional_provider_specific_params={"agent": "ada"},
        model="scripted",
    )
    response = GenericGuardrailAPIRequest(
        input_type="response",
        litellm_call_id="call-1",
        texts=["In the cabinet."],
        request_data={},
        tool_calls=[
            {"index": 0, "id": "call_1", "type": "function", "function": {"name": "find_file", "arguments": "{}"}}
        ],
    )
    answer = GenericGuardrailAPIResponse.from_dict(
        {
            "action": "GUARDRAIL_INTERVENED",
            "texts": ["In the"],
            "stream_holdback_chars": [3],
            "blocked_reason": "it failed",
        }
    )
    facts = {
        "version": version("litellm"),
        "request_fields": sorted(GenericGuardrailAPIRequest.model_fields),
        "input_types": sorted(get_args(request_types["input_type"])),
        "user_fields": sorted(GenericGuardrailAPIMetadata.__annotations__),
        "rounds": [request.model_dump(mode="json"), response.model_dump(mode="json")],
        "answer_read": {name: getattr(answer, name) for name in vars(answer) if getattr(answer, name) is not None},
        "parameters": sorted(inspect.signature(GenericGuardrailAPI.__init__).parameters),
        "hooks": sorted(hook.value for hook in GenericGuardrailAPI.get_supported_event_hooks()),
        "transform_modes": choices(GenericGuardrailAPIOptionalParams, "streaming_transform_mode"),
        "fallbacks": choices(GenericGuardrailAPIOptionalParams, "unreachable_fallback"),
        "address": guardrail.api_base,
        "headers": guardrail.headers,
        "default_sampling_rate": guardrail.streaming_sampling_rate,
        "passes_our_header": _header_value_allowed("x-litellm-plumbline-rewrite"),
    }
    json.dump(facts, sys.stdout)


def choices(model: type, field: str) -> list[str]:
    """Return the values of an optional literal."""
    found = []
    for part in get_args(get_type_hints(model)[field]):
        found += [value for value in get_args(part) if isinstance(value, str)]
    return sorted(found)


main()
