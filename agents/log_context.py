"""What every line of the log says besides: which request, which run, which agent."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[dict[str, str | int]] = ContextVar("about", default={})  # noqa: B039 (never changed in place)


@contextmanager
def logging_about(**ids: str | int | None) -> Iterator[None]:
    """Lines logged inside carry these ids, e.g. ``run=12, agent="michael"``; None is left out."""
    token = _about.set({**_about.get(), **{name: value for name, value in ids.items() if value is not None}})
    try:
        yield
    finally:
        _about.reset(token)


def about() -> dict[str, str | int]:
    """The ids of this moment: request_id, run, evaluation_run, agent, as far as there are any."""
    return dict(_about.get())


class About(logging.Filter):
    """Puts the ids on each record, one by one for JSON and as one text for people."""

    def filter(self, record: logging.LogRecord) -> bool:
        ids = _about.get()
        for name, value in ids.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        record.about = "".join(f" {name}={value}" for name, value in ids.items())
        return True
