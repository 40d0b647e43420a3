"""Several worker processes under one: started, started again when one dies, told to stop together.

Processes and not threads, because a signal reaches only a process's main thread: each can be stopped in a model call and hand its
work back, one that is killed takes no other with it, and judging computes enough to want a core of its own.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType

from django.db import connections

KILL_AFTER = 5.0  # seconds past the grace period
RESTART_PAUSE = 1.0  # seconds, so that one that dies at once does not take the machine with it
LOOK = 0.2  # seconds

log = logging.getLogger("agents.worker")


def several(count: int, target: Callable[[], None], *, grace: float) -> None:
    """Run `target` in so many processes until all ended by themselves or this one is told to stop.

    Args:
        count: How many.
        target: What each does; it ends by itself, or on SIGTERM.
        grace: Seconds they take at most to end when told; those that take longer are killed.
    """
    connections.close_all()  # a connection must not be shared with a child
    context = multiprocessing.get_context("fork")
    stop_at: list[float] = []

    def asked(number: int, frame: FrameType | None) -> None:
        for child in children:
            if child.is_alive() and child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)
        stop_at.append(time.monotonic() + grace + KILL_AFTER)

    def start() -> BaseProcess:
        child = context.Process(target=_child, args=(target,))
        child.start()
        return child

    children: list[BaseProcess] = []
    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        children += [start() for _ in range(count)]
        while children:
            time.sleep(LOOK)
            for place, child in reversed(list(enumerate(children))):
                if child.is_alive():
                    if stop_at and time.monotonic() > stop_at[0]:
                        child.kill()
                elif child.exitcode == 0 or stop_at:
                    children.pop(place)
                else:
                    log.error("worker process %s died (%s); starting another", child.pid, child.exitcode)
                    time.sleep(RESTART_PAUSE)
                    children[place] = start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _child(target: Callable[[], None]) -> None:
    """In the child: the signals are its own, and Ctrl-C of the terminal comes to it through its parent."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setpgrp()
    target()
