"""Run several straight functions side by side in threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from django.db import connection, connections

from agents.work.stopping import LOOK, Stop, current_stop, stopping_with

T = TypeVar("T")


def side_by_side(jobs: Iterable[Callable[[], T]], limit: int) -> list[T]:
    """Call each job once, at most `limit` of them at the same time, and wait until all have ended.

    Each thread sees a copy of the caller's context variables (log ids, trace, stop flag) and closes its database connections at its
    end. With a limit of 1, or one job, the jobs run here, one after the other. Do not hold a transaction open across it.

    Args:
        jobs: Functions without arguments. An iterator is gone through by one thread at a time, as threads become free: it may make a job
            while those before it run.
        limit: Threads, at least 1.

    Returns:
        What the jobs returned, in their order.

    Raises:
        BaseException: The first one, in the order of the jobs, after the others have ended. One that is not an `Exception` (the work is
            to stop) comes before all others, and stops the other jobs at their next look at the stop flag. Only jobs look at it.
        ValueError: `limit` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; allowed: 1 or more")
    stop = Stop(current_stop())
    waiting, lock, ended = enumerate(jobs), Lock(), False
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def next_job() -> tuple[int, Callable[[], T]] | None:
        nonlocal ended
        with lock:
            if not ended:
                if (job := next(waiting, None)) is not None:
                    return job
                ended = True
            return None

    def work() -> None:
        nonlocal ended
        with stopping_with(stop):
            place = -1
            while True:
                try:
                    if (next_one := next_job()) is None:
                        return
                    place, job = next_one
                    results[place] = job()
                except Exception as error:  # noqa: BLE001 (raised when the others have ended)
                    errors[place] = error
                except BaseException as error:  # noqa: BLE001 (the same; the others stop at once)
                    errors[place], ended = error, True
                    stop.request()

    gone: list[None] = []
    wake: SimpleQueue[None] = SimpleQueue()

    def thread() -> None:
        try:
            work()
        finally:
            connections.close_all()
            gone.append(None)
            wake.put(None)

    def wait(threads: Sequence[Thread]) -> None:
        # Not `join`: when Ctrl-C interrupts it, Python 3.11 takes the thread for one that has ended.
        while len(gone) < sum(each.ident is not None for each in threads):
            with suppress(Empty):
                wake.get(timeout=LOOK)

    most = min(limit, len(jobs)) if isinstance(jobs, Sized) else limit
    if most <= 1:
        work()
    else:
        if not connection.in_atomic_block:
            connection.close()  # this thread only waits: its connection is free for the others
        threads = [Thread(target=copy_context().run, args=(thread,)) for _ in range(most)]
        try:
            for each in threads:
                each.start()
            wait(threads)
        except BaseException:  # Ctrl-C: the jobs stop, too
            ended = True
            stop.request()
            wait(threads)
            raise
    for place in sorted(errors, key=lambda place: (isinstance(errors[place], Exception), place)):
        raise errors[place]
    return [results[place] for place in sorted(results)]
