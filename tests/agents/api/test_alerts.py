"""Alerts and receivers over the API."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from agents.alerts import raise_alert
from agents.alerts.delivery import work_one
from agents.alerts.webhook import secret_of
from agents.models import Agent, Alert, Delivery, Receiver
from tests.api_client import Program, listed, program, queries, refused
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

ALERTS, RECEIVERS = "/api/alerts/", "/api/receivers/"
HOOK = {"name": "hook", "channel": "webhook", "address": "https://example.com/hook/T0KEN"}


def of_group(name: str) -> Program:
    user = User.objects.create_user(name.lower())
    user.groups.add(Group.objects.get(name=name))
    return program(user)


def test_alerts_are_listed_filtered_and_acknowledged_once(client: Program, ada: Agent) -> None:
    one = raise_alert(kind="drift", about="a", title="It fell", agent=ada)
    two = raise_alert(kind="budget", about="b", title="It is used up", lasts=True)

    assert listed(client, ALERTS) == [two.pk, one.pk]
    assert listed(client, f"{ALERTS}?kind=drift") == listed(client, f"{ALERTS}?agent=ada") == [one.pk]
    answer = client.post(f"{ALERTS}{one.pk}/acknowledge/", {"note": "on it"}, format="json")
    assert (answer.status_code, answer.json()["acknowledged_by"], answer.json()["note"]) == (200, "eve", "on it")
    assert client.post(f"{ALERTS}{one.pk}/acknowledge/").status_code == 409
    assert listed(client, f"{ALERTS}?acknowledged=true") == [one.pk]
    assert client.post(f"{ALERTS}{one.pk}/reopen/").json()["acknowledged_at"] is None
    assert client.post(f"{ALERTS}{one.pk}/reopen/").status_code == 409
    assert refused(client.get(f"{ALERTS}?kind=fire"))["kind"][0].endswith("evaluation_failed")


def test_receivers_are_made_changed_tested_and_deleted(client: Program, ada: Agent) -> None:
    made = client.post(RECEIVERS, {**HOOK, "kinds": ["drift"], "agents": ["ada"]}, format="json")
    assert made.status_code == 201
    url, receiver = made.json()["url"], Receiver.objects.get()
    assert made.json()["secret"] == secret_of(receiver.salt.hex)
    assert (made.json()["created_by"], made.json()["agents"]) == ("eve", ["ada"])

    assert client.patch(url, {"kinds": [], "agents": []}, format="json").json()["kinds"] == []
    assert client.patch(url, {"is_active": False}, format="json", HTTP_IF_MATCH='"old"').status_code == 412
    assert client.post(f"{url}test/").status_code == 202
    assert [row["status"] for row in client.get(f"{url}deliveries/").json()] == ["pending"]
    client.patch(url, {"is_active": False}, format="json")
    assert client.post(f"{url}test/").status_code == 409
    assert client.delete(url).status_code == 204
    work_one(owner="test")
    assert Delivery.objects.get().status == "cancelled", "the log stays"


@pytest.mark.parametrize(
    ("field", "value"),
    [("address", "https://169.254.169.254/"), ("address", "http://example.com/"), ("kinds", ["fire"]), ("channel", "fax"), ("name", "")],
)  # fmt: skip
def test_what_could_not_be_sent_to_is_refused_with_what_is_allowed(client: Program, field: str, value: object) -> None:
    errors = refused(client.post(RECEIVERS, {**HOOK, field: value}, format="json"))

    assert [name.partition("[")[0] for name in errors] == [field]
    assert not Receiver.objects.exists()


def test_each_role_does_what_it_may_and_only_editors_see_secrets() -> None:
    receiver, alert = Receiver.objects.create(**HOOK), raise_alert(kind="drift", about="a", title="x")
    url, acknowledge = f"{RECEIVERS}{receiver.pk}/", f"{ALERTS}{alert.pk}/acknowledge/"

    looks = of_group("Viewer")
    assert (looks.get(url).json()["secret"], looks.get(url).json()["address"]) == (None, None)
    assert (looks.post(acknowledge).status_code, looks.post(f"{url}test/").status_code) == (403, 403)
    operates = of_group("Operator")
    assert (operates.get(url).json()["secret"], operates.delete(url).status_code) == (None, 403)
    assert operates.post(acknowledge).status_code == 200
    edits = of_group("Editor")
    assert edits.get(url).json()["address"] == HOOK["address"]
    assert edits.post(f"{url}test/").status_code == 202


def test_the_number_of_queries_does_not_grow_with_the_rows(client: Program, ada: Agent) -> None:
    def more(number: int) -> None:
        for n in range(number):
            made = Receiver.objects.create(name=f"r{Receiver.objects.count()}", address="a@example.com")
            made.agents.set([ada])
            raise_alert(kind="drift", about=f"{Alert.objects.count()} {n}", title="x", agent=ada)

    more(2)
    before = [queries(client, url) for url in (ALERTS, RECEIVERS)]
    make_agent("cy")
    more(6)

    assert [queries(client, url) for url in (ALERTS, RECEIVERS)] == before
