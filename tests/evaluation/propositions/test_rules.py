"""Rules: exact checks of a text. Each is tried on both sides of its edge."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from evaluation.judge.verdicts import verdict_by_rule
from evaluation.models import RULE_JUDGE
from evaluation.propositions.rules import Rule, check_rule


def broken(text: str, **checks: Any) -> list[str]:
    return check_rule(Rule.model_validate(checks), text)


HOLDS_AND_BREAKS: list[tuple[dict[str, Any], str, str]] = [
    ({"max_sentences": 2}, "One. Two.", "One. Two. Three."),
    ({"max_sentences": 2}, "Dr. Smith has 3.5 tons, e.g. paper… or so. Fine.", "Dr. Smith left. I stayed. Why?"),
    ({"min_sentences": 2}, "One. Two.", "One only"),
    ({"min_sentences": 1}, "今天很好。", "🎉🎉"),
    ({"max_words": 3}, "don't do it", "one two three four"),
    ({"min_words": 2}, "two words", "one"),
    ({"max_characters": 4}, "four", "five!"),
    ({"matches": r"^dear\b"}, "Dear all", "My dear"),
    ({"not_matches": "!"}, "Quiet.", "Loud!"),
    ({"contains_any": ["farm", "beet"]}, "on the Farm", "farmhouse"),
    ({"contains_any": ["/far+m/"]}, "farrrm", "fam"),
    ({"contains_all": ["thank you", "please"]}, "Please and thank  you", "please"),
    ({"contains_none": ["happy to help"]}, "unhappy to helper", "I am HAPPY to\nhelp."),
    ({"lowercase": True}, "all small ß 1 !", "One capital"),
    ({"only": {"numbers": "open 9:00 to 17:30"}}, "We close at 5:30 pm.", "We close at 18:00."),
    ({"only": {"dates": "3 May 2026"}}, "It was May 3rd, 2026.", "It was May 4th, 2026."),
    ({"only": {"links": "https://example.com/a"}}, "See https://example.com/a.", "See https://example.com/b."),
    ({"only": {"code": ""}}, "Run it.", "Run `it`."),
    ({"only": {"words": "refunds take a week"}}, "A refund takes a week.", "A coupon appears in your inbox."),
    ({"only": {"language": "It is what it is."}}, "That is not for us.", "Das ist nicht für uns."),
    ({"only": {"form": ""}}, "All is well.", '{"text": "All is well."}'),
    ({"no_emoji": True}, "plain :) ©", "party 🎉"),
]


@pytest.mark.parametrize(("rule", "holds", "breaks"), HOLDS_AND_BREAKS, ids=lambda value: str(value)[:32])
def test_a_rule_holds_up_to_its_edge_and_breaks_behind_it(rule: dict[str, Any], holds: str, breaks: str) -> None:
    assert broken(holds, **rule) == []
    assert len(broken(breaks, **rule)) == 1


@pytest.mark.parametrize(
    ("rule", "text", "words"),
    [
        ({"max_sentences": 1}, "One. Two.", "2 sentences, at most 1 allowed"),
        ({"min_words": 3}, "one", "1 words, at least 3 required"),
        ({"contains_all": ["a", "x", "y"]}, "a", "missing: 'x', 'y'"),
        ({"contains_none": ["x", "y", "z"]}, "z x", "contains 'x', 'z'"),
        (
            {"only": {"numbers": "3 eggs", "links": ""}},
            "5 eggs: www.a.bc",
            "not allowed: '5' (numbers); 'www.a.bc' (links)",
        ),
    ],
)
def test_what_is_broken_is_said_with_the_finding(rule: dict[str, Any], text: str, words: str) -> None:
    assert broken(text, **rule) == [words]


def test_all_checks_of_a_rule_must_hold() -> None:
    rule = {"max_words": 2, "no_emoji": True, "lowercase": True}

    assert broken("just fine", **rule) == []
    assert len(broken("Not just fine 🎉", **rule)) == 3


def test_a_guard_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ValidationError, match=r"unknown guard 'prices'; allowed: form, links"):
        Rule.model_validate({"only": {"prices": "5 dollars"}})


def test_a_rule_gives_nine_or_nothing_flipped_when_inverted_ac_6_0_3a() -> None:
    rule = Rule(max_words=2)
    holds, breaks = (verdict_by_rule(rule, text, inverted=False) for text in ("one two", "one two three"))

    assert (holds.value, holds.raw_value, holds.status) == (9, 9, "scored")
    assert (breaks.value, breaks.raw_value) == (0, 0)
    assert breaks.reasoning.startswith("3 words")
    assert holds.judge == holds.served_model == RULE_JUDGE
    assert holds.call is None
    flipped = [verdict_by_rule(rule, text, inverted=True) for text in ("one two", "one two three")]
    assert [(one.value, one.raw_value) for one in flipped] == [(0, 9), (9, 0)]


@given(st.text(), st.integers(0, 6))
def test_at_most_and_at_least_meet_in_exactly_one_number(text: str, n: int) -> None:
    for what in ("sentences", "words"):
        at_most = not broken(text, **{f"max_{what}": n})
        at_least = not broken(text, **{f"min_{what}": n + 1})
        assert at_most != at_least


@given(st.text())
def test_no_text_makes_a_check_crash(text: str) -> None:
    for rule, _, _ in HOLDS_AND_BREAKS:
        assert len(broken(text, **rule)) <= 1


A = "-" * 30_000


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ({"not_matches": "!"}, "No!" + A, 0),
        ({"not_matches": "!"}, A + "!", None),
        ({"matches": "!"}, A + "!", None),
        ({"contains_any": ["/x/", "-"]}, A, 9),
        ({"contains_all": ["/x/", "y"]}, A, 0),
        ({"contains_none": ["/x/", "-"]}, A, 0),
        ({"contains_none": ["x"]}, A + " x", 0),
        ({"matches": "!", "max_characters": 100}, A, 0),
        ({"matches": "!", "max_characters": 99_999}, A, None),
        ({"not_matches": "(?:a|aa)+$"}, "a" * 19_000 + "!", None),
        ({"not_matches": "(?:a|aa)+$", "no_emoji": True}, "a" * 19_000 + "🎉", 0),
    ],
)
def test_an_undecided_pattern_leaves_the_rule_unscored_unless_it_is_broken(
    rule: dict[str, Any], text: str, value: int | None
) -> None:
    verdict = verdict_by_rule(Rule.model_validate(rule), text, inverted=False)
    turned = verdict_by_rule(Rule.model_validate(rule), text, inverted=True)

    assert verdict.value == value
    if value is None:
        assert (verdict.status, turned.status) == ("unscored", "unscored")
        assert any(part in verdict.reason for part in ("do not decide /", "pattern timed out: /"))
    else:
        assert turned.value == 9 - value
