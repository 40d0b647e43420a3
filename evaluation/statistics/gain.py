"""Whether raters agree better with people after a change than before it: two kappas of the same items, and their paired difference."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.statistics.agreement import LEAST_CLUSTERS, RESAMPLES
from evaluation.statistics.bootstrap import Estimate, finite_numbers, percentile_estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

UNDEFINED = "both gave one and the same rating throughout"


@dataclass(frozen=True, slots=True)
class KappaGain:
    """Agreement with people before and after a change: quadratic-weighted kappas of the same items, and after − before."""

    before: Estimate
    after: Estimate
    difference: Estimate


def kappa_gain(
    people: Sequence[float], before: Sequence[float], after: Sequence[float], clusters: Sequence[Hashable]
) -> KappaGain:
    """Return both quadratic-weighted kappas and their difference, each with the percentile bootstrap interval over clusters.

    Both kappas are of the same resample, so that what makes items hard for both does not widen the interval of the difference.

    Args:
        people: What people gave, shape (items,).
        before, after: Ratings of the same items in the same order.
        clusters: What each item is drawn with, such as its conversation.

    Returns:
        Without intervals for fewer than 10 clusters; without values where a kappa is undefined.

    Raises:
        ValueError: Lists of different length, or a rating that is no finite number.
    """
    import numpy as np

    truth = finite_numbers("people", people)
    ratings = {"before": finite_numbers("before", before), "after": finite_numbers("after", after)}
    for name, values in ratings.items():
        if values.size != truth.size:
            raise ValueError(f"{truth.size} ratings of people but {values.size} {name}; they must rate the same items")
    if len(clusters) != truth.size:
        raise ValueError(f"{truth.size} ratings but {len(clusters)} clusters; each rating needs its cluster")
    numbers = {cluster: number for number, cluster in enumerate(dict.fromkeys(clusters))}
    cluster_of_item = np.array([numbers[cluster] for cluster in clusters], dtype=np.intp)
    sums_before = _cluster_sums(ratings["before"], truth, cluster_of_item, len(numbers))
    sums_after = _cluster_sums(ratings["after"], truth, cluster_of_item, len(numbers))
    rng = np.random.default_rng(0)
    draws = np.ones((0, len(numbers)))
    if len(numbers) >= LEAST_CLUSTERS:
        share = np.full(len(numbers), 1 / len(numbers))
        draws = rng.multinomial(len(numbers), share, size=RESAMPLES).astype(np.float64)
    whole = np.ones((1, len(numbers)))
    kappa_before = _kappas(whole @ sums_before)[0]
    kappa_after = _kappas(whole @ sums_after)[0]
    drawn_before = _kappas(draws @ sums_before)
    drawn_after = _kappas(draws @ sums_after)
    n = int(truth.size)
    return KappaGain(
        before=_estimate(kappa_before, drawn_before, n, len(numbers)),
        after=_estimate(kappa_after, drawn_after, n, len(numbers)),
        difference=_estimate(kappa_after - kappa_before, drawn_after - drawn_before, n, len(numbers)),
    )


def _cluster_sums(ratings: Floats, people: Floats, cluster_of_item: NDArray[np.intp], clusters: int) -> Floats:
    """Return per cluster what kappa is made of, shape (clusters, 6): items, squared differences, and sums and squares of both raters."""
    import numpy as np

    columns = (
        np.ones_like(people),
        (ratings - people) ** 2,
        ratings,
        people,
        ratings**2,
        people**2,
    )
    sums = [np.bincount(cluster_of_item, weights=column, minlength=clusters) for column in columns]
    return np.stack(sums, axis=1)


def _kappas(sums: Floats) -> Floats:
    """Return the kappa of each row of sums; NaN where chance expects no difference."""
    import numpy as np

    items, observed, of_ratings, of_people, squares_of_ratings, squares_of_people = sums.T
    squares = squares_of_ratings + squares_of_people
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = squares - 2 * of_ratings * of_people / items
        expected[~(expected > 1e-12 * (1 + squares))] = np.nan
        return np.asarray(1 - observed / expected)


def _estimate(value: float, drawn: Floats, n: int, clusters: int) -> Estimate:
    import numpy as np

    if not np.isfinite(value):
        return Estimate(None, None, n, UNDEFINED)
    if clusters < LEAST_CLUSTERS:
        return Estimate(float(value), None, n, f"{clusters} conversations; at least {LEAST_CLUSTERS} are needed")
    return percentile_estimate(float(value), drawn, n=n)
