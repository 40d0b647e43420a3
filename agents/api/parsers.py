"""Reading the bodies of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

DEEPEST = 50  # levels; what is stored is read and written again where less of the stack is left
TOO_DEEP = f"the JSON is nested too deeply; allowed: at most {DEEPEST} levels"


class BoundedJSONParser(JSONParser):
    """JSON of a depth that somebody may mean: more is the sender's error, not the server's. Django bounds the size."""

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        try:
            found = super().parse(stream, media_type, parser_context)
        except RecursionError:
            raise ParseError(TOO_DEEP) from None
        level = [found]
        for _ in range(DEEPEST + 1):
            level = [value for parent in level for value in _inside(parent)]
        if level:
            raise ParseError(TOO_DEEP)
        return found


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
