"""From an exception of the SDK to a status and one line for people."""

from __future__ import annotations

import logging

from agents.llm.answers import one_line
from agents.llm.client import SPEND_LIMIT, Trace
from agents.llm.endpoints import Route
from agents.llm.requests import Status

logger = logging.getLogger(__name__)

MAX_DETAIL = 300
HINTS = {
    401: "check ANTHROPIC_API_KEY",
    402: "check the account's billing",
    404: "check the model's name, and that the base URL does not end in /v1",
}


def status_of(http_status: int) -> Status:
    """What an HTTP error status means for the caller: wait (`rate_limited`), try later (`unavailable`), or change something."""
    if http_status == 429:
        return Status.RATE_LIMITED
    if http_status in (408, 409) or http_status >= 500:
        return Status.UNAVAILABLE
    return Status.REJECTED


def describe(problem: Exception, route: Route, trace: Trace) -> tuple[Status, str]:
    """The status and the error line of a call that raised."""
    import anthropic

    if isinstance(problem, anthropic.APIStatusError):
        status, error = status_of(problem.status_code), _status_error(problem)
    elif isinstance(problem, anthropic.APITimeoutError):
        status, error = Status.TIMEOUT, f"{route.endpoint} did not answer in time"
    elif isinstance(problem, anthropic.APIConnectionError):
        cause = problem.__cause__ or problem
        status, error = (
            Status.UNAVAILABLE,
            f"no answer from {route.endpoint}: {type(cause).__name__}: {cause}".rstrip(": "),
        )
    elif trace.http_status == 200:
        status, error = (
            Status.REJECTED,
            f"{route.endpoint} answered 200 with something that is not JSON; is the base URL right?",
        )
    else:
        logger.error("a call of %s failed in an unforeseen way", route.model, exc_info=problem)
        status, error = Status.REJECTED, f"the call failed: {type(problem).__name__}: {problem}"
    return status, one_line(error.replace(route.key, "***") if len(route.key) > 7 else error)


def _status_error(problem: object) -> str:
    """Code, the server's own words and, where it is known, what to do."""
    import anthropic

    assert isinstance(problem, anthropic.APIStatusError)  # noqa: S101
    words = problem.api_message or (problem.body if isinstance(problem.body, str) else "") or "no reason given"
    hint = HINTS.get(problem.status_code, "")
    if problem.status_code == 429 and SPEND_LIMIT in (problem.error_code or ""):
        hint = "a spend limit is reached; retrying will not help before it is raised"
    return one_line(f"HTTP {problem.status_code}: {words}", MAX_DETAIL) + (f" ({hint})" if hint else "")
