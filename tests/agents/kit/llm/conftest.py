"""The providers over whose protocols the tests of this package run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm.providers.base import is_installed
from tests.agents.kit.llm.asking import SCHEMA
from tests.agents.kit.llm.platforms import google_tokens, set_accounts
from tests.llm_server import LLMServer
from tests.machinery import missing


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A provider, and where its protocol differs from others'.

    Attributes:
        name: As the ledger has it.
        protocol: Messages or Chat Completions.
        prefix: What stands before the name of a model.
        path: What follows the server's address in its base URL.
        added_path: What its SDK adds to a base URL.
        key_setting: The setting that holds its key; empty where it has none.
        url_setting: The setting that holds the base URL of judge and actor; empty: JUDGE_BASE_URL and ACTOR_BASE_URL.
        package: What has to be installed.
        schema_field: The field of a body that holds the schema, and `schema_form`, how `SCHEMA` stands in it.
        quota_code: The code of an HTTP 429 that trying again cannot help, and `quota_words`, what is said of it.
    """

    name: str
    protocol: str = "messages"
    prefix: str = ""
    path: str = ""
    added_path: str = "/v1/messages"
    key_setting: str = "ANTHROPIC_API_KEY"
    url_setting: str = ""
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

    def lead_to(self, server: LLMServer, settings: Settings) -> None:
        """Have judge and actor be served by `server`."""
        for setting in [self.url_setting] if self.url_setting else ["JUDGE_BASE_URL", "ACTOR_BASE_URL"]:
            setattr(settings, setting, self.url(server))


WIRES = [
    Wire(name="anthropic"),
    Wire(
        name="openai",
        protocol="chat completions",
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
    Wire(
        name="bedrock",
        prefix="bedrock:",
        added_path="/model/MODEL/invoke",
        key_setting="AWS_BEARER_TOKEN_BEDROCK",
        url_setting="ANTHROPIC_BEDROCK_BASE_URL",
    ),
    Wire(
        name="vertex",
        prefix="vertex:",
        path="/v1",
        added_path="/projects/…/models/MODEL:rawPredict",
        key_setting="",
        url_setting="ANTHROPIC_VERTEX_BASE_URL",
    ),
    Wire(
        name="foundry",
        prefix="foundry:",
        path="/anthropic",
        key_setting="ANTHROPIC_FOUNDRY_API_KEY",
        url_setting="ANTHROPIC_FOUNDRY_BASE_URL",
    ),
]


# The platforms share the code of the Messages protocol: over one of them the tests run always, over the others where slow tests do.
SLOW = ("vertex", "foundry")
OVER_ALL = [pytest.param(wire, id=wire.name, marks=[pytest.mark.slow] * (wire.name in SLOW)) for wire in WIRES]


@pytest.fixture(params=OVER_ALL)
def wire(request: pytest.FixtureRequest, llm_server: LLMServer, settings: Settings) -> Wire:
    """Have judge and actor use `llm_server` over the protocol of each provider in turn, with the key ``sk-test-secret``."""
    wire: Wire = request.param
    _use(wire, llm_server, settings)
    if wire.name == "vertex":
        request.getfixturevalue("google_account")
    return wire


@pytest.fixture(params=[wire for wire in WIRES if not wire.url_setting], ids=lambda wire: wire.name)
def open_wire(request: pytest.FixtureRequest, llm_server: LLMServer, settings: Settings) -> Wire:
    """Do as `wire` does, for providers whose protocol any server may speak: JUDGE_BASE_URL and ACTOR_BASE_URL name it."""
    wire: Wire = request.param
    _use(wire, llm_server, settings)
    return wire


def _use(wire: Wire, server: LLMServer, settings: Settings) -> None:
    if not is_installed(wire.package):
        missing(wire.package)
    set_accounts(settings)
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = wire.model("test-model")
    wire.lead_to(server, settings)
    if wire.key_setting:
        setattr(settings, wire.key_setting, "sk-test-secret")


@pytest.fixture(scope="session")
def google_account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have google-auth find a service account whose tokens come from a server of this machine."""
    with pytest.MonkeyPatch.context() as patch, google_tokens(tmp_path_factory.mktemp("google"), patch):
        yield
