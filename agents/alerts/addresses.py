"""Addresses that webhooks may be posted to: those of the public internet, and what the setting WEBHOOK_PRIVATE_HOSTS names."""

from __future__ import annotations

import ipaddress
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
        raise Refused(not_public(host))
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


def not_public(host: str) -> str:
    return f"address: {host} is not on the public internet; the setting WEBHOOK_PRIVATE_HOSTS can allow it"
