"""A program in front of the API: a client with a user's token, over HTTPS, that speaks JSON; and what it is answered."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from agents.kit.models import ApiToken

RUNS = "/api/evaluations/"
BASELINES, LABELS, PROPOSITIONS = f"{RUNS}baselines/", f"{RUNS}labels/", f"{RUNS}propositions/"


class Program(APIClient):
    """A client that comes over HTTPS: the shipped settings redirect everything else."""

    def request(self, **request: Any) -> Any:
        return super().request(**{**request, "wsgi.url_scheme": "https"})


def program(user: User | None = None) -> Program:
    """A client with the user's token; anonymous without one."""
    client = Program()
    if user is not None:
        client.credentials(HTTP_AUTHORIZATION=f"Token {ApiToken.make(user=user, name='test', expires_at=None)[1]}")
    return client


def refused(response: Any, status: int = 400) -> dict[str, list[str]]:
    """The errors of a problem by field; of one without fields, its detail."""
    assert response.status_code == status, response.content
    assert response["content-type"] == "application/problem+json"
    problem = response.json()
    return problem.get("errors", {"detail": [problem["detail"]]})  # type: ignore[no-any-return]  # JSON


def listed(client: Program, url: str, field: str = "id") -> list[Any]:
    """One field of every row of a page."""
    answer = client.get(url)
    assert answer.status_code == 200, answer.content
    return [row[field] for row in answer.json()["results"]]


def paged(client: Program, url: str, field: str = "id") -> list[Any]:
    """One field of every row of all pages, in order."""
    rows: list[Any] = []
    following: str | None = url
    while following:
        page = client.get(following).json()
        rows += [row[field] for row in page["results"]]
        following = page["next"]
    return rows


def queries(client: Program, url: str) -> int:
    """How many statements a page takes once what is loaded once is loaded."""
    assert client.get(url).status_code == 200
    with CaptureQueriesContext(connection) as seen:
        client.get(url)
    return len(seen)
