"""Every error as a problem (RFC 9457): a sentence in ``detail``, and per field what is wrong and what is allowed in ``errors``."""

from __future__ import annotations

import codecs
import logging
import sys
from collections.abc import Callable, Iterable
from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string
from django.urls import is_valid_path
from django.utils.http import parse_header_parameters
from django.views import defaults
from rest_framework.exceptions import APIException, NotAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import exception_handler

from agents.kit.api.requests import BodyTooLarge
from agents.kit.bodies import as_api_error
from agents.kit.refusals import Refused
from agents.kit.running import is_unavailable

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
LONGEST_NAME = 100
MOST_ERRORS = 20
LOG_IN = "no one is signed in: use Log in above"
SIGN_IN = "no one is signed in; send `Authorization: Token YOUR_TOKEN` (the word is Token, not Bearer)"
FORMATS_FOR_PEOPLE = ("api", "html")  # the browsable API, and the page of docs
TRY_AGAIN_SECONDS = 5
# Decoded in a time that grows with the length alone; punycode is not.
CHARSETS = ("utf-8", "ascii", "iso8859-1", "utf-16")
DATABASE_AWAY = "The database cannot be used just now: it is away, locked or full. Try again in a few seconds."


class Conflict(APIException):
    """Understood, but as things stand it cannot be done; the detail says what is there. Nothing was changed."""

    status_code = HTTPStatus.CONFLICT
    default_code = "conflict"


class Unavailable(APIException):
    """A 503: something that the request needs does not work just now; nothing was done."""

    status_code = HTTPStatus.SERVICE_UNAVAILABLE
    default_code = "unavailable"


def as_problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """Return the answer to an exception of the API; None (a server error) for an unexpected one.

    One sentence stands in ``detail``. Mistakes of fields stand in ``errors``, too, at most MOST_ERRORS fields. It is a problem in JSON
    whatever the route answers in, but for people's pages, which show the same.
    """
    if isinstance(error, RequestDataTooBig):
        error = BodyTooLarge(f"the body is too large; allowed: at most {settings.DATA_UPLOAD_MAX_MEMORY_SIZE:,} bytes")
    if isinstance(error, Refused):
        error = as_api_error(error)
    response = exception_handler(error, context)
    if response is None:
        return None
    request = context.get("request")
    format_of_answer = getattr(getattr(request, "accepted_renderer", None), "format", "")
    status = HTTPStatus(response.status_code)
    problem: dict[str, Any] = {"title": status.phrase, "status": response.status_code}
    if isinstance(error, NotAuthenticated):
        problem["detail"] = LOG_IN if format_of_answer == "api" else SIGN_IN
    elif isinstance(response.data, dict) and isinstance(response.data.get("detail"), str):
        problem["detail"] = str(response.data["detail"])
    else:
        errors = dict(islice(_errors_by_field(response.data).items(), MOST_ERRORS))
        sentences = [sentence for texts in errors.values() for sentence in texts]
        problem["detail"] = "; ".join(sentences)
        problem["errors"] = errors
    response.data = problem
    if format_of_answer not in FORMATS_FOR_PEOPLE:
        if request is not None:  # a route that answers in something else (a file, a stream) answers errors in JSON
            request.accepted_renderer = JSONRenderer()
            request.accepted_media_type = JSONRenderer.media_type
        response.content_type = CONTENT_TYPE
    return response


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer what Django refuses before a view is found (its handler of 400)."""
    problem = _problem_of_api(request, HTTPStatus.BAD_REQUEST, "the request is malformed")
    return problem or defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a request for what there is not (Django's handler of 404): in the API a problem that names the path, elsewhere a page.

    The problem suggests the path with a slash, where that is a route.
    """
    path = request.path[:LONGEST_NAME]
    urlconf = getattr(request, "urlconf", None)
    lacks_slash = not request.path_info.endswith("/") and is_valid_path(f"{request.path_info}/", urlconf)
    hint = f"did you mean {path}/?" if lacks_slash else "/api/ lists those there are"
    problem = _problem_of_api(request, HTTPStatus.NOT_FOUND, f"there is no route {path}; {hint}")
    return problem or defaults.page_not_found(request, exception)


class SlowCharsets:
    """A middleware that refuses bodies in rare charsets before they are decoded: punycode takes minutes for what a form may hold."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.encoding is None or codecs.lookup(request.encoding).name in CHARSETS:
            return self._get_response(request)
        text = f"the charset {request.encoding[:LONGEST_NAME]} is not read; allowed: {', '.join(CHARSETS)}, or none"
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        return _problem_of_api(request, status, text) or HttpResponse(text, status=status, content_type="text/plain")


class ReadableContentTypes:
    """A WSGI application around Django's that drops parameters of a Content-Type which Django cannot read, such as ``boundary*=rare''B``.

    Django reads them before its first middleware, so that they would be a server error. A form without its boundary is a 400.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        content_type = environ.get("CONTENT_TYPE", "")
        try:
            parse_header_parameters(content_type)
        except ValueError:
            environ["CONTENT_TYPE"] = content_type.partition(";")[0]
        return self._application(environ, start_response)


class UnknownRoutes:
    """A middleware that answers a path of the API that is no route with a problem, where Django would show its page or redirect.

    A redirect to the path with a slash would make a GET of a POST; only what is safe to repeat is redirected.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        path = request.path_info
        urlconf = getattr(request, "urlconf", None)
        is_redirected = request.method in ("GET", "HEAD") and is_valid_path(f"{path}/", urlconf)
        is_route = is_redirected or is_valid_path(path, urlconf)
        if path.startswith("/api/") and not is_route:
            return not_found(request, Http404())
        return self._get_response(request)


class DatabaseOutages:
    """A middleware that answers 503 with ``Retry-After`` while the database is away, locked or full, also while ``DEBUG`` is on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_view(self, request: HttpRequest, *_: Any) -> HttpResponse | None:
        """Look the user up here: an error of a look-up in a later middleware would not reach `process_exception`.

        Returns:
            A 503 while the database cannot be used; None to go on. Other errors are raised.
        """
        try:
            request.user.is_authenticated  # noqa: B018 (looked up by this, once for the whole request)
        except Exception as error:
            answer = self.process_exception(request, error)
            if answer is None:
                raise
            return answer
        return None

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not is_unavailable(error):
            return None
        return _unavailable(request, error)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer a request that failed (Django's handler of 500); what went wrong stands in the log."""
    error = sys.exception()
    if is_unavailable(error):  # in a middleware
        return _unavailable(request, error)
    text = "something went wrong here; the server's log says what"
    problem = _problem_of_api(request, HTTPStatus.INTERNAL_SERVER_ERROR, text)
    return problem or defaults.server_error(request)


def _unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse:
    logger.warning("%s %s: the database cannot be used: %s", request.method, request.path, error)
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return refused_for_now(request, status, DATABASE_AWAY, retry_after=TRY_AGAIN_SECONDS)


def refused_for_now(request: HttpRequest, status: HTTPStatus, text: str, *, retry_after: int) -> HttpResponse:
    """Return a refusal for a moment: a problem in the API, elsewhere a page that needs neither database nor session."""
    response = _problem_of_api(request, status, text)
    if response is None:
        page = {"title": status.phrase, "text": text, "again": request.get_full_path()}
        response = HttpResponse(render_to_string("refused.html", page), status=status)
    response["Retry-After"] = str(retry_after)
    return response


def _problem_of_api(request: HttpRequest, status: HTTPStatus, detail: str) -> HttpResponse | None:
    """Return a problem for a path of the API; None for other paths."""
    if not request.path.startswith("/api/"):
        return None
    problem = {"title": status.phrase, "status": int(status), "detail": detail}
    return JsonResponse(problem, status=status, content_type=CONTENT_TYPE)


def _errors_by_field(data: Any) -> dict[str, list[str]]:
    """Return what is wrong per field, parameter or header, from the data of a DRF answer; ``non_field_errors`` what is of none."""
    texts_by_name = data if isinstance(data, dict) else {"non_field_errors": data}
    errors = {}
    for name, texts in texts_by_name.items():
        # JSON may spell characters in a name that no text can hold.
        readable = str(name)[:LONGEST_NAME].encode("utf-8", "backslashreplace").decode()
        errors[readable] = [str(text) for text in texts]
    return errors
