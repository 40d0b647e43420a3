"""Reading the bodies of requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import BaseParser, JSONParser, get_encoding  # type: ignore[attr-defined]  # not in the stubs
from rest_framework.renderers import JSONRenderer
from rest_framework.utils.json import strict_constant

from agents.transcripts.json_input import keys_once

DEEPEST = 50  # levels; what is stored is read and written again where less of the stack is left
TOO_DEEP = f"the JSON is nested too deeply; allowed: at most {DEEPEST} levels"


class BodyTooLarge(APIException):
    """A body above what the route takes."""

    status_code = 413


class BoundedJSONParser(BaseParser):
    """JSON of a size and depth that somebody may mean: more is the sender's error, not the server's.

    The size is the view's ``most_bytes``, `DATA_UPLOAD_MAX_MEMORY_SIZE` unless it says.
    """

    media_type = JSONParser.media_type
    renderer_class = JSONRenderer  # what the browsable form of the API shows a body in

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        most = getattr((parser_context or {}).get("view"), "most_bytes", settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        body = stream.read(most + 1)
        if len(body) > most:
            raise BodyTooLarge(f"the body is too large; allowed: at most {most:,} bytes")
        try:
            text = body.decode(get_encoding(parser_context or {}))
            found = json.loads(text, parse_constant=strict_constant, object_pairs_hook=keys_once)
        except ValueError as error:
            raise ParseError(f"JSON parse error - {error}") from None
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
