"""Addresses that webhooks may be posted to: those of the public internet, and what the setting WEBHOOK_PRIVATE_HOSTS names."""

from __future__ import annotations

import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings

NOT_PUBLIC = [  # further networks that Apprise takes for public ones, or that lead elsewhere
    ipaddress.ip_network("168.63.129.16/32"),  # Azure's metadata, which look like any other address
    ipaddress.ip_network("192.0.0.0/24"),  # protocol assignments (RFC 6890)
    ipaddress.ip_network("192.88.99.0/24"),  # former 6to4 relays (RFC 7526)
    ipaddress.ip_network("2001::/32"),  # Teredo
    ipaddress.ip_network("2002::/16"),  # 6to4
    ipaddress.ip_network("3fff::/20"),  # documentation (RFC 9637)
    ipaddress.ip_network("64:ff9b::/96"),  # NAT64
]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(ValueError):
    """Nothing may be sent there; says why, without what may be secret in the address."""


class Target(NamedTuple):
    """Where to post to."""

    host: str
    trusted: bool  # whether the setting names the host: it may be private, and without TLS


def target_of(url: str) -> Target:
    """Read the address of a webhook. A host's name is not resolved here: what it leads to is checked when it is posted to.

    Raises:
        AddressRefused: It is no http(s) address in printable ASCII; it holds a user name or password; its IP address is not public; or
            it is without TLS, and WEBHOOK_PRIVATE_HOSTS names neither the host nor its network. Says what is allowed.
    """
    allowed = "allowed: an address such as https://example.com/hook"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise AddressRefused(f"address: not understood; {allowed}") from None
    is_printable_ascii = all(32 < ord(character) < 127 for character in url)
    if parts.scheme not in ("https", "http") or not host or port == 0 or not is_printable_ascii:
        raise AddressRefused(f"address: not understood; {allowed}, in ASCII")
    if parts.username is not None or parts.password is not None:
        raise AddressRefused(f"address: with a user name or password; {allowed}")
    trusted = host in settings.WEBHOOK_PRIVATE_HOSTS
    ip_address = _ip_address(host)
    if ip_address is not None and not may_post_to(ip_address, trusted=trusted):
        raise AddressRefused(not_public(host))
    needs_no_tls = trusted or (ip_address is not None and _is_in_private_hosts(ip_address))
    if parts.scheme == "http" and not needs_no_tls:
        raise AddressRefused(f"address: without TLS; {allowed}, or a host that the setting WEBHOOK_PRIVATE_HOSTS names")
    return Target(host, trusted)


def may_post_to(address: Address, *, trusted: bool = False) -> bool:
    """Return whether an address is one of the public internet, or the setting names it (or its host, `trusted`)."""
    from apprise.utils.http import is_public_ip_address

    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return may_post_to(address.ipv4_mapped, trusted=trusted)
    if trusted or _is_in_private_hosts(address):
        return True
    return is_public_ip_address(address) and not any(address in network for network in NOT_PUBLIC)


def _is_in_private_hosts(address: Address) -> bool:
    """Return whether the setting names the address, or a network that it is in."""
    for name in settings.WEBHOOK_PRIVATE_HOSTS:
        try:
            if address in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:  # the name of a host
            continue
    return False


def _ip_address(host: str) -> Address | None:
    """Return a host that is written as an IP address; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def not_public(host: str) -> str:
    """Return the sentence that refuses a host which is not on the public internet."""
    return f"address: {host} is not on the public internet; the setting WEBHOOK_PRIVATE_HOSTS can allow it"
