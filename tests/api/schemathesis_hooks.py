"""What schemathesis loads beside its configuration."""

from __future__ import annotations

import itertools
from typing import Any

import schemathesis

KEY = "Idempotency-Key"
_numbers = itertools.count()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Mostly a key of its own for each request: one example for all would have all but the first refused. And no waiting for news."""
    number = next(_numbers)
    if case.headers and case.headers.get(KEY, "").isalnum() and number % 8:
        case.headers[KEY] = f"key-{number}"
    if case.query and str(case.query.get("wait", "")).isdecimal():
        case.query["wait"] = 0
