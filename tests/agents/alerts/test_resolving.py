"""An alert is resolved in a build, and comes back in that build and in later ones alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core import mail
from pytest_django import Settings

from agents.alerts.admin import reopened_text
from agents.alerts.delivery import work_one
from agents.alerts.models import Alert, Delivery, Receiver
from agents.alerts.raising import acknowledge, acknowledge_build, raise_alert, reopen, reopen_together
from agents.alerts.resolving import came_back, resolve
from agents.models import Agent
from tests.console import superuser
from tests.factories import MONDAY, make_agent, talk

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]


@pytest.fixture
def ada() -> Agent:
    """An agent of builds 40 and 41, a day each."""
    agent = make_agent()
    for day, build in enumerate(("40", "41")):
        deployed(agent, build, day)
    return agent


def deployed(agent: Agent, build: str, day: int) -> None:
    talk(agent, [f"Of {build}."], sent_at=MONDAY + timedelta(days=day), tags={"build": build})


def fell(agent: Agent | None, about: str = "a", *, build: str = "build=41") -> Alert:
    return raise_alert(kind="drift", about=about, title="It fell", agent=agent, build=build)


@pytest.mark.parametrize(
    ("in_build", "build", "back"),
    [
        ("42", "build=41", False),
        ("42", "build=42", True),
        ("build=42", "build=43", True),
        ("42", "build=40", False),
        ("42", "model=x", None),
        ("42", "", None),
        ("", "build=41", False),
        ("", "build=42", True),
    ],
)
def test_what_is_resolved_in_a_build_comes_back_in_that_or_a_later_one(
    ada: Agent, in_build: str, build: str, back: bool | None
) -> None:
    alert = fell(ada)
    assert came_back(pk=alert.pk, build=build) is None, "it is not resolved"
    assert resolve(alert, in_build=in_build, user=None)
    deployed(ada, "42", 2)
    deployed(ada, "43", 3)

    assert came_back(pk=alert.pk, build=build) is back


def test_the_next_build_is_the_one_after_the_newest_of_now(ada: Agent) -> None:
    alert = fell(ada)
    deployed(ada, "42", 2)
    resolve(alert, user=None)
    deployed(ada, "43", 3)

    assert [came_back(pk=alert.pk, build=f"build={build}") for build in (41, 42, 43)] == [False, False, True]


@pytest.mark.parametrize("in_build", ["41", "build=41", "40", "build=", "4\n2", "4" * 400])
def test_an_alert_is_resolved_in_a_later_build_alone(ada: Agent, in_build: str) -> None:
    alert = fell(ada)

    with pytest.raises(ValueError, match="allowed: a build after 41"):
        resolve(alert, in_build=in_build, user=None)
    assert Alert.objects.filter(resolved_at=None, acknowledged_at=None).exists()


def test_no_build_resolves_an_alert_of_no_build(ada: Agent) -> None:
    for alert in (fell(ada, build=""), fell(None, "b")):
        with pytest.raises(ValueError, match="acknowledge it"):
            resolve(alert, user=None)


def test_it_is_resolved_once_and_keeps_who_acknowledged_it_before(ada: Agent) -> None:
    alert, pam, jim = fell(ada), superuser("pam"), superuser("jim")
    acknowledge(Alert.objects.all(), user=pam, note="mine")

    assert resolve(alert, in_build="42", user=jim)
    assert not resolve(alert, in_build="43", user=pam)
    alert.refresh_from_db()
    assert (alert.acknowledged_by, alert.resolved_by, alert.resolved_in, alert.note) == (pam, jim, "build=42", "mine")
    assert reopen(alert)
    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.resolved_at, alert.resolved_in) == (None, None, "")


def test_what_came_back_reopens_and_is_sent_again_once(ada: Agent) -> None:
    Receiver.objects.create(name="ops", address="ops@example.com")
    alert = fell(ada)
    resolve(alert, in_build="42", user=None)
    for about in "bc":  # two workers find it
        again = raise_alert(kind="drift", about=about, title="It fell", agent=ada, build="build=43", reopens=alert.pk)
        assert again == alert

    alert.refresh_from_db()
    assert (alert.acknowledged_at, alert.resolved_at, alert.back_in, alert.times) == (None, None, "build=43", 3)
    assert "build 43" in alert.title
    assert (Alert.objects.count(), Delivery.objects.count()) == (1, 2)


def test_a_tag_of_several_lines_does_not_keep_an_alert_from_arriving(ada: Agent, settings: Settings) -> None:
    settings.EMAIL_URL = "smtp://set"
    alert = fell(ada)
    resolve(alert, in_build="42", user=None)
    Receiver.objects.create(name="ops", address="ops@example.com")

    build = "build=43\r\nBcc: spy@example.com"
    raise_alert(kind="drift", about="b", title="It fell", agent=ada, build=build, reopens=alert.pk)
    work_one(owner="worker")

    assert mail.outbox[0].recipients() == ["ops@example.com"]
    assert Delivery.objects.get().status == "completed"


def test_an_alert_that_was_acknowledged_without_a_build_does_not_reopen(ada: Agent) -> None:
    alert = fell(ada)
    acknowledge(Alert.objects.all(), user=None)

    assert raise_alert(kind="drift", about="b", title="It fell", agent=ada, reopens=alert.pk) != alert
    alert.refresh_from_db()
    assert alert.acknowledged_at is not None


def test_the_alerts_of_a_build_are_acknowledged_at_once(ada: Agent) -> None:
    bob = make_agent("bob")
    for about, agent in (("a", ada), ("b", bob)):
        fell(agent, about)
    other, without = fell(ada, "c", build="build=40"), fell(ada, "d", build="")

    assert acknowledge_build(build="build=41", user=None) == 2
    assert acknowledge_build(build="build=41", user=None) == acknowledge_build(build="", user=None) == 0
    assert set(Alert.objects.filter(acknowledged_at=None)) == {other, without}


def came_back_in(alert: Alert, build: str) -> None:
    raise_alert(kind="drift", about="again", title="It fell", agent=alert.agent, build=build, reopens=alert.pk)


def test_what_came_back_is_of_that_build_and_no_earlier_one_resolves_it(ada: Agent) -> None:
    alert = fell(ada)
    resolve(alert, in_build="42", user=None)
    came_back_in(alert, "build=44")

    with pytest.raises(ValueError, match="a build after 44"):
        resolve(alert, in_build="43", user=None)
    assert acknowledge_build(build="build=44", user=None) == 1


def test_a_resolution_that_was_taken_back_is_not_told_of_any_more(ada: Agent) -> None:
    alert = fell(ada)
    resolve(alert, in_build="42", user=None)
    came_back_in(alert, "build=43")
    alert.refresh_from_db()
    assert "build 42" in reopened_text(alert)
    acknowledge(Alert.objects.all(), user=None)
    reopen(alert)

    alert.refresh_from_db()
    assert "build 43" in reopened_text(alert)
    assert "resolved" not in reopened_text(alert)


def test_taking_back_what_was_acknowledged_at_once_leaves_alone_what_a_build_resolves(ada: Agent) -> None:
    resolved, other = fell(ada), fell(ada, "b")
    acknowledge_build(build="build=41", user=None)
    resolve(resolved, in_build="42", user=None)
    other.refresh_from_db()
    resolved.refresh_from_db()

    assert (reopen_together(resolved), reopen_together(other)) == (0, 1)
    assert Alert.objects.get(resolved_at__isnull=False) == resolved


def test_a_note_with_a_character_that_no_database_takes_is_stored_without_it(ada: Agent) -> None:
    alert = fell(ada)

    acknowledge(Alert.objects.all(), user=None, note="a\x00")
    resolve(alert, user=None, note="on\x00it")

    alert.refresh_from_db()
    assert "\x00" not in alert.note
    assert alert.note.startswith("on")
