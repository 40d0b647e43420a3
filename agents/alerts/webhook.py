"""Webhooks as the Standard Webhooks specification has them: sign a message, and post it to an address that may be posted to.

An address is resolved once, and the connection is made to the address that was checked: a name that answers differently the second
time gains nothing. Redirects are not followed, the answer's body is not read, and the whole takes a bounded time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import queue
import socket
import ssl
import threading
import time
from contextlib import suppress

from django.conf import settings

from agents.alerts.addresses import Refused, Target, may_post_to, not_public, target_of


class Unreachable(OSError):
    """There was no answer; says why."""


def secret_of(salt: str, key: str = "") -> str:
    """The signing secret of a receiver, derived from SECRET_KEY (or another `key`): it is stored nowhere."""
    digest = hmac.new((key or settings.SECRET_KEY).encode(), f"plumbline.webhook.{salt}".encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(digest.digest()).decode()}"


def headers_for(body: bytes, *, message_id: str, salt: str, now: float | None = None) -> dict[str, str]:
    """The headers of a try. While SECRET_KEY changes, each of SECRET_KEY_FALLBACKS signs, too."""
    timestamp = str(int(time.time() if now is None else now))
    signatures = []
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        secret = base64.b64decode(secret_of(salt, key).removeprefix("whsec_"))
        signed = hmac.new(secret, b".".join((message_id.encode(), timestamp.encode(), body)), hashlib.sha256)
        signatures.append(f"v1,{base64.b64encode(signed.digest()).decode()}")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(signatures),
        "content-type": "application/json",
        "user-agent": "Plumbline",
    }


def post(url: str, body: bytes, headers: dict[str, str], *, seconds: float) -> int:
    """Post to a webhook; return the status of its answer, whatever it is. It takes at most `seconds`.

    A thread does it, for the system's resolver and a server that trickles take as long as they like.

    Raises:
        Refused: The address may not be posted to.
        Unreachable: There was no answer in time.
    """
    target, end = target_of(url), time.monotonic() + seconds
    lines: list[socket.socket] = []
    answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(_answer(target, body, headers, end, lines))
        except (OSError, ValueError, http.client.HTTPException) as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    answer: int | Exception
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        answer = TimeoutError()
        for line in lines:
            with suppress(OSError):  # it ended meanwhile
                socket.socket.shutdown(line, socket.SHUT_RDWR)
    if isinstance(answer, int):
        return answer
    if isinstance(answer, Refused):
        raise answer
    raise Unreachable(f"no answer within {seconds:g} s" if isinstance(answer, TimeoutError) else _words(answer))


def _answer(target: Target, body: bytes, headers: dict[str, str], end: float, lines: list[socket.socket]) -> int:
    """The status of the answer; the sockets in use are added to `lines`, for the caller to cut them off."""

    def left() -> float:
        if (seconds := end - time.monotonic()) <= 0:
            raise TimeoutError
        return seconds

    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    allowed = [str(address) for address in addresses if may_post_to(address, trusted=target.trusted)]
    if not allowed:
        raise Refused(not_public(target.host))
    while True:  # the first that takes a connection
        try:
            line = socket.create_connection((allowed.pop(0), target.port), timeout=left() / (len(allowed) + 1))
            break
        except OSError:
            if not allowed:
                raise
    with line:
        lines.append(line)
        line.settimeout(left())
        if target.tls:
            line = ssl.create_default_context().wrap_socket(line, server_hostname=target.host)
            lines.append(line)
            line.settimeout(left())
        kind = http.client.HTTPSConnection if target.tls else http.client.HTTPConnection
        connection = kind(target.host, target.port)
        connection.sock = line
        try:
            connection.request("POST", target.path, body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


def _words(error: Exception) -> str:
    """What went wrong, without the address, and without what the other side wrote."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message}"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, http.client.HTTPException):
        return "what it answered is not HTTP"
    return f"the connection failed: {getattr(error, 'strerror', None) or type(error).__name__}"
