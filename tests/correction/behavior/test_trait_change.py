"""What the mapping's answer does to the traits: strengths, names, what replaces what, and what changes nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.personas.persona import TraitValue
from correction.behavior.signs import name_key
from correction.behavior.trait_change import LONGEST_NAME, Change, change_to, find_trait, read_map, strength_of

DRY = TraitValue("dry wit", "Jokes with a straight face.", 0.4, 0.7)
SLANG = TraitValue("local slang", "Says arvo and reckon.", 0.8, 0.6)
TRAITS = (DRY, SLANG)

texts = st.text(max_size=30)
strengths = st.floats(0, 1)
traits = st.builds(
    TraitValue,
    st.text(min_size=1, max_size=30).filter(name_key),
    texts,
    st.floats(-1, 1),
    st.one_of(st.just(0.0), strengths),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
FIELDS = (
    "name", "description", "sentiment", "strength", "is_new", "replaces_trait", "contradicts_persona", "contradiction",
)  # fmt: skip


def answer(**fields: Any) -> dict[str, Any]:
    known = {"name": "brevity", "description": "Says it in few words.", "sentiment": 0.2, "strength": 0.5}
    return {
        **known,
        "is_new": True,
        "replaces_trait": None,
        "contradicts_persona": False,
        "contradiction": "",
        **fields,
    }


def test_without_a_strength_the_usual_or_known_one_holds() -> None:
    assert read_map(answer(strength=None), traits=TRAITS).after == TraitValue(
        "brevity", "Says it in few words.", 0.2, 0.5
    )
    stored = read_map(
        answer(name="Dry Wit", description="Dryer still.", strength=None, sentiment=None), traits=TRAITS
    ).after
    assert stored == TraitValue("dry wit", "Dryer still.", 0.4, 0.7)


def test_a_stop_keeps_the_trait_as_it_is_known_at_strength_0() -> None:
    change = read_map(
        answer(name="no slang", description="Avoids slang.", strength=0, replaces_trait="LOCAL SLANG"), traits=TRAITS
    )

    assert change.operation == "stop"
    assert change.after == TraitValue("local slang", "Says arvo and reckon.", 0.8, 0.0)


def test_a_new_trait_of_a_name_that_exists_is_an_update() -> None:
    change = read_map(answer(name="DRY  wit", strength=0.9), traits=TRAITS)

    assert (change.operation, change.before) == ("update", DRY)
    assert change.after == TraitValue("dry wit", "Says it in few words.", 0.2, 0.9)
    assert change.warnings == ("'dry wit' is not new: it is updated",)


def test_replacing_a_missing_trait_adds_one_with_a_warning() -> None:
    change = read_map(answer(replaces_trait="verbosity", is_new=False), traits=TRAITS)

    assert change.operation == "add"
    assert change.warnings == ("there is no trait 'verbosity' to replace: 'brevity' is added as a new one",)
    assert change.touches == ("brevity", "verbosity")


def test_a_trait_never_gets_the_name_of_another_one() -> None:
    change = read_map(answer(name="Local slang", replaces_trait="dry wit"), traits=TRAITS)

    assert change.before == SLANG
    assert change.after is not None
    assert change.after.name == "local slang"
    assert "cannot be renamed" in change.warnings[0]


@pytest.mark.parametrize(
    ("field", "given", "taken"), [("strength", 1.4, 1.0), ("strength", -0.2, 0.0), ("sentiment", -7, -1.0)]
)
def test_numbers_out_of_range_are_clamped_and_said(field: str, given: float, taken: float) -> None:
    change = read_map(answer(**{field: given}), traits=())

    assert change.after is not None
    assert getattr(change.after, field) == taken
    assert change.warnings[0].startswith(f"{field} ")


@pytest.mark.parametrize(
    "wrong",
    [
        None, [], {"strength": 0.5}, answer(name=" \u200b"), answer(name=None), answer(name="n" * (LONGEST_NAME + 1)),
        answer(strength="a lot"), answer(strength=math.inf), answer(strength=True), answer(description="d" * 4001),
    ],
)  # fmt: skip
def test_an_invalid_answer_changes_nothing(wrong: object) -> None:
    change = read_map(wrong, traits=TRAITS)

    assert (change.operation, change.after) == ("none", None)
    assert change.why.startswith("the answer cannot be used: ")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Straße", "STRASSE"), ("İronik", "ironik"), ("İronik", "I\u0307RONIK"), ("ΣΟΦΟΣ", "σοφος"),
        ("caf\u00e9", "CAFE\u0301"), ("ﬁne words", "FINE  WORDS"),
    ],
)  # fmt: skip
def test_names_are_compared_case_folded(one: str, other: str) -> None:
    assert name_key(one) == name_key(other)
    change = read_map(answer(name=other, strength=0.9), traits=(TraitValue(one),))
    assert change.operation == "update"
    assert change.after is not None
    assert change.after.name == one


def test_of_two_names_that_fold_alike_the_exact_one_is_meant() -> None:
    both = (TraitValue("Straße", strength=0.2), TraitValue("STRASSE", strength=0.8))

    assert find_trait("STRASSE", both) is both[1]
    assert find_trait("strasse", both) is both[0]


def test_control_characters_and_turned_directions_do_not_get_into_a_persona() -> None:
    change = read_map(answer(name="bre\x00vity\u202e", description="few\x1b words\nat most"), traits=())

    assert change.after is not None
    assert (change.after.name, change.after.description) == ("bre vity", "few  words\nat most")


@pytest.mark.parametrize(
    ("amount", "current", "strength"),
    [
        ("stop", 0.7, 0.0), ("unspecified", None, 0.5), ("sometimes", None, 0.3), ("always", None, 0.9), ("more", 0.95, 1.0),
        ("more", None, 0.7), ("more", 0.0, 0.2), ("less", 0.15, 0.1), ("less", 0.05, 0.05), ("less", 0.0, 0.0), ("less", None, 0.3),
    ],
)  # fmt: skip
def test_words_for_how_often_have_a_strength(amount: Any, current: float | None, strength: float) -> None:
    assert strength_of(amount, current) == pytest.approx(strength, abs=1e-9)


@given(st.sampled_from(["more", "less"]), strengths)
def test_more_and_less_go_their_way_and_never_stop(amount: Any, current: float) -> None:
    result = strength_of(amount, current)

    assert 0 <= result <= 1
    assert result >= current - 1e-3 if amount == "more" else result <= current + 1e-3
    assert (result == 0) == (amount == "less" and current == 0)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, anything)) | anything, st.lists(traits, max_size=4))
def test_whatever_the_answer_the_trait_can_be_stored(given_answer: object, known: list[TraitValue]) -> None:
    change = read_map(given_answer, traits=known)

    assert (change.after is None) == (change.operation == "none")
    assert bool(change.why) == (change.after is None)
    if change.after is not None:
        assert 1 <= len(change.after.name) <= LONGEST_NAME
        assert 0 <= change.after.strength <= 1
        assert -1 <= change.after.sentiment <= 1
        assert (change.after.strength == 0) == (change.operation == "stop")
        assert change.before is None or change.before in known
        others = [t for t in known if t != change.before]
        assert change.before is not None or not any(name_key(t.name) == name_key(change.after.name) for t in others)


def edited(trait: TraitValue, replaces: str = "") -> Change:
    return change_to(trait, replaces=replaces, traits=TRAITS)


@pytest.mark.parametrize(
    "wrong", [TraitValue(" "), TraitValue("n" * 121), TraitValue("x", strength=1.2), TraitValue("x", sentiment=-2)]
)
def test_a_person_is_told_what_is_allowed(wrong: TraitValue) -> None:
    with pytest.raises(ValueError, match=r"1 to 120|is not from"):
        edited(wrong)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("long answers", "short, concise answers"), ("concise replies", "verbose answers"), ("formality", "casual style"),
        ("jokes", "serious tone"), ("answering in American English", "answering in German"),
        ("calling the user boss", "calling the user Doctor Blum"),
    ],
)  # fmt: skip
def test_a_newer_request_replaces_the_trait_that_is_its_opposite(older: str, newer: str) -> None:
    old = TraitValue(older, "As it was.", 0.3, 0.7)

    change = read_map(answer(name=newer, description="As it is to be.", strength=0.7), traits=[old, DRY])

    assert (change.operation, change.before) == ("update", old)
    assert change.after == TraitValue(newer, "As it is to be.", 0.2, 0.7)
    assert older in change.touches


@pytest.mark.parametrize(
    ("known", "known_strength", "name", "strength"),
    [
        ("short temper", 0.7, "long answers", 0.7),
        ("dry humour", 0.7, "seriousness", 0.7),
        ("no jokes", 0.7, "seriousness", 0.7),
        ("formal tone", 0.7, "casual tone", 0.2),
        ("casual tone", 0.0, "formal tone", 0.7),
        ("answering in French", 0.7, "calling the user Ann", 0.7),
        ("answering in German", 0.7, "answering in rhyme", 0.7),
        ("answering in detail", 0.7, "answering in German", 0.7),
        ("calling the user Bob", 0.7, "calling the user out on mistakes", 0.7),
    ],
)
def test_what_is_not_the_opposite_stays_beside_it(
    known: str, known_strength: float, name: str, strength: float
) -> None:
    change = read_map(answer(name=name, strength=strength), traits=[TraitValue(known, "", 0, known_strength)])

    assert (change.operation, change.before) == ("add", None)
