"""Functions that go side by side: results in order, bounded, stopped together, no connection left open."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import pytest
import sentry_sdk
from django.db import connection

from agents.kit.running import SliceOver, Stop, Stopped, pause, side_by_side, stopping_with
from agents.models import Agent

ABOUT: ContextVar[str] = ContextVar("about", default="")


def jobs_of(count: int, job: Callable[[int], object]) -> list[Callable[[], object]]:
    return [lambda n=n: job(n) for n in range(count)]  # type: ignore[misc]


@pytest.mark.parametrize("limit", [1, 3])
def test_results_come_in_job_order_and_no_more_run_than_the_limit(limit: int) -> None:
    running: set[int] = set()
    most = 0

    def job(n: int) -> int:
        nonlocal most
        running.add(n)
        most = max(most, len(running))
        time.sleep(0.01 * (6 - n))
        running.discard(n)
        return n * n

    assert side_by_side(jobs_of(6, job), limit) == [0, 1, 4, 9, 16, 25]
    assert most <= limit
    assert side_by_side([], limit) == []


@pytest.mark.usefixtures("sentry")
def test_spans_of_jobs_side_by_side_end_with_their_jobs() -> None:
    both = threading.Barrier(2)
    first_has_ended = threading.Event()

    def job(n: int) -> None:
        with sentry_sdk.start_span(op="job"):
            both.wait(timeout=10)
            if n == 1:
                first_has_ended.wait(timeout=10)
        if n == 0:
            first_has_ended.set()

    with sentry_sdk.start_transaction(op="test") as trace:
        side_by_side(jobs_of(2, job), 2)
        assert sentry_sdk.get_current_span() is trace


@pytest.mark.parametrize("limit", [1, 4])
def test_the_first_failure_is_raised_when_the_others_have_ended(limit: int) -> None:
    ended = []

    def job(n: int) -> None:
        if n in (1, 2):
            raise ValueError(f"job {n}")
        time.sleep(0.02)
        ended.append(n)

    with pytest.raises(ValueError, match="job 1"):
        side_by_side(jobs_of(5, job), limit)
    assert sorted(ended) == [0, 3, 4]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_job_that_says_to_stop_comes_before_failures_of_others(limit: int) -> None:
    def fail() -> None:
        raise ValueError

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        side_by_side([fail, stop], limit)


def test_threads_see_the_context_of_the_caller() -> None:
    ABOUT.set("run 7")
    assert side_by_side(jobs_of(3, lambda n: ABOUT.get()), 3) == ["run 7"] * 3


@pytest.mark.parametrize(("limit", "stopped_by"), [(1, Stopped), (2, SliceOver)])
def test_the_caller_s_stop_flag_stops_all_jobs(limit: int, stopped_by: type[Stopped]) -> None:
    stop = Stop(slice_seconds=0.05 if stopped_by is SliceOver else 60)
    if stopped_by is Stopped:
        stop.request(grace=0.05)
    begun = []

    def job(n: int) -> None:
        begun.append(n)
        pause(30)

    with pytest.raises(stopped_by), stopping_with(stop):
        side_by_side(jobs_of(9, job), limit)
    assert len(begun) <= limit


def test_ctrl_c_stops_all_jobs() -> None:
    all_run, seen = threading.Barrier(3), []

    def job(n: int) -> None:
        if all_run.wait() == 0:
            time.sleep(0.1)  # the caller waits for the threads by now
            os.kill(os.getpid(), signal.SIGINT)
        try:
            pause(30)
        except Stopped:
            seen.append(n)
            raise

    with pytest.raises(KeyboardInterrupt):
        side_by_side(jobs_of(9, job), 3)
    assert len(seen) == 3


@pytest.mark.django_db(transaction=True)
def test_each_thread_closes_its_connection() -> None:
    opened = []

    def job(n: int) -> int:
        count = Agent.objects.count()
        opened.append(connection.connection)
        return count

    assert side_by_side(jobs_of(4, job), 4) == [0] * 4
    if connection.vendor == "sqlite":
        pytest.skip("Django keeps a database in memory open")
    assert all(each.closed for each in opened)


def test_jobs_may_be_made_while_others_run() -> None:
    """The second is made only after the first began, and lets it end."""
    begun, made = threading.Event(), threading.Event()

    def first() -> int:
        begun.set()
        assert made.wait(10)
        return 1

    def jobs() -> Iterator[Callable[[], int]]:
        yield first
        assert begun.wait(10)
        made.set()
        yield lambda: 2

    assert side_by_side(jobs(), 2) == [1, 2]
