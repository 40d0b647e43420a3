"""An alert is raised once while it is open, for those who asked for it, in the transaction of its cause."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, transaction

from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import acknowledge, end_alerts, raise_alert, reopen
from agents.kit import alerting as kit
from agents.models import Agent
from tests.factories import make_agent

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]


def receiver(name: str, *agents: Agent, **fields: object) -> Receiver:
    made = Receiver.objects.create(name=name, address="ops@example.com", **fields)
    made.agents.set(agents)
    return made


def raised(about: str = "x", *, kind: str = "drift", **more: object) -> Alert:
    return raise_alert(kind=kind, about=about, title="It fell", **more)  # type: ignore[arg-type]


def test_the_same_is_raised_once_until_it_is_acknowledged() -> None:
    receiver("ops")
    first = raised()

    assert raised() == first
    assert (Alert.objects.get().times, Delivery.objects.count()) == (2, 1)

    acknowledge(Alert.objects.all(), user=None, note="on it")
    assert raised() != first
    assert Delivery.objects.count() == 2


def test_what_lasts_is_not_raised_again_before_it_ended() -> None:
    first = raised(kind="judge_down", lasts=True)
    acknowledge(Alert.objects.all(), user=None)

    assert [raised(kind="judge_down", lasts=True), first.times] == [first, 1]
    assert end_alerts(kind="judge_down", still=["x"]) == 0
    assert end_alerts(kind="judge_down") == 1
    assert raised(kind="judge_down", lasts=True) != first


def test_what_ended_and_comes_again_before_anybody_looked_lasts_again() -> None:
    first = raised(kind="budget", lasts=True)
    end_alerts(kind="budget")

    again = raised(kind="budget", lasts=True)

    assert (again.pk, again.times, again.ended_at) == (first.pk, 2, None)


def test_alerts_of_another_kind_or_object_are_others() -> None:
    assert len({raised("a").pk, raised("b").pk, raised("a", kind="budget").pk}) == 3


def test_receivers_get_the_kinds_and_agents_they_asked_for() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    receiver("all")
    receiver("of bob", bob)
    receiver("of ada", ada, kinds=["drift", "budget"])
    receiver("of budgets", kinds=["budget"])
    receiver("off", is_active=False)

    def told(alert: Alert) -> list[str]:
        return sorted(alert.deliveries.values_list("receiver__name", flat=True))

    assert told(raised("a", agent=ada)) == ["all", "of ada"]
    assert told(raised("b", agent=ada, kind="budget")) == ["all", "of ada", "of budgets"]
    assert told(raised("c", kind="judge_down")) == ["all", "of bob"], "what is of no agent concerns every agent"


def test_an_alert_whose_cause_is_rolled_back_was_never_raised() -> None:
    receiver("ops")
    with transaction.atomic():
        raised()
        transaction.set_rollback(True)

    assert not Alert.objects.exists()
    assert not Delivery.objects.exists()


def test_an_acknowledgement_is_taken_back_but_not_over_a_newer_alert() -> None:
    first = raised()
    acknowledge(Alert.objects.all(), user=None, note="mine")
    assert reopen(first)
    first.refresh_from_db()
    assert (first.acknowledged_at, first.note) == (None, "")

    acknowledge(Alert.objects.all(), user=None)
    raised()
    assert not reopen(first)


def test_no_alert_is_of_an_experiment_or_of_examples_beside_a_team_s_agents() -> None:
    kelly, made_up = make_agent("kelly", origin="seed"), make_agent("made-up", synthetic=True)
    alert: dict[str, Any] = {"kind": "budget", "title": "It is used up"}
    assert kit.raise_alert(about="1", agent=made_up, **alert) is None
    assert kit.raise_alert(about="2", agent=kelly, **alert) is not None

    ada = make_agent("ada")
    assert kit.raise_alert(about="3", agent=kelly, **alert) is None
    assert kit.raise_alert(about="4", agent=ada, **alert) is not None
    assert kit.raise_alert(about="5", **alert) is not None
    assert set(Alert.objects.values_list("about", flat=True)) == {"2", "4", "5"}


def test_titles_are_one_line_of_bounded_length() -> None:
    assert raise_alert(kind="drift", about="a" * 900, title="one\r\nBcc: two " + "x" * 900).title.startswith(
        "One Bcc: two x"
    )
    assert Alert.objects.get().title.isprintable()


@pytest.mark.django_db(transaction=True)
def test_of_many_that_raise_the_same_at_once_one_does() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one writer in at a time")
    receiver("ops")
    start = threading.Barrier(8)

    def run() -> None:
        try:
            start.wait()
            raised()
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (Alert.objects.get().times <= 8, Delivery.objects.count()) == (True, 1)
