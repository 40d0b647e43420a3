"""What every line of the log says besides: which request, which run, which agent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[dict[str, str | int]] = ContextVar("about", default={})  # noqa: B039 (never changed in place)
_collected: ContextVar[dict[str, str | int] | None] = ContextVar("collected", default=None)


@contextmanager
def logging_about(**ids: str | int | None) -> Iterator[None]:
    """Lines logged inside carry these ids, e.g. ``run=12, agent="michael"``; None is left out."""
    known = {name: value for name, value in ids.items() if value is not None}
    if (collected := _collected.get()) is not None:
        collected.update(known)
    token = _about.set({**_about.get(), **known})
    try:
        yield
    finally:
        _about.reset(token)


@contextmanager
def collecting_ids() -> Iterator[dict[str, str | int]]:
    """What is done inside, by the ids that its lines carry; filled while it is done."""
    ids: dict[str, str | int] = {}
    token = _collected.set(ids)
    try:
        yield ids
    finally:
        _collected.reset(token)


def about() -> dict[str, str | int]:
    """The ids of this moment: request_id, run, evaluation_run, agent, as far as there are any."""
    return dict(_about.get())


class About(logging.Filter):
    """Puts the ids on each record, one by one for JSON and as one text for people."""

    def filter(self, record: logging.LogRecord) -> bool:
        ids = _about.get()
        of_request = getattr(getattr(record, "request", None), "log_id", None)
        if of_request and "request_id" not in ids:  # Django's own lines of it come when all middleware is done
            ids = {"request_id": of_request, **ids}
        for name, value in ids.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        record.about = "".join(f" {name}={value}" for name, value in ids.items())
        return True
