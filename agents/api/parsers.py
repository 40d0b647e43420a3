"""Reading the bodies of requests: of a size and depth that a person or program may mean."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.parsers import JSONParser


class BodyTooLarge(APIException):
    """A body above `DATA_UPLOAD_MAX_MEMORY_SIZE`, which Django holds only forms to."""

    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE


class BoundedJSONParser(JSONParser):
    """JSON whose size and depth are bounded: neither costs a process its memory, nor the sender a server error."""

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read() if limit is None else stream.read(limit + 1)
        if limit is not None and len(body) > limit:
            raise BodyTooLarge(f"the body is too large; allowed: at most {limit:,} bytes")
        try:
            return super().parse(io.BytesIO(body), media_type, parser_context)
        except RecursionError:
            raise ParseError("the JSON is nested too deeply") from None
