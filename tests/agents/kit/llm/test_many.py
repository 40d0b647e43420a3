"""Many questions at once: order, laziness, and what is left when the caller stops listening."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from agents.kit.llm import Block, LLMRequest, Status, Turn, complete, complete_many
from agents.kit.models import LLMCall
from agents.kit.running import Stop, Stopped, side_by_side, stopping_with
from tests.agents.kit.llm.asking import text_request, word_of
from tests.declaring import declare
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def numbered(number: int, **changes: Any) -> LLMRequest:
    return text_request(turns=(Turn("user", (Block(str(number)),)),), **changes)


def echo(body: dict[str, Any]) -> dict[str, Any]:
    return {"text": f"echo {word_of(body)}"}


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 2, 0


def test_replies_come_as_they_are_ready_with_the_index_of_their_request(
    llm_server: LLMServer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is held up, one fails, and one goes to another provider."""
    settings.JUDGE_MODEL = "offline:lexical-1"
    declare(monkeypatch, "offline_responders", {"act": "tests.agents.kit.llm.test_offline.say_hello"})
    answers: dict[str, dict[str, Any]] = {"0": {"hold": True}, "1": {"status": 500}}
    llm_server.respond = lambda body: answers.get(word_of(body)) or echo(body)
    replies = complete_many([*map(numbered, range(3)), numbered(3, role="judge")], deadline=30)

    found = dict(islice(replies, 3))
    llm_server.release()
    found |= dict(replies)

    assert list(found)[-1] == 0
    statuses = [found[index].status for index in range(4)]
    assert statuses == [Status.OK, Status.UNAVAILABLE, Status.OK, Status.OK]
    assert (found[2].text, found[3].provider) == ("echo 2", "offline")
    assert set(LLMCall.objects.values_list("pk", flat=True)) == {reply.call_id for reply in found.values()}


def test_a_reply_may_bring_more_to_ask_where_there_was_nothing(llm_server: LLMServer) -> None:
    """None stands for "nothing now": the source is asked again after a reply, and its indexes count requests alone."""
    llm_server.respond = echo
    waiting = [numbered(0)]

    def source() -> Iterator[LLMRequest | None]:
        while True:
            yield waiting.pop(0) if waiting else None

    seen = []
    for index, reply in complete_many(source(), deadline=10):
        seen.append((index, reply.text))
        if index < 3:
            waiting.append(numbered(index + 1))

    assert seen == [(n, f"echo {n}") for n in range(4)]


def test_requests_are_pulled_only_as_far_ahead_as_slots_need(llm_server: LLMServer) -> None:
    pulled = []

    def requests() -> Iterator[LLMRequest]:
        for number in range(100):
            pulled.append(number)
            yield numbered(number)

    replies = complete_many(requests(), deadline=10)
    next(replies)

    assert len(pulled) <= 5
    replies.close()


def test_gate_requests_count_their_waiting(llm_server: LLMServer) -> None:
    llm_server.always(hang=True)

    replies = [reply for _, reply in complete_many((numbered(n, gate=True) for n in range(4)), deadline=2.5)]

    assert [reply.status for reply in replies] == [Status.TIMEOUT] * 4
    seconds = [(reply.waited_ms + reply.latency_ms) / 1000 for reply in replies]
    assert max(seconds) < 2 * 2.5, "the time of the other two was up before a slot was free"


def arrived(number: int) -> tuple[LLMRequest, Callable[[], None]]:
    """A request, and a function that waits until its reply has come back to the calling side."""
    read = threading.Event()

    def wait() -> None:
        assert read.wait(30)
        assert complete(numbered(99)).ok  # a round trip through the loop: what it had finished before is handed back

    return numbered(number, parse=lambda text: read.set()), wait


@pytest.mark.usefixtures("wire")
def test_closing_early_cancels_what_is_in_flight_and_settles_what_had_arrived(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {"hang": True} if word_of(body) == "1" else None
    second, wait_for_second = arrived(2)
    replies = complete_many([numbered(0), numbered(1), second], deadline=10)
    assert next(replies)[0] == 0
    wait_for_second()

    replies.close()

    assert llm_server.wait_until(lambda: llm_server.client_gone == 1 and llm_server.inflight == 0)
    assert sorted(LLMCall.objects.values_list("status", flat=True)) == ["ok", "ok", "ok", "unavailable"]
    given_up = LLMCall.objects.get(status="unavailable")  # 1, which may have cost something: nobody knows how much
    assert "given up" in given_up.error
    assert (given_up.attempts, given_up.cost_usd) == (1, None)


def test_a_reply_that_arrived_unheard_is_in_the_ledger(llm_server: LLMServer) -> None:
    first, wait_for_first = arrived(0)

    def requests() -> Iterator[LLMRequest]:
        yield first
        wait_for_first()
        raise LookupError("the next question could not be built")

    with pytest.raises(LookupError):
        list(complete_many(requests(), deadline=10))

    assert list(LLMCall.objects.values_list("status", flat=True)) == ["ok", "ok"]  # it and the round trip


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="threads cannot share an in-memory SQLite")
def test_a_single_question_does_not_wait_for_everything_that_many_streams_ask(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: {"text": "ok", "latency": 0.4}
    stop, seconds = Stop(), 0.0

    def stream() -> None:
        for _ in complete_many((numbered(n) for n in range(500)), deadline=10):
            pass

    def one() -> None:
        nonlocal seconds
        assert llm_server.wait_until(lambda: llm_server.calls > 20)
        began = time.monotonic()
        assert complete(numbered(0), deadline=10).ok
        seconds = time.monotonic() - began
        stop.request()

    with pytest.raises(Stopped), stopping_with(stop):
        side_by_side([stream] * 8 + [one], 9)

    assert 0 < seconds < 2.4, "eight windows of four calls each, one after the other, would take 6.4 s"
