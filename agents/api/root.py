"""Where to begin: the routes one may use, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver, reverse
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import (
    OpenApiJsonRenderer,
    OpenApiJsonRenderer2,
    OpenApiYamlRenderer,
    OpenApiYamlRenderer2,
)
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularSwaggerSplitView
from rest_framework.exceptions import APIException
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request, clone_request
from rest_framework.response import Response
from rest_framework.views import APIView

from agents.api import parameters
from agents.api.headers import Conditional, etag_of
from agents.api.schema import documented

PREFIX = "api/"


class Root(APIView):
    """The routes that you may use, by name. `docs` describes all there are for people, `schema` for programs (OpenAPI)."""

    name = "API"
    permission_classes = (IsAuthenticated,)

    @documented({200: {"type": "object", "additionalProperties": {"type": "string", "format": "uri"}}}, tags=["api"])
    def get(self, request: Request) -> Response:
        parameters.only(request)
        paths = sorted({path for path, view in _routes() if _may_use(view, request)})
        return Response({path.strip("/"): request.build_absolute_uri(f"/{PREFIX}{path}") for path in paths})


class SchemaFile(Conditional, APIView):
    """The OpenAPI schema of all routes, as YAML; as JSON with `?format=json`."""

    permission_classes = (IsAuthenticated,)
    renderer_classes = (OpenApiYamlRenderer, OpenApiYamlRenderer2, OpenApiJsonRenderer, OpenApiJsonRenderer2)

    @documented({200: OpenApiTypes.OBJECT})
    def get(self, request: Request) -> Response:
        parameters.only(request)
        schema, etag = _schema()
        return self.tagged(request, schema, etag)


class Docs(SpectacularSwaggerSplitView):
    """The schema as a page in which one can try what it describes; everything on it comes from this server."""

    permission_classes = (IsAuthenticated,)
    url_name = "agents:schema"
    template_name = "api/docs.html"
    title = "Plumbline's API"

    def _get_schema_url(self, request: Request) -> str:
        return f"{reverse('agents:schema')}?format=json"  # which browsers read faster than YAML

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        response: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
        return response


@cache
def _schema() -> tuple[dict[str, Any], str]:
    """The schema is the same for every user, and takes a second to make."""
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return schema, etag_of(schema)


def _routes(patterns: Any = None, before: str = "") -> Iterator[tuple[str, type[APIView]]]:
    """The routes under /api/ without variables in their paths, and their views."""
    for entry in get_resolver().url_patterns if patterns is None else patterns:
        path = before + str(entry.pattern)
        if isinstance(entry, URLResolver) and path.startswith(PREFIX):
            yield from _routes(entry.url_patterns, path)
        elif isinstance(entry, URLPattern) and path.startswith(PREFIX) and path != PREFIX and "<" not in path:
            view = getattr(entry.callback, "cls", None)
            if view is not None:
                yield path.removeprefix(PREFIX), view


def _may_use(view: type[APIView], request: Request) -> bool:
    """Whether the user may read there, or, where nothing is read, send."""
    method = "GET" if hasattr(view, "get") or hasattr(view, "list") else "POST"
    there = view()
    there.args, there.kwargs, there.action_map = (), {}, {}  # type: ignore[attr-defined]
    there.request = clone_request(request, method)
    try:
        there.check_permissions(there.request)
    except APIException:
        return False
    return True
