"""What Plumbline reads and answers is what the installed LiteLLM sends and understands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from correction.litellm.contract import GuardrailAnswer, Metadata, Round
from tests.gateway.proxy import litellm_python

pytestmark = [pytest.mark.service, pytest.mark.slow]


@pytest.fixture(scope="module")
def litellm() -> dict[str, Any]:
    """What LiteLLM's own types say."""
    program = Path(__file__).with_name("litellm_contract.py")
    done = subprocess.run(
        [str(litellm_python()), "-I", str(program)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"LiteLLM no longer has the types of its generic guardrail API:\n{done.stderr}"
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_litellm_sends_every_field_that_is_read(litellm: dict[str, Any]) -> None:
    for model, sent in ((Round, litellm["request_fields"]), (Metadata, litellm["user_fields"])):
        missing = set(model.model_fields) - set(sent)
        assert not missing, f"LiteLLM {litellm['version']} no longer sends {', '.join(sorted(missing))} of a round"
    assert litellm["input_types"] == ["request", "response"], f"LiteLLM {litellm['version']} has other kinds of rounds"


def test_a_round_that_litellm_builds_is_read_with_all_that_matters(litellm: dict[str, Any]) -> None:
    request, response = (Round.model_validate(sent) for sent in litellm["rounds"])

    assert [message["role"] for message in request.structured_messages or []] == ["system", "user"]
    assert request.litellm_call_id == response.litellm_call_id == "call-1"
    assert request.parameters.agent == "ada"
    assert request.session == "session-1"
    assert request.request_data.user_api_key_end_user_id == "customer-7"
    assert response.texts == ["In the cabinet."]


def test_litellm_understands_every_answer(litellm: dict[str, Any]) -> None:
    answered = GuardrailAnswer(
        action="GUARDRAIL_INTERVENED", texts=["In the"], stream_holdback_chars=[3], blocked_reason="it failed"
    )

    assert litellm["answer_read"] == answered.model_dump(), f"LiteLLM {litellm['version']} reads answers in another way"


def test_litellm_still_has_what_the_how_to_configures(litellm: dict[str, Any]) -> None:
    name = f"LiteLLM {litellm['version']}"
    assert "incremental_diff" in litellm["transform_modes"], f"{name} cannot send a text that grows"
    assert "fail_open" in litellm["fallbacks"], f"{name} cannot let replies pass while Plumbline is away"
    assert {"pre_call", "post_call"} <= set(litellm["hooks"]), f"{name} calls guardrails at other moments"
    assert {"streaming_sampling_rate", "additional_provider_specific_params"} <= set(litellm["parameters"]), name
    assert litellm["address"].endswith("/api/litellm/beta/litellm_basic_guardrail_api"), f"{name} posts elsewhere"
    assert litellm["headers"] == {"x-api-key": "a-token"}, f"{name} signs in in another way"
    assert litellm["passes_our_header"], f"{name} no longer passes on headers that begin with x-litellm-"
