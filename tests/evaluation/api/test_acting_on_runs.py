"""Cancelling and resuming over the API: conditional, and refused with the status where it is not possible."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.api_client import BASELINES, RUNS, Program, program, refused
from tests.console import staff, superuser, viewer
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent

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
    assert cancelled.json()["error"] == "cancelled on request"
    assert (resumed.status_code, resumed.json()["status"]) == (202, "pending")
    assert resumed["Location"] == resumed.json()["url"]
    assert resumed.json()["progress"] == {"settled": 1, "total": 1}, "what was judged stays"


@pytest.mark.parametrize(
    ("way", "status", "says"),
    [
        ("cancel", "completed", "is completed; only one that is pending, running or paused_budget can be cancelled"),
        ("cancel", "cancelled", "is cancelled; only one"),
        ("resume", "running", "is running; only one that is failed, errored, paused_budget or cancelled"),
        ("resume", "completed", "is completed and no call of its judge failed"),
    ],
)
def test_what_is_not_possible_is_a_409_that_names_the_status(
    client: Program, ada: Agent, way: str, status: str, says: str
) -> None:
    run = make_run(ada, status=status)

    assert says in refused(act(client, run, way), 409)["detail"][0]
    run.refresh_from_db()
    assert run.status == status


def test_a_body_or_a_parameter_that_nobody_reads_is_refused(client: Program, ada: Agent) -> None:
    run = make_run(ada, status="running")

    assert "there is no field 'force'" in refused(act(client, run, "cancel", data={"force": True}))["force"][0]
    assert "there is no parameter" in refused(client.post(f"{RUNS}{run.pk}/cancel/?force=1"))["force"][0]
    assert act(client, run, "cancel", data={}).status_code == 200


@pytest.mark.parametrize("way", ["cancel", "resume"])
def test_acting_needs_the_permission_to_change_evaluations(way: str) -> None:
    run = make_run(make_agent("ada"), status="pending" if way == "cancel" else "failed")

    assert act(program(viewer()), run, way).status_code == 403
    assert act(program(staff("evaluation.add_evaluationrun")), run, way).status_code == 403
    allowed = program(staff("evaluation.change_evaluationrun", username="operator"))
    assert act(allowed, run, way).status_code in (200, 202)


def test_what_may_cost_money_is_bounded_per_user_and_minute(client: Program, settings: Settings, ada: Agent) -> None:
    settings.API_PAID_PER_MINUTE = 2
    run = make_run(ada, status="failed")
    assert client.post(RUNS, {"agent": "ada"}).status_code == 202
    assert act(client, run, "resume").status_code == 202

    for response in (
        client.post(RUNS, {"agent": "ada"}),
        client.post(BASELINES, {"agent": "ada"}),
        act(client, run, "resume"),
    ):
        assert refused(response, 429)["detail"][0].startswith("Request was throttled")
        assert 0 < int(response["Retry-After"]) <= 60
    assert act(client, run, "cancel").status_code == 200, "stopping costs nothing"
    assert client.get(RUNS).status_code == 200
    assert program(superuser("bob")).post(RUNS, {"agent": "ada"}).status_code == 202
