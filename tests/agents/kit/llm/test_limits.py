"""How many calls are in flight, who goes first, and how the number follows what the server says."""

from __future__ import annotations

import asyncio
import email.utils
import re
import time
from collections.abc import Callable, Iterator

import pytest
from pytest_django import Settings

from agents.kit.llm import LLMRequest, Reply, Status, complete, complete_many
from agents.kit.llm.loop import CUT_INTERVAL, MAX_PAUSE, Limiter, background
from tests.agents.kit.llm.asking import text_request
from tests.agents.kit.llm.conftest import Wire
from tests.llm_server import LLMServer


@pytest.fixture
def limits(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 3, 1


@pytest.mark.django_db
@pytest.mark.usefixtures("wire")
def test_no_more_calls_are_in_flight_than_configured(llm_server: LLMServer, limits: None) -> None:
    for _ in range(3):
        llm_server.reply(hold=True)

    def requests() -> Iterator[LLMRequest]:
        for _ in range(4):
            yield text_request()
        assert llm_server.wait_until(lambda: llm_server.inflight == 3)
        llm_server.release()
        for _ in range(16):
            yield text_request()

    replies = list(complete_many(requests(), deadline=30))

    assert [reply.status for _, reply in replies] == [Status.OK] * 20
    assert llm_server.peak_inflight == 3


@pytest.mark.django_db
def test_a_gate_call_gets_through_when_all_ordinary_slots_hang(llm_server: LLMServer, limits: None) -> None:
    for _ in range(3):
        llm_server.reply(hold=True)
    gated: list[Reply] = []

    def requests() -> Iterator[LLMRequest]:
        for _ in range(4):
            yield text_request()
        assert llm_server.wait_until(lambda: llm_server.inflight == 3)
        gated.append(complete(text_request(gate=True), deadline=5))
        llm_server.release()

    replies = list(complete_many(requests(), deadline=30))

    assert [reply.status for reply in gated] == [Status.OK]
    assert [reply.status for _, reply in replies] == [Status.OK] * 4


@pytest.mark.django_db
def test_gate_calls_also_use_ordinary_slots_that_are_free(llm_server: LLMServer, limits: None) -> None:
    llm_server.respond = lambda body: {"hold": True} if llm_server.inflight < 4 else None

    def requests() -> Iterator[LLMRequest]:
        for _ in range(4):
            yield text_request(gate=True)
        assert llm_server.wait_until(lambda: llm_server.peak_inflight == 4)
        llm_server.release()

    assert all(reply.ok for _, reply in complete_many(requests(), deadline=30))


@pytest.mark.django_db
def test_each_endpoint_has_slots_of_its_own(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 0
    llm_server.reply(hold=True)
    elsewhere: list[Reply] = []

    with LLMServer() as other:
        settings.JUDGE_BASE_URL = other.url

        def requests() -> Iterator[LLMRequest]:
            yield text_request()
            assert llm_server.wait_until(lambda: llm_server.inflight == 1)
            elsewhere.append(complete(text_request(role="judge"), deadline=5))
            llm_server.release()

        list(complete_many(requests(), deadline=30))

    assert [reply.status for reply in elsewhere] == [Status.OK]


@pytest.mark.django_db
@pytest.mark.parametrize("status", [429, 529])
def test_an_overloaded_server_halves_the_limit_although_the_sdk_tries_again(
    llm_server: LLMServer, settings: Settings, wire: Wire, status: int
) -> None:
    settings.LLM_MAX_CONCURRENCY = 8
    llm_server.reply(status=status, headers={"retry-after-ms": "1"})

    reply = complete(text_request(retries=1))

    assert (reply.status, reply.attempts) == (Status.OK, 2)
    assert background().limiter(wire.url(llm_server)).limit == 4


@pytest.mark.django_db
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_retry_after_pauses_ordinary_calls_but_not_gate_calls(
    llm_server: LLMServer, wire: Wire, limits: None, form: str
) -> None:
    date = email.utils.formatdate(time.time() + 20, usegmt=True)
    llm_server.reply(status=529, headers={"retry-after": "20" if form == "seconds" else date})
    assert complete(text_request()).status is Status.UNAVAILABLE

    gate = complete(text_request(gate=True), deadline=10)
    ordinary = complete(text_request(), deadline=0.5)

    assert (gate.status, ordinary.status, ordinary.attempts) == (Status.OK, Status.RATE_LIMITED, 0)
    assert re.fullmatch(rf"{wire.url(llm_server)} asked for a pause, of which 1\d\.\d s are left", ordinary.error)
    assert llm_server.calls == 2, "the ordinary call was not sent"


@pytest.mark.django_db
def test_a_spend_limit_says_nothing_about_load(llm_server: LLMServer, settings: Settings, wire: Wire) -> None:
    settings.LLM_MAX_CONCURRENCY = 8
    llm_server.reply(status=429, error_code=wire.quota_code)

    complete(text_request())

    assert background().limiter(wire.url(llm_server)).limit == 8


# The limiter by itself, on a loop whose clock the test moves.


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until it is moved."""

    now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    loop = Clock()
    yield loop
    loop.close()


def run(clock: Clock, act: Callable[[], object]) -> None:
    async def acting() -> None:
        act()
        for _ in range(5):
            await asyncio.sleep(0)

    clock.run_until_complete(acting())


def limiter(maximum: int, gate_slots: int = 0) -> Limiter:
    made = Limiter()
    made.configure(maximum=maximum, gate_slots=gate_slots)
    return made


def test_a_burst_of_429s_halves_the_limit_once_per_second(clock: Clock) -> None:
    slots = limiter(16)
    for _ in range(5):
        run(clock, slots.overloaded)
    assert slots.limit == 8

    clock.now += CUT_INTERVAL
    run(clock, slots.overloaded)
    assert slots.limit == 4


def test_the_limit_grows_by_one_after_as_many_successes_until_its_maximum(clock: Clock) -> None:
    slots = limiter(4)
    run(clock, slots.overloaded)
    seen = []
    for _ in range(8):
        run(clock, slots.succeeded)
        seen.append(slots.limit)
    assert seen == [2, 3, 3, 3, 4, 4, 4, 4]


def test_a_pause_is_bounded_and_ends_by_itself(clock: Clock) -> None:
    slots = limiter(1)
    granted: list[str] = []

    async def wait() -> None:
        granted.append(await slots.acquire(gate=False))

    run(clock, lambda: slots.pause(3600))
    task = clock.create_task(wait())
    run(clock, lambda: None)
    assert granted == []
    clock.now += MAX_PAUSE
    run(clock, lambda: None)
    assert granted == ["ordinary"]
    assert task.done()


def test_a_freed_slot_goes_to_a_gate_call_first(clock: Clock) -> None:
    slots, order = limiter(1), []

    async def wait(name: str, gate: bool) -> None:
        await slots.acquire(gate=gate)
        order.append(name)

    clock.run_until_complete(wait("first", False))
    tasks = [clock.create_task(wait("ordinary", False)), clock.create_task(wait("gate", True))]
    run(clock, lambda: None)
    run(clock, lambda: slots.release("ordinary"))
    assert order == ["first", "gate"]
    run(clock, lambda: slots.release("ordinary"))
    assert order == ["first", "gate", "ordinary"]
    assert all(task.done() for task in tasks)


def test_who_gives_up_leaves_no_slot_behind(clock: Clock) -> None:
    slots = limiter(1)
    clock.run_until_complete(slots.acquire(gate=False))
    task = clock.create_task(slots.acquire(gate=False))
    run(clock, lambda: None)

    def hand_over_and_cancel() -> None:
        slots.release("ordinary")  # the slot is the waiting task's now
        task.cancel()

    run(clock, hand_over_and_cancel)
    assert slots.in_use["ordinary"] == 0
    assert clock.run_until_complete(slots.acquire(gate=False)) == "ordinary"
