"""How well raters agree (kappa, Spearman, Krippendorff's alpha), and how well a judge agrees with itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from evaluation.statistics.bootstrap import Estimate, numbers, percentile_estimate, replicates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

RESAMPLES = 2_000


def quadratic_weighted_kappa(
    first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES
) -> Estimate:
    """Cohen's kappa with quadratic weights: 1 − observed ÷ chance-expected squared difference of two raters.

    Source: Cohen, "Weighted kappa", Psychological Bulletin 70 (1968), 213–220; Fleiss & Cohen (1973) for the quadratic weights, which are
    squared differences of the *values*: no list of categories is needed. Interval: percentile bootstrap over items.

    Args:
        first, second: Ratings of the two, shape (items,), same items in the same order, on an interval scale (0 to 9).

    Returns:
        At most 1; 0 is chance, below 0 worse. None for fewer than two items, or when both raters gave one and the same rating throughout.

    Raises:
        ValueError: Lists of different length, or a rating that is no finite number.
    """
    return _paired(first, second, _kappa, "both raters gave one and the same rating throughout", resamples)


def spearman(first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate:
    """Spearman's rank correlation, −1 to 1, ties given their mean rank; None for fewer than two items or when a rater never varies.

    Source: Spearman, American Journal of Psychology 15 (1904), 72–101; agrees with ``scipy.stats.spearmanr``. Arguments, interval and
    errors are those of `quadratic_weighted_kappa`; any ordinal scale will do, and the two may differ.
    """
    return _paired(first, second, _spearman, "a rater gave the same rating to every item", resamples)


def krippendorff_alpha(items: Sequence[Sequence[float | None]], *, resamples: int = RESAMPLES) -> Estimate:
    """Krippendorff's alpha on an interval scale: agreement of any number of raters, with missing ratings.

    The value is the `krippendorff` package's. Interval: percentile bootstrap over items (Zapf et al., BMC Medical Research Methodology
    16:93, 2016).

    Args:
        items: One row per item, one rating per rater; None where a rater gave none.

    Returns:
        At most 1; 0 is chance. `n` counts the items with two ratings or more. None when fewer than two have them, or all ratings are equal.

    Raises:
        ValueError: A rating that is no finite number.
    """
    import krippendorff
    import numpy as np

    rows = [numbers(f"item {i}", [r for r in row if r is not None]) for i, row in enumerate(items, 1)]
    rows = [row for row in rows if row.size >= 2]
    if len(rows) < 2:
        return Estimate(None, None, len(rows), f"{len(rows)} items with two ratings or more; at least 2 are needed")
    values = np.unique(np.concatenate(rows))
    if values.size == 1:
        return Estimate(None, None, len(rows), "all ratings are the same")
    tables = np.array([[np.count_nonzero(row == value) for value in values] for row in rows])
    kinds, counts = np.unique(tables, axis=0, return_counts=True)

    def alpha(drawn: Floats) -> float:
        chosen = np.repeat(kinds, drawn.astype(np.intp), axis=0)
        if np.count_nonzero(chosen.sum(axis=0)) < 2:
            return math.nan
        return float(krippendorff.alpha(value_counts=chosen, value_domain=values, level_of_measurement="interval"))

    def alphas(drawn: Floats) -> Floats:
        return np.array([alpha(row) for row in drawn])

    drawn = replicates(alphas, counts, resamples=resamples)
    return percentile_estimate(alpha(counts.astype(np.float64)), drawn, n=len(rows))


def judge_noise(repeats: Iterable[Sequence[float]]) -> float | None:
    """Standard deviation between judgements of the same item, in points, pooled over items; None when no item was judged twice.

    Source: Bland & Altman, "Measurement error", BMJ 313 (1996), 744.
    """
    import numpy as np

    twice = [np.asarray(row, dtype=np.float64) for row in repeats if len(row) > 1]
    freedom = sum(row.size - 1 for row in twice)
    return math.sqrt(sum(float(((row - row.mean()) ** 2).sum()) for row in twice) / freedom) if freedom else None


Statistic = Callable[["Floats", "Floats", "Floats"], "Floats"]


def _paired(
    first: Sequence[float], second: Sequence[float], statistic: Statistic, undefined: str, resamples: int
) -> Estimate:
    import numpy as np

    a, b = numbers("first rater", first), numbers("second rater", second)
    if a.size != b.size:
        raise ValueError(f"the first rater has {a.size} ratings, the second {b.size}; they must rate the same items")
    if a.size < 2:
        return Estimate(None, None, int(a.size), f"{a.size} items rated by both; at least 2 are needed")
    pairs, counts = np.unique(np.column_stack([a, b]), axis=0, return_counts=True)
    x, y = pairs[:, 0] - pairs[:, 0].min(), pairs[:, 1] - pairs[:, 0].min()
    value = float(statistic(x, y, counts[None, :].astype(np.float64))[0])
    if not np.isfinite(value):
        return Estimate(None, None, int(a.size), undefined)
    drawn = replicates(lambda rows: statistic(x, y, rows), counts, resamples=resamples)
    return percentile_estimate(value, drawn, n=int(a.size))


def _kappa(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Kappa of each row of counts over the distinct pairs (x, y); NaN where chance expects no difference."""
    import numpy as np

    n = counts.sum(axis=1)
    observed = counts @ (x - y) ** 2
    expected = counts @ (x**2 + y**2) - 2 * (counts @ x) * (counts @ y) / n
    expected[expected <= 1e-12 * (1 + counts @ (x**2 + y**2))] = np.nan
    return np.asarray(1 - observed / expected)


def _spearman(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Spearman's correlation of each row of counts; NaN where a rater is constant."""
    import numpy as np

    n = counts.sum(axis=1, keepdims=True)
    rx, ry = _mid_ranks(x, counts) - n / 2, _mid_ranks(y, counts) - n / 2
    covariance = (counts * rx * ry).sum(axis=1)
    variances = (counts * rx**2).sum(axis=1) * (counts * ry**2).sum(axis=1)
    variances[variances <= 0] = np.nan
    return np.asarray(np.clip(covariance / np.sqrt(variances), -1, 1))


def _mid_ranks(values: Floats, counts: Floats) -> Floats:
    """For each row of counts the mean rank of each value, shifted so that ranks average n ÷ 2."""
    import numpy as np

    order: NDArray[np.intp] = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    per_value = np.add.reduceat(counts[:, order], starts, axis=1)
    middle = np.cumsum(per_value, axis=1) - per_value / 2
    ranks = np.empty_like(counts)
    ranks[:, order] = np.repeat(middle, np.diff(np.r_[starts, values.size]), axis=1)
    return ranks
