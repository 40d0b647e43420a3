"""Two kappas of the same items and their difference."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.statistics.agreement import quadratic_weighted_kappa
from evaluation.statistics.gain import LEAST_CLUSTERS, kappa_gain

RNG = np.random.default_rng(5)
PEOPLE = RNG.integers(0, 10, 60).tolist()
NOISY = [int(np.clip(value + step, 0, 9)) for value, step in zip(PEOPLE, RNG.integers(-5, 6, 60), strict=True)]
CLOSE = [int(np.clip(value + step, 0, 9)) for value, step in zip(PEOPLE, RNG.integers(-1, 2, 60), strict=True)]
CONVERSATIONS = [number // 3 for number in range(60)]


def test_both_kappas_are_those_of_the_ratings() -> None:
    gain = kappa_gain(PEOPLE, NOISY, CLOSE, CONVERSATIONS)

    assert gain.before.value == pytest.approx(quadratic_weighted_kappa(NOISY, PEOPLE).value)
    assert gain.after.value == pytest.approx(quadratic_weighted_kappa(CLOSE, PEOPLE).value)
    assert gain.before.value is not None
    assert gain.after.value is not None
    assert gain.difference.value == pytest.approx(gain.after.value - gain.before.value)
    assert gain.difference.interval is not None
    assert gain.difference.interval.low > 0


def test_there_is_no_interval_from_few_conversations() -> None:
    gain = kappa_gain(PEOPLE, NOISY, CLOSE, [number % 19 for number in range(60)])

    assert gain.difference.value is not None
    assert gain.difference.interval is None
    assert "19 conversations" in gain.difference.reason


@pytest.mark.parametrize("items_each", [1, 3])
def test_a_second_look_at_as_few_conversations_as_allowed_shows_no_gain(items_each: int) -> None:
    """The judge errs afresh the second time, and no better."""
    trials = 400
    conversations = [number % LEAST_CLUSTERS for number in range(LEAST_CLUSTERS * items_each)]
    gains = 0
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        people = rng.integers(0, 10, len(conversations))
        first = np.clip(np.round(people + rng.normal(0, 2, people.size)), 0, 9)
        second = np.clip(np.round(people + rng.normal(0, 2, people.size)), 0, 9)
        interval = kappa_gain(people.tolist(), first.tolist(), second.tolist(), conversations).difference.interval
        gains += interval is not None and interval.low > 0
    assert gains <= 0.05 * trials


def test_copies_within_a_conversation_do_not_narrow_the_interval() -> None:
    once = kappa_gain(PEOPLE, NOISY, CLOSE, CONVERSATIONS).difference.interval
    thrice = kappa_gain(PEOPLE * 3, NOISY * 3, CLOSE * 3, CONVERSATIONS * 3).difference.interval

    assert once is not None
    assert thrice is not None
    assert thrice.high - thrice.low == pytest.approx(once.high - once.low, rel=0.01)


@pytest.mark.parametrize(
    ("before", "after", "clusters"),
    [([5.0], [5.0, 5.0], [1, 2]), ([5.0, 5.0], [5.0], [1, 2]), ([5.0, 5.0], [5.0, 5.0], [1])],
)
def test_lists_of_different_length_are_refused(before: list[float], after: list[float], clusters: list[int]) -> None:
    with pytest.raises(ValueError, match="ratings"):
        kappa_gain([5.0, 6.0], before, after, clusters)


def test_ratings_that_never_vary_have_no_kappa() -> None:
    gain = kappa_gain([5.0] * 20, [5.0] * 20, [5.0] * 20, list(range(20)))

    assert gain.difference.value is None
    assert gain.difference.interval is None
