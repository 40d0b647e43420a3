"""The persona: one rendering for generator and judge, one history, and no edit of a person's lost."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.models import Agent, MemoryBlock, PersonaVersion, Trait
from agents.personas.persona import (
    BANDS,
    MANNER,
    Outcome,
    TraitValue,
    current_digest,
    cut_persona,
    persona_digest,
    record_version,
    render_persona,
    save_persona,
    strength_band,
    upsert_agent,
)
from agents.personas.shape import PersonaSpec
from tests.factories import make_agent

TRAITS = [
    TraitValue("small talk", "chats about the weather", strength=0.0),
    TraitValue("dry wit", "jokes without smiling", sentiment=0.5, strength=0.9),
    TraitValue("punctual", strength=1.0),
    TraitValue("generous", "lends pens", strength=0.5),
]
trait_values = st.builds(
    TraitValue,
    name=st.text(min_size=1, max_size=8),
    description=st.text(max_size=8),
    sentiment=st.floats(-1, 1),
    strength=st.floats(0, 1),
)
traits_lists = st.lists(trait_values, max_size=6, unique_by=lambda trait: trait.name.casefold())


# -- rendering
def test_traits_stand_under_their_strength_strongest_first_and_a_stop_is_shown() -> None:
    assert render_persona(system_prompt=" You are Ada. ", traits=TRAITS) == (
        "You are Ada.\n\n## Traits\n\nThey describe manner only; none of them overrides anything above.\n\n"
        "### Always\n- punctual\n- dry wit: jokes without smiling\n\n"
        "### Sometimes\n- generous: lends pens\n\n"
        "### Never (stop doing this)\n- small talk: chats about the weather"
    )


@pytest.mark.parametrize(
    ("strength", "band"),
    [
        (0.0, "Never (stop doing this)"),
        (0.25, "Rarely"),
        (0.26, "Sometimes"),
        (0.56, "Usually"),
        (0.85, "Usually"),
        (0.86, "Always"),
    ],
)
def test_bands_of_strength(strength: float, band: str) -> None:
    assert strength_band(strength) == band


@given(traits_lists, st.randoms())
def test_the_order_of_the_rows_changes_nothing(traits: list[TraitValue], chance: random.Random) -> None:
    shuffled = chance.sample(traits, len(traits))

    assert render_persona(system_prompt="x", traits=shuffled) == render_persona(system_prompt="x", traits=traits)
    assert persona_digest(system_prompt="x", traits=shuffled) == persona_digest(system_prompt="x", traits=traits)


@given(traits_lists)
def test_no_trait_is_dropped(traits: list[TraitValue]) -> None:
    text = render_persona(system_prompt="x", traits=traits)

    assert all(f"- {' '.join(trait.name.split())}" in text for trait in traits)
    assert sum(text.count(f"### {heading}\n") for _, heading in BANDS) >= len(
        {strength_band(t.strength) for t in traits}
    )


# -- digest and versions
@pytest.mark.parametrize(
    "other",
    [
        TraitValue("wit", "a", 0.1, 0.6),
        TraitValue("wit", "b", 0.1, 0.5),
        TraitValue("wit", "a", 0.2, 0.5),
        TraitValue("wits", "a", 0.1, 0.5),
    ],
)
def test_every_part_of_a_trait_is_in_the_digest(other: TraitValue) -> None:
    one = TraitValue("wit", "a", 0.1, 0.5)

    assert persona_digest(system_prompt="x", traits=[one]) != persona_digest(system_prompt="x", traits=[other])
    assert persona_digest(system_prompt="x", traits=[one]) != persona_digest(system_prompt="y", traits=[one])


@pytest.mark.django_db
def test_a_version_is_recorded_once_per_saved_change() -> None:
    ada = make_agent("ada", traits=TRAITS[:2])
    assert PersonaVersion.objects.count() == 1

    assert save_persona(agent=ada, traits=TRAITS[:2], note="again") is None
    ada.display_name = "Ada L."
    assert save_persona(agent=ada, note="renamed") is None
    changed = save_persona(agent=ada, traits=TRAITS, note="two more")

    assert changed is not None
    assert (changed.number, changed.note, changed.digest) == (2, "two more", current_digest(ada))
    assert [row["name"] for row in changed.traits] == [t.name for t in Trait.objects.filter(agent=ada)]
    assert record_version(agent=ada, note="nothing new") is None


@pytest.mark.django_db
def test_traits_that_stay_keep_their_rows_and_others_go() -> None:
    ada = make_agent("ada", traits=TRAITS)
    stored = ada.traits.get(name="dry wit").pk

    save_persona(agent=ada, traits=[TraitValue("Dry Wit", "drier", strength=0.0), TraitValue("new")], note="edit")

    assert dict(ada.traits.values_list("name", "pk"))["Dry Wit"] == stored
    assert set(ada.traits.values_list("name", flat=True)) == {"Dry Wit", "new"}
    assert ada.traits.get(pk=stored).strength == 0.0


# -- from a source
PERSONALITY = {"label": "personality", "value": "I am dry."}


def values(**changes: object) -> PersonaSpec:
    fields: dict[str, object] = {
        "slug": "ada",
        "display_name": "Ada",
        "system_prompt": "You are Ada.",
        "traits": [asdict(trait) for trait in TRAITS],
        "memory_blocks": [PERSONALITY],
        "sample_lines": ("No.",),
    }
    return PersonaSpec.model_validate({**fields, **changes})


def upsert(**changes: object) -> Outcome:
    return upsert_agent(values=values(**changes), note="source").outcome


@pytest.mark.django_db
def test_the_same_source_twice_changes_nothing() -> None:
    assert upsert() is Outcome.CREATED
    before = Agent.objects.get().updated_at

    assert upsert() is Outcome.UNCHANGED
    assert PersonaVersion.objects.count() == 1
    assert Agent.objects.get().system_prompt == "You are Ada."
    assert MemoryBlock.objects.count() == 1
    assert Agent.objects.get().updated_at >= before


@pytest.mark.django_db
def test_a_source_that_changed_updates_a_persona_nobody_edited() -> None:
    upsert()

    assert upsert(system_prompt="You are Ada, older.", title="Clerk") is Outcome.UPDATED

    ada = Agent.objects.get()
    assert (ada.system_prompt, ada.title) == ("You are Ada, older.", "Clerk")
    assert [v.number for v in ada.persona_versions.all()] == [2, 1]


@pytest.mark.django_db
@pytest.mark.parametrize("through_a_version", [True, False])
def test_an_edited_persona_is_kept_unless_it_is_reset(through_a_version: bool) -> None:
    upsert()
    ada = Agent.objects.get()
    ada.system_prompt = "You are somebody's own Ada."
    if through_a_version:
        save_persona(agent=ada, note="a person")
    else:
        ada.save()

    assert upsert() is Outcome.KEPT_EDITED
    assert Agent.objects.get().system_prompt == "You are somebody's own Ada."

    assert upsert_agent(values=values(), note="source", reset=True).outcome is Outcome.UPDATED
    assert Agent.objects.get().system_prompt == "You are Ada."
    assert upsert() is Outcome.UNCHANGED


@pytest.mark.django_db
def test_memory_blocks_are_the_agents_own_once_they_are_there() -> None:
    upsert()
    MemoryBlock.objects.update(value="I have changed.")

    assert upsert(memory_blocks=[PERSONALITY, {"label": "focus", "value": "pens"}]) is Outcome.UPDATED

    assert dict(MemoryBlock.objects.values_list("label", "value")) == {
        "personality": "I have changed.",
        "focus": "pens",
    }


STOP = TraitValue("slang", "Talks like a pirate.", 0.0, 0.0)


def test_forty_traits_and_a_stop_survive_a_long_prompt() -> None:
    traits = [TraitValue(f"trait {n}", "Does it. " * 20, 0.0, 0.3 + n / 100) for n in range(40)]
    persona = render_persona(system_prompt="Prose. " * 20_000, traits=[*traits, STOP])

    cut = cut_persona(persona, 60_000)

    assert len(cut) < 60_100
    assert "characters cut]" in cut
    assert cut.endswith("### Never (stop doing this)\n- slang: Talks like a pirate.")
    assert all(f"- trait {n}: " in cut for n in range(40))


def test_long_traits_are_shortened_and_none_is_left_out() -> None:
    traits = [TraitValue(f"trait {n}", "x" * 10_000, 0.0, 0.9) for n in range(40)]

    cut = cut_persona(render_persona(system_prompt="You are Ada.", traits=[*traits, STOP]), 60_000)

    assert len(cut) < 60_000
    assert all(f"- trait {n}: " in cut for n in range(40))
    assert cut.endswith("- slang: Talks like a pirate.")
    assert cut.startswith("You are Ada.")


@pytest.mark.parametrize("text", ["short", "x" * 200])
def test_without_traits_the_end_is_cut(text: str) -> None:
    assert cut_persona(text, 100) == (text if len(text) <= 100 else f"{'x' * 100} [… 100 characters cut]")


def test_a_trait_is_one_line_and_adds_no_heading() -> None:
    text = render_persona(system_prompt="x", traits=[TraitValue("a", "b\n\n### Always\n- loud", 0.0, 0.0)])

    assert text == f"x\n\n## Traits\n\n{MANNER}\n\n### Never (stop doing this)\n- a: b ### Always - loud"
