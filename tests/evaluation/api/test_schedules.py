"""Rolling evaluations and alerts over the API, to read."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from agents.alerts.models import Alert
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationSchedule
from tests.api_client import RUNS, Program, listed, program
from tests.console import superuser
from tests.evaluation.judged import OFFLINE, make_run
from tests.factories import MONDAY, make_agent

pytestmark = pytest.mark.django_db

SCHEDULES, ALERTS = f"{RUNS}schedules/", f"{RUNS}alerts/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def schedule(name: str, **fields: Any) -> EvaluationSchedule:
    return EvaluationSchedule.objects.create(name=name, next_at=timezone.now(), **fields)


def alert(slug: str, **fields: Any) -> DriftAlert:
    agent = make_agent(slug)
    run = make_run(agent)
    defaults = {"dimension": "adherence", "judge": run.judge, "procedure": run.procedure, "before": 7.5, "after": 5.0}
    raised = Alert.objects.create(
        kind="drift", about=slug, agent=agent, title="fell", acknowledged_at=fields.get("acknowledged_at")
    )
    shown = {**defaults, **fields}
    return DriftAlert.objects.create(agent=agent, evaluation_run=run, since=MONDAY, alert_id=raised.pk, **shown)


def test_schedules_are_listed_with_their_agents(client: Program) -> None:
    weekly = schedule("weekly", judge=OFFLINE, dimensions=["fluency"], every_minutes=7 * 24 * 60)
    weekly.agents.add(make_agent("bea"), make_agent("ada"))
    schedule("nightly", is_active=False)

    nightly, shown = client.get(SCHEDULES).json()["results"]

    assert (shown["name"], sorted(shown["agents"]), shown["dimensions"]) == ("weekly", ["ada", "bea"], ["fluency"])
    assert (shown["judge"], shown["heuristic"], shown["every_minutes"]) == (OFFLINE, True, 10_080)
    assert (nightly["agents"], nightly["judge"], nightly["heuristic"]) == ([], "", None)


def test_alerts_are_listed_newest_first_and_narrowed(client: Program) -> None:
    one = alert("ada", schedule=schedule("nightly"))
    two = alert("bea", dimension="fluency", judge=OFFLINE, acknowledged_at=timezone.now())

    newer, older = client.get(ALERTS).json()["results"]

    assert (newer["id"], newer["agent"], newer["heuristic"]) == (two.pk, "bea", True)
    assert (older["before"], older["after"], older["schedule"]) == (7.5, 5.0, "nightly")
    assert client.get(older["run_url"]).json()["id"] == one.evaluation_run_id
    assert listed(client, f"{ALERTS}?acknowledged=false") == [one.pk]
