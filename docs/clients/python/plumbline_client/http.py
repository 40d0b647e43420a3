"""Send requests to a Plumbline server: a deadline for the whole answer, retries, and errors that never hold the token."""

from __future__ import annotations

import json
import queue
import random
import re
import threading
import time
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPErrorProcessor, Request, build_opener
from uuid import uuid4

LONGEST_ATTEMPT = 30.0  # seconds; then the same request is sent again, with the same Idempotency-Key
SHORTEST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 30.0  # seconds, where the server does not say how long to wait
LONGEST_REASON = 1_000  # characters


class PlumblineError(Exception):
    """The server did not do what was asked for; `Refused` and `Unavailable` say why."""


class Refused(PlumblineError):
    """No retry will change this: a wrong token, address, field or permission.

    Attributes:
        status: The HTTP status.
        errors: Per field what is wrong and what is allowed.
    """

    def __init__(self, reason: str, *, status: int, errors: dict[str, list[str]] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.errors = errors or {}


class Unavailable(PlumblineError):
    """The server is slow, away or busy. `retry_after` is what it asks to wait, in seconds, where it says so."""

    def __init__(self, reason: str, *, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class _EveryAnswer(HTTPErrorProcessor):
    """Returns every answer as it is. No redirect is followed, which would carry the token to another host."""

    def http_response(self, request: Request, response: Any) -> Any:
        return response

    https_response = http_response


class Http:
    """Requests to one server with one token."""

    def __init__(self, base_url: str, token: str) -> None:
        parts = urlsplit(base_url)
        is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
            raise ValueError("base_url: allowed: http:// or https:// with host, port and path, and no user or query")
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise ValueError("token: allowed: visible ASCII characters without spaces")
        self.base_url = base_url.rstrip("/")
        self._authorization = f"Token {token}"
        self._opener = build_opener(_EveryAnswer)

    def request(self, method: str, path: str, body: object = None, *, seconds: float, key: str = "") -> Any:
        """Send one request and return its JSON; the whole answer comes within so many seconds.

        Raises:
            Refused: Sending it again does not help.
            Unavailable: It may help.
        """
        headers = {"Authorization": self._authorization, "Accept": "application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers |= {"Content-Type": "application/json", "Idempotency-Key": key or uuid4().hex}
        request = Request(self.base_url + path, data, headers, method=method)  # noqa: S310 (the scheme was checked)
        status, retry_after, text = self._answer_within(request, seconds)
        if status >= 300:
            raise _error_of(status, retry_after, text)
        try:
            return json.loads(text)
        except ValueError:
            raise Unavailable(f"the answer to {method} {path} is no JSON: is a Plumbline server there?") from None

    def request_until_done(self, method: str, path: str, body: object = None, *, seconds: float) -> Any:
        """Send a request, again and again while the server is away or busy; it acts once, because its key stays the same.

        Raises:
            Refused: Sending it again does not help.
            Unavailable: The seconds are over.
        """
        deadline = time.monotonic() + seconds
        key = uuid4().hex
        pause = 0.5
        sent_before = False
        while True:
            left = max(0.1, deadline - time.monotonic())
            try:
                return self.request(method, path, body, seconds=min(left, LONGEST_ATTEMPT), key=key)
            except Refused as error:
                if error.status != 409 or not sent_before:  # 409: the first attempt is still being answered
                    raise
                problem: PlumblineError = error
                wait = pause
            except Unavailable as error:
                problem = error
                wait = pause if error.retry_after is None else max(error.retry_after, SHORTEST_PAUSE)
            if time.monotonic() + wait >= deadline:
                raise problem
            sent_before = True
            time.sleep(wait * random.uniform(1.0, 1.2))  # noqa: S311 (so that not all come back at once)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _answer_within(self, request: Request, seconds: float) -> tuple[int, str, bytes]:
        """Return status, Retry-After and body. Another thread asks: a socket's own timeout begins again with every read."""
        outcomes: queue.SimpleQueue[tuple[int, str, bytes] | Exception] = queue.SimpleQueue()

        def ask() -> None:
            try:
                with self._opener.open(request, timeout=seconds) as response:
                    outcomes.put((response.status, response.headers.get("Retry-After", ""), response.read()))
            except (OSError, HTTPException) as error:
                outcomes.put(Unavailable(f"{type(error).__name__}: {error}"))

        threading.Thread(target=ask, name="plumbline-client", daemon=True).start()
        try:
            outcome = outcomes.get(timeout=seconds)
        except queue.Empty:
            raise Unavailable(f"no answer within {seconds:.1f} seconds") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def _error_of(status: int, retry_after: str, text: bytes) -> PlumblineError:
    """Return what to raise for an answer that is no success, with the words of its problem details."""
    if status < 400:
        return Refused(f"{status}: redirects are not followed; allowed: the address that answers itself", status=status)
    try:
        problem = json.loads(text)
        errors = problem.get("errors", {})
        reason = f"{status} {problem.get('detail', '')}"
        for field, texts in errors.items():
            words = " ".join(texts)
            if words not in reason:
                reason += f"; {field}: {words}"
    except (ValueError, AttributeError, TypeError):  # a proxy's page
        errors = {}
        reason = f"{status} without a reason"
    if status in (408, 429) or status >= 500:
        return Unavailable(reason[:LONGEST_REASON], retry_after=float(retry_after) if retry_after.isdecimal() else None)
    return Refused(reason[:LONGEST_REASON], status=status, errors=errors)
