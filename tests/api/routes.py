"""Every route of the API, found in the URLconf itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.converters import IntConverter, UUIDConverter

METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
FOR_EVERYBODY = ("/api/", "/api/schema/", "/api/docs/")  # who is signed in, whatever else they may


def routes(patterns: Any = None, before: str = "/") -> Iterator[str]:
    """Every path under /api/, with something filled in for its variables."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        path = before + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from routes(entry.url_patterns, path)
        elif isinstance(entry, URLPattern) and path.startswith("/api/"):
            for name, converter in entry.pattern.converters.items():
                example = "1" if isinstance(converter, IntConverter) else "x"
                if isinstance(converter, UUIDConverter):
                    example = "00000000-0000-0000-0000-000000000000"
                path = re.sub(rf"<(\w+:)?{name}>", example, path)
            yield path


EVERY_ROUTE = sorted(set(routes()))
