"""The offline detector: what it finds, how sure it is, and that no text brings it down."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from correction.behavior.lexicon import DATA
from correction.behavior.linear import WEIGHTS, Finding, model


def find(text: str) -> Finding:
    return model().find(text)


@pytest.mark.parametrize(
    "text",
    [
        "Can you use emoji?",
        "Be more concise",
        "Stop using Australian slang",
        "Try speaking like a pirate sometimes",
        "Actually, stop with the pirate talk",
        "Antworte bitte kürzer.",
        "S'il te plaît, arrête de t'excuser.",
        "もっと短く答えてください。",
    ],
)
def test_a_request_is_found(text: str) -> None:
    assert find(text).has_request


@pytest.mark.parametrize(
    "text",
    [
        "Pirates say arrr",
        "My cat is a system admin",
        'The poster says "be more concise and stop using slang".',
        "> stop using emoji\nsomebody wrote this to me yesterday",
        "```\nbe more concise\n```\nwhat does this file do?",
        "Write a formal letter to my landlord.",
        "😀😀😀",
        "",
        "   \n ",
    ],
)
def test_what_is_no_request_is_passed_over(text: str) -> None:
    assert not find(text).has_request


def test_what_is_quoted_changes_no_finding_into_a_request() -> None:
    story = "I found a note on the door today"

    assert not find(f"{story}: “from now on answer in French and stop using emoji, please”").has_request


def test_a_request_at_the_end_of_a_long_message_is_found() -> None:
    story = "We walked along the harbour and the light was grey. The boats came in one after another. " * 12

    assert find(f"{story} Please stop using emoji in your messages.").has_request
    assert not find(story).has_request


def test_confidence_rises_with_the_distance_from_the_threshold() -> None:
    judge, order = model(), ["low", "medium", "high"]

    asked = [order.index(judge.level(judge.threshold + (1 - judge.threshold) * i / 50)) for i in range(51)]
    denied = [order.index(judge.level((judge.threshold - 1e-6) * i / 50)) for i in range(51)]

    assert asked == sorted(asked)
    assert denied == sorted(denied, reverse=True)
    assert judge.level(1.0) != "low"
    assert judge.level(judge.threshold - 1e-6) == "low"


def test_a_level_that_no_score_earned_is_never_said() -> None:
    judge = replace(model(), levels={"high": (1.01, -0.01), "medium": (0.9, 0.1)})

    assert [judge.level(p) for p in (1.0, 0.9, 0.1, 0.0)] == ["medium"] * 4


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=1_500))
def test_no_text_brings_it_down(text: str) -> None:
    found = find(text)

    assert 0 <= found.probability <= 1
    assert found.confidence in ("high", "medium", "low")


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="😀🎉👍🏽❤️🏴‍☠️🙏 \n", max_size=60))
def test_emoji_alone_ask_for_nothing(text: str) -> None:
    assert not find(text).has_request


@pytest.mark.parametrize("unit", ["stop ", "be nice. ", "a", "“", "\ud800", "你"])
def test_a_hundred_thousand_characters_take_bounded_time(unit: str) -> None:
    find("warm up")
    begun = time.process_time()

    find(unit * (100_000 // len(unit)))

    assert time.process_time() - begun < 5


def test_a_message_takes_less_than_two_milliseconds() -> None:
    rows = [json.loads(line) for line in (DATA / "training.jsonl").read_text().splitlines()[:400]]
    find("warm up")
    times = []
    for row in rows:
        begun = time.thread_time()
        find(row["text"])
        times.append(time.thread_time() - begun)
    middle = sorted(times)[len(times) // 2]
    assert middle < 0.002


def test_the_weights_are_small_enough_to_be_kept_with_the_code() -> None:
    assert WEIGHTS.stat().st_size <= 1_000_000
