"""A few questions at the same time: one deadline for all, and a reply for each."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import LLMRequest, Status, complete, complete_together
from agents.kit.models import LLMCall
from tests.agents.kit.llm.asking import asking, row_of, text_request, word_of
from tests.declaring import declare
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

SHORT = 2.5  # seconds: long enough for a request to reach the server on a busy machine
LONG = 30.0


def echo(body: dict[str, Any]) -> dict[str, Any]:
    return {"text": f"echo {word_of(body)}"}


def release_at(server: LLMServer, inflight: int) -> threading.Thread:
    """Let the held replies go as soon as so many requests are there at the same time."""

    def release() -> None:
        if server.wait_until(lambda: server.inflight == inflight):
            server.release()

    thread = threading.Thread(target=release)
    thread.start()
    return thread


def test_all_are_asked_at_the_same_time_and_answered_in_their_order(llm_server: LLMServer) -> None:
    llm_server.respond = lambda body: echo(body) | {"hold": True, "latency": 0.2 if word_of(body) == "one" else 0}
    releaser = release_at(llm_server, 3)

    replies = complete_together((asking(word) for word in ("one", "two", "three")), deadline=LONG)

    releaser.join()
    assert [reply.text for reply in replies] == ["echo one", "echo two", "echo three"]


@pytest.mark.usefixtures("wire")
def test_what_is_late_is_cancelled_and_the_others_are_kept(llm_server: LLMServer) -> None:
    assert complete(text_request()).ok
    llm_server.respond = lambda body: {"hang": True} if word_of(body) == "two" else echo(body)

    replies = complete_together([asking(word) for word in ("one", "two", "three")], deadline=SHORT)

    assert [reply.status for reply in replies] == [Status.OK, Status.TIMEOUT, Status.OK]
    assert replies[1].error.startswith("no answer within the deadline")
    assert llm_server.wait_until(lambda: llm_server.client_gone == 1 and llm_server.inflight == 0)
    assert [row_of(reply).status for reply in replies] == ["ok", "timeout", "ok"]


def test_a_loop_that_is_held_up_does_not_hold_up_the_caller(llm_server: LLMServer) -> None:
    assert complete(text_request()).ok
    read_on = threading.Event()
    try:
        (reply,) = complete_together([asking("one", parse=lambda text: read_on.wait(60))], deadline=SHORT)
        assert not read_on.is_set(), "the caller has its reply while the loop is held up"
    finally:
        read_on.set()

    assert (reply.status, row_of(reply).status) == (Status.TIMEOUT, "timeout")


def test_one_deadline_is_for_all_and_includes_the_wait_for_a_slot(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 0
    assert complete(text_request()).ok
    llm_server.always(hang=True)

    replies = complete_together([asking(str(number)) for number in range(8)], deadline=SHORT)

    assert [reply.status for reply in replies] == [Status.TIMEOUT] * 8
    assert llm_server.calls == 2, (
        "the first one took all the time there was; with a deadline each, all would have been sent"
    )


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """What pressing Ctrl-C does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("wire")
def test_an_interrupt_cancels_what_is_in_flight(llm_server: LLMServer, ctrl_c: Callable[[], None]) -> None:
    assert complete(text_request()).ok
    llm_server.respond = lambda body: {"hang": True} if word_of(body) == "hang" else echo(body)
    arrived = threading.Event()

    def interrupt() -> None:
        if arrived.wait(30) and llm_server.wait_until(lambda: llm_server.calls == 3 and llm_server.inflight == 1):
            ctrl_c()

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        complete_together([asking("one", parse=lambda text: arrived.set()), asking("hang")], deadline=LONG)

    interrupter.join()
    assert llm_server.wait_until(lambda: llm_server.client_gone == 1 and llm_server.inflight == 0)


def interrupted(request: LLMRequest) -> str:
    """An offline responder during which Ctrl-C is pressed, once a reply of the network has come."""
    assert request.facts["arrived"].wait(30)
    assert complete(asking("round trip")).ok  # what the loop had finished before is handed back
    raise KeyboardInterrupt


def test_replies_that_had_arrived_are_in_the_ledger_after_an_interrupt(
    llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "offline_responders", {"act": "tests.agents.kit.llm.test_together.interrupted"})
    llm_server.respond = lambda body: {"hang": True} if word_of(body) == "hang" else echo(body)
    arrived = threading.Event()
    requests = [
        asking("one", parse=lambda text: arrived.set()),
        asking("hang"),
        asking("offline", model="offline:scripted-1", facts={"arrived": arrived}),
    ]

    with pytest.raises(KeyboardInterrupt):
        complete_together(requests, deadline=LONG)

    assert sorted(LLMCall.objects.values_list("dimension", "status")) == [
        ("hang", "unavailable"),
        ("one", "ok"),
        ("round trip", "ok"),
    ]
    assert llm_server.wait_until(lambda: llm_server.client_gone == 1)
