"""Alerts over the API."""

from __future__ import annotations

import pytest

from agents.alerts.raising import raise_alert
from agents.models import Agent
from tests.api_client import Program, listed, program, refused
from tests.console import superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

ALERTS = "/api/alerts/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def test_alerts_are_listed_filtered_and_acknowledged_once(client: Program, ada: Agent) -> None:
    one = raise_alert(kind="drift", about="a", title="It fell", agent=ada)
    two = raise_alert(kind="budget", about="b", title="It is used up", lasts=True)

    assert listed(client, ALERTS) == [two.pk, one.pk]
    assert listed(client, f"{ALERTS}?kind=drift") == listed(client, f"{ALERTS}?agent=ada") == [one.pk]
    answer = client.post(f"{ALERTS}{one.pk}/acknowledge/", {"note": "on it"}, format="json")
    assert (answer.status_code, answer.json()["acknowledged_by"], answer.json()["note"]) == (200, "eve", "on it")
    assert client.post(f"{ALERTS}{one.pk}/acknowledge/").status_code == 409
    assert listed(client, f"{ALERTS}?acknowledged=true") == [one.pk]
    assert refused(client.get(f"{ALERTS}?kind=fire"))["kind"][0].endswith("evaluation_failed")
