"""Pages of HTML, compressed where the browser takes it: the console's are ten times as long as what they say."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware


class CompressPages(GZipMiddleware):
    """Django's, for HTML alone: it adds random bytes against BREACH, and CSRF tokens are masked again in each page.

    JSON keeps its strong ETags, which compressing would weaken, and files and streams are sent as they come.
    """

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_page = response.headers.get("Content-Type", "").startswith("text/html") and not response.streaming
        return super().process_response(request, response) if is_page else response
