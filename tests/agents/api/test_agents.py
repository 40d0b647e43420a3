"""Agents over the API: listed, created, changed with a version of their persona, and what their model would be sent."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, PersonaVersion, Trait
from agents.personas.persona import TraitValue, save_persona
from agents.turn.pipeline import Turn
from tests.api_client import Program, listed, paged, program
from tests.console import staff
from tests.factories import make_agent, make_channel, say

pytestmark = pytest.mark.django_db

AGENTS = "/api/agents/"


class Unprepared:
    """A stage without which no turn may begin, and which fails."""

    name = "unprepared"
    required = True

    def prepare(self, turn: Turn) -> None:
        raise RuntimeError("nothing is prepared")


NEW = {"slug": "cy", "display_name": "Cy", "system_prompt": "You are Cy."}


def test_the_list_shows_who_there_is_without_their_personas(client: Program, ada: Agent, bob: Agent) -> None:
    first, second = client.get(AGENTS).json()["results"]

    assert (first["slug"], first["display_name"], first["title"], first["version"]) == ("ada", "Ada Byron", "clerk", 1)
    assert second["slug"] == "bob"
    assert "system_prompt" not in first
    assert client.get(first["url"]).json()["system_prompt"] == ada.system_prompt
    for link in ("prompt_url", "turns_url", "versions_url"):
        assert client.get(first[link]).status_code == 200


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


# -- what the model is sent
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


def test_the_prompt_is_what_the_model_would_get_with_sections_of_stages(
    client: Program, ada: Agent, office: Channel, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Hint"]
    settings.ACTOR_MODEL = "offline:scripted-1"
    said = say(office, "Guest", "Is anybody here?")

    shown = client.get(f"{AGENTS}ada/prompt/?channel=office&trigger={said.pk}").json()

    assert (shown["agent"], shown["channel"], shown["model"]) == ("ada", "office", "offline:scripted-1")
    assert "You are Ada, a dry and careful clerk." in shown["system"]
    assert "Speak of ships." in shown["system"]
    assert ("Conversation Guidance", "hint") in [(part["heading"], part["stage"]) for part in shown["sections"]]
    assert shown["transcript"] == ["1. Guest: Is anybody here?"]
    assert "Is anybody here?" in shown["user"]
    assert "send_message" in [tool["name"] for tool in shown["tools"]]
    assert (shown["draft"], shown["trace"][0]["counters"]) == (None, {"hints": 1})


def test_without_a_channel_the_prompt_is_that_of_where_it_spoke_last(
    client: Program, ada: Agent, office: Channel
) -> None:
    assert client.get(f"{AGENTS}ada/prompt/").json()["channel"] == "office"
    annex = make_channel("annex")
    annex.memberships.create(agent=ada)
    say(annex, ada, "Here now.")
    say(make_channel("left"), ada, "I was there.")  # where it is no member any more does not count
    say(annex, ada, "Still here.")

    assert client.get(f"{AGENTS}ada/prompt/").json()["channel"] == "annex"


def test_a_prompt_that_no_turn_could_have_is_a_problem(client: Program, ada: Agent, settings: Settings) -> None:
    make_channel("attic")
    make_agent("hermit")

    assert (
        "not a member of channel 'attic'; allowed: office"
        in client.get(f"{AGENTS}ada/prompt/?channel=attic").json()["detail"]
    )
    assert client.get(f"{AGENTS}hermit/prompt/").status_code == 409
    assert client.get(f"{AGENTS}ada/prompt/?channel=nowhere").status_code == 400
    assert client.get(f"{AGENTS}ada/prompt/?trigger=9").status_code == 400
    assert client.get(f"{AGENTS}nobody/prompt/").status_code == 404
    settings.TURN_PIPELINE = [f"{__name__}.Unprepared"]
    answer = client.get(f"{AGENTS}ada/prompt/")
    assert (answer.status_code, answer.json()["title"]) == (503, "Service Unavailable")


def test_a_prompt_needs_the_permission_to_read_messages_too(ada: Agent) -> None:
    only_agents = program(staff("agents.view_agent"))

    assert only_agents.get(f"{AGENTS}ada/").status_code == 200
    assert only_agents.get(f"{AGENTS}ada/prompt/").status_code == 403
