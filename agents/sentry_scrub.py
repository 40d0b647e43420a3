"""What Sentry is told of an error: where and of which kind, not what agents and users wrote, unless `SENTRY_SEND_TEXTS` says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.discretion import HIDDEN, spoken
from agents.log_context import about

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint


def scrub_event(sent: Event, hint: Hint) -> Event:
    """Take texts out of an error event: the sentences of exceptions, arguments of log lines, bodies and queries of requests."""
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
    """The same for traces: spans carry numbers and names of ours; a request's query and body go."""
    request: dict[str, Any] = sent.get("request") or {}
    for name in ("data", "query_string", "cookies"):
        request.pop(name, None)
    return sent


def _sentences(error: BaseException | None) -> dict[str, str]:
    """Per kind of exception in the chain, what it may say."""
    found: dict[str, str] = {}
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        found.setdefault(type(error).__name__, spoken(error))
        error = error.__cause__ or error.__context__
    return found
