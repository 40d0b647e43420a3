"""Many differences looked at at once: some are large by chance. Welch's test for each, Holm's correction for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evaluation.comparison.values import Change, Comparison, Lost
from evaluation.statistics.bootstrap import RESOLUTION, Observation, cluster_sums
from evaluation.statistics.estimates import Interval

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Floats

ALPHA = 0.05


def difference_p(before: Sequence[Observation], now: Sequence[Observation], *, paired: bool = False) -> float | None:
    """Two-sided p of no difference between two weighted means; clusters are drawn, scores within one belong together.

    Welch's t test on the clusters' linearised contributions (Student's on the differences, when paired): the variance of a ratio by
    Taylor linearisation, Cochran, "Sampling Techniques" (1977), section 6.3. With one score per cluster and equal weights it is the
    textbook test. No variance is taken to be smaller than rounding gives, as in `bootstrap_difference`.

    Args:
        before, now: Both sides; paired: with the same clusters on both.

    Returns:
        None where a side (paired: the pairs) has fewer than two clusters.
    """
    if paired:
        tables = cluster_sums(before, now)
        return _test(_difference(tables), [_variance(tables, RESOLUTION * math.sqrt(2))]) if tables else None
    sides = [cluster_sums(side) for side in (before, now)]
    if not all(sides):
        return None
    delta = _difference(sides[1]) - _difference(sides[0])
    return _test(delta, [_variance(tables, RESOLUTION) for tables in sides])


def difference_interval(
    before: Sequence[Observation], now: Sequence[Observation], *, paired: bool = False, level: float = 0.95
) -> Interval:
    """The interval that goes with `difference_p`, by Student's t: for many clusters, where resampling would only cost time.

    Args:
        before, now: At least two clusters each (pairs, when paired).
        paired: As in `difference_p`.
        level: Confidence level.
    """
    from scipy.special import stdtrit

    if paired:
        tables = cluster_sums(before, now)
        delta, variances = _difference(tables), [_variance(tables, RESOLUTION * math.sqrt(2))]
    else:
        sides = [cluster_sums(side) for side in (before, now)]
        delta = _difference(sides[1]) - _difference(sides[0])
        variances = [_variance(tables, RESOLUTION) for tables in sides]
    total, freedom = _welch(variances)
    reach = -float(stdtrit(freedom, (1 - level) / 2)) * math.sqrt(total)
    return Interval(delta - reach, delta + reach, level)


def from_fixed_p(fixed: float, observations: Sequence[Observation]) -> float | None:
    """Two-sided p of the weighted mean being `fixed`; None for fewer than two clusters."""
    tables = cluster_sums(observations)
    return _test(_difference(tables) - fixed, [_variance(tables, RESOLUTION)]) if tables else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: Holm, Scandinavian Journal of Statistics 6 (1979), 65–70.

    Whatever depends on whatever, the chance that any true "no difference" gets one of at most 0.05 is at most 5 %.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Comparisons looked at together: a difference that chance would give somewhere among so many is not called drifted.

    Two families: the dimensions of all of them, and the propositions of all of them; in each the chance of any false ``drifted`` is at
    most 5 %. It only ever takes verdicts back, so it may be applied again to more comparisons at once. Where a proposition was lost and
    nothing surely got worse the verdict is ``not enough data``.
    """
    found = list(comparisons)
    dimensions = iter(_family([change for c in found for change in c.dimensions], "dimensions"))
    propositions = iter(
        _family([change for c in found for rows in c.propositions.values() for change in rows], "propositions")
    )
    return [
        replace(
            c,
            dimensions=tuple(_with_lost(next(dimensions), c.lost) for _ in c.dimensions),
            propositions={
                d: tuple(_with_lost(next(propositions), c.lost) for _ in rows) for d, rows in c.propositions.items()
            },
        )
        for c in found
    ]


def _family(changes: Sequence[Change], what: str) -> list[Change]:
    tested = [change.p_value for change in changes if change.p_value is not None]
    corrected = iter(holm(tested))
    return [
        change if change.p_value is None else _with_adjusted(change, next(corrected), len(tested), what)
        for change in changes
    ]


def _with_adjusted(change: Change, p: float, among: int, what: str) -> Change:
    if change.verdict != "drifted" or p <= ALPHA:
        return replace(change, p_adjusted=p)
    reason = (
        f"alone it would count as drifted, but among {among} {what} chance gives such a difference (p {p:.2g}, Holm)"
        if among > 1
        else f"the interval just leaves zero out, a test of the difference does not (p {p:.3g})"
    )
    return replace(change, p_adjusted=p, verdict="cannot tell yet", n_more=None, reason=reason)


def _with_lost(change: Change, lost: Sequence[Lost]) -> Change:
    of_it = [one for one in lost if one.dimension == change.dimension and change.proposition in ("", one.proposition)]
    if not of_it or change.worse:
        return change
    known = (
        [change.reason] if change.verdict == "not enough data" else []
    )  # of a dimension without a score; or marked before
    reasons = [*known, *(str(one) for one in of_it if str(one) not in change.reason)]
    return replace(change, verdict="not enough data", n_more=None, reason="; ".join(reasons))


def _difference(tables: Sequence[Floats]) -> float:
    """The weighted mean, or with two samples their difference."""
    totals = sum(table.sum(axis=0) for table in tables)
    half = tables[0].shape[1] // 2
    means = [float(totals[i] / totals[half + i]) for i in range(half)]
    return means[0] if half == 1 else means[1] - means[0]


def _variance(tables: Sequence[Floats], resolution: float) -> tuple[float, int]:
    """Variance of that, and its degrees of freedom."""
    import numpy as np

    table = np.concatenate(list(tables))
    half, clusters = table.shape[1] // 2, len(table)
    if clusters < 2:
        return 0.0, 0
    sums, weights = table[:, :half], table[:, half:]
    errors = (sums - weights * (sums.sum(axis=0) / weights.sum(axis=0))) / weights.mean(axis=0)
    deviation = errors[:, 0] if half == 1 else errors[:, 1] - errors[:, 0]
    variance = float((deviation**2).sum()) / (clusters - 1) / clusters
    return max(variance, resolution**2 / 12 / clusters), clusters - 1


def _test(delta: float, variances: Sequence[tuple[float, int]]) -> float | None:
    from scipy.special import stdtr

    if any(freedom < 1 for _, freedom in variances):
        return None
    total, freedom = _welch(variances)
    return float(2 * stdtr(freedom, -abs(delta) / math.sqrt(total)))


def _welch(variances: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The variances' sum, and its degrees of freedom (Welch–Satterthwaite)."""
    total = sum(variance for variance, _ in variances)
    return total, total**2 / sum(variance**2 / freedom for variance, freedom in variances)
