"""Plain functions for tests of lists: what is in them, and how many queries they cost."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.api_client import Program


def listed(client: Program, url: str, field: str = "id") -> list[Any]:
    """One field of every row of a page."""
    answer = client.get(url)
    assert answer.status_code == 200, answer.json()
    return [row[field] for row in answer.json()["results"]]


def paged(client: Program, url: str, field: str = "id") -> list[Any]:
    """One field of every row of all pages, in order."""
    found: list[Any] = []
    following: str | None = url
    while following:
        page = client.get(following).json()
        found += [row[field] for row in page["results"]]
        following = page["next"]
    return found


def queries(client: Program, url: str) -> int:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(url).status_code == 200
    return len(seen)
