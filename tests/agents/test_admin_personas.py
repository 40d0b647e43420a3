"""Editing an agent in the console: one persona version for each save that changed the persona."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agents.models import Agent, PersonaVersion, Trait
from agents.personas.persona import TraitValue
from tests.console import list_of, signed_in, staff, superuser, tab_of
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor() -> User:
    return superuser("editor")


@pytest.fixture
def console(editor: User) -> Client:
    return signed_in(editor)


@pytest.fixture
def ada() -> Agent:
    return make_agent(
        traits=[TraitValue("dry", "Says little.", strength=0.8), TraitValue("proud")],
        sample_lines=["Noted.", "Two\nlines."],
    )


def form(console: Client, agent: Agent, **changes: Any) -> dict[str, Any]:
    """What the browser would send from the agent's page, with some fields changed."""
    response = console.get(tab_of(agent, "persona"))
    main = response.context["adminform"].form
    forms = [main]
    for inline in response.context["inline_admin_formsets"]:
        forms += [inline.formset.management_form, *inline.formset.forms]
    data = {bound.html_name: bound.value() for part in forms for bound in part}
    return {name: "" if value is None else value for name, value in {**data, **changes}.items()}


def save(console: Client, agent: Agent, **changes: Any) -> None:
    response = console.post(tab_of(agent, "persona"), form(console, agent, **changes))
    assert response.status_code == 302, response.context["errors"]


def test_changing_prompt_and_traits_in_one_save_makes_one_version(console: Client, ada: Agent, editor: User) -> None:
    save(
        console,
        ada,
        system_prompt="You are Ada, who jokes.",
        version_note="more jokes",
        **{"traits-0-strength": "0.1", "traits-TOTAL_FORMS": "3", "traits-2-name": "funny", "traits-2-strength": "0.9"},
        **{"traits-2-sentiment": "0", "traits-2-agent": str(ada.pk)},
    )

    newest, _ = PersonaVersion.objects.filter(agent=ada)
    assert (newest.number, newest.note, newest.created_by) == (2, "edited: more jokes", editor)
    assert newest.system_prompt == "You are Ada, who jokes."
    assert {trait["name"]: trait["strength"] for trait in newest.traits} == {"dry": 0.1, "proud": 0.5, "funny": 0.9}
    assert Trait.objects.get(name="funny").source == "editor"


def test_a_save_without_a_change_makes_no_version(console: Client, ada: Agent) -> None:
    save(console, ada)

    assert ada.persona_versions.count() == 1
    ada.refresh_from_db()
    assert ada.sample_lines == ["Noted.", "Two\nlines."]


def test_a_new_agent_starts_with_its_first_version(console: Client) -> None:
    empty = {f"{name}-{count}_FORMS": "0" for name in ("traits", "memory_blocks") for count in ("TOTAL", "INITIAL")}
    values = {
        "slug": "bob",
        "display_name": "Bob",
        "system_prompt": "You are Bob.",
        "max_turns": "50",
        "avatar_color": "#112233",
    }
    response = console.post(list_of(Agent) + "add/", {**values, **empty, "sample_lines": "[]"})

    assert response.status_code == 302, response.context["errors"]
    version = PersonaVersion.objects.get(agent__slug="bob")
    assert (version.number, version.system_prompt) == (1, "You are Bob.")


def test_sample_lines_are_a_list_of_texts(console: Client, ada: Agent) -> None:
    values = form(console, ada)
    for lines in ('"one text"', "[1, 2]", '[""]'):
        response = console.post(tab_of(ada, "persona"), {**values, "sample_lines": lines})

        assert response.status_code == 200
        assert "sample_lines" in response.context["adminform"].form.errors, lines


def test_aliases_are_a_list_of_names(console: Client, ada: Agent) -> None:
    values = form(console, ada)

    refused = console.post(tab_of(ada, "persona"), {**values, "aliases": '["@ada"]'})
    assert refused.status_code == 200
    assert "aliases" in refused.context["adminform"].form.errors
    assert console.post(tab_of(ada, "persona"), {**values, "aliases": '["Countess"]'}).status_code == 302
    ada.refresh_from_db()
    assert ada.aliases == ["Countess"]


def test_two_traits_of_one_name_are_refused(console: Client, ada: Agent) -> None:
    values = form(console, ada)
    new = {"traits-TOTAL_FORMS": "3", "traits-2-name": "Dry", "traits-2-strength": "1", "traits-2-sentiment": "0"}
    for clash in ({"traits-1-name": "DRY"}, new):
        response = console.post(tab_of(ada, "persona"), {**values, **clash})

        assert response.status_code == 200
        assert "This agent has a trait of that name already." in response.content.decode()
    assert sorted(ada.traits.values_list("name", flat=True)) == ["dry", "proud"]


def test_versions_cannot_be_forged_through_the_form(console: Client, ada: Agent) -> None:
    version = ada.persona_versions.get()
    forged = {
        "persona_versions-TOTAL_FORMS": "1", "persona_versions-INITIAL_FORMS": "1",
        "persona_versions-0-id": str(version.pk), "persona_versions-0-agent": str(ada.pk),
        "persona_versions-0-note": "forged", "persona_versions-0-DELETE": "on",
    }  # fmt: skip
    save(console, ada, **forged)

    version.refresh_from_db()
    assert version.note == "test"


def test_who_may_not_change_traits_changes_the_prompt_only(ada: Agent) -> None:
    rights = ("agents.change_agent", "agents.view_trait", "agents.view_memoryblock")
    console = signed_in(staff(*rights))
    save(console, ada, system_prompt="You are Ada, who jokes.", **{"traits-0-strength": "0"})

    newest = ada.persona_versions.latest("number")
    assert newest.system_prompt == "You are Ada, who jokes."
    assert {trait["strength"] for trait in newest.traits} == {0.8, 0.5}
