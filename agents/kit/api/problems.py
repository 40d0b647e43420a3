"""Every error as a problem (RFC 9457): a sentence in ``detail``, and per field what is wrong and what is allowed in ``errors``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from itertools import islice
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.urls import is_valid_path
from django.views import defaults
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler

from agents.kit.api.requests import BodyTooLarge
from agents.kit.bodies import as_api_error
from agents.kit.refusals import Refused
from agents.kit.running import is_unavailable

logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
LONGEST_NAME = 100
MOST_ERRORS = 20
LOG_IN = "no one is signed in: use Log in above"
SIGN_IN = "no one is signed in; send `Authorization: Token YOUR_TOKEN` (the word is Token, not Bearer)"
FOR_PEOPLE = ("api", "html")  # formats: the browsable API, and the page of docs
TRY_AGAIN_SECONDS = 5
DATABASE_AWAY = "The database cannot be used just now: it is away, locked or full. Try again in a few seconds."


class Conflict(APIException):
    """Understood, but as things stand it cannot be done; the detail says what is there. Nothing was changed."""

    status_code = HTTPStatus.CONFLICT
    default_code = "conflict"


class Unavailable(APIException):
    """What the request needs does not work just now; nothing was done."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "unavailable"


def as_problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """The exception handler of the API; None (a server error) for an unexpected exception."""
    if isinstance(error, RequestDataTooBig):
        error = BodyTooLarge(f"the body is too large; allowed: at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes")
    if isinstance(error, Refused):
        error = as_api_error(error)
    response = exception_handler(error, context)
    if response is None:
        return None
    problem: dict[str, Any] = {"title": HTTPStatus(response.status_code).phrase, "status": response.status_code}
    shape = getattr(getattr(context.get("request"), "accepted_renderer", None), "format", "")
    if isinstance(error, NotAuthenticated):
        problem["detail"] = LOG_IN if shape == "api" else SIGN_IN
    elif isinstance(response.data, dict) and isinstance(response.data.get("detail"), str):
        problem["detail"] = str(response.data["detail"])
    else:
        errors = dict(islice(_by_field(response.data).items(), MOST_ERRORS))
        problem |= {"detail": "; ".join(text for texts in errors.values() for text in texts), "errors": errors}
    response.data = problem
    request = context.get("request")
    if shape not in FOR_PEOPLE:
        if request is not None:  # a route that answers in something else (a file, a stream) speaks JSON of its errors
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        response.content_type = CONTENT_TYPE
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 400: what it refuses before a view is found."""
    return _of_api(request, HTTPStatus.BAD_REQUEST, "the request is malformed") or defaults.bad_request(
        request, exception
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler of 404, also for a path of the API that is no route."""
    text = f"there is no route {request.path[:LONGEST_NAME]}; "
    with_slash = f"{request.path_info}/"
    lacks_it = not request.path_info.endswith("/") and is_valid_path(with_slash, getattr(request, "urlconf", None))
    text += f"did you mean {request.path[:LONGEST_NAME]}/?" if lacks_it else "/api/ lists those there are"
    return _of_api(request, HTTPStatus.NOT_FOUND, text) or defaults.page_not_found(request, exception)


class UnknownRoutes:
    """Middleware: a path of the API that is no route is a problem, also where Django would rather show its page or redirect.

    A redirect to the path with a slash would make a GET of a POST; only what is safe to repeat is redirected.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path, urlconf = request.path_info, getattr(request, "urlconf", None)
        redirected = request.method in ("GET", "HEAD") and is_valid_path(f"{path}/", urlconf)
        if not path.startswith("/api/") or redirected or is_valid_path(path, urlconf):
            return self._get_response(request)
        return not_found(request, Http404())


class DatabaseOutages:
    """Middleware: a database that is away, locked or full is a 503 with ``Retry-After``, also while ``DEBUG`` is on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Look the user up here: what a later middleware's look raises would pass `process_exception` by."""
        try:
            request.user.is_authenticated  # noqa: B018 (looked up by this, once for the whole request)
        except Exception as error:
            if (answer := self.process_exception(request, error)) is None:
                raise
            return answer
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        return _unavailable(request, error) if is_unavailable(error) else None


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler of 500; what went wrong stands in the log."""
    error = sys.exception()
    if is_unavailable(error):  # in a middleware
        return _unavailable(request, error)
    text = "something went wrong here; the server's log says what"
    return _of_api(request, HTTPStatus.INTERNAL_SERVER_ERROR, text) or defaults.server_error(request)


def _unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    logger.warning("%s %s: the database cannot be used: %s", request.method, request.path, error)
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return refused_for_now(request, status, DATABASE_AWAY, retry_after=TRY_AGAIN_SECONDS)


def refused_for_now(request: HttpRequest, status: HTTPStatus, text: str, *, retry_after: int) -> HttpResponse:
    """A refusal for a moment: a problem in the API, elsewhere a page that needs neither database nor session."""
    response = _of_api(request, status, text) or HttpResponse(
        render_to_string("refused.html", {"title": status.phrase, "text": text, "again": request.get_full_path()}),
        status=status,
    )
    response["Retry-After"] = str(retry_after)
    return response


def _of_api(request: HttpRequest, status: HTTPStatus, detail: str) -> HttpResponse | None:
    if not request.path.startswith("/api/"):
        return None
    problem = {"title": status.phrase, "status": int(status), "detail": detail}
    return JsonResponse(problem, status=status, content_type=CONTENT_TYPE)


def _by_field(data: Any) -> dict[str, list[str]]:
    """What is wrong per field, parameter or header. JSON may spell characters in a name that no text can hold."""
    errors = data if isinstance(data, dict) else {"non_field_errors": data}
    return {
        str(name)[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode(): [str(text) for text in texts]
        for name, texts in errors.items()
    }
