"""The gate's logs and numbers over the API: filtered, in pages, with texts only where asked for, and marked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents.models import Agent
from correction.models import CorrectionLog, GateDimensionResult
from tests.api_client import Program, program
from tests.console import list_of, page_of, read, signed_in, staff, superuser
from tests.correction.judged_drafts import make_log
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db

LOGS = "/api/evaluations/correction-logs/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def test_the_list_is_newest_first_with_scores_and_without_texts(client: Program, ada: Agent) -> None:
    first = make_log(ada, {"fluency": 7.0}, channel=make_channel("office"))
    second = make_log(None, {"fluency": 2.0, "adherence": None}, outcome="corrected", source="external")

    newer, older = client.get(LOGS).json()["results"]

    assert (newer["id"], older["id"]) == (second.pk, first.pk)
    assert (older["agent"], older["channel"], older["outcome"], older["session"]) == (
        "ada", "office", "passed", str(first.session.uuid),
    )  # fmt: skip
    assert newer["dimensions"] == [
        {"dimension": "adherence", "status": "timeout", "score": None, "threshold": 5.0, "passed": True, "mark": ""},
        {"dimension": "fluency", "status": "scored", "score": 2.0, "threshold": 5.0, "passed": False, "mark": ""},
    ]
    assert "original_text" not in newer


def test_one_attempt_is_shown_whole(client: Program, ada: Agent) -> None:
    row = make_log(ada, {"fluency": 2.0}, text="a draft", feedback="vary it", result={"reasoning": "why fluency"})

    shown = client.get(client.get(LOGS).json()["results"][0]["url"]).json()

    assert (shown["id"], shown["original_text"], shown["feedback"]) == (row.pk, "a draft", "vary it")
    assert shown["dimensions"][0]["reasoning"] == "why fluency"
    assert client.get(f"{LOGS}{row.pk + 1}/").status_code == 404


def test_without_the_right_to_messages_drafts_and_what_quotes_them_are_left_out(ada: Agent) -> None:
    quotes = {"reasoning": "a secret", "recommendations": "a secret", "parts": [{"reasoning": "a secret"}]}
    row = make_log(ada, {"fluency": 2.0}, text="A SECRET", feedback="a secret", outcome="corrected", result=quotes)
    user = staff("correction.view_correctionlog", "correction.change_gatedimensionresult")
    visitor, caller = signed_in(user), program(user)

    shown = caller.get(f"{LOGS}{row.pk}/")
    marked = mark(caller, row, "fluency", {"mark": "right"})

    assert shown.json()["dimensions"][0]["score"] == 2.0
    for text in (shown.content, marked.content):
        assert "secret" not in text.decode().lower()
    for url in (list_of(CorrectionLog), page_of(row)):
        assert "secret" not in read(visitor, url).lower()
    assert page_of(row) in read(visitor, list_of(CorrectionLog, "?q=Nothing")), "no text is guessed by searching"


# -- marks
def mark(client: Program, row: CorrectionLog, dimension: str, body: Any) -> Any:
    return client.post(f"{LOGS}{row.pk}/results/{dimension}/mark/", body)


def test_a_failed_dimension_is_marked_and_the_mark_taken_back(client: Program, ada: Agent) -> None:
    row = make_log(ada, {"fluency": 2.0}, outcome="corrected")

    answer = mark(client, row, "fluency", {"mark": "false_alarm"})

    assert answer.status_code == 200
    assert (answer.json()["mark"], answer.json()["marked_by"]) == ("false_alarm", "eve")
    precision = client.get("/api/evaluations/gate-precision/").json()["results"]
    assert [(p["dimension"], p["threshold"], p["false_alarms"], p["precision"]) for p in precision] == [
        ("fluency", 5.0, 1, 0.0)
    ]
    assert precision[0]["low"] <= 0.0 < precision[0]["high"] < 1.0
    assert mark(client, row, "fluency", {"mark": ""}).json()["marked_by"] is None
    assert client.get("/api/evaluations/gate-precision/").json()["results"] == []


def test_what_cannot_be_marked_is_refused_with_the_reason(client: Program, ada: Agent) -> None:
    log = make_log(ada, {"fluency": 2.0, "adherence": 8.0})
    passed, unknown = (mark(client, log, dimension, {"mark": "right"}) for dimension in ("adherence", "charm"))

    assert (passed.status_code, "did not fail" in passed.json()["detail"]) == (400, True)
    assert (unknown.status_code, "has no result for the dimension 'charm'" in unknown.json()["detail"]) == (404, True)
    assert not GateDimensionResult.objects.exclude(mark="").exists()


# -- numbers
def test_statistics_count_messages_and_means_of_the_window_asked_for(client: Program, ada: Agent) -> None:
    make_log(ada, {"fluency": 8.0}, score_sum=8.0)
    session: UUID = uuid4()
    make_log(ada, {"fluency": 2.0}, score_sum=2.0, outcome="corrected", session=session)
    make_log(ada, {"fluency": 6.0}, score_sum=6.0, outcome="passed_after_retry", session=session, attempt=2)
    old = make_log(ada, {"fluency": 1.0}, score_sum=1.0, outcome="forced_through")
    CorrectionLog.objects.filter(pk=old.pk).update(created_at=datetime(2026, 1, 1, tzinfo=UTC))
    make_log(make_agent("bob"), {"fluency": 1.0}, score_sum=1.0, outcome="observed", source="observe")

    got = client.get("/api/evaluations/gate-statistics/?agent=ada&window=7d").json()

    assert (got["total_actions"], got["original_pass_count"], got["regeneration_count"]) == (2, 1, 1)
    assert (got["original_success_rate"], got["forced_through_count"]) == (0.5, 0)
    assert got["dimensions"]["fluency"]["failures"] == 1
    assert got["dimensions"]["fluency"]["by_judge"][0]["mean_first"] == 5.0
    assert got["observed"]["total"] == 0
    everything = client.get("/api/evaluations/gate-statistics/?window=all").json()
    assert (everything["total_actions"], everything["observed"]["total"]) == (3, 1)


def test_statistics_cost_few_queries_however_many_rows(client: Program, ada: Agent) -> None:
    for _ in range(4):
        make_log(ada, {"fluency": 8.0, "adherence": 3.0})

    with CaptureQueriesContext(connection) as seen:
        client.get("/api/evaluations/gate-statistics/?agent=ada")

    assert len(seen) == 4  # token with user, agent, two aggregates
