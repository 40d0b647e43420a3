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
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

GLOBAL_V6 = ipaddress.ip_network("2000::/3")
NOT_PUBLIC = [  # further networks that Python's `is_global` takes for public ones, or that lead elsewhere
    ipaddress.ip_network("192.0.0.0/24"),  # protocol assignments (RFC 6890)
    ipaddress.ip_network("192.88.99.0/24"),  # former 6to4 relays (RFC 7526)
    ipaddress.ip_network("3fff::/20"),  # documentation (RFC 9637)
]
METADATA = ipaddress.ip_network("168.63.129.16/32")  # Azure's, which looks like any other address
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Refused(ValueError):
    """Nothing may be sent there; says why, without what may be secret in the address."""


class Unreachable(OSError):
    """There was no answer; says why."""


class Target(NamedTuple):
    """Where to post to."""

    host: str
    port: int
    path: str  # with the query
    tls: bool
    trusted: bool  # the setting names the host: it may be private, and without TLS


def target_of(url: str) -> Target:
    """Read the address of a webhook.

    Raises:
        Refused: It is none that may be posted to; says what is allowed.
    """
    allowed = "allowed: an address such as https://example.com/hook"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise Refused(f"address: not understood; {allowed}") from None
    if parts.scheme not in ("https", "http") or not host or any(ord(c) <= 32 or ord(c) >= 127 for c in url):
        raise Refused(f"address: not understood; {allowed}, in ASCII")
    if parts.username is not None or parts.password is not None:
        raise Refused(f"address: with a user name or password; {allowed}")
    trusted = host in settings.WEBHOOK_PRIVATE_HOSTS
    if (literal := _literal(host)) is not None and not may_post_to(literal, trusted=trusted):
        raise Refused(_private(host))
    tls = parts.scheme == "https"
    if not tls and not trusted and (literal is None or not _is_named(literal)):
        raise Refused(f"address: without TLS; {allowed}, or a host that the setting WEBHOOK_PRIVATE_HOSTS names")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(host, port or (443 if tls else 80), path, tls, trusted)


def may_post_to(address: Address, *, trusted: bool = False) -> bool:
    """Whether an address is one of the public internet, or the setting names it (or its host, `trusted`)."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return may_post_to(address.ipv4_mapped, trusted=trusted)
    if trusted or _is_named(address):
        return True
    if any(address in network for network in NOT_PUBLIC):
        return False
    if address in METADATA or address.is_multicast or not address.is_global:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    inside = address.sixtofour or (address.teredo or (None, None))[1]
    return address in GLOBAL_V6 and (inside is None or may_post_to(inside))


def _is_named(address: Address) -> bool:
    for name in settings.WEBHOOK_PRIVATE_HOSTS:
        try:
            if address in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:  # the name of a host
            continue
    return False


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _private(host: str) -> str:
    return f"address: {host} is not on the public internet; the setting WEBHOOK_PRIVATE_HOSTS can allow it"


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
        raise Refused(_private(target.host))
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
