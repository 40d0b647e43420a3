"""Sign a message as the Standard Webhooks specification has it, and post it to an address that may be posted to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import time

from django.conf import settings

from agents.alerts.addresses import AddressRefused, may_post_to, not_public, target_of
from agents.kit.work import posting
from agents.kit.work.posting import Unreachable


def secret_of(salt: str, key: str = "") -> str:
    """Return the signing secret of a receiver, derived from SECRET_KEY (or another `key`): it is stored nowhere."""
    digest = hmac.new((key or settings.SECRET_KEY).encode(), f"plumbline.webhook.{salt}".encode(), hashlib.sha256)
    return f"whsec_{base64.b64encode(digest.digest()).decode()}"


def headers_for(body: bytes, *, message_id: str, salt: str) -> dict[str, str]:
    """Return the headers of a try. While SECRET_KEY changes, each of SECRET_KEY_FALLBACKS signs, too: a receiver takes any signature.

    Args:
        message_id: The same at every try of a delivery.
        salt: Of the receiver, see `secret_of`.
    """
    timestamp = str(int(time.time()))
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
    target = target_of(url)
    allowed: list[bool] = []  # for each address of the host

    def may_connect(address: str) -> bool:
        allowed.append(may_post_to(ipaddress.ip_address(address), trusted=target.trusted))
        return allowed[-1]

    try:
        return posting.post(url, body, headers, seconds=seconds, may_connect=may_connect).code
    except Unreachable:
        if allowed and not any(allowed):  # the host's name was resolved, and none of its addresses may be posted to
            raise AddressRefused(not_public(target.host)) from None
        raise
