"""How well raters agree (kappa, Spearman, Krippendorff's alpha), and how well a judge agrees with itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.kit.text.wording import counted
from evaluation.statistics.bootstrap import Estimate, Interval, finite_numbers, percentile_estimate, replicates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

RESAMPLES = 2_000
# With fewer a bootstrap of clusters is too sure. With 10, 4.5 % of 1,000 permutations of 60 labels showed a gain, with 30 2.9 %.
LEAST_CLUSTERS = 10


def quadratic_weighted_kappa(
    first: Sequence[float],
    second: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return Cohen's kappa with quadratic weights: 1 − observed ÷ chance-expected squared difference of two raters.

    Source: Cohen, "Weighted kappa", Psychological Bulletin 70 (1968), 213–220; Fleiss & Cohen (1973) for the quadratic weights, which are
    squared differences of the *values*: no list of categories is needed.

    The interval is a percentile bootstrap over items. A few items may show disagreements less often than they come, or never, so the lower
    end is that of items with one disagreement more (as the rules' shares have one outcome more, see `least_variance`): two ratings as
    chance pairs them, given that they differ. So perfect agreement has an interval, too.

    Args:
        first, second: Ratings of the two, shape (items,), same items in the same order, on an interval scale (0 to 9).
        clusters: What each item is drawn with, such as its conversation; with fewer than 10 of them items are drawn, as for None.

    Returns:
        At most 1; 0 is chance, below 0 worse. No value for fewer than two items, or when both raters gave one and the same rating
        throughout.

    Raises:
        ValueError: Lists of different length, or a rating that is no finite number.
    """
    undefined = "both raters gave one and the same rating throughout"
    if clusters is not None and len(set(clusters)) < LEAST_CLUSTERS:
        clusters = None
    estimate = _statistic_of_pairs(first, second, _kappa, clusters=clusters, undefined=undefined, resamples=resamples)
    if estimate.value is None:
        return estimate
    kappas = _kappas_with_one_disagreement_more(first, second, clusters, resamples=resamples)
    widened = percentile_estimate(estimate.value, kappas, n=estimate.n)
    if widened.interval is None:
        return widened
    high = max(widened.interval.high, estimate.value)
    if estimate.interval is not None:
        high = estimate.interval.high
    return Estimate(estimate.value, Interval(min(widened.interval.low, estimate.value), high), estimate.n)


def _kappas_with_one_disagreement_more(
    first: Sequence[float], second: Sequence[float], clusters: Sequence[Hashable] | None, *, resamples: int
) -> Floats:
    """Return kappa of each resample of the items and one more, whose ratings are paired by chance and differ; NaN where undefined.

    Args:
        first, second: Ratings whose kappa is defined, so that at least one of the first differs from one of the second.
        clusters: What each item is drawn with; None: items are drawn alone. The one more is a cluster of its own.
    """
    import numpy as np

    drawn_things = _drawn_units(np.column_stack([first, second]), clusters)
    pairs = drawn_things.pairs
    values_of_first, counts_of_first = np.unique(first, return_counts=True)
    values_of_second, counts_of_second = np.unique(second, return_counts=True)
    x, y = (grid.reshape(-1) for grid in np.meshgrid(values_of_first, values_of_second, indexing="ij"))
    chances = np.outer(counts_of_first, counts_of_second).reshape(-1).astype(np.float64)
    chances[x == y] = 0
    chances /= chances.sum()
    differ = chances > 0
    every_x = np.concatenate([pairs[:, 0], x[differ]])
    every_y = np.concatenate([pairs[:, 1], y[differ]])
    lowest = min(every_x.min(), every_y.min())  # ratings near 0 keep the squares exact
    weights = np.concatenate([drawn_things.counts, chances[differ]])
    things = int(drawn_things.counts.sum()) + 1
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(things, weights / weights.sum(), size=resamples).astype(np.float64)
    kinds = drawn_things.counts.size
    counts_of_pairs = np.concatenate([drawn[:, :kinds] @ drawn_things.table, drawn[:, kinds:]], axis=1)
    return _kappa(every_x - lowest, every_y - lowest, counts_of_pairs)


def kappa_beyond_people(judge: Sequence[float], people: Sequence[Sequence[float]]) -> Estimate:
    """Return how much better a judge agrees with people than people with each other: the difference of two quadratic-weighted kappas.

    Both are means over all pairs of ratings of an item: the judge with each person, and each person with each other one. Chance is what
    ratings of different items, drawn at random, differ by. The interval is a percentile bootstrap over items.

    Args:
        judge: The judge's rating of each item.
        people: The ratings people gave each item; those of fewer than two people are left out.

    Returns:
        Below 0: people agree better with each other. `n` counts the items with two people's ratings or more. No value for fewer than two
        of them, or where people's ratings never vary.

    Raises:
        ValueError: Lists of different length, or a rating that is no finite number.
    """
    import numpy as np

    if len(judge) != len(people):
        raise ValueError(f"the judge has {len(judge)} ratings, people {len(people)}; they must rate the same items")
    finite_numbers("judge", judge)
    rows = []
    for number, (of_judge, of_people) in enumerate(zip(judge, people, strict=True), 1):
        ratings = finite_numbers(f"item {number}", of_people)
        if ratings.size < 2:
            continue
        # Squared differences: of the judge and each person, and of all pairs of people (twice the variance of a sample).
        apart_from_judge = float(((ratings - of_judge) ** 2).mean())
        apart = 2 * float(ratings.var(ddof=1))
        rows.append([apart_from_judge, apart, of_judge, of_judge**2, float(ratings.mean()), float((ratings**2).mean())])
    n = len(rows)
    if n < 2:
        return Estimate(None, None, n, f"{counted(n, 'judgement')} labelled by two people; at least 2 are needed")
    kinds, counts = np.unique(np.array(rows), axis=0, return_counts=True)

    def difference(drawn: Floats) -> Floats:
        from_judge, between, mean_judge, square_judge, mean_people, square_people = (drawn @ kinds / n).T
        by_chance = square_judge + square_people - 2 * mean_judge * mean_people
        by_chance_people = 2 * (square_people - mean_people**2)
        by_chance[by_chance <= 1e-12] = np.nan
        by_chance_people[by_chance_people <= 1e-12] = np.nan
        return np.asarray(between / by_chance_people - from_judge / by_chance)

    value = float(difference(counts[None, :].astype(np.float64))[0])
    if not np.isfinite(value):
        return Estimate(None, None, n, "people's ratings are all the same")
    return percentile_estimate(value, replicates(difference, counts, resamples=RESAMPLES), n=n)


def spearman(first: Sequence[float], second: Sequence[float], *, resamples: int = RESAMPLES) -> Estimate:
    """Return Spearman's rank correlation, −1 to 1, ties given their mean rank; None for fewer than two items or when a rater never varies.

    Source: Spearman, American Journal of Psychology 15 (1904), 72–101; agrees with ``scipy.stats.spearmanr``. The interval is a
    percentile bootstrap over items. Raises ValueError for lists of different length, or a rating that is no finite number.

    Args:
        first, second: Ratings of the same items in the same order; any ordinal scale will do, and the two may differ.
    """
    undefined = "a rater gave the same rating to every item"
    return _statistic_of_pairs(first, second, _spearman, undefined=undefined, resamples=resamples)


def krippendorff_alpha(items: Sequence[Sequence[float | None]], *, resamples: int = RESAMPLES) -> Estimate:
    """Return Krippendorff's alpha on an interval scale: agreement of any number of raters, with missing ratings.

    The value is the `krippendorff` package's. Interval: percentile bootstrap over items (Zapf et al., BMC Medical Research Methodology
    16:93, 2016).

    Args:
        items: One row per item, one rating per rater; None where a rater gave none.

    Returns:
        At most 1; 0 is chance. `n` counts the items with two ratings or more. No value when fewer than two have them, or all ratings are
        equal.

    Raises:
        ValueError: A rating that is no finite number.
    """
    import krippendorff
    import numpy as np

    rows = []
    for number, ratings in enumerate(items, 1):
        row = finite_numbers(f"item {number}", [rating for rating in ratings if rating is not None])
        if row.size >= 2:
            rows.append(row)
    if len(rows) < 2:
        return Estimate(None, None, len(rows), f"{len(rows)} items with two ratings or more; at least 2 are needed")
    values = np.unique(np.concatenate(rows))
    if values.size == 1:
        return Estimate(None, None, len(rows), "all ratings are the same")
    # Per item how many raters gave each value; items with the same ratings are drawn together.
    counts_of_values = np.stack([(row[:, None] == values).sum(axis=0) for row in rows])
    kinds, counts = np.unique(counts_of_values, axis=0, return_counts=True)

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
    """Return the standard deviation between judgements of the same item, in points, pooled over items; None when no item was judged twice.

    Source: Bland & Altman, "Measurement error", BMJ 313 (1996), 744.
    """
    import numpy as np

    squares = []
    freedom = 0
    for judgements in repeats:
        if len(judgements) > 1:
            scores = np.asarray(judgements, dtype=np.float64)
            squares.append(float(((scores - scores.mean()) ** 2).sum()))
            freedom += scores.size - 1
    return math.sqrt(sum(squares) / freedom) if freedom else None


Statistic = Callable[["Floats", "Floats", "Floats"], "Floats"]


@dataclass(frozen=True, slots=True)
class _DrawnThings:
    """What a bootstrap draws: items, or clusters of them, equal ones as one kind.

    Attributes:
        pairs: The distinct pairs of ratings, shape (pairs, 2).
        counts: How many things there are of each kind.
        table: How often each pair is in a thing of each kind, shape (kinds, pairs).
    """

    pairs: Floats
    counts: NDArray[np.int64]
    table: Floats


def _drawn_units(ratings: Floats, clusters: Sequence[Hashable] | None) -> _DrawnThings:
    """Return what is drawn of these pairs of ratings, shape (items, 2); without clusters each item alone.

    Raises:
        ValueError: A number of clusters that is not that of the items.
    """
    import numpy as np

    pairs, pair_of_item, counts = np.unique(ratings, axis=0, return_inverse=True, return_counts=True)
    if clusters is None:
        return _DrawnThings(pairs, counts, np.eye(len(pairs)))
    if len(clusters) != len(ratings):
        raise ValueError(f"{len(ratings)} ratings but {len(clusters)} clusters; each rating needs its cluster")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    table = np.zeros((len(numbers), len(pairs)))
    for cluster, pair in zip(clusters, pair_of_item.reshape(-1), strict=True):
        table[numbers[cluster], pair] += 1
    kinds, counts = np.unique(table, axis=0, return_counts=True)  # so that order changes nothing
    return _DrawnThings(pairs, counts, kinds)


def _statistic_of_pairs(
    first: Sequence[float],
    second: Sequence[float],
    statistic: Statistic,
    *,
    clusters: Sequence[Hashable] | None = None,
    undefined: str,
    resamples: int,
) -> Estimate:
    """Return a statistic of two raters, with its percentile bootstrap interval over items, or over clusters of them.

    Args:
        statistic: Gives the value of each row of counts over the distinct pairs of ratings; NaN where it is undefined.
        undefined: Why the value is None, where it is undefined for the ratings as they are.

    Returns:
        No value for fewer than two items either.

    Raises:
        ValueError: Lists of different length, or a rating that is no finite number.
    """
    import numpy as np

    a = finite_numbers("first rater", first)
    b = finite_numbers("second rater", second)
    if a.size != b.size:
        raise ValueError(f"the first rater has {a.size} ratings, the second {b.size}; they must rate the same items")
    if a.size < 2:
        return Estimate(None, None, int(a.size), f"{a.size} items rated by both; at least 2 are needed")
    things = _drawn_units(np.column_stack([a, b]), clusters)
    lowest = things.pairs[:, 0].min()  # ratings near 0 keep the squares exact
    x = things.pairs[:, 0] - lowest
    y = things.pairs[:, 1] - lowest
    value = float(statistic(x, y, (things.counts @ things.table)[None, :])[0])
    if not np.isfinite(value):
        return Estimate(None, None, int(a.size), undefined)
    drawn = replicates(lambda rows: statistic(x, y, rows @ things.table), things.counts, resamples=resamples)
    return percentile_estimate(value, drawn, n=int(a.size))


def _kappa(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Return kappa of each row of counts over the distinct pairs (x, y); NaN where chance expects no difference."""
    import numpy as np

    n = counts.sum(axis=1)
    observed = counts @ (x - y) ** 2
    expected = counts @ (x**2 + y**2) - 2 * (counts @ x) * (counts @ y) / n
    expected[expected <= 1e-12 * (1 + counts @ (x**2 + y**2))] = np.nan  # 0 but for rounding
    return np.asarray(1 - observed / expected)


def _spearman(x: Floats, y: Floats, counts: Floats) -> Floats:
    """Return Spearman's correlation of each row of counts; NaN where a rater is constant."""
    import numpy as np

    n = counts.sum(axis=1, keepdims=True)
    ranks_x = _mid_ranks(x, counts) - n / 2  # of mean 0
    ranks_y = _mid_ranks(y, counts) - n / 2
    covariance = (counts * ranks_x * ranks_y).sum(axis=1)
    variances = (counts * ranks_x**2).sum(axis=1) * (counts * ranks_y**2).sum(axis=1)
    variances[variances <= 0] = np.nan
    return np.asarray(np.clip(covariance / np.sqrt(variances), -1, 1))


def _mid_ranks(values: Floats, counts: Floats) -> Floats:
    """Return for each row of counts the mean rank of each value, shifted so that ranks average n ÷ 2."""
    import numpy as np

    order: NDArray[np.intp] = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])  # where each distinct value begins
    per_value = np.add.reduceat(counts[:, order], starts, axis=1)  # how often it occurs
    middle = np.cumsum(per_value, axis=1) - per_value / 2  # equal values share the middle of their ranks
    ranks = np.empty_like(counts)
    ranks[:, order] = np.repeat(middle, np.diff(np.r_[starts, values.size]), axis=1)
    return ranks
