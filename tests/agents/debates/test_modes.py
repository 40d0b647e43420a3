"""The modes: who speaks after whom, in which role and perspective, which answers break the rules, and a mode of one's own."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agents.debates.models import DebateSeat
from agents.debates.modes import LAYERS, MODES, PERSPECTIVES, Context, Mode, mode_of, register
from agents.debates.starting import start_debate
from agents.models import Message
from tests.agents.debates.seating import TOPIC, clerks
from tests.agents.debates.seats import played


def seats(mode: str, number: int) -> list[DebateSeat]:
    rules = mode_of(mode)
    return [DebateSeat(number=n, role=rules.get_agent_role(n, number)) for n in range(1, number + 1)]


# -- order and roles
@pytest.mark.parametrize(
    ("mode", "number", "groups"),
    [
        ("collaborative", 3, [[1, 2, 3]]),
        ("expert-panel", 2, [[1, 2]]),
        ("delphi", 4, [[1, 2, 3, 4]]),
        ("adversarial", 3, [[1], [2], [3]]),
        ("socratic", 2, [[1], [2]]),
        ("devils-advocate", 4, [[1], [2], [3], [4]]),
        ("red-team-blue-team", 5, [[1, 3, 5], [2, 4]]),
        ("red-team-blue-team", 2, [[1], [2]]),
    ],
)
def test_who_speaks_side_by_side_and_who_after_whom(mode: str, number: int, groups: list[list[int]]) -> None:
    assert [[seat.number for seat in group] for group in mode_of(mode).groups(seats(mode, number))] == groups


@pytest.mark.parametrize(
    ("mode", "number", "roles"),
    [
        ("devils-advocate", 2, ["primary", "opposition"]),
        ("devils-advocate", 5, ["primary", "opposition", "evaluator", "evaluator", "evaluator"]),
        ("red-team-blue-team", 5, ["red", "blue", "red", "blue", "red"]),
        *((mode, 2, ["", ""]) for mode in ("collaborative", "adversarial", "socratic", "expert-panel", "delphi")),
    ],
)
def test_which_roles_the_seats_have(mode: str, number: int, roles: list[str]) -> None:
    assert [seat.role for seat in seats(mode, number)] == roles
    assert set(roles) - {""} <= set(mode_of(mode).roles)


def test_the_seven_modes_exist_and_others_are_refused_by_name() -> None:
    assert list(MODES) == [
        *("collaborative", "adversarial", "socratic", "expert-panel"),
        *("devils-advocate", "delphi", "red-team-blue-team"),
    ]
    with pytest.raises(ValueError, match=r"'oxford' is unknown; allowed: collaborative, .*red-team-blue-team"):
        mode_of("oxford")
    with pytest.raises(ValueError, match="'delphi' is registered already"):
        register(type("Other", (Mode,), {"name": "delphi", "title": "Other"}))


# -- perspectives
@pytest.mark.parametrize(
    ("config", "number", "expected"),
    [
        ({}, 2, ["technical", "economic"]),
        ({}, 5, ["technical", "economic", "ethical", "social", "technical"]),
        ({"perspectives": ["legal", "social"]}, 3, ["legal", "social", "legal"]),
        ({"perspectives": ["ethical", "legal"], "assignment": "explicit"}, 2, ["ethical", "legal"]),
    ],
)
def test_perspectives_go_round_or_are_given(config: dict[str, Any], number: int, expected: list[str]) -> None:
    assert mode_of("expert-panel").perspectives(number, config) == expected


def test_random_perspectives_follow_from_the_seed_and_all_are_used_alike() -> None:
    drawn = {
        seed: mode_of("expert-panel").perspectives(8, {"assignment": "random", "seed": seed}) for seed in range(20)
    }

    assert drawn[3] == mode_of("expert-panel").perspectives(8, {"assignment": "random", "seed": 3})
    assert all(Counter(each) == dict.fromkeys(PERSPECTIVES, 2) for each in drawn.values())
    assert len({tuple(each) for each in drawn.values()}) > 5


# -- answers
FINE = {"position": "P.", "reasoning": "R.", "confidence": 0.5, "stance": "yes"}


@pytest.mark.parametrize(
    ("mode", "seat", "round", "given", "changed", "violation"),
    [
        ("devils-advocate", 1, 1, {}, {}, ""),
        ("devils-advocate", 1, 1, {"stance": "no"}, {}, "the stance of the primary is yes, and the answer says no"),
        ("devils-advocate", 2, 1, {}, {}, "the stance of the opposition is no, and the answer says yes"),
        ("devils-advocate", 2, 1, {"stance": "neutral"}, {}, "the stance of the opposition is no, and the answer says neutral"),
        ("devils-advocate", 2, 0, {}, {}, ""),  # the poll
        ("devils-advocate", 3, 1, {"stance": "neutral"}, {}, ""),
        ("collaborative", 1, 1, {"stance": None}, {}, ""),
        ("delphi", 1, 1, {"confidence": 1.2}, {"confidence": 1.0, "confidence_raw": 1.2}, ""),
        ("delphi", 1, 1, {"confidence": -0.1}, {"confidence": 0.0, "confidence_raw": -0.1}, ""),
        ("delphi", 1, 1, {"confidence": float("nan")}, {}, "required fields are missing: confidence"),
        ("delphi", 1, 1, {"confidence": None, "position": " "}, {}, "required fields are missing: position, confidence"),
        ("delphi", 1, 1, {"stance": None}, {}, "required fields are missing: stance"),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_named_and_stays_as_it_was_said(
    mode: str, seat: int, round: int, given: dict[str, Any], changed: dict[str, Any], violation: str
) -> None:
    place, fields = seats(mode, 3)[seat - 1], {**FINE, **given}
    context = Context(mode=mode, topic=TOPIC, round=round, seats=())

    stored, broken = mode_of(mode).validate_response(dict(fields), place, context)

    assert (repr(stored), broken) == (repr({**fields, **changed}), violation)


# -- a mode of one's own
@pytest.fixture
def example() -> Iterator[str]:
    name = "tests.agents.debates.example_mode"
    sys.modules.pop(name, None)
    importlib.import_module(name)
    yield "jury"
    del MODES["jury"]


@pytest.mark.django_db
def test_a_mode_of_ones_own_is_one_class_with_its_rules(example: str) -> None:
    script = {1: [{"position": "word " * 13}], 2: [{"position": "Guilty."}]}
    debate = played(start_debate(topic=TOPIC, mode=example, agents=clerks(2), rounds=1, poll=False, script=script))

    assert list(debate.seats.values_list("role", flat=True)) == ["foreman", "juror"]
    assert all(MODES[example].prompt(layer, role="juror") for layer in LAYERS)
    violations = (
        Message.objects.filter(channel=debate.channel).order_by("position").values_list("payload__violation", flat=True)
    )
    assert list(violations) == ["a verdict has at most 12 words, and this one has 13", None]
