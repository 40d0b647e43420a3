"""Short ways to ask the API of evaluations."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.api_client import Program

RUNS = "/api/evaluations/"
BASELINES = f"{RUNS}baselines/"
LABELS = f"{RUNS}labels/"
PROPOSITIONS = f"{RUNS}propositions/"


def ids(client: Program, url: str) -> list[int]:
    """The ids of a list, in its order."""
    response = client.get(url)
    assert response.status_code == 200, response.content
    return [row["id"] for row in response.json()["results"]]


def refused(response: Any, status: int = 400) -> dict[str, list[str]]:
    """The errors of a problem by field; of one without fields, its detail."""
    assert response.status_code == status, response.content
    assert response["content-type"] == "application/problem+json"
    problem = response.json()
    return problem.get("errors", {"detail": [problem["detail"]]})  # type: ignore[no-any-return]  # JSON


def queries_of(client: Program, url: str) -> int:
    """How many statements a page takes once what is loaded once is loaded."""
    assert client.get(url).status_code == 200
    with CaptureQueriesContext(connection) as seen:
        client.get(url)
    return len(seen)
