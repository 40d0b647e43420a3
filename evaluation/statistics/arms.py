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

from evaluation.statistics.bootstrap import LEVEL, Interval, numbers
from evaluation.statistics.difference import ALPHA, POWER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

PERMUTATIONS = 9_999
MOST_EXACT_PAIRS = 13  # 2¹³ ways to swap them: up to here all are gone through
LEAST_PAIRS, MOST_PAIRS = 3, 10_000_000
MOST_D = 20.0  # beyond, all is found
FEW_WAYS, DRAWN = 20, 4_000

Arm = Mapping[Any, Sequence[float]]  # the scores of each environment


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's t test: the statistic, its degrees of freedom (Welch–Satterthwaite), two-sided p."""

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
    """Test the difference of two means, each score taken for itself; None for fewer than 2 scores in one, or none that varies."""
    a, b = numbers("treatment", treatment), numbers("control", control)
    if min(len(a), len(b)) < 2 or not (a.var() or b.var()):
        return None
    from scipy.special import stdtr

    one, other = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    t = float(a.mean() - b.mean()) / math.sqrt(one + other)
    df = (one + other) ** 2 / (one**2 / (len(a) - 1) + other**2 / (len(b) - 1))
    return Welch(t, df, float(2 * stdtr(df, -abs(t))))


def effect(treatment: Sequence[float], control: Sequence[float]) -> Effect | None:
    """How large the difference of two means is, in standard deviations; None for fewer than 2 scores in one, or none that varies.

    Hedges & Olkin, "Statistical Methods for Meta-Analysis" (1985), chapter 5: g with the exact factor, the variance of d from its size.
    """
    a, b = numbers("treatment", treatment), numbers("control", control)
    n, m = len(a), len(b)
    if min(n, m) < 2:
        return None
    pooled = math.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / (n + m - 2))
    if not pooled:
        return None
    from scipy.special import ndtri

    d = float(a.mean() - b.mean()) / pooled
    df = n + m - 2
    factor = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    reach = float(ndtri((1 + LEVEL) / 2)) * math.sqrt((n + m) / (n * m) + d * d / (2 * (n + m)))
    interval = Interval(d - reach, d + reach)
    return Effect(d, factor * d, interval, Interval(factor * interval.low, factor * interval.high))


def intraclass(*arms: Arm) -> float | None:
    """How alike scores of one environment are, 1 = equal: ICC(1) of a one-way analysis of variance with unequal sizes, arms apart.

    Donner, International Statistical Review 54 (1986), 67–82. Below 0 when environments differ less than chance makes them.

    Returns:
        None where no environment has two scores, or all scores are equal.
    """
    groups = [[numbers("scores", scores) for scores in arm.values() if len(scores)] for arm in arms]
    sizes = [len(scores) for arm in groups for scores in arm]
    freedom = len(sizes) - sum(bool(arm) for arm in groups)
    inside = sum(sizes) - len(sizes)
    if freedom < 1 or inside < 1:
        return None
    between = within = typical = 0.0
    for arm in groups:
        total = sum(len(scores) for scores in arm)
        mean = sum(float(scores.sum()) for scores in arm) / total if total else 0.0
        between += sum(len(scores) * (float(scores.mean()) - mean) ** 2 for scores in arm)
        within += sum(float(((scores - scores.mean()) ** 2).sum()) for scores in arm)
        typical += total - sum(len(scores) ** 2 for scores in arm) / total if total else 0.0
    size = typical / freedom
    a, b = between / freedom, within / inside
    return (a - b) / (a + (size - 1) * b) if a or b else None


def permutation_p(treatment: Arm, control: Arm, *, seed: int = 0) -> float | None:
    """Return the two-sided p of no difference of the means of all scores: each environment swaps its arms, its scores stay together.

    All ways are gone through up to 13 pairs, else 9,999 drawn ones and the real one (Phipson & Smyth, Statistical Applications in
    Genetics and Molecular Biology 9 (2010), 39). Environments that are in one arm only are left out.

    Returns:
        In (0, 1]; None for fewer than 3 pairs.
    """
    import numpy as np

    a, b = _sums(treatment), _sums(control)
    pairs = [key for key in a if key in b]
    if len(pairs) < LEAST_PAIRS:
        return None
    rows = np.array([*(a[key] for key in pairs), *(b[key] for key in pairs)])
    exact = len(pairs) <= MOST_EXACT_PAIRS
    flips = _all_flips(len(pairs)) if exact else _drawn_flips(len(pairs), seed)
    as_it_was = np.zeros((1, len(pairs)), dtype=bool)
    real = abs(_difference(rows, as_it_was)[0])
    extreme = int((np.abs(_difference(rows, flips)) >= real - 1e-9 * max(1.0, real)).sum())
    return extreme / len(flips) if exact else (1 + extreme) / (1 + PERMUTATIONS)


def least_p(pairs: int) -> float:
    """Return the smallest p that `permutation_p` can give for so many pairs: that of the real assignment and its mirror image."""
    return 2 / 2**pairs if pairs <= MOST_EXACT_PAIRS else 1 / (1 + PERMUTATIONS)


def pairs_for_a_verdict(comparisons: int) -> int:
    """Return how many pairs it takes until any of so many comparisons, below 500, can be significant after Holm's correction."""
    return next(pairs for pairs in range(LEAST_PAIRS, MOST_EXACT_PAIRS + 2) if comparisons * least_p(pairs) < ALPHA)


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
    exact = pairs <= MOST_EXACT_PAIRS
    ways = 2 ** (pairs - 1) if exact else 1 + PERMUTATIONS  # a way and its mirror image are one
    rare = math.ceil(limit * ways) - 1  # p is below the limit
    if pairs < LEAST_PAIRS or rare < 1:
        return 0.0
    if exact and rare <= FEW_WAYS:
        found_from = _found_from(pairs, rare)
        return float(found_from.searchsorted(d)) / len(found_from)
    shift = d * math.sqrt(pairs)
    if shift > 30:  # where the non-central t overflows
        return 1.0
    from scipy.special import nctdtr, stdtrit

    return 1 - float(nctdtr(pairs - 1, shift, stdtrit(pairs - 1, 1 - rare / ways / 2)))


@cache
def detectable_d(pairs: int, comparisons: int = 1) -> float | None:
    """Return the smallest `d` that is found with power 0.8, to 0.001; None where none could be."""
    low, high = 0.0, MOST_D
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
    """Return how many pairs find a difference of `d` with power 0.8; None where more than ten million would."""
    high = pairs_for_a_verdict(comparisons)
    while power(d, high, comparisons) < POWER:
        high *= 2
        if high > MOST_PAIRS:
            return None
    return bisect_left(range(high), True, lo=high // 2, key=lambda pairs: power(d, pairs, comparisons) >= POWER)


def detectable(treatment: Arm, control: Arm, comparisons: int = 1) -> float | None:
    """Return the smallest true difference that as many pairs would find with power 0.8, in points; None where none could be."""
    differences = _differences(treatment, control)
    smallest = detectable_d(len(differences), comparisons)
    return None if smallest is None else smallest * _deviation(differences)


def environments_needed(change: float, treatment: Arm, control: Arm, comparisons: int = 1) -> int | None:
    """Return how many pairs find a true difference of so many points with power 0.8.

    Returns:
        None for no difference, fewer than 2 pairs, or where more than ten million would be needed.
    """
    differences = _differences(treatment, control)
    if len(differences) < 2 or not change:
        return None
    deviation = _deviation(differences)
    return pairs_needed(min(MOST_D, abs(change) / deviation) if deviation else MOST_D, comparisons)


def _sums(arm: Arm) -> dict[Hashable, tuple[float, float]]:
    return {key: (float(numbers("scores", scores).sum()), float(len(scores))) for key, scores in arm.items() if scores}


def _differences(treatment: Arm, control: Arm) -> list[float]:
    """The differences of the means of environments that both arms have."""
    a, b = ({key: total / n for key, (total, n) in _sums(arm).items()} for arm in (treatment, control))
    return [a[key] - b[key] for key in a if key in b]


def _deviation(differences: Sequence[float]) -> float:
    import numpy as np

    return float(np.std(differences, ddof=1))


@cache
def _found_from(pairs: int, rare: int) -> Floats:
    """Return from which `d` on drawn experiments are found, sorted; the real assignment must be among so many of the most extreme ways.

    A way to swap some pairs is as extreme as the real assignment when the mean of these pairs' differences is 0 or less.
    """
    import numpy as np

    drawn = np.random.default_rng(pairs).standard_normal((DRAWN, pairs))
    swapped = _all_flips(pairs)[1:].astype(float)
    swapped /= swapped.sum(axis=1, keepdims=True)
    found: list[Floats] = [
        np.partition(few @ -swapped.T, -rare, axis=1)[:, -rare] for few in np.array_split(drawn, DRAWN // 500)
    ]
    return np.sort(np.concatenate(found))


def _difference(rows: Floats, flips: NDArray[np.bool_]) -> Floats:
    """Return the difference of the means of all scores for each way to swap pairs.

    Args:
        rows: Sum and number of the scores of each environment, the treatment's, then the control's.
    """
    import numpy as np

    one = np.concatenate([~flips, flips], axis=1).astype(float) @ rows
    rest = rows.sum(axis=0) - one
    difference: Floats = one[:, 0] / one[:, 1] - rest[:, 0] / rest[:, 1]
    return difference


def _all_flips(n: int) -> NDArray[np.bool_]:
    import numpy as np

    flips: NDArray[np.bool_] = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    return flips


def _drawn_flips(n: int, seed: int) -> NDArray[np.bool_]:
    import numpy as np

    return np.random.default_rng(seed).integers(0, 2, (PERMUTATIONS, n)).astype(bool)
