"""Logs go in either direction, by the index that carries what is asked for; an order that none has is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents.models import Agent, Channel, LLMCall, Run
from correction.models import CorrectionLog, Intervention, InterventionLog
from tests.api_client import Program, listed, paged
from tests.factories import say, talk

pytestmark = pytest.mark.django_db
LOGS = {
    "/api/llm-calls/": "-created_at, created_at",
    "/api/runs/": "-created_at, created_at",
    "/api/agents/ada/turns/": "-created_at, created_at",
    "/api/evaluations/correction-logs/": "-created_at, created_at",
    "/api/evaluations/intervention-logs/": "-created_at, created_at",
    "/api/messages/": "-id, id",
    "/api/evaluations/": "-id, id",
    "/api/evaluations/labels/": "-id, id",
    "/api/evaluations/alerts/": "-id, id",
    "/api/channels/office/messages/": "-position, position",
    "/api/evaluations/schedules/": "name, next_at, -created_at",
    "/api/evaluations/interventions/": "slug, -updated_at",
}


@pytest.mark.parametrize(("path", "allowed"), LOGS.items())
def test_an_order_that_a_list_does_not_have_is_a_400_that_names_those_it_has(
    client: Program, ada: Agent, path: str, allowed: str
) -> None:
    answer = client.get(f"{path}?ordering=cost")

    assert answer.status_code == 400
    assert answer.json()["errors"]["ordering"] == [f"ordering 'cost': allowed: {allowed}"]
    for order in allowed.split(", "):
        assert client.get(f"{path}?ordering={order}").status_code == 200


def calls(agent: Agent) -> Iterator[int]:
    """Three, whose times go against their ids."""
    for hours in (1, 2, 3):
        call = LLMCall.objects.create(
            agent=agent, role="judge", purpose="gate", provider="anthropic", model="m", status="ok"
        )
        LLMCall.objects.filter(pk=call.pk).update(created_at=timezone.now() - timedelta(hours=hours))
        yield call.pk


def test_calls_of_an_agent_go_by_time_in_pages_and_both_directions(client: Program, ada: Agent) -> None:
    newest, middle, oldest = calls(ada)

    assert paged(client, "/api/llm-calls/?agent=ada&page_size=1") == [newest, middle, oldest]
    assert paged(client, "/api/llm-calls/?agent=ada&page_size=1&ordering=created_at") == [oldest, middle, newest]
    assert paged(client, "/api/llm-calls/?page_size=1") == [oldest, middle, newest]  # by id, which needs no sorting


@pytest.mark.parametrize(
    ("query", "clause"),
    [
        ("llm-calls/?agent=ada", '"created_at" DESC, "llm_calls"."id" DESC'),
        ("llm-calls/", 'ORDER BY "llm_calls"."id" DESC'),
        ("runs/?status=failed", '"created_at" DESC, "runs"."id" DESC'),
        ("runs/", 'ORDER BY "runs"."id" DESC'),
        ("messages/?agent=ada&since=2026-11-01", '"sent_at" DESC, "messages"."id" DESC'),
        ("messages/?agent=ada", 'ORDER BY "messages"."id" DESC'),
        ("messages/?channel=office", 'ORDER BY "messages"."position" DESC'),
        ("evaluations/intervention-logs/?agent=ada", '"created_at" DESC'),
    ],
)
def test_a_list_is_asked_for_in_the_order_of_an_index(client: Program, ada: Agent, query: str, clause: str) -> None:
    with CaptureQueriesContext(connection) as seen:
        assert client.get(f"/api/{query}").status_code == 200

    assert any(clause in one["sql"] for one in seen), [one["sql"] for one in seen][-1]


def test_a_cursor_of_another_order_is_not_there_and_no_error(client: Program, ada: Agent, office: Channel) -> None:
    tuple(calls(ada))
    by_time = client.get("/api/llm-calls/?agent=ada&page_size=1").json()["next"]

    assert client.get(by_time.replace("agent=ada&", "")).status_code == 404


def test_messages_of_an_agent_in_a_time_come_by_when_they_were_said(
    client: Program, ada: Agent, office: Channel
) -> None:
    one, two, three = talk(ada, ["a", "b", "c"])
    late = say(office, ada, "imported later, said before", sent_at=one.sent_at - timedelta(hours=1))  # type: ignore[operator]

    asked = "/api/messages/?agent=ada&since=2026-11-01&page_size=1"
    assert paged(client, asked) == [three.pk, two.pk, one.pk, late.pk]
    assert paged(client, f"{asked}&ordering=id") == [late.pk, one.pk, two.pk, three.pk]


def test_a_search_says_where_or_since_when(client: Program, ada: Agent) -> None:
    (said,) = talk(ada, ["No paper."])

    refused = client.get("/api/messages/?search=paper")

    assert refused.status_code == 400
    assert "allowed: with one of channel, agent, since" in refused.json()["errors"]["search"][0]
    for narrow in ("channel=office", "agent=ada", "since=2026-11-01"):
        assert listed(client, f"/api/messages/?search=paper&{narrow}") == [said.pk]


def test_turns_and_logs_are_read_from_the_first_on(client: Program, ada: Agent, office: Channel) -> None:
    runs = [Run.objects.create(agent=ada, channel=office, status="completed").pk for _ in range(3)]
    logs = [InterventionLog.objects.create(agent=ada, channel=office, name="variety", fired=False).pk for _ in range(3)]
    attempts = [
        CorrectionLog.objects.create(agent=ada, attempt=n, outcome="passed", session=uuid4()).pk for n in (1, 2, 3)
    ]

    assert paged(client, "/api/runs/?ordering=created_at&page_size=2") == runs
    assert paged(client, "/api/runs/?ordering=created_at&status=completed&page_size=2") == runs
    assert paged(client, "/api/evaluations/intervention-logs/?ordering=created_at&page_size=2") == logs
    assert paged(client, "/api/evaluations/correction-logs/?ordering=created_at&page_size=2") == attempts


def test_interventions_are_searched(client: Program) -> None:
    Intervention.objects.create(slug="calm", description="Where voices rise", textual_claim="x", nudge="y")
    Intervention.objects.create(slug="wake", textual_claim="x", nudge="y")

    assert listed(client, "/api/evaluations/interventions/?search=VOICES", "slug") == ["calm"]
    assert listed(client, "/api/evaluations/interventions/?ordering=-updated_at", "slug") == ["wake", "calm"]
