"""Cancelling and resuming over the API: conditional, and refused with the status where it is not possible."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.api_client import RUNS, Program, program, refused
from tests.console import superuser
from tests.evaluation.judged import make_run, make_score

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def act(client: Program, run: EvaluationRun, way: str, **kwargs: Any) -> Any:
    return client.post(f"{RUNS}{run.pk}/{way}/", **kwargs)


def test_a_run_is_cancelled_and_goes_on(client: Program, ada: Agent) -> None:
    run = make_run(ada, status="running", lease_owner="worker:1:x")
    make_score(run, 3)

    cancelled = act(client, run, "cancel")
    resumed = act(client, run, "resume")

    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert (resumed.status_code, resumed.json()["status"]) == (202, "pending")
    assert resumed["Location"] == resumed.json()["url"]
    assert resumed.json()["progress"] == {"settled": 1, "total": 1}, "what was judged stays"


def test_what_is_not_possible_is_a_409_that_names_the_status(client: Program, ada: Agent) -> None:
    """What is not possible in which status: `tests.evaluation.test_control`."""
    run = make_run(ada, status="completed")

    assert "is completed" in refused(act(client, run, "cancel"), 409)["detail"][0]
    run.refresh_from_db()
    assert run.status == "completed"
