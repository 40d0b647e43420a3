"""Sign a message as the Standard Webhooks specification has it, and post it to an address that may be posted to.

Apprise's session resolves a name once and connects to the address that was checked: a name that answers differently the second time gains
nothing. No proxy of the environment is used, redirects are not followed, the answer's body is not read, and the whole takes a bounded time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import ssl
import time

from django.conf import settings

from agents.alerts.addresses import AddressRefused, may_post_to, not_public, target_of

MOST_ADDRESSES = 2  # of a host that are tried


class Unreachable(OSError):
    """There was no answer; says why."""


def secret_of(salt: str, key: str = "") -> str:
    """Return the signing secret of a receiver, derived from SECRET_KEY (or another `key`): it is stored nowhere."""
    digest = hmac.new((key or settings.SECRET_KEY).encode(), f"plumbline.webhook.{salt}".encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(digest.digest()).decode()}"


def headers_for(body: bytes, *, message_id: str, salt: str, now: float | None = None) -> dict[str, str]:
    """Return the headers of a try. While SECRET_KEY changes, each of SECRET_KEY_FALLBACKS signs, too: a receiver takes any signature.

    Args:
        message_id: The same at every try of a delivery.
        salt: Of the receiver, see `secret_of`.
        now: Seconds since 1970; None = now.
    """
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

    Raises:
        AddressRefused: The address may not be posted to.
        Unreachable: There was no answer in time.
    """
    import requests
    from apprise.utils.http import ConnectionTracker, HTTPPolicy, HTTPPolicySession, track_connections

    target = target_of(url)
    end = time.monotonic() + seconds
    allowed: list[bool] = []  # for each address of the host

    def may_connect(address: str) -> bool:
        """Allow no more than two addresses: each may take its time to be connected to."""
        may_post = may_post_to(ipaddress.ip_address(address), trusted=target.trusted)
        allowed.append(may_post and sum(allowed) < MOST_ADDRESSES)
        return allowed[-1]

    step = seconds / (MOST_ADDRESSES + 1)  # for the name, and for each address
    session = HTTPPolicySession(HTTPPolicy(address_filter=may_connect, resolve_timeout=step))
    session.verify = ssl.get_default_verify_paths().cafile or True
    try:
        with session, track_connections(ConnectionTracker(), end):
            answer = session.post(
                url, body, headers=headers, timeout=(step, seconds), allow_redirects=False, stream=True
            )
            return answer.status_code
    except requests.RequestException as error:
        if allowed and not any(allowed):  # the host's name was resolved, and none of its addresses may be posted to
            raise AddressRefused(not_public(target.host)) from None
        if isinstance(error, requests.Timeout) or time.monotonic() >= end:
            raise Unreachable(f"no answer within {seconds:g} s") from None
        raise Unreachable(_reason(_first_cause(error))) from None


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
