"""The providers over whose protocols the tests of this package run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm.providers.base import is_installed
from tests.agents.kit.llm.asking import SCHEMA
from tests.llm_server import LLMServer
from tests.machinery import missing


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A provider, and where its protocol differs from others'.

    Attributes:
        name: As the ledger has it.
        prefix: What stands before the name of a model.
        path: What follows the server's address in its base URL.
        added_path: What its SDK adds to a base URL.
        key_setting: The setting that holds its key.
        package: What has to be installed.
        schema_field: The field of a body that holds the schema, and `schema_form`, how `SCHEMA` stands in it.
        quota_code: The code of an HTTP 429 that trying again cannot help, and `quota_words`, what is said of it.
    """

    name: str
    prefix: str = ""
    path: str = ""
    added_path: str = "/v1/messages"
    key_setting: str = "ANTHROPIC_API_KEY"
    package: str = "anthropic"
    schema_field: str = "output_config"
    schema_form: Mapping[str, Any] = field(
        default_factory=lambda: {"format": {"type": "json_schema", "schema": SCHEMA}}
    )
    quota_code: str = "enforced_spend_limit_reached"
    quota_words: str = "a spend limit is reached"

    def model(self, name: str) -> str:
        """Return a model's name as it is configured."""
        return self.prefix + name

    def url(self, server: LLMServer) -> str:
        """Return the base URL of a server."""
        return server.url + self.path


WIRES = [
    Wire(name="anthropic"),
    Wire(
        name="openai",
        prefix="openai:",
        path="/v1",
        added_path="/chat/completions",
        key_setting="OPENAI_API_KEY",
        package="openai",
        schema_field="response_format",
        schema_form={"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}},
        quota_code="insufficient_quota",
        quota_words="the account's quota is used up",
    ),
]


@pytest.fixture(params=WIRES, ids=lambda wire: wire.name)
def wire(request: pytest.FixtureRequest, llm_server: LLMServer, settings: Settings) -> Wire:
    """Have judge and actor use `llm_server` over the protocol of each provider in turn, with the key ``sk-test-secret``."""
    wire: Wire = request.param
    if not is_installed(wire.package):
        missing(wire.package)
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = wire.model("test-model")
    settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = wire.url(llm_server)
    settings.ANTHROPIC_API_KEY = ""
    setattr(settings, wire.key_setting, "sk-test-secret")
    return wire
