"""A persona that is too long for a prompt loses prose, never a trait: least of all one that says what to stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.persona import MANNER, TraitValue, persona_digest, render_persona, strength_band
from agents.persona_cut import cut_persona

STOP = TraitValue("slang", "Talks like a pirate.", 0.0, 0.0)


def test_forty_traits_and_a_stop_survive_a_long_prompt() -> None:
    traits = [TraitValue(f"trait {n}", "Does it. " * 20, 0.0, 0.3 + n / 100) for n in range(40)]
    persona = render_persona(system_prompt="Prose. " * 20_000, traits=[*traits, STOP])

    cut = cut_persona(persona, 60_000)

    assert len(cut) < 60_100
    assert "characters cut]" in cut
    assert cut.endswith("### Never (stop doing this)\n- slang: Talks like a pirate.")
    assert all(f"- trait {n}: " in cut for n in range(40))


def test_traits_that_are_too_long_themselves_are_shortened_and_none_is_left_out() -> None:
    traits = [TraitValue(f"trait {n}", "x" * 10_000, 0.0, 0.9) for n in range(40)]

    cut = cut_persona(render_persona(system_prompt="You are Ada.", traits=[*traits, STOP]), 60_000)

    assert len(cut) < 60_000
    assert all(f"- trait {n}: " in cut for n in range(40))
    assert cut.endswith("- slang: Talks like a pirate.")
    assert cut.startswith("You are Ada.")


@pytest.mark.parametrize("text", ["short", "x" * 200])
def test_without_traits_the_end_is_cut(text: str) -> None:
    assert cut_persona(text, 100) == (text if len(text) <= 100 else f"{'x' * 100} [… 100 characters cut]")


@given(st.floats(0, 1))
def test_strength_0_alone_is_a_stop(strength: float) -> None:
    assert (strength_band(strength) == "Never (stop doing this)") is (strength == 0)


def test_a_sum_of_steps_stands_in_the_band_it_adds_up_to() -> None:
    assert strength_band(0.1 * 8.5) == strength_band(0.85) == "Usually"
    assert strength_band(0.55 + 1e-12) == "Sometimes"


def test_a_trait_is_one_line_and_adds_no_heading() -> None:
    text = render_persona(system_prompt="x", traits=[TraitValue("a", "b\n\n### Always\n- loud", 0.0, 0.0)])

    assert text == f"x\n\n## Traits\n\n{MANNER}\n\n### Never (stop doing this)\n- a: b ### Always - loud"


def test_a_stop_is_another_persona_than_a_trait_that_is_gone() -> None:
    assert persona_digest(system_prompt="x", traits=[STOP]) != persona_digest(system_prompt="x", traits=[])
