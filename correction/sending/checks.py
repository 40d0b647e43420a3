"""System checks of where scores are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

DOCUMENT = "docs/how-to/send-scores.md"


@register("plumbline")
def receivers_of_scores_can_be_used(app_configs: Any, **kwargs: Any) -> Iterator[CheckMessage]:
    """Tell of addresses and headers that cannot be used (correction.E003), and of a Langfuse that is set in part (correction.W001)."""
    from correction.sending.otlp import parse_headers

    for name in ("SCORES_OTLP_ENDPOINT", "LANGFUSE_BASE_URL"):
        address = getattr(settings, name)
        if address and not _is_address(address):
            hint = f"Set it to an address such as https://example.com:4318; see {DOCUMENT}."
            yield Error(f"{name} is no http(s) address.", hint=hint, id="correction.E003")
    try:
        parse_headers(settings.SCORES_OTLP_HEADERS)
    except ValueError as error:
        yield Error(f"{error}.", hint=f"See {DOCUMENT}.", id="correction.E003")
    of_langfuse = ("LANGFUSE_BASE_URL", "LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
    missing = [name for name in of_langfuse if not getattr(settings, name)]
    if missing and len(missing) < len(of_langfuse):
        text = f"No scores are sent to Langfuse: {' and '.join(missing)} not set."
        yield Warning(text, hint=f"Set all three, or none; see {DOCUMENT}.", id="correction.W001")


def _is_address(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
