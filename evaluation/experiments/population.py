"""The people of an experiment: quotas met exactly, names unique, personas by our templates, and by the actor's model where there is one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from django.db.models import Count, QuerySet

from agents.kit import llm
from agents.kit.llm.providers import is_heuristic
from agents.kit.text.fences import fault_of, fence, new_nonce, render_prompt, safe_and_cut
from agents.models import Agent
from agents.personas.persona import save_persona
from evaluation.experiments.scenario import Population, shared

MOST_CHARACTERS = 4_000  # of a persona
DEADLINE = 60.0  # seconds a persona may take to write
NOTE_MADE = "made for an experiment"  # of a version of a persona
NOTE_WRITTEN = "written for an experiment"


def people(population: Population, *, seed: int) -> list[dict[str, str]]:
    """Return the properties of each person, `name` among them; the same for the same seed.

    Each property's values are dealt out over shuffled people, so that quotas hold exactly and properties are independent.
    """
    generator = random.Random(seed)  # noqa: S311 (assignment, not secrecy)
    persons: list[dict[str, str]] = [{"name": name} for name in _draw_names(population.size, generator)]
    for quota in population.quotas:
        values: list[str] = []
        for value, count in shared(quota.values, population.size).items():
            values += [value] * count
        generator.shuffle(values)
        for person, value in zip(persons, values, strict=True):
            person[quota.property] = value
    return persons


def make_agents(population: Population, *, seed: int, prefix: str, model: str = "") -> list[Agent]:
    """Store a population with personas and sample lines from our templates; the same people for the same seed.

    The agents are synthetic, so that they stand in no list.

    Args:
        prefix: Of their slugs.
        model: Acts as them; empty = the configured one.
    """
    templates = _templates()
    agents = []
    for number, person in enumerate(people(population, seed=seed), 1):
        generator = random.Random(f"{seed}:{number}")  # noqa: S311 (assignment, not secrecy)
        properties = {name: value for name, value in person.items() if name != "name"}
        agent = Agent(
            slug=f"{prefix}-{number}",
            display_name=person["name"],
            system_prompt=render_prompt(
                "experiments/persona",
                name=person["name"],
                about=population.about,
                properties=properties,
                manner=generator.choice(templates["manners"]),
                habit=generator.choice(templates["habits"]),
                concern=generator.choice(templates["concerns"]),
            ),
            sample_lines=generator.sample(templates["lines"], 8),
            model_id=model,
            synthetic=True,
        )
        save_persona(agent=agent, traits=[], note=NOTE_MADE)
        agents.append(agent)
    return agents


def write_personas(agents: QuerySet[Agent], *, about: str, model: str) -> Iterator[str]:
    """Have the actor's model write the personas that are still our templates'; each is stored as it arrives.

    An offline model writes none, and yields nothing.

    Yields:
        For each, why the template's persona stays; empty where one was written and stored.
    """
    if is_heuristic(model):
        return
    # The first version is the template's; a second one was written before a crash.
    unwritten = list(agents.annotate(versions=Count("persona_versions")).filter(versions=1))
    requests = [_persona_request(agent, about, model) for agent in unwritten]
    for number, reply in llm.complete_many(requests, deadline=DEADLINE):
        agent = unwritten[number]
        text = str(reply.value).strip() if reply.ok else ""
        if text and not fault_of(text):
            agent.system_prompt = text[:MOST_CHARACTERS]
            save_persona(agent=agent, note=NOTE_WRITTEN)
            yield ""
        else:
            yield f"{agent.display_name}: {reply.error or 'nothing that can be used'}"


def _persona_request(agent: Agent, about: str, model: str) -> llm.LLMRequest:
    """Return the request for a persona: from who the people are, and what our template says of this person."""
    nonce = new_nonce()
    population = fence("POPULATION", safe_and_cut(about), nonce)
    person = fence("PERSON", safe_and_cut(agent.system_prompt), nonce)
    return llm.LLMRequest(
        role="actor",
        task="experiment_persona",
        model=model,
        system=(llm.Block(render_prompt("experiments/write_persona"), cache=True),),
        turns=(llm.Turn("user", (llm.Block(f"{population}\n\n{person}"),)),),
        schema={
            "type": "object",
            "properties": {"persona": {"type": "string"}},
            "required": ["persona"],
            "additionalProperties": False,
        },
        parse=_read_persona,
        max_tokens=1_500,
        nonce=nonce,
        label=llm.Label(purpose="experiment", mechanism="persona", agent_id=agent.pk),
    )


def _read_persona(data: Any) -> str:
    """Return the persona in a model's answer."""
    text = data.get("persona") if isinstance(data, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise llm.InvalidAnswer("persona: expected a text")
    return text


def _draw_names(size: int, generator: random.Random) -> list[str]:
    """Return so many different names of two words."""
    templates = _templates()
    every = [f"{first} {last}" for first in templates["first_names"] for last in templates["last_names"]]
    return generator.sample(every, size)


def _templates() -> dict[str, list[str]]:
    """Return names, manners, habits, concerns and lines, of which personas are made."""
    content: dict[str, list[str]] = yaml.safe_load(Path(__file__).with_name("people.yaml").read_text(encoding="utf-8"))
    return content
