"""Strength 0 is an instruction: it survives every way in, out and round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent, Trait
from agents.personas.persona import TraitValue, render_persona, save_persona
from agents.personas.reader import import_agents
from evaluation.runs.planning import propositions_asked
from tests.agents.test_admin_personas import save
from tests.api_client import program
from tests.console import signed_in, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
STOP: dict[str, Any] = {"name": "slang", "description": "Says arvo.", "sentiment": 0.0, "strength": 0.0}
RENDERED = "### Never (stop doing this)\n- slang: Says arvo."
OTHERS = [TraitValue(f"trait {n}", strength=n / 40) for n in range(1, 41)]


def stopped(agent: Agent) -> None:
    """The trait is there at 0, in the rows and in what models read."""
    agent.refresh_from_db()
    assert Trait.objects.get(agent=agent, name="slang").strength == 0
    assert RENDERED in render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())


def test_through_an_import_and_its_repetition(tmp_path: Path) -> None:
    path = tmp_path / "ada.json"
    path.write_text(json.dumps({"slug": "ada", "system_prompt": "You are Ada.", "traits": [STOP]}), encoding="utf-8")

    for _ in range(2):
        import_agents(path=path)
        stopped(Agent.objects.get())


def test_through_the_api_and_back() -> None:
    client = program(superuser())
    body: dict[str, Any] = {"slug": "ada", "display_name": "Ada", "system_prompt": "You are Ada.", "traits": [STOP]}
    assert client.post("/api/agents/", body, format="json").status_code == 201
    agent = Agent.objects.get()
    stopped(agent)

    read = client.get("/api/agents/ada/").json()
    assert read["traits"] == [STOP] or {k: read["traits"][0][k] for k in STOP} == STOP
    sent = [{k: trait[k] for k in STOP} for trait in read["traits"]]
    assert client.patch("/api/agents/ada/", {"traits": sent, "note": "same"}, format="json").status_code == 200

    stopped(agent)
    assert agent.persona_versions.count() == 1, "nothing changed"
    version = client.get("/api/agents/ada/versions/1/").json()
    assert version["traits"][0]["strength"] == 0


def test_through_a_save_in_the_console() -> None:
    agent = make_agent(traits=[TraitValue(**STOP), TraitValue("dry", strength=0.8)])

    save(signed_in(superuser()), agent, title="Clerk")

    stopped(agent)
    assert agent.persona_versions.count() == 1


def test_among_forty_others_and_after_another_change() -> None:
    agent = make_agent(traits=[*OTHERS, TraitValue(**STOP)])
    save_persona(agent=agent, traits=[*OTHERS[:10], TraitValue(**STOP)], note="fewer")

    stopped(agent)
    assert agent.persona_versions.order_by("-number")[0].traits[-1] == STOP


def test_in_what_is_measured() -> None:
    agent = make_agent(traits=[*OTHERS, TraitValue(**STOP)])

    claims = propositions_asked(agent, "adherence")

    (found,) = (claim for claim in claims if claim.id == "trait-slang")
    assert (found.inverted, found.over_window) == (True, False)
    assert sum(claim.source == "trait" for claim in claims) == 41
