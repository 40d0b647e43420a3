"""Pages of lists: numbered, or by cursor for what grows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from types import MappingProxyType
from typing import Any, ClassVar

from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import Cursor, CursorPagination, PageNumberPagination
from rest_framework.request import Request

LARGEST_PAGE = 500
CURSOR = "as the `next` and `previous` of an answer have it"
CURSOR_OF_OTHER_TEXT = Cursor(0, False, None)  # a text that is no cursor is decoded to this one
_URL = {"type": ["string", "null"], "format": "uri"}
_PAGE_SIZE = {
    "name": "page_size",
    "in": "query",
    "description": "rows in a page",
    "schema": {"type": "integer", "minimum": 1, "maximum": LARGEST_PAGE},
}


def read_page_size(request: Request, default: int | None) -> int | None:
    """Return the ``page_size`` that a request asks for, 1 to LARGEST_PAGE; `default` where it asks for none.

    Raises:
        ValidationError: It is no number of rows that a page may have.
    """
    text = request.query_params.get("page_size", "").strip()
    if not text:
        return default
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if is_number and 1 <= int(text) <= LARGEST_PAGE:
        return int(text)
    allowed = f"a whole number from 1 to {LARGEST_PAGE}"
    raise ValidationError({"page_size": [f"page_size {text[:80]!r}: allowed: {allowed}"]})


class Pages(PageNumberPagination):
    """``?page=2&page_size=100``."""

    parameters = ("page", "page_size")

    def get_page_size(self, request: Request) -> int | None:
        return read_page_size(request, self.page_size)

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _object_schema({"count": {"type": "integer"}, "next": _URL, "previous": _URL, "results": schema})

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        page = {"name": "page", "in": "query", "description": "which page; the first is 1"}
        return [{**page, "schema": {"type": "integer", "minimum": 1}}, _PAGE_SIZE]


class Log(CursorPagination):
    """``?cursor=…&page_size=50``, newest first. No count: counting a million rows costs more than a page of them.

    `orders` are what ``ordering`` may say, the first unless it does.
    """

    orders: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({"-id": ("-pk",), "id": ("pk",)})
    ordering = "-pk"
    page_size = 50

    @property
    def parameters(self) -> tuple[str, ...]:
        if len(self.orders) > 1:
            return ("ordering", "cursor", "page_size")
        return ("cursor", "page_size")

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        ordering = request.query_params.get("ordering", "").strip() or next(iter(self.orders))
        if ordering not in self.orders:
            raise ValidationError({"ordering": [f"ordering {ordering!r}: allowed: {', '.join(self.orders)}"]})
        return self.orders[ordering]

    def get_page_size(self, request: Request) -> int | None:
        return read_page_size(request, self.page_size)

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Return where the page begins; None for the first page.

        Raises:
            ValidationError: The text is no cursor, or that of another order. DRF would show the first page, or fail.
        """
        text = request.query_params.get("cursor", "").strip()
        if not text:
            return None
        wrong = ValidationError({"cursor": [f"cursor {text[:80]!r}: allowed: {CURSOR}"]})
        try:
            cursor: Cursor | None = super().decode_cursor(request)
        except NotFound:
            raise wrong from None
        if cursor is None or cursor == CURSOR_OF_OTHER_TEXT:
            raise wrong
        if cursor.position is not None and not self.is_position(str(cursor.position)):
            raise wrong
        return cursor

    def is_position(self, text: str) -> bool:
        """Return whether a cursor of this order can have this position in it: a number, or a time."""
        if not self.ordering[0].endswith("_at"):
            return text.isdecimal() and len(text) < 20
        try:
            at = parse_datetime(text)
            if at is None:
                return False
            at.astimezone(UTC)
        except (ValueError, OverflowError):  # no time, or one that is none in UTC
            return False
        return True

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return _object_schema({"next": _URL, "previous": _URL, "results": schema})

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        cursor = {"name": "cursor", "in": "query", "schema": {"type": "string"}, "description": CURSOR}
        parameters = [cursor, _PAGE_SIZE]
        if len(self.orders) > 1:
            schema = {"type": "string", "enum": list(self.orders)}
            description = f"default {next(iter(self.orders))}"
            parameters.append({"name": "ordering", "in": "query", "schema": schema, "description": description})
        return parameters


class LogByTime(Log):
    """A `Log` for tables that are asked for by time, whose indexes begin with what else is asked and end with ``created_at``.

    In the order of primary keys a page of last March would have to be looked for from today on backwards.
    """

    orders = MappingProxyType({"-created_at": ("-created_at", "-pk"), "created_at": ("created_at", "pk")})


class LogByTimeOf(LogByTime):
    """A `LogByTime` for tables of which only the index of one filter ends with ``created_at``.

    Without that filter rows go by primary key, which is nearly the same order and needs no sorting.
    """

    filter: ClassVar[str] = "agent"

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        by_time = super().get_ordering(request, queryset, view)  # the time, then the primary key
        has_filter = bool(request.query_params.get(self.filter, "").strip())
        return by_time if has_filter else by_time[1:]


def _object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all of these properties."""
    return {"type": "object", "required": list(properties), "properties": properties}


PAGES = tuple(  # for answers that hold more than the page
    OpenApiParameter(parameter["name"], parameter["schema"], description=parameter["description"])
    for parameter in Pages().get_schema_operation_parameters(None)
)
