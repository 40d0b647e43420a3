"""Lines of the log: for people, or JSON for machines. Neither quotes what agents and users wrote, unless `LOG_TEXTS` says so."""

from __future__ import annotations

import logging
import traceback
from copy import copy
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from agents.discretion import HIDDEN, spoken

ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def discreet_traceback(error: BaseException) -> str:
    """Where it happened and of which kind it is, through all its causes, in the traceback's usual form."""
    whole = traceback.TracebackException.from_exception(error)
    for part, problem in _chain(whole, error):
        words = spoken(problem)
        setattr(part, "_str", words)  # noqa: B010 (no public name) what `format` prints behind the type
        setattr(part, "__notes__", None)  # noqa: B010 (typed as always there)
        if words == HIDDEN and isinstance(problem, SyntaxError):
            part.text = ""
    return "".join(whole.format()).rstrip("\n")


def _chain(
    part: traceback.TracebackException, error: BaseException
) -> list[tuple[traceback.TracebackException, BaseException]]:
    found = [(part, error)]
    for inner, problem in ((part.__cause__, error.__cause__), (part.__context__, error.__context__)):
        if inner is not None and problem is not None:
            found += _chain(inner, problem)
    if part.exceptions and isinstance(error, BaseExceptionGroup):
        for inner, problem in zip(part.exceptions, error.exceptions, strict=False):
            found += _chain(inner, problem)
    return found


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
    """A request under a name that is none of ours: every scanner sends them, and a traceback of it tells nobody anything."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info = record.exc_text = None
        return logging.getLogger().isEnabledFor(logging.WARNING)


def json_time(moment: datetime) -> str:
    """A moment as every line for machines has it: UTC, to the millisecond, with its offset."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


_RESERVED = [*vars(logging.makeLogRecord({})), "message", "asctime", "request"]
