"""When a build began: the date of the first message that carries its tag."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory

from agents import builds
from agents.admin.markers import builds as markers
from agents.builds import first_said_with_tag, newest_of_key
from agents.models import Agent
from tests.console import superuser
from tests.factories import MONDAY, make_agent, talk

pytestmark = [pytest.mark.django_db, pytest.mark.databases_differ]
DAY = timedelta(days=1)


def said(agent: Agent, day: float, **tags: str) -> None:
    talk(agent, [f"Day {day}."], sent_at=MONDAY + day * DAY, tags=tags)


def test_a_build_begins_with_each_agents_first_message_of_its_tag() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    said(ada, 1, build="40", locale="en")
    said(ada, 3, build="41", model="m")
    said(ada, 2, build="41")
    said(bob, 1.5, build="41")
    said(bob, 0)

    assert first_said_with_tag([ada.pk, bob.pk]) == {
        (ada.pk, ("build", "40")): MONDAY + DAY,
        (ada.pk, ("build", "41")): MONDAY + 2 * DAY,
        (ada.pk, ("model", "m")): MONDAY + 3 * DAY,
        (bob.pk, ("build", "41")): MONDAY + 1.5 * DAY,
    }
    request = RequestFactory().get("/")
    request.user = superuser()
    drawn = markers(request, first_said_with_tag([ada.pk, bob.pk]), MONDAY + 1.2 * DAY, MONDAY + 9 * DAY)
    assert [(one.title, one.at) for one in drawn] == [
        ("build 41: first message", MONDAY + 1.5 * DAY),
        ("model m: first message", MONDAY + 3 * DAY),
    ]


def test_a_build_that_began_before_the_messages_looked_at_has_no_date(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(builds, "NEWEST", 4)
    monkeypatch.setattr(builds, "BEFORE", 2)
    ada = make_agent()
    for day, build in enumerate(("40", "40", "40", "40", "40", "41", "40", "41")):
        said(ada, day, build=build)

    with django_assert_num_queries(1):
        assert first_said_with_tag([ada.pk]) == {(ada.pk, ("build", "41")): MONDAY + 5 * DAY}


def test_the_newest_build_is_known_where_it_began_before_the_messages_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(builds, "NEWEST", 2)
    monkeypatch.setattr(builds, "BEFORE", 1)
    ada = make_agent()
    for day, build in enumerate(("40", "41", "41", "41", "41", "41")):
        said(ada, day, build=build)

    assert newest_of_key(ada.pk, "build") == "41"


@pytest.mark.parametrize(
    ("tag", "than", "later"),
    [
        (("build", "41"), ("build", "40"), True),
        (("build", "40"), ("build", "41"), False),
        (("build", "9"), ("build", "41"), True),  # it began later, whatever its number
        (("build", "41"), ("build", "41"), False),
        (("build", "42"), ("build", "41"), True),  # nothing was said with it yet
        (("build", "v41.1"), ("build", "42"), False),
        (("build", "nightly"), ("build", "41"), None),
        (("model", "42"), ("build", "41"), None),
    ],
)
def test_of_two_builds_the_one_that_began_later_is_later_and_numbers_decide_before(
    tag: builds.Tag, than: builds.Tag, later: bool | None
) -> None:
    ada = make_agent()
    for day, build in enumerate(("40", "41", "40", "9")):
        said(ada, day, build=build)

    assert builds.is_later(ada.pk, tag, than) is later
    assert builds.newest_of_key(ada.pk, "build") == "9"
