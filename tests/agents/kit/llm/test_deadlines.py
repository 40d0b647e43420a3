"""A deadline ends a call whatever the server does, and the server sees the client go."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agents.kit.llm import LLMRequest, Reply, Status, complete, complete_many
from tests.agents.kit.llm.asking import judge_request, text_request
from tests.agents.kit.llm.conftest import Wire
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

SHORT = 2.5  # seconds: long enough for a request to reach the server on a busy machine


@pytest.fixture(autouse=True)
def _ready(request: pytest.FixtureRequest, llm_server: LLMServer, settings: Settings, db: None) -> None:
    """Make one call first: a process's first one takes longer, which is not what these tests measure."""
    wire: Wire | None = request.getfixturevalue("wire") if "wire" in request.fixturenames else None
    with LLMServer() as other:
        if wire:
            wire.lead_to(other, settings)
        else:
            settings.ACTOR_BASE_URL = other.url
        assert complete(text_request()).ok
    if wire:
        wire.lead_to(llm_server, settings)
    else:
        settings.ACTOR_BASE_URL = llm_server.url


@pytest.fixture
def one_slot(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 0


@pytest.mark.usefixtures("wire")
@pytest.mark.parametrize(("way", "retries"), [("hang", 0), ("trickle", 2)])
def test_a_call_is_cut_at_its_deadline(llm_server: LLMServer, way: str, retries: int) -> None:
    llm_server.always(**{way: True})
    started = time.monotonic()

    reply = complete(text_request(retries=retries), deadline=SHORT)

    assert (reply.status, reply.error) == (Status.TIMEOUT, f"no answer within the deadline of {SHORT:g} s")
    assert time.monotonic() - started >= SHORT - 0.05
    assert llm_server.wait_until(lambda: llm_server.client_gone == 1)


@pytest.mark.usefixtures("wire")
def test_the_deadline_covers_the_retries(llm_server: LLMServer) -> None:
    llm_server.always(status=500)

    reply = complete(text_request(retries=10), deadline=SHORT)

    assert reply.status is Status.UNAVAILABLE
    assert "HTTP 500" in reply.error
    assert reply.attempts <= 5, "retries ended with the deadline"


@pytest.mark.usefixtures("wire")
def test_a_retry_that_hangs_is_a_timeout_whatever_came_before(llm_server: LLMServer) -> None:
    llm_server.reply(status=500, headers={"retry-after-ms": "1"})
    llm_server.always(hang=True)

    reply = complete(text_request(retries=1), deadline=SHORT)

    assert (reply.status, reply.attempts) == (Status.TIMEOUT, 2)


@pytest.mark.usefixtures("wire")
def test_a_retry_after_beyond_the_deadline_is_not_waited_for(llm_server: LLMServer) -> None:
    llm_server.always(status=429, headers={"retry-after": "60"})

    reply = complete(text_request(retries=3, gate=True), deadline=30)

    assert (reply.status, reply.attempts, llm_server.calls) == (Status.RATE_LIMITED, 1, 1)
    assert reply.latency_ms < 30_000, "it was not waited for"


def test_the_deadline_covers_the_reask(llm_server: LLMServer) -> None:
    llm_server.reply(text="not JSON")
    llm_server.always(hang=True)

    reply = complete(judge_request(reask=True), deadline=SHORT)

    assert reply.status is Status.TIMEOUT
    assert [earlier.status for earlier in reply.earlier] == [Status.MALFORMED]


def test_waiting_for_a_slot_counts_for_complete(llm_server: LLMServer, one_slot: None) -> None:
    llm_server.reply(hold=True)
    waited: list[Reply] = []

    def requests() -> Iterator[LLMRequest]:
        yield text_request()  # holds the only slot
        assert llm_server.wait_until(lambda: llm_server.inflight == 1)
        waited.append(complete(text_request(), deadline=SHORT))
        llm_server.release()

    assert [reply.status for _, reply in complete_many(requests(), deadline=30)] == [Status.OK]
    (reply,) = waited
    assert (reply.status, reply.attempts) == (Status.TIMEOUT, 0)
    assert reply.error == f"no free slot within {SHORT:g} s: 1 calls may be in flight at {llm_server.url}"
    assert reply.waited_ms >= (SHORT - 0.1) * 1000
    assert llm_server.calls == 1


@pytest.mark.slow
def test_waiting_for_a_slot_does_not_count_in_a_big_evaluation(llm_server: LLMServer, one_slot: None) -> None:
    llm_server.always(latency=2.5)
    deadline = 4.2  # shorter than waiting for one and being served; with room for a busy machine

    replies = [reply for _, reply in complete_many([text_request() for _ in range(3)], deadline=deadline)]

    assert [reply.status for reply in replies] == [Status.OK] * 3
    assert max(reply.waited_ms + reply.latency_ms for reply in replies) > deadline * 1000
