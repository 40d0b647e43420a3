"""A key used again for something else loses nothing silently, however old it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError
from django.utils import timezone

from agents.kit.api import headers
from agents.kit.models import IdempotentRequest
from agents.models import Agent, Message, Run
from tests.api_client import Program, program

pytestmark = pytest.mark.django_db
CASES = pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/api/messages/", {"channel": "office", "text": "The report of Monday."}, {"text": "The report of Tuesday."}),
        ("/api/messages/send/", {"agent": "ada", "channel": "office", "text": "Monday."}, {"text": "Tuesday."}),
        ("/api/agents/ada/turns/", {"channel": "office", "prompt": "Report Monday."}, {"prompt": "Report Tuesday."}),
    ],
)


def a_day_passes() -> None:
    IdempotentRequest.objects.update(created_at=timezone.now() - IdempotentRequest.KEPT - timedelta(seconds=1))


def counted() -> tuple[int, int]:
    return Message.objects.count(), Run.objects.count()


@CASES
def test_yesterdays_key_with_another_body_is_a_409_and_not_yesterdays_answer(
    client: Program, ada: Agent, path: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    first = client.post(path, body, headers={"Idempotency-Key": "daily-report"})
    done = counted()
    a_day_passes()

    second = client.post(path, {**body, **other}, headers={"Idempotency-Key": "daily-report"})

    assert (first.status_code // 100, second.status_code) == (2, 409)
    assert "used for another request" in second.json()["detail"]
    assert "a new key" in second.json()["detail"]
    assert counted() == done


@CASES
def test_the_same_request_still_acts_once_after_a_day(
    client: Program, ada: Agent, path: str, body: dict[str, Any], other: dict[str, Any]
) -> None:
    first = client.post(path, body, headers={"Idempotency-Key": "one"})
    done = counted()
    a_day_passes()

    again = client.post(path, body, headers={"Idempotency-Key": "one"})

    assert again.status_code == first.status_code
    assert again["Location"] == first["Location"]
    assert counted() == done


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/agents/", {"slug": "cy", "display_name": "Cy", "system_prompt": "You are Cy."}),
        ("/api/agents/ada/turns/", {"channel": "office"}),
        ("/api/channels/", {"slug": "annex", "name": "Annex"}),
        ("/api/messages/", {"channel": "office", "text": "@ada once"}),
        ("/api/messages/send/", {"agent": "ada", "channel": "office", "text": "Once."}),
        ("/api/quality-checks/", {"persona": "You are Ada.", "draft": "Once."}),
        ("/api/evaluations/", {"agent": "ada", "dimensions": ["fluency"]}),
        (
            "/api/messages/ingest/",
            {"channel": "office", "messages": [{"external_id": "1", "agent": "ada", "text": "a"}]},
        ),
    ],
)
def test_a_repeated_request_gets_the_first_answer(client: Program, ada: Agent, path: str, body: dict[str, Any]) -> None:
    first = client.post(path, body, headers={"Idempotency-Key": "k"})
    done = counted()
    again = client.post(path, body, headers={"Idempotency-Key": "k"})
    other = client.post(path, {**body, "tags": {"a": "b"}}, headers={"Idempotency-Key": "k"})

    assert (again.status_code, again.json(), other.status_code) == (first.status_code, first.json(), 422)
    assert again["Idempotency-Replayed"] == "true"
    assert counted() == done


def test_keys_that_begin_alike_and_keys_of_other_users_do_not_collide(client: Program, ada: Agent) -> None:
    said = {"channel": "office", "text": "Good morning."}
    root = program(User.objects.create_superuser("bob"))
    answers = [
        one.post("/api/messages/", said, headers={"Idempotency-Key": key})
        for one, key in ((client, "day"), (client, "day-1"), (client, "day:1"), (root, "day"))
    ]

    assert [answer.status_code for answer in answers] == [201] * 4
    assert Message.objects.count() == 4


def test_what_was_done_is_answered_even_when_the_answer_cannot_be_kept(
    client: Program, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*args: object, **kwargs: object) -> bool:
        raise DatabaseError("server closed the connection")

    body = {"agent": "ada", "channel": "office", "text": "Good morning."}
    monkeypatch.setattr(headers, "store_answer", away)

    answer = client.post("/api/messages/send/", body, headers={"Idempotency-Key": "one"})

    assert (answer.status_code, answer.json()["committed"]) == (201, True)
    assert Message.objects.count() == 1
