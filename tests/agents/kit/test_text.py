"""Words, sentences, phrases and n-grams: pure functions that count what a person would count."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.text.ngrams import (
    compression_gain,
    compute_corpus_repetition,
    compute_overlap,
    extract_ngrams,
    repeated_ngrams,
    repetition_statistics,
)
from agents.kit.text.patterns import LONGEST, TIMED_OUT, Undecided, find, find_all, one_message, phrase_pattern
from agents.kit.text.tokens import has_emoji, split_sentences, tokenize

words = st.lists(st.sampled_from(["paper", "clip", "stapler", "desk", "lamp", "ink"]), max_size=12).map(" ".join)
messages = st.lists(words, max_size=6)


# -- words
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't panic!", ["don't", "panic"]),
        ("rock 'n' roll", ["rock", "n", "roll"]),
        ("3.5 tons", ["3", "5", "tons"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("ﬁne ｗｉｄｅ", ["fine", "wide"]),
        ("snake_case", ["snake", "case"]),
        ("很好 ok", ["很", "好", "ok"]),
        ("Привет, мир", ["привет", "мир"]),
        ("🎉 !!! …", []),
        ("", []),
    ],
)
def test_words_are_folded_and_free_of_punctuation(text: str, expected: list[str]) -> None:
    assert tokenize(text) == expected


# -- sentences
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("   \n\n ", 0),
        ("👍", 0),
        ("What?! Really?! Yes!!!", 3),
        ("One line\nanother line", 2),
        ("Dr. Smith left. He was tired.", 2),
        ("Mrs. Vance met St. John vs. Mr. Fox.", 1),
        ("Bring snacks, e.g. pretzels, i.e. the good ones.", 1),
        ("J. Smith signed it.", 1),
        ("So do I. You do too.", 2),
        ("It is 3.14 or 2.71, roughly 1,000.5.", 1),
        ("See plumbline.example.org for more.", 1),
        ("Wait... what?", 1),
        ("Wait... What?", 2),
        ("Pens, paper, etc. They are here.", 2),
        ("Meet at 9 a.m. sharp.", 1),
        ("Meet at 9 a.m. Bring pens.", 2),
        ("He lives in the U.S. and sells paper.", 1),
        ("She has a Ph.D. in economics.", 1),
        ("He lives in the U.S. He sells paper.", 2),
        ('He said "No." Then he left.', 2),
        ("(I know.) Fine.", 2),
        ("1. Buy paper\n2. Sell paper", 2),
        ("a) first thing b) second thing", 1),
        ("今天很好。我们走吧！真的？", 3),
        ("यह अच्छा है। चलो।", 2),
        ("Great 🎉! Next 🎉.", 2),
    ],
)
def test_sentences_are_counted_as_a_reader_would(text: str, count: int) -> None:
    assert len(split_sentences(text)) == count, split_sentences(text)


@given(st.text())
def test_splitting_loses_no_letter_and_makes_no_empty_sentence(text: str) -> None:
    sentences = split_sentences(text)

    assert all(any(char.isalnum() for char in sentence) for sentence in sentences)
    assert [c for c in "".join(sentences) if c.isalnum()] == [c for c in text if c.isalnum()]


@pytest.mark.parametrize("start", ["Dr. ", "e.g. x ", ".", ". ", '."', "\n ", "A.", "1. ", "… a"])
def test_splitting_takes_no_longer_than_the_text_is_long(start: str) -> None:
    begun = time.process_time()
    split_sentences(start * (100_000 // len(start)) + "x")

    assert time.process_time() - begun < 5  # a tenth of it; in quadratic time it would be minutes


# -- emoji
@pytest.mark.parametrize("text", ["😀", "ok 👍🏽", "🇩🇪", "1️⃣", "❤️", "☎"])
def test_pictures_are_emoji(text: str) -> None:
    assert has_emoji(text)


@pytest.mark.parametrize("text", ["", "plain", "12 #3 *", "© ® ™", "→ – — … “”", ":-)", "日本語", "½ ²"])
def test_signs_and_digits_are_no_emoji(text: str) -> None:
    assert not has_emoji(text)


# -- phrases
@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("happy to help", "Happy   to\nHELP!", True),
        ("can't wait", "I can’t wait", True),
        ("cat", "concatenate", False),
        ("C++", "I like C++.", True),
        (":)", "fine :)", True),
        ("/\\bbeet(s)?\\b/", "BEETS!", True),
        ("/^no$/", "no way", False),
        ("/", "and/or", True),
    ],
)
def test_a_phrase_is_found_on_word_boundaries_whatever_case_and_spacing(phrase: str, text: str, found: bool) -> None:
    assert bool(find(phrase, text)) is found


# -- n-grams (S-6.3)
def test_ngrams_of_three_and_five_words_ac_6_3_1() -> None:
    text = "The paper is on the desk"

    assert extract_ngrams(text, 3)[0] == ("the", "paper", "is")
    assert len(extract_ngrams(text, 3)) == 4
    assert extract_ngrams(text, 5) == [("the", "paper", "is", "on", "the"), ("paper", "is", "on", "the", "desk")]
    assert extract_ngrams("too short", 3) == []


def test_overlap_is_the_share_of_types_in_both_ac_6_3_8() -> None:
    a, b = extract_ngrams("a b c d", 2), extract_ngrams("b c d e", 2)

    assert compute_overlap(a, b) == pytest.approx(2 / 4)
    assert compute_overlap(a, a) == 1.0
    assert compute_overlap([], []) == compute_overlap(a, []) == 0.0


def test_five_identical_messages_repeat_themselves_wholly_ac_6_3_2() -> None:
    assert compute_corpus_repetition(["The paper is on the desk."] * 5, 3) == 1.0
    assert compute_corpus_repetition(["ok then"] * 5) == compute_corpus_repetition(["👍"] * 5) == 1.0
    assert compute_corpus_repetition(["the PAPER is on the desk", "The paper is on the desk!"], 5) == 1.0


def test_different_messages_do_not_repeat_themselves_ac_6_3_2() -> None:
    assert compute_corpus_repetition(["the paper is here", "nobody knows why that happens"], 3) == 0.0
    assert compute_corpus_repetition([], 3) == compute_corpus_repetition(["one alone says it all"], 3) == 0.0


@given(messages)
def test_repetition_agrees_with_counting_by_hand(texts: list[str]) -> None:
    words = [text.split() for text in texts]
    grams = [[each[i : i + 3] for i in range(len(each) - 2)] or [each] * bool(each) for each in words]
    tokens = [gram for result in grams for gram in result]
    recurring = [gram for gram in tokens if sum(gram in result for result in grams) >= 2]

    assert compute_corpus_repetition(texts, 3) == pytest.approx(len(recurring) / len(tokens) if tokens else 0.0)


def test_phrases_that_recur_are_listed_by_how_many_messages_hold_them() -> None:
    texts = ["that is what she said", "that is what he said", "that is what they said she said", "what she said"]

    assert repeated_ngrams(texts, 3, limit=2) == [("that is what", 3), ("what she said", 2)]


def test_near_copies_compress_better_than_unrelated_messages() -> None:
    copies = [f"Just sold ten reams to client number {n}, another triumph for the branch" for n in range(20)]
    unrelated = ["Toast again.", "Who moved my chair?", "Quarter closes tomorrow, bring figures", "I fed the geese"]

    assert compression_gain(copies) > 0.6 > compression_gain(unrelated)
    assert compression_gain([]) == compression_gain(["alone"]) == 0.0


def test_statistics_need_neither_network_nor_database_ac_6_3_7(monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is blocked where a test does not ask for it; connections are refused here."""

    def refuse(*args: object) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    result = repetition_statistics(["That is what she said"] * 3)

    assert (result.messages, result.trigram_repetition, result.fivegram_repetition) == (3, 1.0, 1.0)
    assert result.repeated_phrases[0] == ("is what she", 3)


CYRILLIC = r"/([\u0430-\u044f]+[\u0430-\u044f]+)*\Z!/"
SLOW = {
    CYRILLIC: "д" * 5_000,
    "/(?:a|aa)+$/": "a" * 20_000 + "!",
    r"/\s+$/": " " * 19_000 + "x",
    r"/(\w+\s?)+[!?]\1$/": "ab " * 5_000 + "!",
    "/(?:x+x+)+y/": "x" * 20_000,
}


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_ends_whatever_the_text_says(pattern: str) -> None:
    begun = time.perf_counter()
    result, undecided = find_all([pattern], SLOW[pattern])

    assert not result
    assert [str(problem) for problem in undecided.values()] in ([], [f"{TIMED_OUT}{pattern}"])
    assert time.perf_counter() - begun < 5  # 0.1 s of processor time; the machine may be busy


def test_other_threads_go_on_while_a_pattern_runs() -> None:
    running, steps = threading.Event(), 0

    def search() -> None:
        for _ in range(3):
            with pytest.raises(Undecided):
                find("/(?:a|aa)+$/", SLOW["/(?:a|aa)+$/"])
        running.set()

    searching = threading.Thread(target=search)
    searching.start()
    while not running.wait(0.001):
        steps += 1
    searching.join()

    assert steps > 10  # one that held the interpreter would leave three at most


@pytest.mark.slow
def test_patterns_of_one_message_share_their_time_and_ordinary_ones_still_run() -> None:
    text = "a" * 15_000 + "! thanks"
    slow = [f"/(?:a|aa){{{n},}}$/" for n in range(1, 41)]
    begun = time.process_time()
    with one_message():
        result, undecided = find_all([*slow, "/thanks/"], text)

    assert list(result) == ["/thanks/"]
    assert len(undecided) == 40
    assert time.process_time() - begun < 3  # 1 s, then 0.01 s each; alone they take 4 s


@pytest.mark.parametrize(
    ("pattern", "tail", "found"),
    [
        ("/x$/", "x", None),
        (r"/x\Z/", "x", None),
        (r"/x\b/", "xy", None),
        ("/x(?!y)/", "xy", None),
        ("/x(?=y)/", "xy", None),  # the first 20,000 do not decide: unscored, and not "nothing matches"
        (r"/x(?s:.*)\Z/", "xy", True),
        ("/(?m)x$/", "x\ny", True),
        ("/x(?!y)/", "xz", True),
        (r"/x\b/", "x y", True),
        ("/x/", "x", True),
        ("/z/", "yyyy", None),
        ("z", "yyyy z", True),  # a phrase is looked for in all of it
        ("q", "yyyy z", False),
    ],
)
def test_the_cut_is_no_end_of_the_text(pattern: str, tail: str, found: bool | None) -> None:
    """The tail's first character is the last one that a pattern is shown; the text goes on after the tail."""
    text = "-" * (LONGEST - 1) + tail + "-" * 50 * (not tail.endswith("z"))
    text += "y" if len(text) <= LONGEST else ""
    if found is None:
        with pytest.raises(Undecided, match=f"the first 20,000 of {len(text):,} characters do not decide"):
            find(pattern, text)
    else:
        assert bool(find(pattern, text)) is found


INVALID, TOO_LARGE = "is not a valid regular expression", r"is too large: .* allowed: 1,000"


@pytest.mark.parametrize(
    ("phrase", "complaint"),
    [
        ("  ", "empty phrase"),
        ("long " * 300, "allowed: 1,000"),
        ("/(?:foo){e<=5}/", "for the brace in"),
        ("/(/", INVALID),
        ("/[z-a]/", INVALID),
        ("/a{99999999999}/", INVALID),
        ("/" + "(" * 450 + ")" * 449 + "/", INVALID),
        ("/" + "a?" * 2_400 + "a" * 2_400 + "/", "allowed: 1,000"),
        ("/(?:(?:a{1000}){1000}){1000}/", TOO_LARGE),
        ("/" + "(?:" * 60 + "a+" + ")+" * 60 + "/", TOO_LARGE),
        ("/(?:ab|[cd]{9}){2000,}/", TOO_LARGE),
    ],
    ids=lambda text: text[:12],
)
def test_a_phrase_that_cannot_be_searched_in_time_and_memory_is_refused(phrase: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        phrase_pattern(phrase)
