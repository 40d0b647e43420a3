"""What a statistic returns, and the bootstrap: means of scores and their differences, drawn by whole messages or conversations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import PlainSerializer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.95  # of every confidence interval
CELLS_AT_ONCE = 1_000_000  # 8 MB
LEAST_SHARE_DEFINED = 0.9  # of the resamples; an interval from fewer would describe only the lucky ones


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval, ends included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"an interval from {self.low} to {self.high}: low must not exceed high, both finite")


IntervalShown = Annotated[
    Interval | None,
    PlainSerializer(
        lambda one: None if one is None else [round(one.low, 4), round(one.high, 4)],
        return_type=list[float] | None,  # which the API's schema shows
    ),
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of `n` independent things (messages, items).

    Attributes:
        value: The statistic; None when it is undefined for this input.
        interval: None when there is none to give.
        reason: Why value or interval is None, as a sentence for people; empty otherwise.
    """

    value: float | None
    interval: Interval | None
    n: int
    reason: str = ""


def numbers(what: str, values: Sequence[float]) -> Floats:
    """The values as an array.

    Raises:
        ValueError: One of them is not a finite number; names which.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64).reshape(-1)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"{what}: number {bad[0] + 1} is {array[bad[0]]}; allowed: finite numbers")
    return array


def percentile_estimate(value: float, replicates: Floats, *, n: int) -> Estimate:
    """The value with the percentile bootstrap interval of its replicates (Efron & Tibshirani 1993, chapter 13).

    Args:
        value: The statistic of the data, of `n` independent things.
        replicates: The statistic of each resample; NaN where it was undefined.

    Returns:
        Without an interval when more than a tenth of the replicates is undefined, or when all are equal: a bootstrap that never
        sees a difference does not know how likely one is.
    """
    import numpy as np

    defined = replicates[np.isfinite(replicates)]
    if defined.size < LEAST_SHARE_DEFINED * replicates.size:
        undefined = replicates.size - defined.size
        return Estimate(
            value, None, n, f"undefined in {undefined} of {replicates.size} resamples: too few different ratings"
        )
    low, high = (float(x) for x in np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if np.ptp(defined) <= 1e-12:
        return Estimate(value, None, n, f"too few labels for an interval (n = {n})")
    return Estimate(value, Interval(low, high), n)


def resample_counts(counts: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Resamples, with replacement, of as many items as there are: arrays of shape (some rows, kinds), in all `resamples` rows.

    Items are given as distinct kinds with their counts, shape (kinds,): so order changes nothing, and equal ones cost no more than one.
    """
    import numpy as np

    total = int(counts.sum())
    step = max(1, CELLS_AT_ONCE // max(1, counts.size))
    for start in range(0, resamples, step):
        drawn = rng.multinomial(total, counts / total, size=min(step, resamples - start))
        yield drawn.astype(np.float64)


def replicates(statistic: Callable[[Floats], Floats], counts: NDArray[np.int64], *, resamples: int) -> Floats:
    """The statistic of each resample, shape (resamples,); `statistic` maps counts (rows, kinds) to (rows,), NaN = undefined."""
    import numpy as np

    rng = np.random.default_rng(0)
    return np.concatenate([statistic(rows) for rows in resample_counts(counts, resamples=resamples, rng=rng)])


class Observation(NamedTuple):
    """One score.

    Attributes:
        value: The score.
        weight: Its proposition's weight, ≥ 0; scores of weight 0 are not looked at.
        cluster: What is drawn as a whole, e.g. the message judged; None: the score stands alone.
        stratum: Within what it is drawn, e.g. a channel or a tag's value; a cluster lies in one stratum.
    """

    value: float
    weight: float = 1.0
    cluster: Hashable = None
    stratum: Hashable = None


def cluster_sums(*samples: Sequence[Observation]) -> list[Floats]:
    """One table per stratum: a row per cluster, Σ weight · value per sample and then Σ weight per sample.

    Strata of a single cluster are joined (a lone one with the smallest other), for a cluster drawn from itself alone cannot vary. The order
    of the observations changes nothing.

    Raises:
        ValueError: A value or weight that is no finite number, a negative weight, a cluster in two strata.
    """
    import numpy as np

    sums: dict[Hashable, list[float]] = {}
    strata: dict[Hashable, Hashable] = {}
    for column, sample in enumerate(samples):
        values, weights = numbers("scores", [o.value for o in sample]), numbers("weights", [o.weight for o in sample])
        for row, observation in enumerate(sample):
            value, weight = float(values[row]), float(weights[row])
            if weight < 0:
                raise ValueError(f"weight {weight} of observation {row + 1}; allowed: 0 or more")
            if not weight:
                continue
            key: Hashable = ("alone", column, row) if observation.cluster is None else ("cluster", observation.cluster)
            if strata.setdefault(key, observation.stratum) != observation.stratum:
                there = f"{strata[key]!r} and {observation.stratum!r}"
                raise ValueError(f"cluster {observation.cluster!r} lies in two strata, {there}")
            cells = sums.setdefault(key, [0.0] * (2 * len(samples)))
            cells[column] += weight * value
            cells[len(samples) + column] += weight
    joined = _too_small(Counter(strata.values()))
    tables: dict[Hashable, list[list[float]]] = {}
    for key, cells in sums.items():
        tables.setdefault(("joined",) if strata[key] in joined else ("own", strata[key]), []).append(cells)
    return [np.array(rows) for rows in sorted(sorted(rows) for rows in tables.values())]


def _too_small(sizes: Counter[Hashable]) -> set[Hashable]:
    """The strata of one cluster, and where that is only one the smallest other."""
    lonely = {stratum for stratum, size in sizes.items() if size == 1}
    others = [stratum for stratum, size in sizes.items() if size > 1]
    if len(lonely) == 1 and others:
        lonely.add(min(others, key=lambda stratum: (sizes[stratum], repr(stratum))))
    return lonely


RESAMPLES = 4_000
RESOLUTION = 1.0  # scores are whole numbers
HIGHEST = 9.0  # of a score; the lowest is 0


class Outcomes(NamedTuple):
    """The figures of one sample's clusters, one each: how many, their sum, the sum of their squares, and the ends."""

    n: int
    total: float
    squares: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Floats) -> Outcomes:
        return cls(values.size, float(values.sum()), float((values**2).sum()), float(values.min()), float(values.max()))

    @property
    def are_two(self) -> bool:
        """Whether there is no value but the two ends: Σ (x − low)(x − high) is 0."""
        strays = self.squares - (self.low + self.high) * self.total + self.n * self.low * self.high
        return self.n > 0 and abs(strays) <= 1e-6 * max(1.0, self.squares)

    @property
    def gap(self) -> float:
        """From one end to the other; where all are equal as far as the scale goes."""
        gap = self.high - self.low
        return gap if gap > 1e-9 else max(abs(self.low), HIGHEST - self.low)


def least_variance(
    one: Outcomes, other: Outcomes | None = None, *, resolution: float = RESOLUTION, unseen: bool = True
) -> float:
    """The variance between clusters that is taken at least, whatever the sample shows.

    Rounding to whole scores alone gives `resolution`² ÷ 12. Where only two values occur, as with a rule that holds or does not, a few
    clusters may show one of them less often than it comes, or never: then p (1 − p) times the square of their distance, with each of the
    two counted once more, p = (k + 1) ÷ (n + 2), as in Agresti & Caffo, The American Statistician 54 (2000), 280–288. Where all are equal
    the other value is the other sample's that lies farthest off, and where that has none, the farther end of the scale.

    Args:
        other: The sample that this one is compared with; None for a lone one.
        unseen: False: rounding alone; for what is no draw from many outcomes, such as repeats of one judgement.
    """
    rounding = resolution**2 / 12
    if not (unseen and one.are_two):
        return rounding
    gap, away = one.gap, 0.0
    if one.high - one.low > 1e-9:
        away = (one.total - one.n * one.low) / gap
    elif other is not None and other.n:
        seen = max(abs(other.low - one.low), abs(other.high - one.low))
        gap = seen if seen > 1e-9 else gap
    p = (away + 1) / (one.n + 2)
    return max(rounding, gap**2 * p * (1 - p))


def least_variance_of_pairs(tables: Sequence[Floats], *, unseen: bool = True) -> float:
    """The same of paired differences: where only two scores occur at all, a pair differs by their distance or not at all."""
    import numpy as np

    rows, difference = np.concatenate(list(tables)), outcomes_of(tables)
    scores = Outcomes.of((rows[:, :2] / rows[:, 2:]).reshape(-1))
    around = difference._replace(low=difference.low - scores.gap, high=difference.high + scores.gap)
    unseen = unseen and scores.are_two
    return least_variance(difference, around, resolution=RESOLUTION * math.sqrt(2), unseen=unseen)


def outcomes_of(tables: Sequence[Floats]) -> Outcomes:
    """Of the clusters' means (of paired samples: their differences), of tables as `cluster_sums` makes them."""
    import numpy as np

    return Outcomes.of(_ratio(np.concatenate(list(tables))))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """An independently drawn sample: replicates of its mean (or paired difference), its clusters, and their degrees of freedom."""

    replicates: Floats
    clusters: int
    freedom: int


def bootstrap_mean(observations: Sequence[Observation], *, unseen: bool = True, resamples: int = RESAMPLES) -> Estimate:
    """The weighted mean of scores, Σ weight · value ÷ Σ weight, with a cluster bootstrap interval.

    Whole clusters are drawn with replacement within each stratum (Davison & Hinkley, "Bootstrap Methods and their Application", 1997,
    sections 2.4 and 3.8). The percentiles are expanded for small samples as in Hesterberg, The American Statistician 69 (2015), 371–386. To
    either end the interval reaches at least as far as Student's t would, with a standard deviation no smaller than `least_variance` gives:
    three equal scores do not prove that all are equal.

    Returns:
        `n` counts the clusters. No value without observations of positive weight; no interval for fewer than two clusters.

    Raises:
        ValueError: A value or weight that is no finite number, a negative weight, a cluster in two strata.
    """
    tables = cluster_sums(observations)
    if not tables:
        return Estimate(None, None, 0, "no scores")
    drawn = _draw(tables, resamples)
    return _estimate(mean_of(tables), [drawn], [least_variance(outcomes_of(tables), unseen=unseen)], n=drawn.clusters)


def bootstrap_difference(
    baseline: Sequence[Observation],
    current: Sequence[Observation],
    *,
    paired: bool = False,
    unseen: bool = True,
    resamples: int = RESAMPLES,
) -> Estimate:
    """The weighted mean of `current` minus that of `baseline`, with a cluster bootstrap interval; negative: it got worse.

    Args:
        paired: Clusters are items that occur in both samples and are drawn together; those that occur in one only are left out. Without it
            the two samples are drawn independently.
        unseen: As in `least_variance`.

    Returns:
        `n` counts the pairs, or unpaired the clusters of the smaller sample. No value when one is empty (paired: no item in both).

    Raises:
        ValueError: As in `bootstrap_mean`, where method and source are given.
    """
    if paired:
        both = {o.cluster for o in baseline if o.weight} & {o.cluster for o in current if o.weight}
        tables = cluster_sums(*([o for o in sample if o.cluster in both] for sample in (baseline, current)))
        if not tables:
            return Estimate(None, None, 0, "no item has scores in both")
        drawn = _draw(tables, resamples)
        return _estimate(mean_of(tables), [drawn], [least_variance_of_pairs(tables, unseen=unseen)], n=drawn.clusters)
    before, now = cluster_sums(baseline), cluster_sums(current)
    if not before or not now:
        return Estimate(None, None, 0, "no scores now" if before else "no scores in the baseline")
    samples = [_draw(before, resamples, of=2), _draw(now, resamples, of=2, part=1)]
    one, other = outcomes_of(before), outcomes_of(now)
    least = [least_variance(one, other, unseen=unseen), least_variance(other, one, unseen=unseen)]
    return _estimate(mean_of(now) - mean_of(before), samples, least, n=min(sample.clusters for sample in samples))


def _ratio(totals: Floats) -> Floats:
    """Mean, or difference of two means, from rows of (sums, weights) as `cluster_sums` arranges them."""
    half = totals.shape[-1] // 2
    means = totals[..., :half] / totals[..., half:]
    return means[..., 0] if half == 1 else means[..., 1] - means[..., 0]


def mean_of(tables: Sequence[Floats]) -> float:
    """The weighted mean, or with two samples their difference, of tables as `cluster_sums` makes them."""
    import numpy as np

    return float(_ratio(np.sum([table.sum(axis=0) for table in tables], axis=0)))


def _draw(tables: Sequence[Floats], resamples: int, *, of: int = 1, part: int = 0) -> _Drawn:
    """Replicates of the mean; `part` says which of `of` independent streams of random numbers is used."""
    import numpy as np

    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(of)[part])
    totals = np.zeros((resamples, tables[0].shape[1]))
    for table in tables:
        kinds, counts = np.unique(table, axis=0, return_counts=True)  # whole scores: few kinds, however many messages
        totals += np.concatenate([drawn @ kinds for drawn in resample_counts(counts, resamples=resamples, rng=rng)])
    clusters = sum(len(table) for table in tables)
    return _Drawn(_ratio(totals), clusters, clusters - len(tables))


def _estimate(value: float, samples: Sequence[_Drawn], least: Sequence[float], *, n: int) -> Estimate:
    """The value with expanded percentiles of its replicates: of one sample, or of the second less the first.

    Args:
        least: The variance between clusters that each sample has at least.
    """
    import numpy as np
    from scipy.special import stdtrit

    if any(sample.freedom < 1 for sample in samples):
        return Estimate(value, None, n, "one message: an interval needs at least 2")
    replicates = samples[0].replicates if len(samples) == 1 else samples[1].replicates - samples[0].replicates
    variances = [  # of the means
        max(float(np.var(sample.replicates)) * sample.clusters / sample.freedom, at_least / sample.clusters)
        for sample, at_least in zip(samples, least, strict=True)
    ]
    total, spread = sum(variances), float(np.std(replicates))
    # Welch–Satterthwaite
    freedom = total**2 / sum(v**2 / sample.freedom for v, sample in zip(variances, samples, strict=True))
    t = -float(stdtrit(freedom, (1 - LEVEL) / 2))
    tail = math.erfc(t * math.sqrt(total) / spread / math.sqrt(2)) / 2 if spread else 0.5
    low, high = (float(x) for x in np.quantile(replicates, [tail, 1 - tail]))
    reach = t * math.sqrt(total)  # percentiles of a handful of clusters end where the data end
    return Estimate(value, Interval(min(low, value - reach), max(high, value + reach)), n)
