"""Every error as a problem (RFC 9457): a sentence in ``detail``, and per field what is wrong and what is allowed in ``errors``."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import APIException
from rest_framework.response import Response
from rest_framework.views import exception_handler

CONTENT_TYPE = "application/problem+json"
LONGEST_NAME = 100


class BodyTooLarge(APIException):
    """A body above `DATA_UPLOAD_MAX_MEMORY_SIZE`."""

    status_code = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


def as_problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of the API; None (a server error) for what nobody expected."""
    if isinstance(error, RequestDataTooBig):
        error = BodyTooLarge(f"the body is too large; allowed: at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes")
    response = exception_handler(error, context)
    if response is None:
        return None
    problem: dict[str, Any] = {"title": HTTPStatus(response.status_code).phrase, "status": response.status_code}
    if isinstance(response.data, dict) and "detail" in response.data:
        problem["detail"] = str(response.data["detail"])
    else:
        errors = _by_field(response.data)
        problem |= {"detail": "; ".join(text for texts in errors.values() for text in texts), "errors": errors}
    response.data = problem
    renderer = getattr(context.get("request"), "accepted_renderer", None)
    if renderer is None or renderer.format == "json":
        response.content_type = CONTENT_TYPE
    return response


def _by_field(data: Any) -> dict[str, list[str]]:
    if not isinstance(data, dict):
        return {"non_field_errors": [str(text) for text in data]}
    return {
        _encodable(name): [str(text) for text in (found if isinstance(found, list) else [found])]
        for name, found in data.items()
    }


def _encodable(name: str) -> str:
    """A name as somebody sent it: JSON may spell characters that no text can hold."""
    return name[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode()
