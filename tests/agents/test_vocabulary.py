"""What words people share: content words, stems, and how alike several speakers are."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.phrases import shared_phrases
from agents.text.tokens import tokenize
from agents.text.vocabulary import pairwise_vocabulary_similarity, stem, vocabulary, vocabulary_overlap

speech = st.lists(st.sampled_from(["the", "paper", "clips", "staplers", "desk", "agreed", "1984", "很"]), max_size=8)
conversations = st.dictionaries(st.sampled_from("abcd"), speech.map(" ".join).map(lambda text: [text]), max_size=4)


def test_stop_words_numbers_and_endings_do_not_count() -> None:
    texts = ["The plans were planned in 1984.", "It's PLANNING, and she'll plan!"]

    assert vocabulary(texts) == {"plan"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("agree", "agreed", "agrees", "agreeing"), {"agr"}),
        (("plan", "plans", "planned", "planning", "plan's"), {"plan"}),
        (("idea", "ideas"), {"idea"}),
        (("party", "parties"), {"party"}),
        (("sell", "selling", "sells"), {"sell"}),
        (("bus",), {"bus"}),
        (("yes",), {"yes"}),
        (("is",), {"is"}),
        (("red",), {"red"}),
        (("glass",), {"glass"}),
    ],
)
def test_forms_of_one_word_are_one_word(words: tuple[str, ...], expected: set[str]) -> None:
    assert {stem(word) for word in words} == expected


@pytest.mark.parametrize(
    ("a", "b", "overlap"),
    [
        ({"x", "y"}, {"x", "y"}, 1.0),
        ({"x"}, {"x", "y", "z"}, 1.0),
        ({"x", "y"}, {"y", "z", "w"}, 0.5),
        ({"x"}, {"y"}, 0.0),
        (set(), {"y"}, 0.0),
        (set(), set(), 0.0),
    ],
)
def test_the_overlap_is_measured_by_the_smaller_vocabulary(a: set[str], b: set[str], overlap: float) -> None:
    assert vocabulary_overlap(frozenset(a), frozenset(b)) == overlap


def test_the_similarity_is_the_mean_over_all_pairs() -> None:
    spoken = {"a": ["paper clips desk"], "b": ["paper clips lamp"], "c": ["paper ink glue"]}

    assert pairwise_vocabulary_similarity(spoken) == pytest.approx((2 / 3 + 1 / 3 + 1 / 3) / 3)


def test_who_says_hardly_anything_is_left_out() -> None:
    assert pairwise_vocabulary_similarity({"a": ["paper clips desk"], "b": ["Yes."]}) is None
    assert pairwise_vocabulary_similarity({"a": ["paper clips desk", "lamp"]}) is None
    assert pairwise_vocabulary_similarity({}) is None


@given(conversations)
def test_the_similarity_is_a_share_whatever_the_order(spoken: dict[str, list[str]]) -> None:
    found = pairwise_vocabulary_similarity(spoken)

    assert found is None or 0 <= found <= 1
    again = pairwise_vocabulary_similarity(dict(reversed(spoken.items())))
    assert again == found or again == pytest.approx(found)


@given(st.dictionaries(st.text(max_size=3), st.lists(st.text(), max_size=3), max_size=4))
def test_any_text_has_a_vocabulary(spoken: dict[str, list[str]]) -> None:
    pairwise_vocabulary_similarity(spoken)


# -- words are read the same way whichever alphabet a text is in
@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_plain_text_has_the_words_it_has_beside_other_alphabets(text: str) -> None:
    assert tokenize(f"{text} ⟂ ж") == [*tokenize(text), "ж"]


@given(st.text())
def test_words_are_those_of_the_composed_text(text: str) -> None:
    assert tokenize(text) == tokenize(unicodedata.normalize("NFKC", text))


# -- shared phrases
def test_a_phrase_inside_a_longer_one_is_kept_only_if_more_messages_hold_it() -> None:
    said = ["a b c d e", "a b c d e", "x b c d y"]

    assert shared_phrases([text.split() for text in said]) == [("b c d", 3), ("a b c d e", 2)]


def test_runs_that_only_touch_are_not_put_together() -> None:
    """“a b c d” stands in one message only, though both its 3-grams recur."""
    said = ["a b c d", "a b c x", "y b c d"]

    assert shared_phrases([text.split() for text in said]) == [("a b c", 2), ("b c d", 2)]
