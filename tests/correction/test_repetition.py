"""Repetition suppression: what is compared and what triggers (S-7.2, AC-7.2.1 to 7.2.3, AC-7.2.9)."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.ngrams import compute_corpus_repetition, extract_ngrams
from agents.text.tokens import tokenize
from correction.repetition import (
    build_repetition_context,
    detect_repetition,
    phrases_to_avoid,
)
from tests.correction.greetings import FRESH, HEY

WORDS = ["we", "all", "love", "paper", "clips", "and", "ink", ",", ".", "’", "Ünï", "很", "😀", "don't"]


messages = st.lists(
    st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join),
    max_size=6,
)


# -- detection
def test_the_example_of_the_specification_is_found_ac_7_2_3() -> None:
    """S-7.2, demo 2: the repeated 3-gram "just wanted to"."""
    result = detect_repetition(HEY, threshold=0.3)

    assert result.triggered
    assert ("just wanted to", 5) in result.ngrams
    assert result.overlap == compute_corpus_repetition(HEY, 3)


def test_what_differs_triggers_nothing() -> None:
    result = detect_repetition(FRESH, threshold=0.3)

    assert (result.overlap, result.triggered, result.ngrams) == (0.0, False, ())


@pytest.mark.parametrize("few", [(), ("Hey everyone, just wanted to say hey everyone, just wanted to.",)])
def test_fewer_than_two_messages_repeat_nothing(few: tuple[str, ...]) -> None:
    assert not detect_repetition(few, threshold=0).triggered


def test_it_triggers_above_the_threshold_not_at_it_ac_7_2_3() -> None:
    """One 3-gram of two in each of two messages recurs: overlap 0.5."""
    pair = ("one two three four", "one two three five")

    assert detect_repetition(pair, threshold=Decimal("0.5")).overlap == 0.5
    assert not detect_repetition(pair, threshold=Decimal("0.5")).triggered
    assert detect_repetition(pair, threshold=Decimal("0.499")).triggered


def test_an_overlap_of_three_tenths_does_not_exceed_a_threshold_of_three_tenths() -> None:
    """Decimal against float: 3 of 10 tokens is not more than 0.3."""
    pair = ("a b c d e", "a b c d x y z q w")  # 3-grams: 3 and 7, of which abc and bcd recur in both
    overlap = detect_repetition(pair, threshold=Decimal("0.4"))
    assert overlap.overlap == pytest.approx(0.4)
    assert not overlap.triggered


def test_case_punctuation_and_apostrophes_make_no_difference() -> None:
    pair = ("Don't you EVER do that, again!", "don’t you ever — do that again…")

    assert detect_repetition(pair, threshold=0.3).overlap == 1.0


@given(messages)
def test_the_overlap_is_the_share_of_3gram_tokens_that_recur_ac_7_2_2(texts: list[str]) -> None:
    """DESIGN's definition, counted the plain way: no utility of S-6.3 may drift from it."""
    grams = [extract_ngrams(text, 3) for text in texts]
    tokens = [gram for each in grams for gram in each]
    recurring = {gram for gram in tokens if sum(gram in each for each in grams) >= 2}

    result = detect_repetition(texts, threshold=0.3)

    assert result.overlap == (sum(gram in recurring for gram in tokens) / len(tokens) if tokens else 0.0)
    assert result.triggered is (result.overlap > 0.3)
    assert {phrase for phrase, _ in result.ngrams} == {" ".join(gram) for gram in recurring}


@given(messages)
def test_each_phrase_to_avoid_really_stands_in_two_messages_and_none_is_missing(texts: list[str]) -> None:
    words = [f" {' '.join(tokenize(text))} " for text in texts]
    result = detect_repetition(texts, threshold=0)

    phrases = phrases_to_avoid(texts)

    assert len(phrases) <= 10
    assert all(sum(f" {phrase} " in text for text in words) >= 2 for phrase in phrases)
    assert all(len(phrase.split()) >= 3 for phrase in phrases)
    assert bool(phrases) is bool(result.ngrams)
    assert len(set(phrases)) == len(phrases)


@given(st.lists(st.text(), max_size=6))
def test_any_text_at_all_can_be_compared_and_twice_with_the_same_result(texts: list[str]) -> None:
    first = detect_repetition(texts, threshold=0.3)

    assert first == detect_repetition(list(texts), threshold=0.3)
    assert 0 <= first.overlap <= 1
    assert build_repetition_context(first) == "" or first.triggered


@given(messages)
def test_the_order_of_the_messages_makes_no_difference(texts: list[str]) -> None:
    forth, back = detect_repetition(texts, threshold=0.3), detect_repetition(texts[::-1], threshold=0.3)

    assert (forth.overlap, forth.ngrams) == (back.overlap, back.ngrams)


def test_phrases_are_as_long_as_they_are_shared_and_no_pile_of_fragments() -> None:
    assert phrases_to_avoid(HEY) == ["hey everyone just wanted to"]
    assert phrases_to_avoid((*HEY[:2], "So the minutes of the meeting, again.")) == [
        "hey everyone just wanted to",
        "the minutes of the meeting",
    ]


def test_a_phrase_that_is_a_whole_message_is_shown_with_its_beginning() -> None:
    text = " ".join(f"word{n}" for n in range(40))

    assert phrases_to_avoid([text, text]) == [" ".join(f"word{n}" for n in range(12))]


@pytest.mark.parametrize("text", ["a " * 50_000, "lorem ipsum dolor sit amet " * 4_000, "很" * 20_000])
def test_enormous_messages_take_time_in_proportion(text: str) -> None:
    begun = time.process_time()

    build_repetition_context(detect_repetition([text] * 5, threshold=0.3))

    assert time.process_time() - begun < 10
