"""Attribution by what things are like: cross-validated over blocks of time, beside a permutation null."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from evaluation.statistics.attribution import attribute, time_blocks


def things(rng: np.random.Generator, makers: list[int], apart: float) -> np.ndarray:
    """Similarities of vectors that lie `apart` from each other by maker."""
    vectors = rng.normal(0, 1, (len(makers), 30))
    vectors[np.arange(len(makers)), makers] += apart
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray((vectors @ vectors.T).astype(np.float32))


MAKERS = [0, 1, 2, 1, 0, 2, 2, 1, 0, 0, 1, 2] * 5
BLOCKS = time_blocks(MAKERS, 5)


def test_makers_that_differ_are_told_apart() -> None:
    found = attribute(things(np.random.default_rng(0), MAKERS, 5), MAKERS, BLOCKS)

    assert found.balanced_accuracy > 0.9
    assert found.p_value == pytest.approx(1 / 1000)
    assert found.balanced_accuracy == pytest.approx(sum(found.recalls) / 3)


def monologues(rng: np.random.Generator) -> list[int]:
    """Three makers who make one to four things at a time."""
    runs = [0, 1, 2, 0, 1, 2, *rng.integers(0, 3, 40).tolist()]
    return [maker for maker in runs for _ in range(int(rng.integers(1, 5)))][:90]


def test_makers_that_do_not_differ_are_at_chance_and_alarm_no_more_often_than_they_should() -> None:
    rng = np.random.default_rng(2)
    found = []
    for trial in range(200):
        makers = rng.integers(0, 3, 60).tolist()
        found.append(attribute(things(rng, makers, 0), makers, time_blocks(makers, 5), permutations=99, seed=trial))

    assert np.mean([f.balanced_accuracy for f in found]) == pytest.approx(1 / 3, abs=0.02)
    for level in (0.05, 0.2, 0.5):
        share = np.mean([f.p_value <= level for f in found])
        assert share == pytest.approx(level, abs=3 * np.sqrt(level * (1 - level) / 200))


def test_things_of_one_sitting_that_are_alike_do_not_make_a_voice() -> None:
    rng = np.random.default_rng(9)
    rejected = 0
    for trial in range(150):
        makers = monologues(rng)
        vectors = rng.normal(0, 1, (len(makers), 30))
        for index in range(1, len(makers)):
            if makers[index] == makers[index - 1]:  # goes on about the same
                vectors[index] = 0.8 * vectors[index - 1] + 0.6 * vectors[index]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        similarities = (vectors @ vectors.T).astype(np.float32)
        found = attribute(similarities, makers, time_blocks(makers, 5), permutations=99, seed=trial)
        rejected += found.p_value <= 0.05

    assert rejected <= 15  # 7.5 expected; some 14 with blocks that cut monologues, 40 with labels shuffled one by one


def test_chance_favours_neither_who_made_much_nor_who_made_little() -> None:
    rng = np.random.default_rng(3)
    taken: Counter[int] = Counter()
    for _trial in range(60):
        makers = rng.permutation([0] * 80 + [1] * 10 + [2] * 10).tolist()
        taken.update(attribute(things(rng, makers, 0), makers, time_blocks(makers, 5), permutations=1).predictions)

    assert [taken[maker] / taken.total() for maker in range(3)] == pytest.approx([1 / 3] * 3, abs=0.05)


def test_things_are_never_judged_by_their_own_block() -> None:
    # every thing is the very image of its neighbour in the same block, and like nothing else
    makers = [0, 0, 1, 1] * 4
    similarities = np.kron(np.eye(8), np.ones((2, 2))).astype(np.float32)

    found = attribute(similarities, makers, [index // 4 for index in range(16)], permutations=99)

    assert found.balanced_accuracy <= 0.5
    assert found.p_value > 0.05


def test_the_null_is_every_arrangement_within_the_blocks_equally_often() -> None:
    makers, blocks = (
        [0, 1, 0, 1, 0, 1, 0, 1, 0],
        [0, 0, 0, 1, 1, 1, 2, 2, 2],
    )  # 3 * 3 * 3 arrangements: all of them can be tried
    similarities = things(np.random.default_rng(4), makers, 1.5)
    found = attribute(similarities, makers, blocks, permutations=2000)

    arrangements = product(*(permutations(makers[start : start + 3]) for start in (0, 3, 6)))
    every = [
        attribute(similarities, [m for part in parts for m in part], blocks, permutations=1).balanced_accuracy
        for parts in arrangements
    ]
    exact = np.mean([accuracy >= found.balanced_accuracy - 1e-12 for accuracy in every])
    assert found.p_value == pytest.approx(float(exact), abs=0.04)
    assert np.mean(found.null) == pytest.approx(np.mean(every), abs=0.02)


def test_the_p_value_is_that_of_scipys_monte_carlo_test() -> None:
    rng = np.random.default_rng(5)
    makers, blocks = [0, 1, 2, 1, 0, 2] * 4, [index // 6 for index in range(24)]  # no two neighbours alike in a block
    similarities = things(rng, makers, 1.8)

    def accuracy(labels: Any) -> float:
        return attribute(similarities, [int(m) for m in labels], blocks, permutations=1).balanced_accuracy

    def shuffled(size: Any) -> Any:
        return np.array([np.concatenate([rng.permutation(makers[:6]) for _ in range(4)]) for _ in range(size[0])])

    found = attribute(similarities, makers, blocks, permutations=2000)
    reference = stats.monte_carlo_test(
        np.array(makers), shuffled, accuracy, vectorized=False, n_resamples=600, alternative="greater"
    )

    assert 0.02 < found.p_value < 0.6
    assert found.p_value == pytest.approx(float(reference.pvalue), abs=0.06)


@pytest.mark.parametrize(
    ("makers", "blocks", "permutations", "message"),
    [
        ([0, 0, 0, 0], [0, 0, 1, 1], 9, "only one maker"),
        ([0, 0, 0, 1], [0, 0, 1, 1], 9, "maker 1 has things in fewer than two blocks"),
        ([0, 1, 0, 1], [0, 0, 0, 0], 9, "fewer than two blocks"),
        ([0, 1, 0, 1], [0, 1, 0, 1], 9, "blocks are not in order"),
        ([0, 1, 0, 1], [0, 0, 1, 1], 0, "permutations is 0"),
        ([0, 1, 0], [0, 0, 1], 9, "must fit each other"),
    ],
)
def test_what_cannot_be_attributed_is_refused(
    makers: list[int], blocks: list[int], permutations: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        attribute(np.eye(4, dtype=np.float32), makers, blocks, permutations=permutations)


def test_blocks_are_contiguous_and_of_about_equal_size() -> None:
    blocks = time_blocks(list("abcabcabcabca"), 5)

    assert blocks == sorted(blocks)
    assert sorted(Counter(blocks).values()) == [2, 2, 3, 3, 3]


def test_a_run_is_never_cut_by_a_block() -> None:
    assert time_blocks("aabbbbabab", 5) == [0, 0, 1, 1, 1, 1, 3, 3, 4, 4]
    assert time_blocks([], 5) == []
