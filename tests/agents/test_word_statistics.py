"""Figures of how people write (AC-6.4.2, AC-6.4.3, AC-6.4.9): vocabulary, style, and whether voices can be told apart."""

from __future__ import annotations

import random
from collections import Counter
from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.style import FARTHEST, FEATURES, style_deviations, style_distance, style_of, style_profile
from agents.text.voices import voice_distinctness
from agents.text.word_statistics import (
    pairwise_similarity,
    punctuation_density,
    vocabulary_similarity,
    vocabulary_statistics,
    word_counts,
)

counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), max_size=6)


# -- vocabulary (AC-6.4.2)
def test_figures_of_one_speaker_ac_6_4_2_ac_6_4_9() -> None:
    found = vocabulary_statistics(["The cat, the cat!", "A dog sat. It sat."])

    assert (found.messages, found.words) == (2, 9)
    assert found.unique_word_ratio == pytest.approx(6 / 9, abs=1e-4)  # the, cat, a, dog, sat, it
    assert found.average_sentence_length == 3.0
    assert found.punctuation_density == pytest.approx(4 / 28, abs=1e-4)


@pytest.mark.parametrize("messages", [[], [""], ["   "], ["?!"]])
def test_without_a_word_there_is_nothing_to_average(messages: list[str]) -> None:
    found = vocabulary_statistics(messages)

    assert (found.words, found.unique_word_ratio, found.average_sentence_length) == (0, 0.0, 0.0)


@pytest.mark.parametrize("text", ["猫。犬！", "قطة، كلب؟", "cat, dog?"])
def test_punctuation_counts_in_every_script(text: str) -> None:
    assert 0 < punctuation_density([text]) < 1


# -- how alike two are (AC-6.4.3)
def test_equal_shares_are_wholly_alike_and_nothing_shared_not_at_all_ac_6_4_3() -> None:
    a, twice, other = Counter(x=1, y=2), Counter(x=2, y=4), Counter(z=3)

    assert vocabulary_similarity(a, twice) == pytest.approx(1.0)
    assert vocabulary_similarity(a, other) == 0.0
    assert vocabulary_similarity(a, Counter()) == 0.0
    assert vocabulary_similarity(Counter(x=1, y=1), Counter(x=1)) == pytest.approx(sqrt(0.5))


@given(counts, counts)
def test_similarity_is_a_share_and_the_same_both_ways(a: dict[str, int], b: dict[str, int]) -> None:
    found = vocabulary_similarity(a, b)

    assert 0.0 <= found <= 1.0
    assert found == vocabulary_similarity(b, a)
    by_hand = sum(sqrt(a[w] / sum(a.values()) * b[w] / sum(b.values())) for w in set(a) & set(b))
    assert isclose(found, min(1.0, by_hand), abs_tol=1e-9)


def test_each_pair_stands_once_most_alike_first() -> None:
    found = pairwise_similarity({"cyd": ["red blue"], "ada": ["red blue"], "bea": ["green"], "dov": []})

    assert (found[0].first, found[0].second) == ("ada", "cyd")
    assert len(found) == 6
    assert found[0].similarity == 1.0
    assert {p.similarity for p in found[1:]} == {0.0}


# -- style
CLERK = [
    "I have filed it.",
    "It is in order.",
    "Nobody is to touch the drawer.",
    "The list is complete.",
    "It was checked.",
]


def test_a_text_has_nine_figures_whatever_its_script() -> None:
    for text in ("Hello, there!", "会議は三時です。", "الاجتماع في الثالثة؟", "", "💖"):
        assert len(style_of(text)) == len(FEATURES) == 9
    assert style_of("") == style_of("...") == (0.0,) * 9


def test_another_hand_lies_farther_away_and_by_what_is_said() -> None:
    profile = style_profile(CLERK)

    assert style_distance("It is filed in the drawer.", profile) < 0.4
    assert style_distance("omg it's soooo cute!!! 💖💖", profile) > 0.8
    odd = style_deviations("omg it's soooo cute!!! 💖💖", profile)
    assert next(iter(odd)) == "exclamation marks"
    assert max(odd.values()) <= FARTHEST


def test_one_text_has_no_spread() -> None:
    with pytest.raises(ValueError, match="at least 2 texts, got 1"):
        style_profile(["alone"])


# -- voices
def test_voices_are_distinct_when_lines_of_one_speaker_are_alike() -> None:
    lines = [
        (speaker, text) for n in range(6) for speaker, text in (("a", f"Filed number {n}."), ("b", f"OMG {n} wow!!!"))
    ]

    found = voice_distinctness(lines)

    assert found is not None
    assert (found.lines, found.speakers) == (12, 2)
    assert found.vocabulary > 0.5
    assert found.style > 0.5


def test_lines_dealt_out_at_random_make_no_voices() -> None:
    rng = random.Random(1)
    words = ["stamp", "drawer", "key", "list", "lamp", "till", "door", "desk", "safe", "coin"]
    texts = [" ".join(rng.choices(words, k=6)) + rng.choice(".!?") for _ in range(60)]
    both = []
    for _ in range(20):
        found = voice_distinctness([(rng.choice("abc"), text) for text in texts])
        assert found is not None
        both.append((found.vocabulary, found.style))

    means = [sum(values) / len(both) for values in zip(*both, strict=True)]
    assert all(abs(mean) < 0.03 for mean in means), means


@pytest.mark.parametrize(
    "lines", [[], [("a", "x"), ("a", "y")], [("a", "x"), ("b", "y")], [("a", "x"), ("a", "y"), ("b", "z")]]
)
def test_two_speakers_with_two_lines_each_are_needed(lines: list[tuple[str, str]]) -> None:
    assert voice_distinctness(lines) is None


def test_empty_lines_do_no_harm() -> None:
    assert voice_distinctness([("a", ""), ("a", ""), ("b", ""), ("b", "")]) is not None


def test_words_are_counted_over_all_messages() -> None:
    assert word_counts(["red Red", "blue"]) == Counter(red=2, blue=1)
