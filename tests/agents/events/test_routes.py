"""The event routes of channels and turns: what they tell, to whom, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents.events import listeners
from agents.models import Channel, Run, RunStep
from tests.api_client import Program, program
from tests.console import staff, superuser
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db
OFFICE = "/api/channels/office/events/"
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(autouse=True)
def _short(settings: Settings) -> None:
    settings.EVENT_STREAM_SECONDS = 0  # what is there is told, then it ends


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def office() -> Channel:
    return make_channel("office")


def told(response: Any) -> list[dict[str, str]]:
    """A stream's parts as fields; comments left out."""
    assert response["Content-Type"] == "text/event-stream"
    parts = b"".join(response.streaming_content).decode().split("\n\n")
    response.close()
    return [dict(line.split(": ", 1) for line in part.split("\n")) for part in parts if part and part[0] != ":"]


@pytest.mark.django_db(transaction=True)  # the end of a stream gives its connection back
def test_a_stream_tells_what_was_said_since_the_last_event_one_was_told(client: Program, office: Channel) -> None:
    for text in ("one", "two\nlines", "three"):
        say(office, "Zoe", text)

    opening, *events = told(client.get(OFFICE, headers={**STREAM, "Last-Event-ID": "1"}))

    assert opening["id"] == "1"
    assert 2_000 <= int(opening["retry"]) <= 4_000
    assert [(event["id"], event["event"]) for event in events] == [("2", "message"), ("3", "message")]
    shown = [json.loads(event["data"]) for event in events]
    assert shown == client.get("/api/channels/office/messages/?ordering=position").json()["results"][1:]
    assert shown[0]["text"] == "two\nlines"


def test_without_an_id_a_stream_begins_now(client: Program, office: Channel) -> None:
    say(office, "Zoe", "before")

    assert [part["id"] for part in told(client.get(OFFICE, headers=STREAM))] == ["1"]


@pytest.mark.django_db(transaction=True)  # the end of a stream gives its connection back
def test_what_an_eventsource_says_when_it_comes_back_goes_before_its_address(client: Program, office: Channel) -> None:
    for text in ("one", "two"):
        say(office, "Zoe", text)

    by_address = told(client.get(f"{OFFICE}?last_event_id=0", headers=STREAM))
    by_header = told(client.get(f"{OFFICE}?last_event_id=0", headers={**STREAM, "Last-Event-ID": "1"}))

    assert [part["id"] for part in by_address] == ["0", "1", "2"]
    assert [part["id"] for part in by_header] == ["1", "2"]


def test_nothing_on_the_way_keeps_a_stream_back(client: Program, office: Channel) -> None:
    response = client.get(OFFICE, headers={**STREAM, "Accept-Encoding": "gzip"})

    assert response.streaming
    assert response["Cache-Control"] == "no-cache, no-transform"
    assert response["X-Accel-Buffering"] == "no"
    assert response["X-Request-ID"]
    assert "Content-Encoding" not in response
    assert "Content-Length" not in response
    response.close()


def test_asking_in_json_is_the_way_without_a_stream(client: Program, office: Channel) -> None:
    first = client.get(OFFICE).json()
    say(office, "Zoe", "hello")
    second = client.get(f"{OFFICE}?wait=0&last_event_id={first['last_event_id']}", headers=STREAM).json()
    third = client.get(OFFICE, headers={"Last-Event-ID": second["last_event_id"]}).json()

    assert first == {"events": [], "last_event_id": "0", "done": False}
    assert [(event["id"], event["event"], event["data"]["text"]) for event in second["events"]] == [
        ("1", "message", "hello")
    ]
    assert third == {"events": [], "last_event_id": "1", "done": False}


@pytest.mark.parametrize(
    ("address", "field"),
    [
        (f"{OFFICE}?last_event_id=x", "last_event_id"),
        (f"{OFFICE}?last_event_id=7", "last_event_id"),
        (f"{OFFICE}?wait=26", "wait"),
        (f"{OFFICE}?wait=-1", "wait"),
        (f"{OFFICE}?wait=1.5", "wait"),
        (f"{OFFICE}?since=1", "since"),
    ],
)
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_what_nobody_reads_or_no_event_has_is_refused(
    client: Program, office: Channel, address: str, field: str, accept: str
) -> None:
    response = client.get(address, headers={"Accept": accept})

    assert (response.status_code, response["Content-Type"]) == (400, "application/problem+json")
    assert "allowed: " in response.json()["errors"][field][0]
    assert not listeners._topics


@pytest.mark.parametrize("address", ["/api/channels/nowhere/events/", "/api/runs/7/events/"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_what_is_not_there_is_a_404(client: Program, address: str, accept: str) -> None:
    assert client.get(address, headers={"Accept": accept}).status_code == 404


def test_when_all_streams_are_taken_it_says_when_to_come_back_and_lists_still_answer(
    client: Program, office: Channel, settings: Settings
) -> None:
    settings.EVENT_STREAMS = 0

    refused = client.get(OFFICE, headers=STREAM)

    assert (refused.status_code, refused["Retry-After"]) == (503, "10")
    assert refused["Content-Type"] == "application/problem+json"
    assert client.get(f"{OFFICE}?wait=1").status_code == 503  # it would occupy a thread as well
    assert client.get(f"{OFFICE}?wait=0").status_code == 200


def test_a_head_request_gets_the_headers_and_takes_no_place(client: Program, office: Channel) -> None:
    response = client.head(OFFICE, headers=STREAM)

    assert (response.status_code, response["Content-Type"]) == (200, "text/event-stream")
    assert not listeners._topics


def test_one_needs_the_permission_to_view_messages(office: Channel) -> None:
    somebody = staff("agents.view_channel")
    assert program(somebody).get(OFFICE).status_code == 403
    somebody.user_permissions.add(Permission.objects.get(codename="view_message"))
    assert program(somebody).get(OFFICE).status_code == 200


def test_a_message_more_costs_no_query_more(client: Program, office: Channel) -> None:
    def queries(count: int) -> int:
        for number in range(count):
            say(office, make_agent(f"agent-{number}-{count}"), "hello")
        with CaptureQueriesContext(connection) as seen:
            client.get(f"{OFFICE}?last_event_id=0")
        return len(seen)

    assert queries(1) == queries(20)


@pytest.mark.django_db(transaction=True)  # the end of a stream gives its connection back
def test_a_turn_tells_its_steps_and_its_end(client: Program, office: Channel) -> None:
    run = Run.objects.create(agent=make_agent("ada"), channel=office, status="running")
    address = f"/api/runs/{run.pk}/events/"
    RunStep.objects.create(run=run, number=1, kind="model_call", detail={"status": "ok"}, duration_ms=5)
    so_far = client.get(address).json()
    RunStep.objects.create(run=run, number=2, kind="tool_call", detail={"tool": "send_message"})
    Run.objects.filter(pk=run.pk).update(status="completed", stop_reason="end_turn")
    _, *rest = told(client.get(address, headers={**STREAM, "Last-Event-ID": so_far["last_event_id"]}))

    assert [(event["id"], event["event"], event["data"]["kind"]) for event in so_far["events"]] == [
        ("1", "step", "model_call")
    ]
    assert [(event["id"], event["event"]) for event in rest] == [("2", "step"), ("2-end", "end")]
    assert json.loads(rest[1]["data"])["stop_reason"] == "end_turn"
    again = client.get(address, headers={**STREAM, "Last-Event-ID": "2-end"})
    assert (again.status_code, again.content) == (204, b"")  # so that an EventSource comes back no more
    assert client.get(f"{address}?last_event_id=2-end&wait=20").json()["done"] is True
