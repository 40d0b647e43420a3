"""Figures of how people write (AC-6.4.2, AC-6.4.3, AC-6.4.9): vocabulary, style, and whether voices can be told apart."""

from __future__ import annotations

import random
from collections import Counter
from math import isclose, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.text.authors import NameMask, learn_voice, own_voice
from agents.kit.text.ngrams import shared_phrases
from agents.kit.text.voices import (
    pairwise_similarity,
    pairwise_vocabulary_similarity,
    punctuation_density,
    stem,
    vocabulary,
    vocabulary_overlap,
    vocabulary_similarity,
    vocabulary_statistics,
    voice_distinctness,
)

counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 20), max_size=6)


# -- vocabulary (AC-6.4.2)
def test_figures_of_one_speaker_ac_6_4_2_ac_6_4_9() -> None:
    result = vocabulary_statistics(["The cat, the cat!", "A dog sat. It sat."])

    assert (result.messages, result.words) == (2, 9)
    assert result.unique_word_ratio == pytest.approx(6 / 9, abs=1e-4)  # the, cat, a, dog, sat, it
    assert result.average_sentence_length == 3.0
    assert result.punctuation_density == pytest.approx(4 / 28, abs=1e-4)
    assert 0 < punctuation_density(["猫。犬！"]) < 1, "in every script"


# -- how alike two are (AC-6.4.3)
def test_equal_shares_are_wholly_alike_and_nothing_shared_not_at_all_ac_6_4_3() -> None:
    a, twice, other = Counter(x=1, y=2), Counter(x=2, y=4), Counter(z=3)

    assert vocabulary_similarity(a, twice) == pytest.approx(1.0)
    assert vocabulary_similarity(a, other) == 0.0
    assert vocabulary_similarity(a, Counter()) == 0.0
    assert vocabulary_similarity(Counter(x=1, y=1), Counter(x=1)) == pytest.approx(sqrt(0.5))


@given(counts, counts)
def test_similarity_is_a_share_and_the_same_both_ways(a: dict[str, int], b: dict[str, int]) -> None:
    result = vocabulary_similarity(a, b)

    assert 0.0 <= result <= 1.0
    assert result == vocabulary_similarity(b, a)
    by_hand = sum(sqrt(a[w] / sum(a.values()) * b[w] / sum(b.values())) for w in set(a) & set(b))
    assert isclose(result, min(1.0, by_hand), abs_tol=1e-9)


def test_each_pair_stands_once_most_alike_first() -> None:
    result = pairwise_similarity({"cyd": ["red blue"], "ada": ["red blue"], "bea": ["green"], "dov": []})

    assert (result[0].first, result[0].second) == ("ada", "cyd")
    assert len(result) == 6
    assert result[0].similarity == 1.0
    assert {p.similarity for p in result[1:]} == {0.0}


# -- one author's voice against others'
CLERK = [f"{said} It is in order." for said in ("I have filed it.", "It was checked.", "The list is complete.")]
CLERK += [
    f"Nobody is to touch the {thing}." for thing in ("drawer", "ledger", "stamps", "keys", "box", "forms", "scale")
]
FAN = [
    f"omg the {thing} is SO cute!!! i love it, like, so much" for thing in ("cat", "mug", "hat", "bus", "lamp", "song")
]
COACH = [
    f"Let's get that {thing} done, people, together!" for thing in ("plan", "pitch", "call", "deal", "report", "sale")
]


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("It is filed. Nobody is to touch the drawer.", 0.8, 1.0),
        (FAN[0], 0.0, 0.1),
        ("Let's get that party done, people!", 0.0, 0.3),
        ("YAAAAS queen!!!! 💖💖💖 we r going out 2nite!!!", 0.0, 0.1),  # nobody wrote like that before
        ("", 0.0, 1.0),
    ],
)
def test_a_text_is_the_authors_as_far_as_it_is_written_so(text: str, low: float, high: float) -> None:
    voice = learn_voice(CLERK, [FAN, COACH])
    assert voice is not None

    own, deviations = own_voice(text, voice)

    assert low <= own <= high
    assert list(deviations.values()) == sorted(deviations.values(), reverse=True)


def test_what_is_unusual_in_a_text_is_named_first() -> None:
    voice = learn_voice(CLERK, [FAN, COACH])
    assert voice is not None

    assert next(iter(own_voice("It is in order!!!!!!", voice)[1])) == "exclamation marks"


def test_authors_whose_texts_were_dealt_out_at_random_have_no_voices() -> None:
    texts = [*CLERK, *FAN, *COACH]
    learned = []
    for seed in range(20):
        random.Random(seed).shuffle(texts)
        learned.append(learn_voice(texts[:10], [texts[10:16], texts[16:]]))

    assert learned.count(None) >= 10


@given(st.lists(st.text(), min_size=3, max_size=5), st.lists(st.text(), min_size=2, max_size=4), st.text())
def test_any_texts_at_all_have_a_voice_or_none(own: list[str], others: list[str], text: str) -> None:
    voice = learn_voice(own, [others, others])

    assert voice is None or 0 <= own_voice(text, voice)[0] <= 1


# -- voices
def test_voices_are_distinct_when_lines_of_one_speaker_are_alike() -> None:
    lines = [
        (speaker, text) for n in range(6) for speaker, text in (("a", f"Filed number {n}."), ("b", f"OMG {n} wow!!!"))
    ]

    result = voice_distinctness(lines)

    assert result is not None
    assert (result.lines, result.speakers) == (12, 2)
    assert result.vocabulary > 0.5
    assert result.style > 0.5


def test_lines_dealt_out_at_random_make_no_voices() -> None:
    rng = random.Random(1)
    words = ["stamp", "drawer", "key", "list", "lamp", "till", "door", "desk", "safe", "coin"]
    texts = [" ".join(rng.choices(words, k=6)) + rng.choice(".!?") for _ in range(60)]
    both = []
    for _ in range(20):
        result = voice_distinctness([(rng.choice("abc"), text) for text in texts])
        assert result is not None
        both.append((result.vocabulary, result.style))

    means = [sum(values) / len(both) for values in zip(*both, strict=True)]
    assert all(abs(mean) < 0.03 for mean in means), means


@pytest.mark.parametrize(
    "lines", [[], [("a", "x"), ("a", "y")], [("a", "x"), ("b", "y")], [("a", "x"), ("a", "y"), ("b", "z")]]
)
def test_two_speakers_with_two_lines_each_are_needed(lines: list[tuple[str, str]]) -> None:
    assert voice_distinctness(lines) is None


def test_stop_words_numbers_and_endings_do_not_count() -> None:
    texts = ["The plans were planned in 1984.", "It's PLANNING, and she'll plan!"]

    assert vocabulary(texts) == {"plan"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("agree", "agreed", "agrees", "agreeing"), {"agr"}),
        (("plan", "plans", "planned", "planning", "plan's"), {"plan"}),
        (("party", "parties"), {"party"}),
        (("bus",), {"bus"}),
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


# -- shared phrases
def test_a_phrase_inside_a_longer_one_needs_more_messages_to_be_kept() -> None:
    said = ["a b c d e", "a b c d e", "x b c d y"]

    assert shared_phrases([text.split() for text in said]) == [("b c d", 3), ("a b c d e", 2)]


@pytest.mark.parametrize(
    ("names", "text", "masked"),
    [
        (["Chloe Turner"], "Chloe said so. TURNER too, chloe turner!", "□ said so. □ too, □ □!"),
        (["Chloe"], "Chloe's idea, the two Chloes, chloe’s", "□'s idea, the two □, □’s"),
        (["Ann"], "Annex, plan, Hannah and Ann", "Annex, plan, Hannah and □"),
        (["ann-lee", "Ann Lee"], "ask ann-lee or Lee", "ask □-□ or □"),
        (["ann_lee"], "ann_lee and lee", "□_□ and □"),
        (["A", "B. Smith"], "A plan B for Smith", "A plan B for □"),
        (["José"], "Jose\u0301 and JOSÉ", "□ and □"),
        (["Иван Петров"], "Спроси Иван, не Петров", "Спроси □, не □"),
        ([], "nobody to mask, not even @michael.scott and <@U123>!", "nobody to mask, not even □ and <□>!"),
        (["x"], "a@example.org", "a□"),
        (["田中太郎"], "田中さんと太郎が来た。田中太郎", "□さんと□が来た。□"),
        (["王小明"], "小明說王小明不在", "□說□不在"),
        (["김민수"], "김민수가 왔다", "□가 왔다"),
        (["أحمد"], "قال لأحمد وأحمد هنا", "قال ل□ و□ هنا"),
        (["さくら"], "さくらちゃん、おはよう", "□ちゃん、おはよう"),
    ],
)
def test_every_form_of_a_name_is_masked_and_nothing_else(names: list[str], text: str, masked: str) -> None:
    assert NameMask(names)(text) == masked
