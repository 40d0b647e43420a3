"""Agents over the API: listed, created, changed with a version of their persona."""

from __future__ import annotations

import pytest

from agents.models import Agent, Channel, PersonaVersion, Trait
from agents.persona import TraitValue, save_persona
from tests.api_client import Program, listed, paged
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

AGENTS = "/api/agents/"


NEW = {"slug": "cy", "display_name": "Cy", "system_prompt": "You are Cy."}


def test_the_list_shows_who_there_is_without_their_personas(client: Program, ada: Agent, bob: Agent) -> None:
    first, second = client.get(AGENTS).json()["results"]

    assert (first["slug"], first["display_name"], first["title"], first["version"]) == ("ada", "Ada Byron", "clerk", 1)
    assert second["slug"] == "bob"
    assert "system_prompt" not in first
    assert client.get(first["url"]).json()["system_prompt"] == ada.system_prompt
    assert client.get(first["versions_url"]).status_code == 200


def test_the_list_is_filtered_and_ordered(client: Program, ada: Agent, bob: Agent, office: Channel) -> None:
    make_agent("cy", is_active=False, display_name="Aaron")

    assert listed(client, f"{AGENTS}?search=BYRON", "slug") == ["ada"]
    assert listed(client, f"{AGENTS}?channel=office", "slug") == ["ada", "bob"]
    assert listed(client, AGENTS, "slug") == ["cy", "ada", "bob"]
    assert listed(client, f"{AGENTS}?ordering=slug", "slug") == ["ada", "bob", "cy"]
    assert listed(client, f"{AGENTS}?ordering=-created_at", "slug") == ["cy", "bob", "ada"]
    assert paged(client, f"{AGENTS}?page_size=2", "slug") == ["cy", "ada", "bob"]


def test_an_agent_is_created_with_its_first_version(client: Program) -> None:
    traits = [{"name": "dry", "strength": 0.9}, {"name": "puns", "description": "any", "strength": 0, "sentiment": -1}]

    answer = client.post(AGENTS, {**NEW, "traits": traits, "sample_lines": ["Well.", "So."], "note": "as agreed"})

    assert answer.status_code == 201
    assert answer.json() == client.get(answer["Location"]).json()
    agent = Agent.objects.get(slug="cy")
    assert agent.sample_lines == ["Well.", "So."]
    assert answer.json()["traits"] == [
        {"name": "dry", "description": "", "strength": 0.9, "sentiment": 0.0},
        {"name": "puns", "description": "any", "strength": 0.0, "sentiment": -1.0},
    ]
    version = PersonaVersion.objects.get(agent=agent)
    assert (version.number, version.note) == (1, "as agreed")
    assert version.created_by is not None
    assert version.created_by.username == "eve"
    assert set(Trait.objects.filter(agent=agent).values_list("source", flat=True)) == {"eve"}


def test_a_changed_persona_is_a_version_and_what_stays_is_none(client: Program, ada: Agent) -> None:
    assert client.patch(f"{AGENTS}ada/", {"title": "countess"}).json()["version"] == 1

    changed = client.patch(f"{AGENTS}ada/", {"system_prompt": "You are Ada, and merry.", "note": "merrier"}).json()

    assert (changed["version"], changed["title"], changed["system_prompt"]) == (
        2,
        "countess",
        "You are Ada, and merry.",
    )
    newest, first = client.get(changed["versions_url"]).json()["results"]
    assert (newest["number"], newest["note"], newest["created_by"]) == (2, "edited: merrier", "eve")
    assert client.get(newest["url"]).json()["system_prompt"] == "You are Ada, and merry."
    assert client.get(first["url"]).json()["system_prompt"] == "You are Ada, a dry and careful clerk."
    assert client.get(f"{AGENTS}ada/versions/3/").json()["detail"] == "agent 'ada' has no version 3"


def test_traits_are_replaced_as_a_whole_and_only_when_they_are_given(client: Program, ada: Agent) -> None:
    save_persona(agent=ada, traits=[TraitValue("dry"), TraitValue("kind", strength=0.0)], note="test")

    client.patch(f"{AGENTS}ada/", {"is_active": False})
    assert ada.traits.count() == 2
    client.patch(f"{AGENTS}ada/", {"traits": [{"name": "Dry", "strength": 1}]})

    assert [(trait.name, trait.strength) for trait in ada.traits.all()] == [("Dry", 1.0)]


def test_aliases_are_changed_without_a_version_and_refused_with_what_is_allowed(client: Program, ada: Agent) -> None:
    assert client.patch(f"{AGENTS}ada/", {"aliases": ["Countess", "Lady L"]}).json()["aliases"] == [
        "Countess",
        "Lady L",
    ]
    assert PersonaVersion.objects.filter(agent=ada).count() == 1

    for wrong in (["@ada"], [""], ["a" * 81], ["two\nlines"], [f"a{n}" for n in range(21)], ["..."]):
        answer = client.patch(f"{AGENTS}ada/", {"aliases": wrong})
        assert answer.status_code == 400
        assert "allowed: a list of at most 20 names" in answer.content.decode()
    ada.refresh_from_db()
    assert ada.aliases == ["Countess", "Lady L"]


def test_a_trait_without_a_name_is_refused_by_name(client: Program, ada: Agent) -> None:
    response = client.patch("/api/agents/ada/", {"traits": [{"description": "Counts twice."}]})

    assert response.status_code == 400
    assert "traits[0].name" in response.json()["errors"]
