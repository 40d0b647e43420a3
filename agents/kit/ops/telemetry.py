"""What leaves the process about errors and requests: log lines and Sentry events, without what agents and users wrote.

Exceptions often quote texts, so only those about machines may say their sentence (`LOG_TEXTS` and `SENTRY_SEND_TEXTS` change that).
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseProblem
from pythonjsonlogger.json import JsonFormatter

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint


HIDDEN = "(hidden: it may quote messages or personas)"
# Their sentences are about machines. Of a database's, the first line is: the lines after it quote the row.
SPEAKABLE = (OSError, ImportError, ImproperlyConfigured, DatabaseProblem, MemoryError, RecursionError)


def spoken(error: BaseException) -> str:
    """Return the error's sentence when it cannot quote a user's or agent's text, else a remark that it is hidden."""
    if not isinstance(error, SPEAKABLE) or isinstance(error, UnicodeError):
        return HIDDEN
    return str(error).strip().partition("\n")[0][:300]


_about: ContextVar[dict[str, str | int]] = ContextVar("about", default={})  # noqa: B039 (never changed in place)


@contextmanager
def logging_about(**ids: str | int | None) -> Iterator[None]:
    """Add these ids to lines logged inside, e.g. ``run=12, agent="michael"``; None is left out."""
    known_ids = {name: value for name, value in ids.items() if value is not None}
    token = _about.set({**_about.get(), **known_ids})
    try:
        yield
    finally:
        _about.reset(token)


def about() -> dict[str, str | int]:
    """Return the ids of this moment: request_id, run, evaluation_run, agent, as far as there are any."""
    return dict(_about.get())


class About(logging.Filter):
    """Puts the ids on each record, one by one for JSON and as one text for people."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Set the ids of this moment, and the one of the record's request, on the record; attributes that it has stay. Drops no record."""
        ids = _about.get()
        of_request = getattr(getattr(record, "request", None), "log_id", None)
        if of_request and "request_id" not in ids:  # Django's own lines of it come when all middleware is done
            ids = {"request_id": of_request, **ids}
        for name, value in ids.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        record.about = "".join(f" {name}={value}" for name, value in ids.items())
        return True


ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def discreet_traceback(error: BaseException) -> str:
    """Return where an exception was raised and of which kind it is, through all its causes, the first one first."""
    parts = [
        f"{''.join(traceback.format_tb(cause.__traceback__))}{type(cause).__qualname__}: {spoken(cause)}"
        for cause in causes(error)
    ]
    return "\n\nwhich led to:\n\n".join(reversed(parts))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, what caused it, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {spoken(error)}"


class Discreet(logging.Formatter):
    """A formatter that hides what exceptions quote, in tracebacks and in lines."""

    def __init__(self, *args: Any, texts: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.texts = texts

    def format(self, record: logging.LogRecord) -> str:
        own = copy(record)
        own.exc_text = None  # another handler may have formatted it otherwise
        if not self.texts and isinstance(own.args, tuple):
            own.args = tuple(_named(value) if isinstance(value, BaseException) else value for value in own.args)
        return super().format(own)

    def formatException(self, ei: ExceptionInfo) -> str:
        if self.texts or ei[1] is None:
            return super().formatException(ei)
        return discreet_traceback(ei[1])


class Plain(Discreet):
    """One line for people; the ids at its end."""

    def __init__(self, *, texts: bool = False) -> None:
        super().__init__(
            "{asctime} {levelname} {name} {message}{about}", style="{", texts=texts, defaults={"about": ""}
        )


class Json(Discreet, JsonFormatter):
    """One JSON object a line: time, level, logger, message, the ids, and the traceback where there is one."""

    def __init__(self, *, texts: bool = False) -> None:
        super().__init__(
            "{asctime}{levelname}{name}{message}",
            style="{",
            texts=texts,
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "traceback"},
            reserved_attrs=[*_RESERVED, "about"],
            json_ensure_ascii=False,
        )

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return json_time(datetime.fromtimestamp(record.created, UTC))


class RefusedHost(logging.Filter):
    """Makes the log of a request under a name that is none of ours a warning without traceback: every scanner sends them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
        return logging.getLogger().isEnabledFor(logging.WARNING)


def json_time(moment: datetime) -> str:
    """Return a moment as every line for machines has it: UTC, to the millisecond, with its offset."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


_RESERVED = [*vars(logging.makeLogRecord({})), "message", "asctime", "request"]


def scrub_event(sent: Event, hint: Hint) -> Event:
    """Take out of an error event what may quote texts, and add the ids of this moment as tags; return the same event, changed.

    Out go the sentences of exceptions that are not `SPEAKABLE`, local variables, arguments of log lines, bodies, queries and cookies of
    requests, extra data and breadcrumbs.
    """
    event: dict[str, Any] = sent  # type: ignore[assignment]  # a mapping like any other
    event.setdefault("tags", {}).update({name: str(value) for name, value in about().items()})
    error = (hint.get("exc_info") or (None, None, None))[1]
    words = _sentences(error)
    for value in (event.get("exception") or {}).get("values") or ():
        value["value"] = words.get(value.get("type", ""), HIDDEN)
        for frame in (value.get("stacktrace") or {}).get("frames") or ():
            frame.pop("vars", None)
    entry = event.get("logentry")
    if entry:  # the line's pattern tells what happened; what was filled in may quote
        event["logentry"] = {"message": entry.get("message", ""), "params": []}
    request = event.get("request")
    if request:
        for name in ("data", "query_string", "cookies"):
            request.pop(name, None)
    event.pop("extra", None)
    event.pop("breadcrumbs", None)
    return sent


def scrub_transaction(sent: Event, hint: Hint) -> Event:
    """Remove a request's body, query and cookies from a trace, and return it: its spans carry only numbers and names of ours."""
    request: dict[str, Any] = sent.get("request") or {}
    for name in ("data", "query_string", "cookies"):
        request.pop(name, None)
    return sent


def _sentences(error: BaseException | None) -> dict[str, str]:
    """Return for each kind of exception in the chain what it may say (see `spoken`); of two of a kind, the outer one's."""
    sentences: dict[str, str] = {}
    for cause in causes(error):
        sentences.setdefault(type(cause).__name__, spoken(cause))
    return sentences
