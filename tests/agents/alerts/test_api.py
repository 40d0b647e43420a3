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


def test_alerts_of_a_build_are_acknowledged_together_and_one_is_resolved_in_a_build(
    client: Program, ada: Agent
) -> None:
    one = raise_alert(kind="drift", about="a", title="It fell", agent=ada, build="build=41")
    two = raise_alert(kind="drift", about="b", title="It fell", agent=ada, build="build=41")
    bare = raise_alert(kind="budget", about="c", title="It is used up", agent=ada)

    assert listed(client, f"{ALERTS}?build=build%3D41") == [two.pk, one.pk]
    answer = client.post(f"{ALERTS}acknowledge-build/", {"build": "build=41", "note": "on it"}, format="json")
    assert (answer.status_code, answer.json()) == (200, {"acknowledged": 2})
    assert listed(client, f"{ALERTS}?acknowledged=false") == [bare.pk]

    answer = client.post(f"{ALERTS}{one.pk}/resolve/", {"in_build": "42"}, format="json")
    assert (answer.status_code, answer.json()["resolved_in"], answer.json()["resolved_by"]) == (200, "build=42", "eve")
    assert client.post(f"{ALERTS}{one.pk}/resolve/").status_code == 409
    assert "a build after 41" in str(
        refused(client.post(f"{ALERTS}{two.pk}/resolve/", {"in_build": "41"}, format="json"))
    )
    assert "acknowledge it" in str(refused(client.post(f"{ALERTS}{bare.pk}/resolve/")))


def test_alerts_of_examples_are_listed_beside_a_team_s_own_only_by_agent(client: Program, ada: Agent) -> None:
    kelly = make_agent("kelly", origin="seed")
    hidden = raise_alert(kind="drift", about="k", title="It fell", agent=kelly)
    own = raise_alert(kind="drift", about="a", title="It fell", agent=ada)

    assert listed(client, ALERTS) == [own.pk]
    assert listed(client, f"{ALERTS}?agent=kelly") == [hidden.pk]
    assert client.get(f"{ALERTS}{hidden.pk}/").status_code == 200
