"""How alike texts are in their runs of characters."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.text.characters import character_similarities

TEXTS = [
    "Well, I never did.",
    "well i never did",
    "No!!! NO!!!",
    "おはようございます。",
    "おはよう。",
    "مرحبا بكم جميعا",
]


def similarity(texts: list[str], first: int, second: int) -> float:
    return float(character_similarities(texts)[first, second])


def test_like_texts_are_more_alike_than_unlike_ones() -> None:
    found = character_similarities(TEXTS)

    assert found[0, 1] > 4 * max(found[0, 2], found[1, 2])
    assert found[3, 4] > 10 * max(found[0, 3], found[0, 4])


def test_case_and_punctuation_are_part_of_a_voice() -> None:
    assert similarity(["stop it now", "stop it now", "Stop It Now", "other words"], 0, 1) == pytest.approx(1)
    assert similarity(["stop it now", "stop it now!!", "Stop It Now", "other words"], 0, 1) < 0.95
    assert similarity(["stop it now", "stop it now!!", "Stop It Now", "other words"], 0, 2) < 0.8


def test_what_everybody_says_counts_for_nothing() -> None:
    assert character_similarities(["yes", "yes", "yes"]).tolist() == np.zeros((3, 3)).tolist()


@given(st.lists(st.text(min_size=1, max_size=20), min_size=2, max_size=6))
def test_similarities_are_symmetric_shares(texts: list[str]) -> None:
    found = character_similarities(texts)

    assert np.allclose(found, found.T, atol=1e-5)
    assert ((found > -1e-5) & (found < 1 + 1e-5)).all()


@given(st.permutations(range(len(TEXTS))))
def test_the_order_of_texts_only_moves_the_figures(order: list[int]) -> None:
    found = character_similarities([TEXTS[index] for index in order])

    assert np.allclose(found, character_similarities(TEXTS)[np.ix_(order, order)], atol=1e-5)


@pytest.mark.parametrize("texts", [[], [""], ["", "a"], ["\ud800", "a"]])
def test_texts_of_next_to_nothing_are_defined(texts: list[str]) -> None:
    found = character_similarities(texts)

    assert found.shape == (len(texts), len(texts))
    assert np.isfinite(found).all()


def test_the_figures_are_the_same_in_another_process() -> None:
    script = f"from agents.text.characters import character_similarities as s; print(repr(float(s({TEXTS!r})[0, 1])))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONHASHSEED": "5"},
    )

    assert float(done.stdout) == pytest.approx(similarity(TEXTS, 0, 1))
