"""What the detector sees of a message: quotations and code only as such, whatever the text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correction.behavior.features import GROUPS, LONGEST_PART, features, kinds_of, parts, whole
from correction.behavior.lexicon import Lexicon, tokens
from correction.behavior.masking import CODE, QUOTE, masked
from correction.behavior.word_groups import UNKNOWN, WORD_GROUPS, WordGroups, word_groups

COMMAND = "stop using emoji"


@pytest.mark.parametrize(
    "text",
    [
        f'The sign said "{COMMAND}".',
        f"Der Zettel sagt „{COMMAND}“.",
        f"Il a écrit « {COMMAND} ».",
        f"彼は「{COMMAND}」と書いた。",
        f"She goes '{COMMAND}' all day",
        f"> {COMMAND}\nwhat is that?",
        "[quoted text, 16 characters]\nwhat is that?",
    ],
)
def test_a_quotation_is_only_seen_to_be_there(text: str) -> None:
    assert COMMAND not in masked(text)
    assert QUOTE in masked(text)


@pytest.mark.parametrize(
    "text",
    [f"```\n{COMMAND}\n```\nwhat does it do?", f"run `{COMMAND}` please", f"```\n{COMMAND}", f'bot.say("{COMMAND}")'],
)
def test_code_is_only_seen_to_be_there(text: str) -> None:
    assert COMMAND not in masked(text)
    assert CODE in masked(text)


def test_an_apostrophe_begins_no_quotation() -> None:
    assert masked("don't say you're sorry, it's fine") == "don't say you're sorry, it's fine"


def test_nobody_writes_a_mark_of_our_own() -> None:
    assert QUOTE not in masked(f"{QUOTE} hello {CODE}")


def test_a_message_is_read_as_kinds_of_words_whatever_the_language() -> None:
    assert kinds_of(tokens(whole("Stop with the jokes")))[:2] == ["^", "stop"]
    assert "language" in kinds_of(tokens(whole("Réponds en français")))
    assert "conduct" in kinds_of(tokens(whole("絵文字は使わないで")))


def test_the_longest_phrase_counts_and_stems_stand_for_all_endings() -> None:
    known = Lexicon({"stop": ["no more"], "more": ["more"], "conduct": ["antwort*"]})

    assert known.kind_at(["no", "more"], 0) == ("stop", 2)
    assert known.kind_at(["antworten"], 0) == ("conduct", 1)
    assert known.kind_at(["no", "way"], 0) == ("", 1)


def test_words_that_are_used_alike_are_of_one_group_whatever_the_language() -> None:
    known = WordGroups("# a remark\n= the to\n0 3 joke witz\n0 3 sermon\n0 4 letter\n")

    assert known.common == {"the", "to"}
    assert known.of("witz") == known.of("joke") == ("0", "3", "0")
    assert known.of("sermon") == ("0", "3", "1")
    assert known.of("letter")[:2] == ("0", "4")


def test_a_word_without_a_group_has_that_of_another_form_of_it() -> None:
    known = WordGroups("0 3 joke witz\n1 4 lecture\n")

    assert known.of("lecturing") == known.of("lectures") == known.of("lecture")
    assert known.of("lect") == known.of("lecture")
    assert known.of("wit") == known.of("elephant") == UNKNOWN


def test_the_file_of_word_groups_has_each_word_once_and_each_group_in_one_wider_group() -> None:
    lines = [line.split() for line in WORD_GROUPS.read_text(encoding="utf-8").splitlines() if line[0] not in "#="]
    words = [word for line in lines for word in line[2:]]
    wider = {line[1]: line[0] for line in lines}

    assert len(words) == len(set(words)) > 20_000
    assert all(wider[line[1]] == line[0] for line in lines)
    assert word_groups().of("stop") != UNKNOWN


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=2_000))
def test_any_text_has_features_within_their_buckets(text: str) -> None:
    for part in parts(text):
        found = features(part)
        assert all(0 <= bucket < GROUPS[group] for group, buckets in found.items() for bucket in buckets)


def test_a_long_message_is_judged_in_parts() -> None:
    pieces = parts("I went to the market and bought a melon. " * 40)

    assert len(pieces) > 1
    assert all(len(piece) <= LONGEST_PART for piece in pieces)


@pytest.mark.parametrize(
    "unit", ["a", '"', "'a ", "`", "> x\n", "```\n", "(", "a.b(", "“", "x = ", "git ", "Error", "\ud83d\ude00", "。"]
)
def test_a_hundred_thousand_characters_are_read_in_bounded_time(unit: str) -> None:
    text, begun = unit * (100_000 // len(unit)), time.process_time()

    parts(text)

    assert time.process_time() - begun < 5
