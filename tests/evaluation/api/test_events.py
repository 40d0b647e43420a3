"""The progress of an evaluation as it is told live."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore
from tests.api_client import Program, program
from tests.console import staff, superuser
from tests.evaluation.judged import make_run
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def _short(settings: Settings) -> None:
    settings.EVENT_STREAM_SECONDS = 0


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def run() -> EvaluationRun:
    return make_run(make_agent("ada"), status="running")


def items(run: EvaluationRun, dimension: str, **counts: int) -> None:
    for status, count in counts.items():
        EvaluationScore.objects.bulk_create(
            EvaluationScore(
                evaluation_run=run,
                dimension=dimension,
                proposition_id=f"{status}-{number}",
                claim="c",
                judge="test",
                status=status,
                score=5 if status == "scored" else None,
                raw_score=5 if status == "scored" else None,
            )
            for number in range(count)
        )


def address(run: EvaluationRun) -> str:
    return f"/api/evaluations/{run.pk}/events/"


def test_progress_is_told_when_it_changes_per_dimension_and_with_its_channels(
    client: Program, run: EvaluationRun
) -> None:
    items(run, "adherence", scored=2, unscored=1, pending=3)
    channel_run = EvaluationRun.objects.create(channel=make_channel(), dimensions=["convergence"], judge="test")
    items(channel_run, "convergence", scored=1)
    ChannelShare.objects.create(agent_run=run, channel_run=channel_run, messages=3)

    first = client.get(address(run)).json()
    again = client.get(f"{address(run)}?last_event_id={first['last_event_id']}").json()
    EvaluationScore.objects.filter(proposition_id="pending-0").delete()
    changed = client.get(f"{address(run)}?last_event_id={first['last_event_id']}").json()

    (event,) = first["events"]
    assert event["event"] == "progress"
    assert (event["data"]["settled"], event["data"]["total"], event["data"]["status"]) == (4, 7, "running")
    assert event["data"]["dimensions"] == {
        "adherence": {"pending": 3, "scored": 2, "trivial": 0, "unscored": 1},
        "convergence": {"pending": 0, "scored": 1, "trivial": 0, "unscored": 0},
    }
    assert event["data"]["url"].endswith(f"/api/evaluations/{run.pk}/")
    assert (again["events"], again["done"]) == ([], False)
    assert changed["events"][0]["data"]["total"] == 6


def test_the_end_is_told_once_and_then_nothing_can_follow(client: Program, run: EvaluationRun) -> None:
    items(run, "adherence", scored=1)
    EvaluationRun.objects.filter(pk=run.pk).update(status="completed", overall_score=5)

    ended = client.get(address(run)).json()
    after: Any = client.get(address(run), headers={**STREAM, "Last-Event-ID": ended["last_event_id"]})

    assert [(event["event"], event["data"]["overall_score"]) for event in ended["events"]] == [("end", 5.0)]
    assert ended["done"]
    assert after.status_code == 204


def test_a_paused_evaluation_has_not_ended(client: Program, run: EvaluationRun) -> None:
    EvaluationRun.objects.filter(pk=run.pk).update(status="paused_budget", error="spent")

    answer = client.get(address(run)).json()

    assert [(event["event"], event["data"]["error"]) for event in answer["events"]] == [("progress", "spent")]
    assert not answer["done"]


def test_a_look_is_three_queries_however_much_there_is(client: Program, run: EvaluationRun) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert client.get(address(run)).status_code == 200
        return len([query for query in seen if "evaluation" in query["sql"]])

    before = queries()
    items(run, "adherence", scored=20, pending=20)

    assert queries() == before <= 4  # one finds the run, three look


def test_ids_of_another_kind_and_people_without_the_permission_are_refused(client: Program, run: EvaluationRun) -> None:
    assert client.get(f"{address(run)}?last_event_id=12").status_code == 400
    assert client.get("/api/evaluations/999/events/", headers=STREAM).status_code == 404
    assert program(staff("agents.view_message")).get(address(run)).status_code == 403
