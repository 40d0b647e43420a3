"""Text that any database takes."""

from __future__ import annotations

import re
from typing import Any

_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


def storable(value: Any) -> Any:
    """Return `value` with NUL and lone surrogates in its strings replaced: no database takes them, and a model can write them."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value) if _UNSTORABLE.search(value) else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value
