"""Post to an address in a bounded time.

Apprise's session resolves a name once and connects to the address that was checked: a name that answers differently the second time gains
nothing. No proxy of the environment is used, redirects are not followed, and the whole takes a bounded time.
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MOST_ADDRESSES = 2  # of a host that are tried: each may take its time to be connected to
SECONDS = re.compile(r"[0-9]{1,10}")
MOST_RETRY_AFTER = 86_400  # seconds


class Unreachable(OSError):
    """There was no answer; says why."""


@dataclass(frozen=True, slots=True)
class PostAnswer:
    """What was answered.

    Attributes:
        code: HTTP status.
        body: Empty unless it was asked for.
        retry_after: Seconds after which to try again; None where the answer does not say, or names a date.
    """

    code: int
    body: bytes = b""
    retry_after: int | None = None


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    seconds: float,
    may_connect: Callable[[str], bool] = lambda address: True,
    most_answer: int = 0,
) -> PostAnswer:
    """Post to an address; return the answer, whatever its status. It takes at most `seconds`.

    Args:
        may_connect: Says of each IP address of the host whether it may be connected to.
        most_answer: Bytes of the answer's body to read; a longer one is returned as empty.

    Raises:
        Unreachable: There was no answer in time.
    """
    import requests
    from apprise.utils.http import (
        ConnectionTracker,
        HTTPPolicy,
        HTTPPolicySession,
        read_bounded_response,
        track_connections,
    )

    end = time.monotonic() + seconds
    connected = 0

    def may_connect_to(address: str) -> bool:
        nonlocal connected
        allowed = may_connect(address) and connected < MOST_ADDRESSES
        connected += allowed
        return allowed

    step = seconds / (MOST_ADDRESSES + 1)  # for the name, and for each address
    session = HTTPPolicySession(HTTPPolicy(address_filter=may_connect_to, resolve_timeout=step))
    session.verify = ssl.get_default_verify_paths().cafile or True
    try:
        with session, track_connections(ConnectionTracker(), end):
            answer = session.post(
                url, body, headers=headers, timeout=(step, seconds), allow_redirects=False, stream=True
            )
            text = b""
            if most_answer:
                text = read_bounded_response(answer, most_answer) or b""
            return PostAnswer(answer.status_code, text, _seconds_in(answer.headers.get("retry-after", "")))
    except requests.RequestException as error:
        if isinstance(error, requests.Timeout) or time.monotonic() >= end:
            raise Unreachable(f"no answer within {seconds:g} s") from None
        raise Unreachable(_reason(_first_cause(error))) from None


def _seconds_in(retry_after: str) -> int | None:
    """Return the seconds that a header ``Retry-After`` names, at most a day; None where it names none."""
    if not SECONDS.fullmatch(retry_after):
        return None
    return min(int(retry_after), MOST_RETRY_AFTER)


def _first_cause(error: BaseException) -> BaseException:
    """Return the error with which this one began."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        error = cause
        cause = error.__cause__ or error.__context__
    return error


def _reason(error: BaseException) -> str:
    """Return what went wrong, without the address, and without what the other side wrote."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, http.client.HTTPException):
        return "what it answered is not HTTP"
    return f"the connection failed: {getattr(error, 'strerror', None) or type(error).__name__}"
