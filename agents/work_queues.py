"""What workers claim: the callables that `WORK_QUEUES` names."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from django.conf import settings
from django.utils.module_loading import import_string

WorkQueue = Callable[..., bool]


def work_queues() -> list[WorkQueue]:
    """The queues, in turn. Each takes ``owner``, claims one piece of work, does it, and returns whether there was one."""
    return [import_string(path) for path in settings.WORK_QUEUES]


def wake_workers() -> None:
    """Tell Celery workers, if there are any, that something waits."""
    if settings.CELERY_BROKER_URL:
        from agents.tasks import nudge  # Celery takes half a second to import, which nobody without a broker should pay

        nudge()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM ends like Ctrl-C: out of the wait or the model call, and the work in hand is handed back on the way."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
