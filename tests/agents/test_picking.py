"""Agents are picked in forms: searched by name, shown with their faces, never all loaded."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from agents.admin.picking import AgentsSelect
from agents.models import Agent
from tests.console import HOSTILE, queries, signed_in, staff, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

MANY = 1_000


@pytest.fixture
def root() -> Client:
    return signed_in(superuser())


def pick(client: Client, **query: str) -> dict[str, object]:
    found: dict[str, object] = client.get(reverse("admin:agents_agent_pick"), query).json()
    return found


def slugs(client: Client, **query: str) -> list[str]:
    results = pick(client, **query)["results"]
    assert isinstance(results, list)
    return [result["id"] for result in results]


def test_an_agent_is_found_by_a_part_of_its_name_or_slug(root: Client) -> None:
    make_agent("ada", display_name="Ada Byron")
    make_agent("bob", display_name="Bob Stone")

    assert slugs(root, term="BYR") == ["ada"]
    assert slugs(root, term="bo") == ["bob"]
    assert slugs(root, term="nobody\x00") == []


def test_inactive_agents_and_those_of_experiments_cannot_be_picked(root: Client) -> None:
    make_agent("ada")
    make_agent("retired", is_active=False)
    make_agent("person", synthetic=True)

    assert slugs(root) == ["ada"]


def test_a_thousand_agents_come_a_few_at_a_time(root: Client) -> None:
    Agent.objects.bulk_create(Agent(slug=f"a{n:04}", display_name=f"Agent {n:04}") for n in range(MANY))
    address = reverse("admin:agents_agent_pick")

    first = slugs(root)
    assert (len(first), pick(root)["pagination"]) == (20, {"more": True})
    assert slugs(root, page="2")[0] == "a0020"
    assert (slugs(root, page="50")[-1], pick(root, page="50")["pagination"]) == ("a0999", {"more": False})
    selects = [sql for sql in queries(root, address) if 'FROM "agents"' in sql]
    assert len(selects) == 1


def test_hostile_names_are_escaped_where_agents_are_picked(root: Client) -> None:
    make_agent("ada", display_name=f"{HOSTILE} \u202e")

    shown = str(pick(root)["results"][0]["html"])  # type: ignore[index]
    picked = AgentsSelect().render("agents", ["ada", f'"{HOSTILE}'])

    for html in (shown, picked):
        assert "<script>" not in html
        assert "\u202e" not in html
    assert picked.count("<") == picked.count("<select") + picked.count("<option") + picked.count(
        "</"
    )  # no tag but its own


def test_agents_are_picked_by_those_who_may_view_them_alone() -> None:
    make_agent("ada")
    address = reverse("admin:agents_agent_pick")

    assert slugs(signed_in(staff("agents.view_agent"))) == ["ada"]
    assert signed_in(staff("debates.add_debate", username="other")).get(address).status_code == 403


def test_a_nul_character_among_what_was_picked_reaches_no_database() -> None:
    html = AgentsSelect().render("agents", ["a\x00da"])

    assert "\x00" not in html


def test_what_was_picked_comes_back_in_the_order_of_picking() -> None:
    for slug in ("ada", "bob", "cleo"):
        make_agent(slug)

    html = AgentsSelect().render("agents", ["cleo", "nobody", "ada"])

    places = [html.index(f'value="{slug}"') for slug in ("cleo", "nobody", "ada")]
    assert places == sorted(places)
    assert 'value="bob"' not in html
