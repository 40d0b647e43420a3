"""The example configuration of LiteLLM says what Plumbline reads, and the page that explains it says the same."""

from __future__ import annotations

from typing import Any

import yaml
from pytest_django import Settings

from correction.litellm.contract import Parameters
from tests.machinery import ROOT
from tests.test_documents import blocks

EXAMPLE = yaml.safe_load((ROOT / "docs" / "examples" / "litellm.yaml").read_text(encoding="utf-8"))


def guardrail_of(config: dict[str, Any]) -> dict[str, Any]:
    [guardrail] = config["guardrails"]
    parameters: dict[str, Any] = guardrail["litellm_params"]
    return parameters


def test_every_parameter_of_the_example_is_one_that_is_read(settings: Settings) -> None:
    named = guardrail_of(EXAMPLE)["additional_provider_specific_params"]
    settings.GATE_REWRITE_MODELS = [named["rewrite_model"]]

    assert set(named) <= set(Parameters.model_fields)
    assert Parameters.model_validate(named).agent


def test_the_model_that_writes_again_has_no_guardrail_in_the_example() -> None:
    gated = {model["model_name"]: "guardrails" in model["litellm_params"] for model in EXAMPLE["model_list"]}
    rewriter = guardrail_of(EXAMPLE)["additional_provider_specific_params"]["rewrite_model"]

    assert gated[rewriter] is False
    assert any(gated.values())
    assert "default_on" not in guardrail_of(EXAMPLE)


def test_the_page_configures_what_the_example_does() -> None:
    [block] = [block for block in blocks("docs/how-to/gate-a-stream.md") if block.language == "yaml"]
    page, example = guardrail_of(yaml.safe_load(block.text)), guardrail_of(EXAMPLE)

    differ = {name for name, value in page.items() if example.get(name) != value}
    assert differ == {"api_base", "additional_provider_specific_params"}  # the example reads more from the environment
    assert len(block.text.splitlines()) <= 16
