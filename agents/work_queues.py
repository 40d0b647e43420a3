"""What workers claim: the callables that `WORK_QUEUES` names."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.utils.module_loading import import_string

WorkQueue = Callable[..., bool]


def work_queues() -> list[WorkQueue]:
    """The queues, in turn. Each takes ``owner``, claims one piece of work, does it, and returns whether there was one."""
    return [import_string(path) for path in settings.WORK_QUEUES]
