"""Every request has an id: the caller's ``X-Request-ID`` or a new one. It stands in each line of the log and in the answer."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from agents.kit.ops.health import PATHS
from agents.kit.ops.telemetry import logging_about

logger = logging.getLogger(__name__)

HEADER = "X-Request-ID"
ALLOWED = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestIds:
    """Middleware: names the request in the log, and logs one line of it (INFO) without its query, which may hold texts."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a request with its id in a header, and log method, route, status and time; an id that is not `ALLOWED` is replaced."""
        header = request.headers.get(HEADER, "")
        request_id = header if ALLOWED.fullmatch(header) else uuid.uuid4().hex
        began = time.perf_counter()
        request.log_id = request_id  # type: ignore[attr-defined]  # Django logs errors when all middleware is done
        level = logging.DEBUG if request.path_info in PATHS else logging.INFO  # probes come every few seconds
        with logging_about(request_id=request_id):
            response = self._get_response(request)
            response[HEADER] = request_id
            if logger.isEnabledFor(level):
                took = round((time.perf_counter() - began) * 1000)
                logger.log(level, "%s %s %s %d ms", request.method, _route(request), response.status_code, took)
        return response


def _route(request: HttpRequest) -> str:
    """Return the route's pattern; the rest of a path may be anything."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None and match.route is not None else "(no route)"
