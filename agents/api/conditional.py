"""ETags: a reader is spared what it has, and of two editors the second is told that there was a first."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from django.utils.http import parse_etags, quote_etag
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

if TYPE_CHECKING:
    _View = APIView
else:
    _View = object


_WITHIN = re.compile(r'\.\w*"$')  # see `etag_of`


class Changed(APIException):
    """What is there is not what the sender read."""

    status_code = 412

    def __init__(self, etag: str) -> None:
        self.etag = etag
        super().__init__(
            f"it was changed since you read it: its ETag is {etag} now. Read it again, then send your change with If-Match: {etag}"
        )


class Conditional(_View):
    """First base of a view whose answers carry an ETag; writes pass `expected` to a service that checks it under its lock."""

    def expected(self, request: Request) -> tuple[str, ...] | None:
        """The ETags of ``If-Match``, any of which may be replaced; None for any state (no header, or ``*``)."""
        sent = request.headers.get("If-Match")
        if sent is None:
            return None
        tags = parse_etags(sent)
        return None if tags == ["*"] else tuple(_WITHIN.sub('"', tag) for tag in tags)

    def tagged(self, request: Request, data: Any, etag: str) -> Response:
        """The answer with its ETag; 304 without a body when the reader has it already."""
        sent = parse_etags(request.headers.get("If-None-Match", ""))
        known = {tag.removeprefix("W/") for tag in sent}
        if request.method in ("GET", "HEAD") and (etag in known or sent == ["*"]):
            return Response(status=304, headers={"ETag": etag})
        return Response(data, headers={"ETag": etag})

    def handle_exception(self, exc: Exception) -> Response:
        response = super().handle_exception(exc)
        if isinstance(exc, Changed):
            response["ETag"] = exc.etag
        return response


def etag_of(values: Any, around: Any = None) -> str:
    """A strong ETag: of the same values always the same.

    Args:
        values: What a write replaces.
        around: What else stands in the answer, such as a page of other things. It tells readers apart; writes pass over it.
    """
    return quote_etag(_digest(values) if around is None else f"{_digest(values)}.{_digest(around)}")


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:32]
