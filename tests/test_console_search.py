"""The search of the console (Ctrl+K) finds agents, channels, propositions and pages, as one may view them."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from tests.console import HOSTILE, queries, read, signed_in, staff, superuser
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


class Links(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if title := given.get("data-title"):
            self.found[title] = given["href"] or ""


def found(user: User, typed: str) -> dict[str, str]:
    return Links(read(signed_in(user), f"{reverse('admin:search')}?extended=1&s={typed}")).found


def test_it_finds_agents_channels_propositions_and_pages() -> None:
    agent = make_agent("pam", display_name="Pamela")
    channel = make_channel("reception")
    root = superuser()

    assert found(root, "PAMEL")["Pamela"] == reverse("admin:agents_agent_change", args=[agent.pk])
    assert found(root, "recept")[channel.name] == reverse("admin:agents_channel_change", args=[channel.pk])
    assert found(root, "alerts")["Drift alerts"] == reverse("admin:change_driftalert_changelist")
    assert any("/proposition/michael/change/" in url for url in found(root, "michael").values())


def test_it_finds_nothing_that_one_may_not_view() -> None:
    make_agent("pam")
    make_channel("reception")

    assert found(staff("evaluation.view_proposition"), "pam") == {}
    assert found(staff("agents.view_agent", username="other"), "recept") == {}
    assert found(staff(username="third"), "alerts") == {}


def test_names_are_text_and_what_no_text_holds_finds_nothing() -> None:
    make_agent("pam", display_name=HOSTILE)

    assert HOSTILE not in read(signed_in(superuser()), f"{reverse('admin:search')}?extended=1&s=pam")
    assert found(superuser("other"), "%00") == {}


def test_the_number_of_queries_does_not_grow_with_what_is_found() -> None:
    client, url = signed_in(superuser()), f"{reverse('admin:search')}?extended=1&s=agent"
    make_agent("agent-0")
    few = len(queries(client, url))
    for number in range(1, 30):
        make_agent(f"agent-{number}")

    assert len(queries(client, url)) == few
