"""Run several straight functions side by side in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from threading import Thread
from typing import TypeVar

from django.db import connection, connections

from agents.work.stopping import LOOK, Stop, current_stop, stopping_with

T = TypeVar("T")


def side_by_side(jobs: Sequence[Callable[[], T]], limit: int) -> list[T]:
    """Call each job once, at most `limit` of them at the same time, and wait until all have ended.

    Each thread sees a copy of the caller's context variables (log ids, trace, stop flag) and closes its database connections at its
    end. With a limit of 1, or one job, the jobs run here, one after the other. Do not hold a transaction open across it.

    Args:
        jobs: Functions without arguments.
        limit: Threads, at least 1.

    Returns:
        What the jobs returned, in their order.

    Raises:
        BaseException: The first one, in the order of the jobs, after the others have ended. One that is not an `Exception` (the work is
            to stop) comes before all others, and stops the other jobs at their next look at the stop flag.
        ValueError: `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; allowed: 1 or more")
    stop = Stop(current_stop())
    waiting = deque(enumerate(jobs))
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def work() -> None:
        with stopping_with(stop):
            while waiting:
                try:
                    place, job = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                try:
                    stop.check()
                    results[place] = job()
                except Exception as error:  # noqa: BLE001 (raised when the others have ended)
                    errors[place] = error
                except BaseException as error:  # noqa: BLE001 (the same; the others stop at once)
                    errors[place] = error
                    waiting.clear()
                    stop.request()

    def thread() -> None:
        try:
            work()
        finally:
            connections.close_all()

    if limit == 1 or len(jobs) == 1:
        work()
    else:
        if not connection.in_atomic_block:
            connection.close()  # this thread only waits: its connection is free for the others
        threads = [Thread(target=copy_context().run, args=(thread,)) for _ in range(min(limit, len(jobs)))]
        try:
            for each in threads:
                each.start()
            _join(threads)
        except BaseException:  # Ctrl-C: the jobs stop, too
            waiting.clear()
            stop.request()
            _join(threads)
            raise
    for place in sorted(errors, key=lambda place: (isinstance(errors[place], Exception), place)):
        raise errors[place]
    return [results[place] for place in range(len(jobs))]


def _join(threads: Sequence[Thread]) -> None:
    for each in threads:
        while each.is_alive():
            each.join(LOOK)  # in steps: a signal reaches the main thread between two
