"""Agreement of raters: published worked examples, scipy, and what must not change the figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from evaluation.statistics.agreement import (
    judge_noise,
    kappa_beyond_people,
    krippendorff_alpha,
    quadratic_weighted_kappa,
    spearman,
)

Table = list[list[int]]
SCORES = st.integers(0, 9)
PAIRS = st.lists(st.tuples(SCORES, SCORES), min_size=2, max_size=30)

# irrCAC (Gwet), data set cont3x3abstractors: kappa2.table gives 0.7964094 unweighted, 0.8921569 with quadratic weights.
ABSTRACTORS: Table = [[13, 0, 0], [0, 20, 7], [0, 4, 56]]
# irr (Gamer et al.), data set anxiety, first two raters: kappa2(…, "squared") gives 0.297.
ANXIETY = (
    [3, 3, 3, 4, 5, 5, 2, 3, 5, 2, 2, 6, 1, 5, 2, 2, 1, 2, 4, 3],
    [3, 6, 4, 6, 2, 4, 2, 4, 3, 3, 2, 3, 3, 3, 2, 2, 1, 3, 3, 4],
)


def ratings(table: Table) -> tuple[list[int], list[int]]:
    """The two columns of ratings that a contingency table counts."""
    cells = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    return [i for i, _ in cells], [j for _, j in cells]


def kappa_by_matrix(first: list[int], second: list[int]) -> float | None:
    """The definition, with explicit matrices of counts and weights."""
    observed = np.zeros((10, 10))
    for a, b in zip(first, second, strict=True):
        observed[a, b] += 1
    expected = np.outer(observed.sum(axis=1), observed.sum(axis=0)) / len(first)
    i, j = np.indices((10, 10))
    weights = (i - j) ** 2 / 81
    chance = float((weights * expected).sum())
    return 1 - float((weights * observed).sum()) / chance if chance else None


# -- worked examples
@pytest.mark.parametrize(
    ("first", "second", "published"),
    [(*ratings(ABSTRACTORS), 0.8921569), (*ANXIETY, 0.297), (*ratings([[20, 5], [10, 15]]), 0.4)],
    ids=["irrCAC abstractors", "irr anxiety", "Cohen's two categories"],
)
def test_kappa_of_published_examples(first: list[int], second: list[int], published: float) -> None:
    estimate = quadratic_weighted_kappa(first, second)

    assert estimate.value == pytest.approx(published, abs=5e-4 if published == 0.297 else 1e-7)
    assert estimate.n == len(first)


@given(PAIRS)
def test_kappa_is_what_its_definition_says(pairs: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    expected = kappa_by_matrix(first, second)

    value = quadratic_weighted_kappa(first, second, resamples=100).value

    assert value is None if expected is None else value == pytest.approx(expected, abs=1e-9)


@given(PAIRS)
def test_spearman_is_what_scipy_computes_ties_or_not(pairs: list[tuple[int, int]]) -> None:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    assume(len(set(first)) > 1 and len(set(second)) > 1)

    assert spearman(first, second, resamples=100).value == pytest.approx(
        float(stats.spearmanr(first, second).statistic), abs=1e-9
    )


# -- intervals
def test_intervals_are_those_of_scipys_percentile_bootstrap() -> None:
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 10, 60)
    judge = np.clip(truth + rng.integers(-3, 4, 60), 0, 9)

    def kappa(a: np.ndarray, b: np.ndarray) -> float:
        return kappa_by_matrix(a.tolist(), b.tolist()) or 0.0

    def rho(a: np.ndarray, b: np.ndarray) -> float:
        return float(stats.spearmanr(a, b).statistic)

    for ours, theirs in ((quadratic_weighted_kappa, kappa), (spearman, rho)):
        interval = ours(truth.tolist(), judge.tolist()).interval
        reference = stats.bootstrap(
            (truth, judge), theirs, paired=True, vectorized=False, method="percentile", n_resamples=1500, rng=1
        ).confidence_interval
        assert interval is not None
        assert interval.high == pytest.approx(reference.high, abs=0.03)
        # Kappa's lower end has one disagreement more.
        assert (
            reference.low - (0.06 if ours is quadratic_weighted_kappa else 0.03) < interval.low < reference.low + 0.03
        )


# -- what must not change the figures
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_items_changes_neither_value_nor_interval(pairs: list[tuple[int, int]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    for statistic in (quadratic_weighted_kappa, spearman):
        before, after = (statistic([a for a, _ in p], [b for _, b in p], resamples=100) for p in (pairs, shuffled))
        assert before == after


# -- degenerate input
@pytest.mark.parametrize("statistic", [quadratic_weighted_kappa, spearman])
@pytest.mark.parametrize(("items", "reason"), [([], "0 items"), ([7], "1 items")])
def test_fewer_than_two_items_have_no_agreement(statistic: object, items: list[int], reason: str) -> None:
    estimate = statistic(items, items)  # type: ignore[operator]

    assert (estimate.value, estimate.interval) == (None, None)
    assert reason in estimate.reason


def test_raters_who_never_vary_have_no_agreement() -> None:
    estimate = quadratic_weighted_kappa([7] * 10, [7] * 10)

    assert (estimate.value, estimate.interval, estimate.n) == (None, None, 10)
    assert estimate.reason == "both raters gave one and the same rating throughout"


def test_a_constant_rater_has_no_rank_correlation() -> None:
    assert spearman([1, 2, 3], [5, 5, 5]).value is None
    assert "same rating to every item" in spearman([1, 2, 3], [5, 5, 5]).reason


@pytest.mark.parametrize(
    ("ratings", "least", "most"),
    [
        ([1, 4, 6, 9, 2] * 4, 0.6, 0.75),
        ([0, 9] * 10, 0.6, 0.75),
        ([0, 9] * 40, 0.88, 0.93),
        ([1, 4, 6, 9, 2] * 40, 0.94, 0.98),
    ],
)
def test_perfect_agreement_has_an_interval_that_narrows_with_labels(
    ratings: list[float], least: float, most: float
) -> None:
    estimate = quadratic_weighted_kappa(ratings, ratings)

    assert estimate.value == pytest.approx(1)
    assert estimate.interval is not None
    assert least < estimate.interval.low < most
    assert estimate.interval.high == 1


@pytest.mark.parametrize("kappa", [0.8, 0.9, 0.98])
@pytest.mark.parametrize("n", [20, 40, 80])
def test_the_lower_end_of_kappa_holds_in_95_of_100(n: int, kappa: float) -> None:
    """A judge of two values that errs rarely: most samples of 20 show no error at all."""
    rng = np.random.default_rng(n)
    errors = (1 - kappa) / 2  # of values that are equally frequent
    held = defined = 0
    for _ in range(200):
        people = rng.integers(0, 2, n) * 9
        judge = np.where(rng.random(n) < errors, 9 - people, people)
        interval = quadratic_weighted_kappa(judge.tolist(), people.tolist(), resamples=300).interval
        if interval is not None:
            defined += 1
            held += interval.low <= kappa

    assert held / defined >= 0.95


@pytest.mark.parametrize(
    ("judge", "agrees_less"),
    [([0, 9, 4, 6] * 10, False), ([9, 0, 5, 5] * 10, True)],  # as one of the two people; the opposite of what both say
)
def test_a_judge_that_agrees_less_than_two_people_do_is_seen(judge: list[float], agrees_less: bool) -> None:
    estimate = kappa_beyond_people(judge, [(0, 0), (9, 8), (4, 5), (6, 6)] * 10)

    assert estimate.n == 40
    assert estimate.interval is not None
    assert (estimate.interval.high < 0) == agrees_less


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_rating_that_is_no_number_is_named(bad: float) -> None:
    with pytest.raises(ValueError, match=r"second rater: number 2 is (nan|inf)"):
        quadratic_weighted_kappa([1, 2], [1, bad])


def test_lists_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="first rater has 2 ratings, the second 3"):
        spearman([1, 2], [1, 2, 3])


# -- any number of raters
N = None
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units.
FOUR_OBSERVERS: list[list[int | None]] = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
TWELVE_UNITS = [list(unit) for unit in zip(*FOUR_OBSERVERS, strict=True)]


def test_alpha_of_four_observers_and_twelve_units() -> None:
    estimate = krippendorff_alpha(TWELVE_UNITS)

    assert estimate.value == pytest.approx(0.849, abs=5e-4)
    assert estimate.n == 11  # the twelfth unit has one rating and pairs with nothing
    assert krippendorff_alpha([[r for r in unit[::-1] if r is not None] for unit in TWELVE_UNITS[::-1]]) == estimate


def test_the_interval_of_alpha_is_that_of_scipys_percentile_bootstrap_over_items() -> None:
    rng = np.random.default_rng(3)
    items = [[int(np.clip(t + rng.integers(-1, 2), 0, 5)) for _ in range(3)] for t in rng.integers(0, 6, 40)]

    def alpha(index: np.ndarray) -> float:
        return krippendorff_alpha([items[int(i)] for i in index], resamples=2).value or 0.0

    interval = krippendorff_alpha(items).interval
    reference = stats.bootstrap(
        (np.arange(40),), alpha, vectorized=False, method="percentile", n_resamples=200, rng=1
    ).confidence_interval

    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high), abs=0.06)


@pytest.mark.parametrize(
    ("items", "n", "reason"),
    [
        ([], 0, "0 items with two ratings or more"),
        ([[1, 2], [3, None]], 1, "1 items with two ratings or more"),
        ([[4, 4], [4, 4, None]], 2, "all ratings are the same"),
    ],
)
def test_too_little_to_agree_about_has_no_alpha(items: list[list[int | None]], n: int, reason: str) -> None:
    estimate = krippendorff_alpha(items)

    assert (estimate.value, estimate.interval, estimate.n) == (None, None, n)
    assert reason in estimate.reason


# -- a judge and itself
def test_noise_is_the_residual_of_the_analysis_of_variance() -> None:
    groups = [[7, 8, 7], [2, 4], [5, 5, 6, 9]]
    grand = np.mean(np.concatenate([np.array(g) for g in groups]))
    between = sum(len(g) * (np.mean(g) - grand) ** 2 for g in groups) / (len(groups) - 1)

    noise = judge_noise([*groups, [3], []])  # what was judged once says nothing of noise

    assert noise is not None
    assert noise**2 == pytest.approx(between / stats.f_oneway(*groups).statistic)


@pytest.mark.parametrize(("repeats", "noise"), [([], None), ([[5], [6]], None), ([[5, 5], [8, 8, 8]], 0)])
def test_without_repeats_there_is_no_noise_and_equal_repeats_have_none(
    repeats: list[list[int]], noise: float | None
) -> None:
    assert judge_noise(repeats) == noise


def test_ratings_that_are_alike_in_a_conversation_widen_the_interval_of_kappa() -> None:
    people = [0.0, 9.0, 5.0, 7.0] * 20
    judge = [*people[:40], *([9.0, 0.0, 7.0, 5.0] * 10)]  # right in half of the conversations, wrong in the other half
    conversations = [number // 4 for number in range(80)]

    alone = quadratic_weighted_kappa(people, judge)
    together = quadratic_weighted_kappa(people, judge, clusters=conversations)
    too_few = quadratic_weighted_kappa(people, judge, clusters=[number // 20 for number in range(80)])

    assert alone.interval is not None
    assert together.interval is not None
    assert together.value == alone.value
    width = alone.interval.high - alone.interval.low
    assert together.interval.high - together.interval.low > 1.3 * width
    assert too_few == alone
