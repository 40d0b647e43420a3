"""A judge that hangs costs the first drafts their deadline, and the others nothing; one answer has all checked again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Barrier
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.llm import complete_many, runtime
from agents.kit.llm.runtime import PROBE_PAUSE, Breaker
from agents.kit.models import LLMCall
from agents.models import Agent, Channel
from correction.gate.statistics import get_gate_statistics
from evaluation.judge.asking import score_proposition
from evaluation.judge.checks import Check, CheckResult, ask_together
from tests.correction.gating import gated, judge, logs, send
from tests.correction.test_gate_faults import requests_that_wait
from tests.evaluation.judging import CONTEXT, LABEL, claim, entry
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

ONE_SECOND: dict[str, Any] = {"gate_deadline_seconds": Decimal("1"), "gate_total_deadline_seconds": Decimal("1")}
GOOD = judge({"adherence": 8, "consistency": 8, "fluency": 8})


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Iterator[Clock]:
    ours = Clock()
    runtime.forget(ours)
    yield ours
    runtime.forget()


def until_not_asked(agent: Agent, channel: Channel) -> int:
    """Send drafts until one passes without a call; how many waited. On a busy machine a time-out may be our own and not count."""
    for number in range(12):
        if send(agent, channel, f"Draft {number}").outcome == "overload_passed":
            return number
    raise AssertionError("the judge was asked about each of 12 drafts")


@pytest.mark.slow
def test_after_three_silent_time_outs_drafts_pass_at_once_and_it_shows(llm_server: LLMServer, clock: Clock) -> None:
    agent, channel = gated("consistency", **ONE_SECOND)
    llm_server.always(hang=True)
    waited = until_not_asked(agent, channel)

    result = send(agent, channel, "I filed it.")

    assert waited >= 3
    assert (result.committed, result.outcome) == (True, "overload_passed")
    assert llm_server.calls == LLMCall.objects.count() == waited, "neither a call nor a row of one"
    (row,) = logs()[-1].dimension_results.all()
    assert (row.status, row.score, row.passed) == ("overload", None, True)
    assert llm_server.url in row.reason
    got = get_gate_statistics(agent)
    assert (got.timeouts, got.overloads, got.judged_count) == (waited, 2, 0)


@pytest.mark.slow
def test_one_answer_of_a_probe_has_all_drafts_checked_again(llm_server: LLMServer, clock: Clock) -> None:
    agent, channel = gated("consistency", **ONE_SECOND)
    llm_server.always(hang=True)
    until_not_asked(agent, channel)
    calls = llm_server.calls

    clock.now += PROBE_PAUSE - 0.1
    assert send(agent, channel, "Too early.").outcome == "overload_passed"
    clock.now += 0.2
    assert send(agent, channel, "It still hangs.").outcome == "timeout_passed"
    assert send(agent, channel, "So this passes.").outcome == "overload_passed"
    assert llm_server.calls == calls + 1

    llm_server.respond = GOOD
    clock.now += PROBE_PAUSE
    assert [send(agent, channel, text).outcome for text in ("It answers.", "And again.")] == ["passed"] * 2
    assert llm_server.calls == calls + 3


@pytest.mark.slow
def test_waiting_for_a_slot_of_our_own_says_nothing_about_the_judge(
    llm_server: LLMServer, clock: Clock, settings: Settings
) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 1, 0
    agent, channel = gated("consistency", **ONE_SECOND)
    llm_server.always(hold=True)

    def more() -> Any:
        yield from requests_that_wait(1)
        assert llm_server.wait_until(lambda: llm_server.inflight == 1)
        for number in range(4):
            send(agent, channel, f"Draft {number}")
        llm_server.release()

    list(complete_many(more(), deadline=30))
    assert all("no free slot" in log.dimension_results.get().reason for log in logs())
    assert send(agent, channel, "I filed it.").outcome != "overload_passed"


@pytest.mark.slow
def test_a_hanging_judge_is_still_asked_by_evaluations(llm_server: LLMServer, clock: Clock, settings: Settings) -> None:
    agent, channel = gated("consistency", **ONE_SECOND)
    llm_server.always(hang=True)
    until_not_asked(agent, channel)

    llm_server.always(json=entry(7))
    assert score_proposition(proposition=claim(), context=CONTEXT, label=LABEL, deadline=5).value == 7
    with LLMServer() as other:
        other.respond = GOOD
        settings.JUDGE_BASE_URL = other.url
        assert send(agent, channel, "Another judge.").outcome == "passed"
    settings.JUDGE_BASE_URL = llm_server.url
    assert send(agent, channel, "The same one.").outcome == "overload_passed"


@pytest.mark.slow
def test_interventions_do_not_wait_for_a_judge_that_hangs_either(llm_server: LLMServer, clock: Clock) -> None:
    agent, channel = gated("consistency", **ONE_SECOND)
    llm_server.always(hang=True)
    until_not_asked(agent, channel)
    calls = llm_server.calls

    (got,) = ask_together(
        [Check(proposition=claim(), context=CONTEXT, label=LABEL, gate=True)], deadline=1, about=("ada", 1)
    )

    assert isinstance(got, CheckResult)
    assert (got.holds, got.call, llm_server.calls) == (None, None, calls)
    assert llm_server.url in got.reason


@pytest.mark.parametrize(
    ("drafts", "is_open"),
    [
        ([("a", False), ("b", False), ("c", False)], True),
        ([("a", False), ("b", False)], False),
        ([("a", False), ("a", False), ("a", False), ("b", False)], False),
        ([("a", False), ("b", False), ("c", True), ("d", False)], False),
        ([("a", False), ("b", False), ("c", None), ("d", False)], True),
        ([("a", False), (None, False), (None, False), ("b", False)], False),
    ],
)
def test_what_opens_a_breaker(drafts: list[tuple[str | None, bool | None]], is_open: bool) -> None:
    ours = Breaker("http://judge", Clock())
    for about, answered in drafts:
        ours.note(about, answered)
    assert ours.lets_through("next") is not is_open


def test_of_many_threads_one_tries_the_judge() -> None:
    clock = Clock()
    ours = Breaker("http://judge", clock)
    for name in "abc":
        ours.note(name, False)
    start = Barrier(16)

    def ask(number: int) -> bool:
        start.wait()
        return ours.lets_through(number)

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(ask, range(16))) == 0
        clock.now += PROBE_PAUSE
        assert sum(pool.map(ask, range(16))) == 1
