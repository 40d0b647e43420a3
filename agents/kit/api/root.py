"""Where to begin: the routes, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from django.urls import URLResolver, get_resolver, reverse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kit.api.headers import etag_of
from agents.kit.api.schema import answers
from agents.kit.api.views import View
from agents.kit.models import ApiToken

PREFIX = "api/"


class Root(View):
    """The routes by name. `docs` describes all there are for people, `schema` for programs (OpenAPI)."""

    queryset = ApiToken.objects.none()  # nothing of it is shown
    permission_classes = (IsAuthenticated,)

    @answers({200: {"type": "object", "additionalProperties": {"type": "string", "format": "uri"}}}, tags=["api"])
    def retrieve(self, request: Request) -> Response:
        """The routes by name. `docs` describes all there are for people, `schema` for programs (OpenAPI)."""
        paths = sorted(set(_routes(get_resolver().url_patterns)))
        return Response({path.strip("/"): request.build_absolute_uri(f"/{PREFIX}{path}") for path in paths})


class SchemaFile(View):
    """The OpenAPI schema of all routes."""

    queryset = ApiToken.objects.none()
    permission_classes = (IsAuthenticated,)
    renderer_classes = (OpenApiYamlRenderer, OpenApiYamlRenderer2, OpenApiJsonRenderer, OpenApiJsonRenderer2)
    etags = ("retrieve",)

    @answers(OpenApiTypes.OBJECT)
    def retrieve(self, request: Request) -> Response:
        """The OpenAPI schema of all routes, as YAML; as JSON with `?format=json`."""
        schema, etag = _schema()
        return self.tagged(request, schema, etag)


class Docs(SpectacularSwaggerSplitView):
    """The schema as a page in which one can try what it describes; everything on it comes from this server."""

    permission_classes = (IsAuthenticated,)
    http_method_names = ("get", "head")  # the template has no form for the answer to OPTIONS
    url_name = "schema"
    template_name = "api/docs.html"
    title = "Plumbline's API"

    def _get_schema_url(self, request: Request) -> str:
        return f"{reverse('schema')}?format=json"  # which browsers read faster than YAML


@cache
def _schema() -> tuple[dict[str, Any], str]:
    """Return the schema with its ETag; it is the same for every user, and takes a second to make."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema, etag_of(schema)


def _routes(patterns: Iterable[Any], before: str = "") -> Iterator[str]:
    """Yield the routes under /api/ that have no variables in their paths.

    Args:
        before: The path that leads to the patterns.
    """
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if not path.startswith(PREFIX):
            continue
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, path)
        elif path != PREFIX and "<" not in path:
            yield path.removeprefix(PREFIX)
