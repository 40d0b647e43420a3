"""Two arms of an experiment: their means, effect sizes, and how sure a difference is, taking each score and taking each environment.

Agents that talk to each other are alike, so scores of one environment are not independent: a test that takes each for itself (`welch`)
finds effects that are not there. `permutation_p` takes environments, which were assigned to arms as wholes; the verdict is its.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from evaluation.statistics.bootstrap import LEVEL, Interval, finite_numbers
from evaluation.statistics.difference import ALPHA, LEAST_P, POWER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

PERMUTATIONS = 9_999  # ways to swap pairs that are drawn, where there are too many to go through all
MOST_EXACT_PAIRS = 13  # 2¹³ ways to swap them: up to here all are gone through
LEAST_PAIRS = 3
MOST_PAIRS = 10_000_000
MOST_D = 20.0  # standard deviations; any larger difference is detected
FEW_WAYS = 20  # so few ways rare enough that the power of the test is tried, not computed
DRAWN_EXPERIMENTS = 4_000  # on which it is tried
LARGEST_SHIFT = 30  # from which on the non-central t overflows, and the power is 1

Arm = Mapping[Any, Sequence[float]]  # the scores of each environment


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's t test: the statistic, its degrees of freedom (Welch–Satterthwaite), two-sided p, at least `LEAST_P`."""

    t: float
    df: float
    p: float


@dataclass(frozen=True, slots=True)
class Effect:
    """A standardised difference of means: Cohen's `d`, by the pooled standard deviation, and Hedges' `g`, each with its 95 % interval."""

    d: float
    g: float
    interval: Interval
    g_interval: Interval


def welch(treatment: Sequence[float], control: Sequence[float]) -> Welch | None:
    """Test the difference of two means, treatment less control, each score taken for itself.

    None for fewer than 2 scores in one, or where the scores of neither arm vary. Raises ValueError for a score that is no finite number.
    """
    a = finite_numbers("treatment", treatment)
    b = finite_numbers("control", control)
    if min(len(a), len(b)) < 2 or not (a.var() or b.var()):
        return None
    from scipy.special import stdtr

    variance_a = float(a.var(ddof=1)) / len(a)  # of the mean
    variance_b = float(b.var(ddof=1)) / len(b)
    t = float(a.mean() - b.mean()) / math.sqrt(variance_a + variance_b)
    df = (variance_a + variance_b) ** 2 / (variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1))
    return Welch(t, df, max(LEAST_P, float(2 * stdtr(df, -abs(t)))))


def effect(treatment: Sequence[float], control: Sequence[float]) -> Effect | None:
    """Return how large treatment less control is, in standard deviations; None for fewer than 2 scores in one, or where none varies.

    Hedges & Olkin, "Statistical Methods for Meta-Analysis" (1985), chapter 5: g with the exact factor, the variance of d from its size.
    """
    a = finite_numbers("treatment", treatment)
    b = finite_numbers("control", control)
    n = len(a)
    m = len(b)
    if min(n, m) < 2:
        return None
    pooled = math.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / (n + m - 2))
    if not pooled:
        return None
    from scipy.special import ndtri

    d = float(a.mean() - b.mean()) / pooled
    df = n + m - 2
    # Hedges' correction: d is too large in small samples.
    factor = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    reach = float(ndtri((1 + LEVEL) / 2)) * math.sqrt((n + m) / (n * m) + d * d / (2 * (n + m)))
    interval = Interval(d - reach, d + reach)
    return Effect(d, factor * d, interval, Interval(factor * interval.low, factor * interval.high))


def intraclass(*arms: Arm) -> float | None:
    """Return how alike scores of one environment are, 1 = equal: ICC(1) of a one-way analysis of variance with unequal sizes, arms apart.

    Donner, International Statistical Review 54 (1986), 67–82. Below 0 when environments differ less than chance makes them.

    Returns:
        None where no environment has two scores, no arm has two environments, or all scores are equal.
    """
    squares_between = squares_within = 0.0
    freedom_between = freedom_within = 0
    effective_scores = 0.0
    for arm in arms:
        environments = [finite_numbers("scores", scores) for scores in arm.values() if len(scores)]
        if not environments:
            continue
        n = sum(len(scores) for scores in environments)
        mean = sum(float(scores.sum()) for scores in environments) / n
        for scores in environments:
            squares_between += len(scores) * (float(scores.mean()) - mean) ** 2
            squares_within += float(((scores - scores.mean()) ** 2).sum())
        freedom_between += len(environments) - 1
        freedom_within += n - len(environments)
        effective_scores += n - sum(len(scores) ** 2 for scores in environments) / n
    if freedom_between < 1 or freedom_within < 1:
        return None
    typical_size = effective_scores / freedom_between  # of an environment
    between = squares_between / freedom_between
    within = squares_within / freedom_within
    if not between and not within:
        return None
    return (between - within) / (between + (typical_size - 1) * within)


def permutation_p(treatment: Arm, control: Arm, *, seed: int = 0) -> float | None:
    """Return the two-sided p of no difference of the means of all scores: each environment swaps its arms, its scores stay together.

    All ways are gone through up to 13 pairs, else 9,999 drawn ones and the real one (Phipson & Smyth, Statistical Applications in
    Genetics and Molecular Biology 9 (2010), 39; `seed` is that of the draw). Environments with scores in one arm only are left out.

    Returns:
        In (0, 1]; None for fewer than 3 pairs.
    """
    import numpy as np

    sums_treatment = _sums(treatment)
    sums_control = _sums(control)
    pairs = [environment for environment in sums_treatment if environment in sums_control]
    if len(pairs) < LEAST_PAIRS:
        return None
    rows = np.array([sums_treatment[pair] for pair in pairs] + [sums_control[pair] for pair in pairs])
    as_it_was = np.zeros((1, len(pairs)), dtype=bool)
    real = abs(_difference_for_each_way(rows, as_it_was)[0])
    at_least = real - 1e-9 * max(1.0, real)  # as extreme, but for rounding
    if len(pairs) <= MOST_EXACT_PAIRS:
        flips = _all_flips(len(pairs))
        return int((np.abs(_difference_for_each_way(rows, flips)) >= at_least).sum()) / len(flips)
    flips = _drawn_flips(len(pairs), seed)
    extreme = int((np.abs(_difference_for_each_way(rows, flips)) >= at_least).sum())
    return (1 + extreme) / (1 + PERMUTATIONS)


def least_p(pairs: int) -> float:
    """Return the smallest p that `permutation_p` can give for so many pairs: that of the real assignment and its mirror image."""
    if pairs <= MOST_EXACT_PAIRS:
        return 2.0 ** (1 - pairs)
    return 1 / (1 + PERMUTATIONS)


def pairs_for_a_verdict(comparisons: int) -> int:
    """Return how many pairs it takes until any of so many comparisons can be significant after Holm's correction.

    Raises:
        ValueError: 500 comparisons or more, of which none ever can.
    """
    # The last number tried is the first whose ways are drawn: from there on the smallest p does not fall any more.
    for pairs in range(LEAST_PAIRS, MOST_EXACT_PAIRS + 2):
        if comparisons * least_p(pairs) < ALPHA:
            return pairs
    raise ValueError(f"{comparisons} comparisons; allowed: fewer than 500")


def power(d: float, pairs: int, comparisons: int = 1) -> float:
    """Return the chance that `permutation_p`, corrected by Holm, is below 0.05 for the only one of the comparisons that differs.

    Differences of pairs are taken as normal. The test is that of Student (Hoeffding, Annals of Mathematical Statistics 23 (1952),
    169–192) at the largest p that it can give below the limit, so its power is that of the non-central t. Where only a few of the ways
    to swap the pairs are rare enough, that is too good, and the test itself is tried on drawn pairs.

    Args:
        d: The true difference, above 0, in standard deviations of the pairs' differences.
        comparisons: Tested at once, this one included.
    """
    limit = ALPHA / comparisons
    is_exact = pairs <= MOST_EXACT_PAIRS
    ways = 2 ** (pairs - 1) if is_exact else 1 + PERMUTATIONS  # a way and its mirror image are one
    # For p to be below the limit the real way must be among so many of the most extreme.
    rare_ways = math.ceil(limit * ways) - 1
    if pairs < LEAST_PAIRS or rare_ways < 1:
        return 0.0
    if is_exact and rare_ways <= FEW_WAYS:
        detected_from = _smallest_detected_d(pairs, rare_ways)
        return float(detected_from.searchsorted(d)) / len(detected_from)  # the share of experiments that detect d
    shift = d * math.sqrt(pairs)
    if shift > LARGEST_SHIFT:
        return 1.0
    from scipy.special import nctdtr, stdtrit

    freedom = pairs - 1
    critical_t = stdtrit(freedom, 1 - rare_ways / ways / 2)
    return 1 - float(nctdtr(freedom, shift, critical_t))


@cache
def detectable_d(pairs: int, comparisons: int = 1) -> float | None:
    """Return the smallest `d` that is detected with power 0.8, to 0.001; None where none could be."""
    low = 0.0
    high = MOST_D
    if power(high, pairs, comparisons) < POWER:
        return None
    while high - low > 0.0005:
        middle = (low + high) / 2
        if power(middle, pairs, comparisons) < POWER:
            low = middle
        else:
            high = middle
    return high


def pairs_needed(d: float, comparisons: int = 1) -> int | None:
    """Return how many pairs detect a difference of `d` with power 0.8; None where it takes more than ten million."""
    high = pairs_for_a_verdict(comparisons)
    while power(d, high, comparisons) < POWER:
        high *= 2
        if high > MOST_PAIRS:
            return None

    def suffices(pairs: int) -> bool:
        return power(d, pairs, comparisons) >= POWER

    # Half as many are too few; `high` where none below it does.
    return bisect_left(range(high), True, lo=high // 2, key=suffices)


def detectable(treatment: Arm, control: Arm, comparisons: int = 1) -> float | None:
    """Return the smallest true difference that as many pairs would detect with power 0.8, in points; None where none could be."""
    differences = _differences_of_pairs(treatment, control)
    smallest = detectable_d(len(differences), comparisons)
    if smallest is None:
        return None
    return smallest * _deviation(differences)


def environments_needed(change: float, treatment: Arm, control: Arm, comparisons: int = 1) -> int | None:
    """Return how many pairs detect a true difference of so many points with power 0.8.

    Returns:
        None for no difference, fewer than 2 pairs, or where more than ten million would be needed.
    """
    differences = _differences_of_pairs(treatment, control)
    if len(differences) < 2 or not change:
        return None
    deviation = _deviation(differences)
    d = min(MOST_D, abs(change) / deviation) if deviation else MOST_D  # equal differences: any change is beyond them
    return pairs_needed(d, comparisons)


def _sums(arm: Arm) -> dict[Hashable, tuple[float, float]]:
    """Return sum and number of the scores of each environment."""
    sums = {}
    for environment, scores in arm.items():
        if scores:
            sums[environment] = (float(finite_numbers("scores", scores).sum()), float(len(scores)))
    return sums


def _differences_of_pairs(treatment: Arm, control: Arm) -> list[float]:
    """Return the differences of the means of environments that both arms have."""
    sums_control = _sums(control)
    differences = []
    for environment, (total, n) in _sums(treatment).items():
        if environment in sums_control:
            total_control, n_control = sums_control[environment]
            differences.append(total / n - total_control / n_control)
    return differences


def _deviation(differences: Sequence[float]) -> float:
    import numpy as np

    return float(np.std(differences, ddof=1))


@cache
def _smallest_detected_d(pairs: int, rare_ways: int) -> Floats:
    """Return from which `d` on the test detects it in each of some drawn experiments, sorted.

    A way to swap some pairs is as extreme as the real assignment when the mean of these pairs' differences is ≤ 0. So in an experiment
    of normal differences with mean 0 a shift of all of them by `d` is detected once fewer than `rare_ways` ways have such a mean.
    """
    import numpy as np

    differences = np.random.default_rng(pairs).standard_normal((DRAWN_EXPERIMENTS, pairs))
    swapped = _all_flips(pairs)[1:].astype(float)  # the first way swaps none
    swapped /= swapped.sum(axis=1, keepdims=True)
    detected_from: list[Floats] = []
    for experiments in np.array_split(differences, DRAWN_EXPERIMENTS // 500):  # which keeps the tables small
        shifts = experiments @ -swapped.T
        detected_from.append(np.partition(shifts, -rare_ways, axis=1)[:, -rare_ways])
    return np.sort(np.concatenate(detected_from))


def _difference_for_each_way(rows: Floats, flips: NDArray[np.bool_]) -> Floats:
    """Return treatment less control, of the means of all scores, for each way to swap pairs.

    Args:
        rows: Sum and number of the scores of each environment, the treatment's, then the control's.
        flips: A row for each way; True where a pair's two arms are swapped.
    """
    import numpy as np

    treatment = np.concatenate([~flips, flips], axis=1).astype(float) @ rows
    control = rows.sum(axis=0) - treatment
    difference: Floats = treatment[:, 0] / treatment[:, 1] - control[:, 0] / control[:, 1]
    return difference


def _all_flips(n: int) -> NDArray[np.bool_]:
    """Return all ways to swap `n` pairs, a row each; the first swaps none."""
    import numpy as np

    flips: NDArray[np.bool_] = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    return flips


def _drawn_flips(n: int, seed: int) -> NDArray[np.bool_]:
    """Return drawn ways to swap `n` pairs, a row each."""
    import numpy as np

    return np.random.default_rng(seed).integers(0, 2, (PERMUTATIONS, n)).astype(bool)
