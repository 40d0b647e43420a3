"""How a tier's answer is read: lenient where nothing can go wrong by it, careful where something can."""

from __future__ import annotations

from typing import Any

import pytest

from agents.llm import InvalidAnswer
from correction.behavior.tiers import EXAMPLES, READERS, SCHEMAS, read_extract, read_gate, read_map_answer
from tests.correction.behavior.asking import CONCISE, SHORTER, YES


@pytest.mark.parametrize("tier", READERS)
def test_the_worked_example_is_an_answer_we_would_take(tier: str) -> None:
    assert READERS[tier](EXAMPLES[tier]) == EXAMPLES[tier]
    assert set(EXAMPLES[tier]) == set(SCHEMAS[tier]["properties"])


@pytest.mark.parametrize(("said", "meant"), [("high", "high"), (" Medium ", "medium"), ("LOW", "low")])
def test_a_level_is_read_whatever_its_case(said: str, meant: str) -> None:
    assert read_gate({**YES, "confidence": said}) == {**YES, "confidence": meant}


@pytest.mark.parametrize("said", ["certain", 0.99, None, "", ["high"], True, "very high"])
def test_a_level_that_is_none_counts_as_the_lowest_and_is_told(said: Any) -> None:
    found = read_gate({**YES, "confidence": said})

    assert found["confidence"] == "low"
    assert found["warning"] == f"confidence {said!r} is none of high, medium, low; taken as low"


@pytest.mark.parametrize("said", ["true", "false", 1, 0, None, [], {}])
def test_only_true_and_false_decide_whether_there_is_a_request(said: Any) -> None:
    with pytest.raises(InvalidAnswer, match="has_request: expected true or false"):
        read_gate({**YES, "has_request": said})


def test_no_behaviour_found_after_all_is_an_answer() -> None:
    assert read_extract({**SHORTER, "behavior_name": "  "})["behavior_name"] == ""
    assert read_extract({}) == {"behavior_name": "", "current_state": "", "requested_change": ""}


@pytest.mark.parametrize("bad", [{"behavior_name": 7}, {"name": "x"}, {"behavior_name": ["a"]}])
def test_a_behaviour_has_a_name(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidAnswer, match="behavior_name"):
        read_extract(bad)


@pytest.mark.parametrize("empty", [{}, {"name": ""}, {"name": "  ", "strength": 1.0}])
def test_an_empty_trait_means_no_change(empty: dict[str, Any]) -> None:
    assert read_map_answer(empty) == {}


@pytest.mark.parametrize("strength", [0, 0.0, "0", "0.0"])
def test_a_zero_stays_a_zero(strength: Any) -> None:
    assert read_map_answer({**CONCISE, "strength": strength})["strength"] == 0.0


def test_a_strength_that_is_not_given_is_not_made_up() -> None:
    found = read_map_answer({key: value for key, value in CONCISE.items() if key != "strength"})

    assert "strength" not in found


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("strength", "a lot"), ("strength", True), ("strength", float("nan")), ("strength", float("inf")),
        ("strength", [0.5]), ("strength", 10**400), ("sentiment", "glad"), ("name", 7), ("name", ["a"]), ("replaces_trait", 3),
    ],
)  # fmt: skip
def test_a_field_of_another_type_is_no_answer(field: str, bad: Any) -> None:
    with pytest.raises(InvalidAnswer, match=field):
        read_map_answer({**CONCISE, field: bad})


@pytest.mark.parametrize("left_open", [None, "no", 0])
def test_a_change_of_which_it_is_left_open_whether_it_fits_counts_as_not_fitting(left_open: Any) -> None:
    found = read_map_answer({**CONCISE, "contradicts_persona": left_open})

    assert found["contradicts_persona"] is True
    assert found["contradiction"] == "the answer leaves open whether it fits the persona"


@pytest.mark.parametrize("read", READERS.values())
@pytest.mark.parametrize("data", [[], "{}", None, 3])
def test_what_is_no_object_is_no_answer(read: Any, data: Any) -> None:
    with pytest.raises(InvalidAnswer, match="expected a JSON object"):
        read(data)


def test_texts_are_kept_on_one_line_and_not_without_end() -> None:
    found = read_map_answer({**CONCISE, "description": "a\n\n## Traits\n- b" + "x" * 5_000})

    assert "\n" not in found["description"]
    assert len(found["description"]) == 2_000
    assert found["description"].endswith("…")
