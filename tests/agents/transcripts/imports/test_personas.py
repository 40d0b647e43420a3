"""Personas that are uploaded are imported at once, all or none, and with the uploader's permissions."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from agents.admin.personas import AgentForm
from agents.models import Agent, PersonaVersion
from agents.personas.persona import save_persona
from agents.transcripts.imports.personas import NotImported, import_uploaded
from tests.agents.transcripts.imports.uploading import ADD, PERSONA, file, held, lines, somebody
from tests.console import plain, signed_in, staff

pytestmark = pytest.mark.django_db

CARD = '{"spec": "chara_card_v2", "data": {"name": "Wraith", "description": "Speaks of weather."}}'
PARTS = PERSONA + "traits: [{name: dry}]\nmemory_blocks: [{label: notes}]\n"


def outcomes(*files: tuple[str, str], user: User, reset: bool = False) -> dict[str, str]:
    results = import_uploaded([file(text, name) for text, name in files], user=user, reset=reset)
    return {result.agent.slug: str(result.outcome) for result in results}


def test_personas_are_imported_together_and_one_that_was_edited_stays_unless_reset() -> None:
    user = somebody()
    files = ((PERSONA, "guide.yaml"), ("# The Ghost\nYou are a ghost.", "The Ghost.md"), (CARD, "card.json"))
    assert outcomes(*files, user=user) == {"guide": "created", "the-ghost": "created", "wraith": "created"}
    assert set(PersonaVersion.objects.values_list("note", "created_by")) == {("import", user.pk)}
    agent = Agent.objects.get(slug="guide")
    agent.system_prompt = "You are somebody else."
    save_persona(agent=agent, note="by hand")

    assert outcomes((PERSONA, "guide.yaml"), user=user) == {"guide": "kept_edited"}
    assert outcomes((PERSONA, "guide.yaml"), user=user, reset=True) == {"guide": "updated"}
    assert PersonaVersion.objects.filter(agent=agent).count() == 3


def test_the_form_imports_personas_and_says_what_became_of_each() -> None:
    client = signed_in(somebody())
    files = [file(PERSONA, "guide.yaml"), file("# The Ghost\nYou are a ghost.", "ghost.md")]
    page = client.post(ADD, {"files": files}).content.decode()
    html = plain(client.post(ADD, {"personas": "1", **held(page)}, follow=True).content.decode())
    assert "Harbour Guide: new" in html
    assert "The Ghost: new" in html
    answer = signed_in(staff("agents.add_message", username="op")).post(ADD, {"files": file(CARD, "card.json")})
    assert "that needs agents.add_agent" in answer.content.decode()


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("display_name: X\nsystem_prompt: x\nnope: y\n", "漢" * 90 + ".yaml", "unknown field 'nope'"),
        (lines(("Pat", "Hello")), "talk.jsonl", "is no persona; allowed:"),
        ("display_name: X\na: &a [lol]\nb: [*a, *a]\n", "bomb.yaml", "alias .a; write the value out"),
        ("a: [" + "1," * 40_000 + "1]", "bomb.yaml", "more than 65,536 bytes of YAML"),
        ("a: " + "[" * 400 + "]" * 400, "bomb.yaml", "YAML nested too deep"),
        (PERSONA.replace("guide", "_default", 1), "a.yaml", "an agent's id cannot begin with an underscore"),
        ("a: 2026-13-45", "bomb.yaml", "not valid YAML"),
    ],
)
def test_one_bad_file_is_named_and_no_persona_is_imported(text: str, name: str, reason: str) -> None:
    with pytest.raises(NotImported, match=reason) as refused:
        outcomes((PERSONA, "guide.yaml"), (text, name), user=somebody())
    assert "plumbline-import" not in str(refused.value)
    assert not Agent.objects.exists()


def test_personas_need_the_permissions_that_an_agents_page_needs_for_its_parts() -> None:
    with pytest.raises(NotImported, match=r"agents\.add_memoryblock, agents\.add_trait"):
        outcomes((PARTS, "guide.yaml"), user=somebody())
    adder = somebody("agents.add_trait", "agents.add_memoryblock", username="adder")
    assert outcomes((PARTS, "guide.yaml"), user=adder) == {"guide": "created"}
    with pytest.raises(NotImported, match=r"agents\.delete_trait"):
        outcomes((PARTS.replace("dry}", "wet}"), "guide.yaml"), user=adder)
    assert list(Agent.objects.get().traits.values_list("name", flat=True)) == ["dry"]


def test_no_agent_has_the_id_that_stands_for_everybody() -> None:
    form = AgentForm({"slug": "_default", "display_name": "X", "system_prompt": "X", "max_turns": 5})
    assert "an agent's id cannot begin with an underscore" in form.errors["slug"][0]


def test_the_preview_shows_personas_and_imports_the_same_files() -> None:
    client = signed_in(somebody())
    page = client.post(ADD, {"files": [file(PERSONA, "guide.yaml")]}).content.decode()
    assert "Dry and exact." in page
    assert not Agent.objects.exists()

    client.post(ADD, {"personas": "1", **held(page)})
    assert Agent.objects.get().system_prompt.startswith("You are the harbour guide.")


def test_a_preview_names_a_bad_file_and_one_that_came_back_damaged() -> None:
    client = signed_in(somebody())
    page = client.post(ADD, {"files": [file("slug: [", "guide.yaml")]}).content.decode()
    assert "Nothing was stored: guide.yaml" in page

    page = client.post(ADD, {"personas": "1", "name": "guide.yaml", "content": "A"}).content.decode()
    assert "came back damaged" in page
    assert not Agent.objects.exists()
