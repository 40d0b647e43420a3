"""System checks of where scores are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from agents.kit.llm.providers.base import url_fault

DOCUMENT = "docs/how-to/send-scores.md"
# Settings of addresses, and where a key for them belongs.
ADDRESSES = {"SCORES_OTLP_ENDPOINT": "SCORES_OTLP_HEADERS", "LANGFUSE_BASE_URL": "LANGFUSE_SECRET_KEY"}


@register("plumbline")
def receivers_of_scores_can_be_used(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Tell of addresses and headers that cannot be used (correction.E003), and of a Langfuse that is set in part (correction.W001)."""
    from correction.sending.otlp import parse_headers

    for name, key_setting in ADDRESSES.items():
        fault = _address_fault(getattr(settings, name), key_setting=key_setting)
        if fault:
            hint = f"Set it to an address such as https://example.com:4318; see {DOCUMENT}."
            yield Error(f"{name} is no http(s) address to send scores to: it {fault}.", hint=hint, id="correction.E003")
    try:
        parse_headers(settings.SCORES_OTLP_HEADERS)
    except ValueError as error:
        yield Error(f"{error}.", hint=f"See {DOCUMENT}.", id="correction.E003")
    of_langfuse = ("LANGFUSE_BASE_URL", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
    missing = [name for name in of_langfuse if not getattr(settings, name)]
    if missing and len(missing) < len(of_langfuse):
        text = f"No scores are sent to Langfuse: {' and '.join(missing)} not set."
        yield Warning(text, hint=f"Set all three, or none; see {DOCUMENT}.", id="correction.W001")


def _address_fault(address: str, *, key_setting: str) -> str:
    """Return what is wrong with an address, without showing it, as it may hold a secret; empty where nothing is, or it is not set."""
    if not address:
        return ""
    if fault := url_fault(address, key_setting=key_setting):
        return fault
    if "?" in address or "#" in address:  # the path of the API is added at its end
        return f"has a query or fragment: leave it out, and set a key in {key_setting}"
    return ""
