"""How well a score tells two kinds of things apart: the area under the ROC curve, within strata, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval

LEAST = 5  # scores of each kind, over all strata


class Compared(NamedTuple):
    """One stratum: how many of each kind, in how many pairs one is compared with the other, and how many the first kind won."""

    first: int
    second: int
    pairs: int
    wins: float  # a tie is half a win


def area_of(strata: Sequence[Compared]) -> Estimate:
    """The chance that one of the first kind scores higher than one of the second of the same stratum; ties count half.

    0.5 is chance, 1 a score that never errs. The area of each stratum weighs as many pairs as it has, so that strata whose scores are high
    for both kinds do not pass as separation.

    The interval is Newcombe's method 5 ("Confidence intervals for an effect size measure based on the Mann–Whitney statistic, part 2",
    Statistics in Medicine 25, 2006, 559–573): the areas whose own standard error (Hanley & McNeil 1982) reaches the observed one. It has
    a width at 0 and 1, too, where a bootstrap has none. The variances of strata add up, as if one area held in all of them; it speaks for
    these strata, and takes the scores of one as independent.

    Args:
        strata: One without a pair counts for nothing.

    Returns:
        `n` counts the scores of both kinds. No value for fewer than 5 of either.
    """
    strata = [one for one in strata if one.pairs]
    firsts, seconds = sum(one.first for one in strata), sum(one.second for one in strata)
    if min(firsts, seconds) < LEAST:
        return Estimate(None, None, firsts + seconds, f"at least {LEAST} scores of each kind are needed")
    total = sum(one.pairs for one in strata)
    area = sum(one.wins for one in strata) / total

    def error(theta: float) -> float:
        """The standard error if `theta` were the true area."""
        variance = 0.0
        for m, n, pairs, _ in strata:
            more = (m + n) / 2 - 1
            spread = 1 + more * (1 - theta) / (2 - theta) + more * theta / (1 + theta)
            variance += (pairs / total) ** 2 * theta * (1 - theta) * spread / (m * n)
        return sqrt(variance)

    z = NormalDist().inv_cdf((1 + LEVEL) / 2)

    def end(inside: float, outside: float) -> float:
        """Where the observed area is just within z standard errors, between it and 0 or 1."""
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if abs(middle - area) <= z * error(middle) else (inside, middle)
        return inside

    return Estimate(area, Interval(min(area, end(area, 0.0)), max(area, end(area, 1.0))), firsts + seconds)
