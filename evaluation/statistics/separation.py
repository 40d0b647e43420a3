"""How well a score tells two kinds of things apart: the area under the ROC curve, within strata, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval

LEAST_SCORES = 5  # of each kind, over all strata


class Stratum(NamedTuple):
    """How many scores of each kind a stratum has, in how many pairs they are compared, and how many pairs the first kind won."""

    first: int
    second: int
    pairs: int
    wins: float  # a tie is half a win


def area_of(strata: Sequence[Stratum]) -> Estimate:
    """Return the chance that one of the first kind scores higher than one of the second of the same stratum; ties count half.

    0.5 is chance, 1 a score that never errs. The area of each stratum weighs as many pairs as it has, so that strata whose scores are high
    for both kinds do not pass as separation.

    The interval is Newcombe's method 5 ("Confidence intervals for an effect size measure based on the Mann–Whitney statistic, part 2",
    Statistics in Medicine 25, 2006, 559–573): the areas whose own standard error (Hanley & McNeil 1982) reaches the observed one. It has
    a width at 0 and 1, too, where a bootstrap has none. The variances of strata add up, as if one area held in all of them; it speaks for
    these strata, and takes the scores of one as independent.

    Args:
        strata: One without a pair is left out.

    Returns:
        `n` counts the scores of both kinds. No value for fewer than 5 of either.
    """
    strata = [stratum for stratum in strata if stratum.pairs]
    first = sum(stratum.first for stratum in strata)
    second = sum(stratum.second for stratum in strata)
    if min(first, second) < LEAST_SCORES:
        return Estimate(None, None, first + second, f"at least {LEAST_SCORES} scores of each kind are needed")
    total = sum(stratum.pairs for stratum in strata)
    area = sum(stratum.wins for stratum in strata) / total

    def error(theta: float) -> float:
        """Return the standard error if `theta` were the true area."""
        variance = 0.0
        for m, n, pairs, _ in strata:
            more = (m + n) / 2 - 1
            spread = 1 + more * (1 - theta) / (2 - theta) + more * theta / (1 + theta)
            variance += (pairs / total) ** 2 * theta * (1 - theta) * spread / (m * n)
        return sqrt(variance)

    z = NormalDist().inv_cdf((1 + LEVEL) / 2)

    def end(inside: float, outside: float) -> float:
        """Return the area, between `inside` and `outside`, from which the observed one is just z standard errors away."""
        for _ in range(60):
            middle = (inside + outside) / 2
            if abs(middle - area) <= z * error(middle):
                inside = middle
            else:
                outside = middle
        return inside

    # Halving may stop a rounding error short of the area itself.
    low = min(area, end(area, 0.0))
    high = max(area, end(area, 1.0))
    return Estimate(area, Interval(low, high), first + second)
