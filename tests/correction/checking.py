"""Asking for a check of a draft over the API, for tests."""

from __future__ import annotations

from typing import Any

from tests.api_client import Program

CHECKS = "/api/quality-checks/"
PERSONA = "You are Ada, a dry and careful clerk."
TRAJECTORY = [
    {"name": "Bob", "text": "Where is the file?", "kind": "stimulus"},
    {"name": "Ada", "text": "In the cabinet.", "kind": "action"},
]
ASKED: dict[str, Any] = {
    "persona": PERSONA,
    "trajectory": TRAJECTORY,
    "draft": "I filed it.",
    "dimensions": ["adherence"],
}


def ask(client: Program, **changes: Any) -> dict[str, Any]:
    answer = client.post(CHECKS, {k: v for k, v in {**ASKED, **changes}.items() if v is not None})
    assert answer.status_code == 200, answer.json()
    got: dict[str, Any] = answer.json()
    return got


def refused(client: Program, **changes: Any) -> dict[str, list[str]]:
    answer = client.post(CHECKS, {k: v for k, v in {**ASKED, **changes}.items() if v is not None})
    assert answer.status_code == 400, answer.json()
    errors: dict[str, list[str]] = answer.json()["errors"]
    return errors
