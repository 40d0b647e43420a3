"""Krippendorff's alpha: agreement of any number of raters, with missing ratings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from evaluation.statistics.estimates import Estimate, check_level, numbers, percentile_estimate
from evaluation.statistics.resampling import replicates

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Floats

Metric = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(
    items: Sequence[Sequence[float | None]],
    metric: Metric = "interval",
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Estimate:
    """Krippendorff's alpha, 1 − observed ÷ expected disagreement, over all pairs of ratings of the same item.

    Source: Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), sections C and D. The ordinal metric is computed as the
    interval metric on the values' mid-ranks, to which it is identical. Interval: percentile bootstrap over items (Zapf, Castell,
    Morawietz & Karch, BMC Medical Research Methodology 16:93, 2016), not Krippendorff's own bootstrap, which takes the expected
    disagreement as known.

    Args:
        items: One row per item, one rating per rater; None where a rater gave none. Rows may differ in length. Which rater gave
            which rating, and the order of the items, change nothing.
        metric: ``nominal`` (different is different), ``ordinal`` (ranks) or ``interval`` (squared differences).
        level: Confidence level.
        resamples: Bootstrap resamples, at least 100.
        seed: Of the resampling.

    Returns:
        At most 1; 0 is chance. `n` counts the items with two ratings or more, the only ones that say something. None when fewer than
        two items have them, or when all ratings are the same.

    Raises:
        ValueError: An unknown metric, a rating that is no finite number, or an option out of range.
    """
    import numpy as np

    check_level(level)
    if metric not in get_args(Metric):
        raise ValueError(f"metric is {metric!r}; allowed: {', '.join(get_args(Metric))}")
    rows = [numbers(f"item {i}", [r for r in row if r is not None]) for i, row in enumerate(items, 1)]
    rows = [row for row in rows if row.size >= 2]
    if len(rows) < 2:
        return Estimate(None, None, len(rows), f"{len(rows)} items with two ratings or more; at least 2 are needed")
    values = np.unique(np.concatenate(rows))
    if values.size == 1:
        return Estimate(None, None, len(rows), "all ratings are the same")
    tables = np.array([[np.count_nonzero(row == value) for value in values] for row in rows])
    kinds, counts = np.unique(tables, axis=0, return_counts=True)
    ratings = kinds.astype(np.float64)

    def alpha(drawn: Floats) -> Floats:
        return _alpha(ratings, values - values[0], drawn, metric)

    value = float(alpha(counts[None, :].astype(np.float64))[0])
    return percentile_estimate(
        value, replicates(alpha, counts, resamples=resamples, seed=seed), level=level, n=len(rows)
    )


def _alpha(ratings: Floats, values: Floats, drawn: Floats, metric: Metric) -> Floats:
    """Alpha of each row of `drawn`; NaN where all ratings drawn are the same.

    `ratings` has a row per kind of item and a column per value: how many raters gave the value. Disagreements are sums over
    ordered pairs; those of an item are divided by its ratings less one.
    """
    import numpy as np

    per_item = ratings.sum(axis=1)
    margins = drawn @ ratings
    n = margins.sum(axis=1)
    if metric == "nominal":
        within = np.broadcast_to(per_item**2 - (ratings**2).sum(axis=1), drawn.shape)
        between = n**2 - (margins**2).sum(axis=1)
    else:
        places = values[None, :] if metric == "interval" else np.cumsum(margins, axis=1) - margins / 2
        within = 2 * (per_item * (places**2 @ ratings.T) - (places @ ratings.T) ** 2)
        between = 2 * (n * (margins * places**2).sum(axis=1) - (margins * places).sum(axis=1) ** 2)
    between = np.where(np.count_nonzero(margins, axis=1) > 1, between, np.nan)
    return np.asarray(1 - (n - 1) * (drawn * within / (per_item - 1)).sum(axis=1) / between)
