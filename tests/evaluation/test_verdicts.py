"""What a judge's answer means: read strictly, arithmetic done by us, and no number where there is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.llm.requests import InvalidAnswer
from evaluation.judge.verdicts import Abstention, Answer, hard_score, parse_answers, trivial, unscored, verdict_of_entry
from evaluation.propositions.schema import Proposition


def claim(**fields: Any) -> Proposition:
    return Proposition(dimension="adherence", id="terse", claim="terse", **fields)


def entry(**changes: Any) -> dict[str, Any]:
    return {
        "evidence": "present",
        "reasoning": "two words",
        "justification": "says no",
        "value": 7,
        "confidence": 0.8,
        **changes,
    }


def read(data: Any, **fields: Any) -> Answer | Abstention:
    """The one entry of a grouped reply; its neighbour is valid, so that a bad entry raises nothing."""
    answers = parse_answers({"p1": data, "p2": entry()}, {"p1": claim(**fields), "p2": claim()})
    assert isinstance(answers["p2"], Answer), "a neighbour pays for nothing"
    return answers["p1"]


# -- only a whole number from 0 to 9 is a value
@pytest.mark.parametrize("value", [-1, 10, "7", 7.0, True, None, {"value": 7}])
def test_only_a_whole_number_from_0_to_9_is_a_value(value: Any) -> None:
    found = read(entry(value=value))

    assert isinstance(found, Abstention)
    assert found.invalid
    assert found.reason.startswith("value: ")
    with pytest.raises(InvalidAnswer, match="value: "):
        parse_answers(entry(value=value), {"p1": claim()})


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "no entry for this claim"),
        ("seven", "entry: "),
        ({}, "reasoning: Field required"),
        ({k: v for k, v in entry().items() if k != "value"}, "value: Field required"),
        (entry(evidence="maybe"), "evidence: "),
        (entry(reasoning=None), "reasoning: "),
    ],
)
def test_an_entry_that_is_not_whole_is_invalid_and_says_where(data: Any, words: str) -> None:
    found = read(data)

    assert isinstance(found, Abstention)
    assert found.invalid
    assert found.reason.startswith(words)


@pytest.mark.parametrize("confidence", [-0.1, 1.1, "high", True])
def test_a_useless_confidence_does_not_cost_the_score(confidence: Any) -> None:
    found = verdict_of_entry(read(entry(confidence=confidence)), claim())

    assert (found.status, found.value, found.confidence) == ("scored", 7, None)


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in entry().items() if name not in names}


@pytest.mark.parametrize(
    "data",
    [without("evidence"), without("confidence"), without("evidence", "confidence"), entry(evidence=None)],
    ids=["the four fields", "no confidence", "neither", "evidence null"],
)
def test_evidence_and_confidence_may_be_missing_and_are_not_invented_ac_6_0_6(data: dict[str, Any]) -> None:
    found = verdict_of_entry(read(data), claim())

    assert (found.status, found.value) == ("scored", 7)
    assert found.evidence == (data.get("evidence") or "")
    assert found.confidence == data.get("confidence")


def test_a_reply_without_any_valid_entry_is_no_answer_at_all() -> None:
    keyed = {"p1": claim(), "p2": claim()}

    with pytest.raises(InvalidAnswer, match=r"p1: no entry .*p2: value: "):
        parse_answers({"p2": entry(value=97)}, keyed)
    with pytest.raises(InvalidAnswer, match="p1: no entry"):
        parse_answers(entry(), keyed)
    with pytest.raises(InvalidAnswer, match="expected a JSON object, got list"):
        parse_answers([entry()], {"p1": claim()})


def test_an_answer_to_an_unasked_claim_is_ignored() -> None:
    answers = parse_answers(
        {"p1": entry(value=1), "p2": entry(value=2), "p3": entry(value=3)}, {"p1": claim(), "p2": claim()}
    )

    assert [a.value for a in answers.values() if isinstance(a, Answer)] == [1, 2]


# -- what follows from an answer
def test_an_inverted_claim_is_flipped_and_keeps_its_raw_number_ac_6_0_3a() -> None:
    found = verdict_of_entry(read(entry(value=2)), claim(inverted=True))

    assert (found.value, found.raw_value) == (7, 2)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("value", [0, 5, 9])
def test_absent_evidence_is_trivially_true_and_never_flipped(inverted: bool, value: int) -> None:
    found = verdict_of_entry(read(entry(evidence="absent", value=value)), claim(inverted=inverted))

    assert (found.status, found.value, found.raw_value, found.evidence) == ("trivial", 9, value, "absent")


@pytest.mark.parametrize(
    ("raw", "flaws", "value"),
    [
        (9, 1, 7),
        (9, 5, 0),
        (5, 1, 4),
        (0, 3, 0),
    ],
)
def test_hard_mode_takes_a_fifth_off_per_flaw_ac_6_0_16(raw: int, flaws: int, value: int) -> None:
    found = verdict_of_entry(read(entry(value=raw, flaws=["x"] * flaws), hard=True), claim(hard=True))

    assert (found.value, found.raw_value, len(found.flaws)) == (value, raw, flaws)


@given(st.integers(0, 9), st.integers(0, 12))
def test_hard_scores_are_the_exact_formula_rounded_down_ac_6_0_16(raw: int, flaws: int) -> None:
    value = hard_score(raw, flaws)

    assert 0 <= value <= raw
    assert value * 5 <= raw * max(0, 5 - flaws) < (value + 1) * 5
    assert hard_score(raw, flaws + 1) <= value


def test_flaws_count_only_in_hard_mode() -> None:
    found = verdict_of_entry(read(entry(value=9, flaws=["a", "b"])), claim())

    assert (found.value, found.flaws) == (9, ())


@pytest.mark.parametrize("flaws", [None, [1]])
def test_hard_mode_needs_its_list_of_flaws(flaws: Any) -> None:
    found = read(entry(flaws=flaws), hard=True)

    assert isinstance(found, Abstention)
    assert found.reason.startswith("flaws")


def test_an_honest_abstention_is_not_malformed() -> None:
    found = verdict_of_entry(read({"unscored": "needs an LLM judge"}), claim())

    assert (found.status, found.value, found.reason) == ("unscored", None, "needs an LLM judge")


def test_an_invalid_entry_is_unscored_with_the_reason() -> None:
    found = verdict_of_entry(read(entry(value=97)), claim())

    assert (found.status, found.value, found.raw_value) == ("unscored", None, None)
    assert found.reason.startswith("malformed: value: ")
    assert "97" in found.reason


def test_reasons_fit_their_column() -> None:
    assert len(unscored("x" * 1_000).reason) == len(trivial("x" * 1_000).reason) == 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["value", "evidence", "reasoning", "unscored", "p1", "x"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_no_json_at_all_becomes_a_number_out_of_range(data: Any) -> None:
    found = verdict_of_entry(read(data), claim())

    assert found.status == "unscored" or found.value in range(10)
    assert (found.value is None) == (found.status == "unscored")
