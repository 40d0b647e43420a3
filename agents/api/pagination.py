"""Pages of lists: numbered ones for what people page through, cursors for logs, which grow without end."""

from __future__ import annotations

from rest_framework.exceptions import NotFound
from rest_framework.pagination import Cursor, CursorPagination, PageNumberPagination
from rest_framework.request import Request

LARGEST_PAGE = 500


class Pages(PageNumberPagination):
    """``?page=2&page_size=100``."""

    page_size_query_param = "page_size"
    max_page_size = LARGEST_PAGE


class Log(CursorPagination):
    """``?cursor=…&page_size=50``, newest first. No count: counting a million rows costs more than a page of them."""

    ordering = "-pk"
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = LARGEST_PAGE

    def decode_cursor(self, request: Request) -> Cursor | None:
        cursor: Cursor | None = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not str(cursor.position).isdecimal():
            raise NotFound(self.invalid_cursor_message)  # a position is a primary key here
        return cursor
