"""Make strangers' text storable, and count what had to be changed."""

from __future__ import annotations

import re
from typing import Any

TEXT_LIMIT = 1_000_000
"""Longest message text that is stored, in characters. What is beyond is cut, with a marker that says so."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")  # PostgreSQL keeps no NUL, UTF-8 no lone surrogate
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Cleaner:
    """Cleans texts and counts what it changed."""

    def __init__(self) -> None:
        self.replaced = 0
        self.cut = 0

    def text(self, text: str) -> str:
        """Return the text with NUL characters and lone surrogates replaced by U+FFFD."""
        if _UNSTORABLE.search(text) is None:
            return text
        clean, count = _UNSTORABLE.subn(_REPLACEMENT, text)
        self.replaced += count
        return clean

    def shorten(self, text: str) -> str:
        """Return the text, cut at `TEXT_LIMIT` with a marker that says how much is missing."""
        if len(text) <= TEXT_LIMIT:
            return text
        self.cut += 1
        return f"{text[:TEXT_LIMIT]}\n[cut on import: {len(text) - TEXT_LIMIT:,} of {len(text):,} characters left out]"

    def value(self, value: Any) -> Any:
        """Return a JSON value with every text in it cleaned, keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value
