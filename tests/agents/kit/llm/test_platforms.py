"""Anthropic's models on cloud platforms: where requests go, how they are signed, what is missing, and what goes wrong there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from pytest_django import Settings

from agents.kit.llm import Status, complete, complete_together
from agents.kit.llm.endpoints import problem_of, route_of
from agents.kit.llm.providers import batch_problem, provider_of
from tests.agents.kit.llm.asking import Score, judge_request, row_of, text_request
from tests.agents.kit.llm.platforms import SECRETS, hanging_credentials, needs, platform
from tests.llm_server import LLMServer

GOOD = {"score": 7, "reason": "calm"}


@pytest.fixture(params=["bedrock", "vertex", "foundry"])
def name(
    request: pytest.FixtureRequest,
    llm_server: LLMServer,
    settings: Settings,
) -> str:
    """Have the judge be a model of each platform in turn, whose address is the loopback server's."""
    name: str = request.param
    platform(name, llm_server.url, settings)
    if name == "vertex":
        request.getfixturevalue("google_account")
    return name


PATHS = {
    "bedrock": "/model/us.anthropic.claude-haiku-5-5-v1:0/invoke",
    "vertex": "/v1/projects/a-project/locations/europe-west1/publishers/anthropic/models/us.anthropic.claude-haiku-5-5-v1:0:rawPredict",
    "foundry": "/anthropic/v1/messages",
}
SENT_AS = {
    "bedrock": ("authorization", f"Bearer {SECRETS['bedrock']}"),
    "vertex": ("authorization", f"Bearer {SECRETS['vertex']}"),
    "foundry": ("x-api-key", SECRETS["foundry"]),
}


@pytest.mark.django_db
def test_a_platform_is_asked_at_its_own_path_with_its_own_secret(
    llm_server: LLMServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "x-stray: 1")
    for variable in (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
    ):
        monkeypatch.setenv(variable, "stray")
    for platform_name in ("BEDROCK", "VERTEX", "FOUNDRY"):
        monkeypatch.setenv(f"ANTHROPIC_{platform_name}_BASE_URL", "http://127.0.0.1:1")

    reply = complete(judge_request(headers={"x-mark": "here"}))

    assert (reply.status, reply.value) == (Status.OK, Score(score=7, reason="word"))
    assert llm_server.paths == [PATHS[name]]
    (headers,) = llm_server.headers
    header, secret = SENT_AS[name]
    assert (headers[header], headers["x-mark"]) == (secret, "here")
    assert "stray" not in str(headers)
    row = row_of(reply)
    assert (row.provider, row.model) == (name, f"{name}:us.anthropic.claude-haiku-5-5-v1:0")
    assert row.endpoint == route_of("judge").endpoint
    assert row.request_id == "req_1"


@pytest.mark.django_db
def test_a_platform_gets_no_temperature_and_thinking_is_switched_off(llm_server: LLMServer, name: str) -> None:
    reply = complete(judge_request(temperature=0.5))

    (body,) = llm_server.bodies
    assert "temperature" not in body
    assert not reply.temperature_applied
    assert body["thinking"] == {"type": "disabled"}


@pytest.mark.django_db
def test_a_call_of_a_platform_is_unpriced_until_its_own_price_is_stored(llm_server: LLMServer, name: str) -> None:
    """The price that Anthropic itself asks for the model that the server names is another one."""
    llm_server.reply(json=GOOD, model="claude-haiku-5-5")

    reply = complete(judge_request())

    assert row_of(reply).cost_usd is None


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"message": "You don't have access to the model."}, "HTTP 403: You don't have access to the model. (check "),
        ([{"error": {"code": 403, "message": "Denied."}}], "HTTP 403: Denied. (check "),
        ({"error": {"code": "Forbidden", "message": "No deployment."}}, "HTTP 403: No deployment. (check "),
    ],
)
def test_an_error_in_a_platforms_own_form_is_shown_in_its_words(
    llm_server: LLMServer, name: str, sent: Any, words: str
) -> None:
    llm_server.reply(status=403, raw=json.dumps(sent))

    reply = complete(judge_request())

    assert reply.status is Status.REJECTED
    assert reply.error.startswith(words)


@pytest.mark.django_db
def test_a_secret_that_a_platform_repeats_is_not_shown(llm_server: LLMServer, settings: Settings) -> None:
    for name in ("bedrock", "foundry"):
        platform(name, llm_server.url, settings)
        llm_server.reply(status=401, message=f"wrong: {SECRETS[name]}")

        assert SECRETS[name] not in complete(judge_request()).error


def test_a_platform_has_no_batches_and_says_so(settings: Settings) -> None:
    for name in ("bedrock", "vertex", "foundry"):
        assert "takes no batches" in batch_problem(f"{name}:claude-haiku-5-5")
    assert batch_problem("claude-haiku-5-5") == ""


MISSING = [
    ("bedrock", "AWS_REGION", "AWS_REGION"),
    ("vertex", "CLOUD_ML_REGION", "CLOUD_ML_REGION"),
    ("vertex", "ANTHROPIC_VERTEX_PROJECT_ID", "ANTHROPIC_VERTEX_PROJECT_ID"),
    ("foundry", "ANTHROPIC_FOUNDRY_API_KEY", "ANTHROPIC_FOUNDRY_API_KEY"),
]


@pytest.mark.parametrize(("name", "setting", "word"), MISSING)
def test_what_is_not_set_is_named(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, setting: str, word: str
) -> None:
    for variable in ("AWS_DEFAULT_REGION", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(variable, raising=False)
    platform(name, "http://127.0.0.1:1", settings)
    setattr(settings, setting, "")

    assert word in problem_of("judge", settings.JUDGE_MODEL)


@pytest.mark.parametrize(
    ("name", "package", "command"),
    [("bedrock", "boto3", "pip install 'anthropic[bedrock]'"), ("vertex", "google.auth", "'anthropic[vertex]'")],
)
@pytest.mark.django_db
def test_without_its_package_a_platform_says_what_to_install(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, package: str, command: str
) -> None:
    from importlib import util

    find = util.find_spec
    hidden = package.partition(".")[0] if package == "boto3" else package
    monkeypatch.setattr(
        "agents.kit.llm.providers.base.find_spec", lambda module: None if module == hidden else find(module)
    )
    platform(name, "http://127.0.0.1:1", settings)
    settings.AWS_BEARER_TOKEN_BEDROCK = ""

    reply = complete(judge_request())

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    assert command in reply.error


@pytest.mark.parametrize(
    ("name", "setting", "value", "address"),
    [
        ("bedrock", "AWS_REGION", "eu-west-3", "https://bedrock-runtime.eu-west-3.amazonaws.com"),
        ("vertex", "CLOUD_ML_REGION", "europe-west1", "https://europe-west1-aiplatform.googleapis.com/v1"),
        ("vertex", "CLOUD_ML_REGION", "global", "https://aiplatform.googleapis.com/v1"),
        ("vertex", "CLOUD_ML_REGION", "us", "https://aiplatform.us.rep.googleapis.com/v1"),
        ("vertex", "CLOUD_ML_REGION", "eu", "https://aiplatform.eu.rep.googleapis.com/v1"),
        ("foundry", "ANTHROPIC_FOUNDRY_RESOURCE", "ours", "https://ours.services.ai.azure.com/anthropic"),
    ],
)
def test_addresses_are_those_of_the_sdk(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, setting: str, value: str, address: str
) -> None:
    import anthropic

    platform(name, "", settings)
    setattr(settings, setting, value)
    clients: dict[str, Any] = {
        "bedrock": lambda: anthropic.AsyncAnthropicBedrock(aws_region=value),
        "vertex": lambda: anthropic.AsyncAnthropicVertex(region=value, project_id="p"),
        "foundry": lambda: anthropic.AsyncAnthropicFoundry(resource=value, api_key="k"),
    }

    assert route_of("judge").base_url == address
    assert str(clients[name]().base_url).rstrip("/") == address


@pytest.mark.parametrize(
    ("name", "setting"), [("bedrock", "AWS_BEARER_TOKEN_BEDROCK"), ("foundry", "ANTHROPIC_FOUNDRY_API_KEY")]
)
def test_a_key_that_no_header_can_carry_is_named_but_not_shown(settings: Settings, name: str, setting: str) -> None:
    platform(name, "http://127.0.0.1:1", settings)
    setattr(settings, setting, "sk secret")

    problem = problem_of("judge", settings.JUDGE_MODEL)

    assert setting in problem
    assert "sk secret" not in problem


def test_an_address_that_is_none_is_named_and_not_shown(settings: Settings) -> None:
    for name in ("bedrock", "vertex", "foundry"):
        platform(name, "http://ann:s3cret@127.0.0.1:1", settings)

        problem = problem_of("judge", settings.JUDGE_MODEL)

        assert f"ANTHROPIC_{name.upper()}_BASE_URL" in problem
        assert "s3cret" not in problem


def test_the_server_of_one_provider_gets_no_key_of_another(settings: Settings) -> None:
    settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL = "a-key", ""
    settings.JUDGE_MODEL, settings.JUDGE_BASE_URL = "openai:gpt-5.4-mini", "https://ours.example/openai/v1/"
    settings.ACTOR_MODEL, settings.ACTOR_BASE_URL = "llama3:8b", "http://127.0.0.1:11434"

    assert route_of("judge").base_url == "https://ours.example/openai/v1"
    assert route_of("judge", "claude-haiku-5-5").base_url == "https://api.anthropic.com"
    assert route_of("actor", "openai:gpt-5.4-mini").base_url == "https://api.openai.com/v1"
    assert route_of("actor", "claude-haiku-5-5").base_url == "http://127.0.0.1:11434"


@pytest.mark.parametrize(
    "model", ["bedrok:x", "OpenAI:gpt-5.4-mini", "azure:gpt-5.4-mini", "anthropic:claude-haiku-5-5"]
)
def test_a_provider_that_is_misnamed_is_not_taken_for_anthropic(settings: Settings, model: str) -> None:
    settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL, settings.JUDGE_BASE_URL = "a-key", "", ""
    settings.JUDGE_MODEL = model

    route = route_of("judge")

    assert not route.is_distant
    assert route.problem == problem_of("judge", model)
    assert "bedrock" in route.problem or "write 'claude-haiku-5-5'" in route.problem
    settings.JUDGE_BASE_URL = "http://127.0.0.1:11434"
    assert route_of("judge").is_distant == (not model.startswith("anthropic:"))


def test_a_server_beside_an_offline_model_gets_no_key_of_another_provider(settings: Settings) -> None:
    settings.OPENAI_API_KEY, settings.ANTHROPIC_API_KEY = "o-key", "a-key"
    settings.JUDGE_MODEL, settings.JUDGE_BASE_URL = "offline:lexical-1", "https://ours.example"

    assert route_of("judge", "openai:gpt-5.4-mini").base_url == "https://api.openai.com/v1"
    assert route_of("judge", "claude-haiku-5-5").base_url == "https://ours.example"


def test_a_name_with_a_colon_of_its_own_is_no_platform() -> None:
    assert provider_of("llama3:8b").is_default
    assert provider_of("bedrock").is_default


@pytest.mark.django_db
def test_a_request_to_bedrock_is_signed_as_botocore_signs_it(
    llm_server: LLMServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("boto3", "botocore")
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    key, secret, token = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "session-token"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    platform("bedrock", llm_server.url, settings)
    settings.AWS_BEARER_TOKEN_BEDROCK = ""

    with time_machine.travel(datetime(2026, 11, 29, 12, tzinfo=UTC), tick=False):
        reply = complete(judge_request(headers={"x-mark": "here"}), deadline=30)

        assert reply.ok, reply.error
        (sent,) = llm_server.headers
        signed = sent["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        request = AWSRequest(
            method="POST",
            url=llm_server.url + llm_server.paths[0],
            headers={
                header: sent[header]
                for header in signed
                if header not in ("host", "x-amz-date", "x-amz-security-token")
            },
            data=llm_server.contents[0],
        )
        SigV4Auth(Credentials(key, secret, token), "bedrock", "eu-west-3").add_auth(request)

    assert sent["x-amz-security-token"] == token
    assert {"content-type", "host", "x-amz-date", "x-mark"} <= set(signed)
    assert request.headers["Authorization"] == sent["authorization"]


@pytest.mark.django_db
def test_credentials_that_are_not_there_are_named(
    llm_server: LLMServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs("google.auth", "cryptography")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "absent.json"))
    platform("vertex", llm_server.url, settings)

    reply = complete(judge_request())

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    assert "check GOOGLE_APPLICATION_CREDENTIALS" in reply.error


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["bedrock", "vertex"])
def test_credentials_that_hang_keep_no_other_provider_from_answering(
    llm_server: LLMServer, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    needs("boto3", "google.auth")
    platform(name, llm_server.url, settings)
    settings.AWS_BEARER_TOKEN_BEDROCK = ""
    settings.AWS_REGION = "eu-north-1"  # the SDK remembers the credentials that it found for a region
    settings.ACTOR_MODEL = "claude-haiku-5-5"
    settings.ACTOR_BASE_URL = llm_server.url.replace("127.0.0.1", "localhost")  # a name that has to be resolved
    with hanging_credentials(name, tmp_path, monkeypatch):
        replies = complete_together([judge_request() for _ in range(40)], deadline=1)
        other = complete(text_request(), deadline=3)

    assert {reply.status for reply in replies} == {Status.TIMEOUT}
    assert other.ok, other.error
