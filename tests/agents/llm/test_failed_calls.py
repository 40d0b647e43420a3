"""How a call ends that brings no usable answer: servers, networks, keys and addresses that fail, through the real SDK."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.llm import Status, complete
from agents.models import LLMCall
from tests.agents.llm.asking import judge_request, text_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("http_status", "status"),
    [
        (400, Status.REJECTED),
        (401, Status.REJECTED),
        (402, Status.REJECTED),
        (403, Status.REJECTED),
        (404, Status.REJECTED),
        (413, Status.REJECTED),
        (422, Status.REJECTED),
        (408, Status.UNAVAILABLE),
        (409, Status.UNAVAILABLE),
        (500, Status.UNAVAILABLE),
        (503, Status.UNAVAILABLE),
        (529, Status.UNAVAILABLE),
        (429, Status.RATE_LIMITED),
    ],
)
def test_an_http_error_is_a_value(llm_server: LLMServer, http_status: int, status: Status) -> None:
    llm_server.always(status=http_status, message="the server's words")

    reply = complete(text_request())

    assert reply.status is status
    assert reply.error.startswith(f"HTTP {http_status}: the server's words")
    assert reply.attempts == llm_server.calls == 1
    assert LLMCall.objects.get().status == status


def test_an_error_that_repeats_the_key_does_not_show_it(llm_server: LLMServer) -> None:
    llm_server.reply(status=401, message="invalid key sk-test-secret")

    reply = complete(text_request())

    assert reply.error == "HTTP 401: invalid key *** (check ANTHROPIC_API_KEY)"


def test_a_connection_dropped_without_an_answer_is_unavailable(llm_server: LLMServer) -> None:
    llm_server.reply(drop=True)

    reply = complete(text_request())

    assert reply.status is Status.UNAVAILABLE
    assert reply.error.startswith(f"no answer from {llm_server.url}: ")


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        ("<html>It works!</html>", "text/html"),
        ("not json", "application/json"),
        ('{"error": {"message": "model not loaded"}}', "application/json"),
        ("[]", "application/json"),
    ],
)
def test_a_200_that_is_no_message_is_rejected(llm_server: LLMServer, raw: str, content_type: str) -> None:
    llm_server.reply(raw=raw, content_type=content_type)

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "answered 200 with" in reply.error


@pytest.mark.parametrize("key", ["sk-\u00e9", "sk-test\n", "sk test"])
def test_a_key_that_no_header_can_carry_is_named_but_not_shown(
    llm_server: LLMServer, settings: Settings, key: str
) -> None:
    settings.ANTHROPIC_API_KEY = key

    reply = complete(text_request())

    assert (reply.status, llm_server.calls) == (Status.REJECTED, 0)
    assert reply.error == "ANTHROPIC_API_KEY holds a blank or a character that no key has: copy it again"


@pytest.mark.parametrize(
    "url",
    [
        "gopher://127.0.0.1:70",
        "http://[bad",
        "http://h:notaport",
        "user:s3cret@127.0.0.1:1",
        "http://user:s3cret@127.0.0.1:1",
    ],
)
def test_a_base_url_that_cannot_be_used_is_rejected_and_never_shown(settings: Settings, url: str) -> None:
    settings.ACTOR_BASE_URL = url
    settings.ACTOR_MODEL = "test-model"

    reply = complete(text_request())

    assert reply.status is Status.REJECTED
    assert "ACTOR_BASE_URL" in reply.error
    assert "s3cret" not in reply.endpoint + reply.error
    assert LLMCall.objects.get().status == reply.status


def test_retries_are_made_as_the_request_says(llm_server: LLMServer) -> None:
    llm_server.reply(status=500, headers={"retry-after-ms": "1"})

    reply = complete(text_request(retries=1))

    assert (reply.status, reply.attempts, llm_server.calls) == (Status.OK, 2, 2)


def test_a_spend_limit_is_not_retried(llm_server: LLMServer) -> None:
    llm_server.always(status=429, message="limit reached", error_code="enforced_spend_limit_reached")

    reply = complete(text_request(retries=2))

    assert (reply.status, llm_server.calls) == (Status.RATE_LIMITED, 1)
    assert "a spend limit is reached" in reply.error


@pytest.mark.parametrize("role", ["judge", "actor"])
def test_without_a_key_nothing_is_sent_and_the_error_says_what_to_set(settings: Settings, role: str) -> None:
    settings.ANTHROPIC_API_KEY = settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = ""
    settings.JUDGE_MODEL = settings.ACTOR_MODEL = "claude-haiku-5-5"

    reply = complete(judge_request(role=role))

    assert (reply.status, reply.attempts) == (Status.REJECTED, 0)
    for name in ("ANTHROPIC_API_KEY", f"{role.upper()}_BASE_URL", f"{role.upper()}_MODEL=offline:"):
        assert name in reply.error
    assert LLMCall.objects.get().cost_usd == 0


def test_a_server_of_ones_own_needs_no_key(llm_server: LLMServer, settings: Settings) -> None:
    settings.ANTHROPIC_API_KEY = ""

    assert complete(text_request()).ok
    assert llm_server.headers[0]["authorization"] == "Bearer no-key-configured"


@pytest.mark.parametrize("deadline", [0, -1, float("nan")])
def test_a_deadline_must_be_positive(deadline: float) -> None:
    with pytest.raises(ValueError, match="positive number of seconds"):
        complete(text_request(), deadline=deadline)
