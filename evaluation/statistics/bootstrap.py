"""What a statistic returns, and the bootstrap: means of scores and their differences, drawn by whole messages or conversations."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import PlainSerializer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.95  # of every confidence interval
CELLS_AT_ONCE = 1_000_000  # 8 MB
FEW = 30  # with fewer labels, that all resamples are alike says that they are few
LEAST_SHARE_DEFINED = 0.9  # of the resamples; an interval from fewer would describe only the lucky ones


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval, ends included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"an interval from {self.low} to {self.high}: low must not exceed high, both finite")


def _interval_json(interval: Interval | None) -> list[float] | None:
    if interval is None:
        return None
    return [round(interval.low, 4), round(interval.high, 4)]


IntervalShown = Annotated[
    Interval | None,
    PlainSerializer(_interval_json, return_type=list[float] | None),  # the type which the API's schema shows
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


def finite_numbers(name: str, values: Sequence[float]) -> Floats:
    """Return the values as an array.

    Raises:
        ValueError: One of them is not a finite number; names which.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64).reshape(-1)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"{name}: number {bad[0] + 1} is {array[bad[0]]}; allowed: finite numbers")
    return array


def percentile_estimate(value: float, replicates: Floats, *, n: int) -> Estimate:
    """Return the value with the percentile bootstrap interval of its replicates (Efron & Tibshirani 1993, chapter 13).

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
    if np.ptp(defined) <= 1e-12:
        if n < FEW:
            return Estimate(value, None, n, f"too few labels for an interval (n = {n})")
        return Estimate(value, None, n, f"no interval: no resample of {n} differs from the others")
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value, Interval(float(low), float(high)), n)


def resample_counts(counts: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield resamples, with replacement, of as many items as there are: arrays of shape (some rows, kinds), in all `resamples` rows.

    Items are given as distinct kinds with their counts, shape (kinds,): so order changes nothing, and equal ones cost no more than one.
    """
    import numpy as np

    total = int(counts.sum())
    step = max(1, CELLS_AT_ONCE // max(1, counts.size))
    for start in range(0, resamples, step):
        drawn = rng.multinomial(total, counts / total, size=min(step, resamples - start))
        yield drawn.astype(np.float64)


def replicates(statistic: Callable[[Floats], Floats], counts: NDArray[np.int64], *, resamples: int) -> Floats:
    """Return the statistic of each resample, shape (resamples,); `statistic` maps counts (rows, kinds) to (rows,), NaN = undefined."""
    import numpy as np

    rng = np.random.default_rng(0)
    return np.concatenate([statistic(rows) for rows in resample_counts(counts, resamples=resamples, rng=rng)])


class Observation(NamedTuple):
    """One score.

    Attributes:
        value: The score.
        weight: For how much it counts, ≥ 0: its proposition's weight, times 1 ÷ the chance with which it is in the sample (Hájek's mean).
            Scores of weight 0 are not looked at.
        cluster: What is drawn as a whole, e.g. the message judged, or its conversation; None: the score stands alone.
        stratum: Within what it is drawn, e.g. a channel or a tag's value; a cluster lies in one stratum.
        item: What was judged, where a cluster holds several; None: it is the cluster.
    """

    value: float
    weight: float = 1.0
    cluster: Hashable = None
    stratum: Hashable = None
    item: Hashable = None


def relative_weights(weights: Sequence[float]) -> list[float]:
    """Return the weights; where all above 0 are equal, 1 for each, so that not even rounding tells them from no weights."""
    different = {float(weight) for weight in weights if weight}
    if len(different) == 1:
        return [float(bool(weight)) for weight in weights]
    return [float(weight) for weight in weights]


def effective_clusters(*samples: Sequence[Observation]) -> float:
    """Return how many clusters of equal weight would tell as much about a mean; of two paired samples, about the one with fewer.

    Kish's (Σ w)² ÷ Σ w², w the weight of a cluster ("Survey Sampling", 1965, section 11.7), in proportion to what the clusters' sizes
    alone would give. So it is the number of clusters, exactly, where all observations count alike. Never more than that; 0 without any.
    """
    return min(_effective_clusters_of(sample) for sample in samples)


def _effective_clusters_of(sample: Sequence[Observation]) -> float:
    weights = relative_weights([observation.weight for observation in sample])
    weight_of_cluster: dict[Hashable, float] = defaultdict(float)
    size_of_cluster: dict[Hashable, float] = defaultdict(float)
    for row, observation in enumerate(sample):
        if not weights[row]:
            continue
        key: Hashable = ("cluster", observation.cluster)
        if observation.cluster is None:
            key = ("alone", row)
        weight_of_cluster[key] += weights[row]
        size_of_cluster[key] += 1.0
    if not weight_of_cluster:
        return 0.0
    share = kish(weight_of_cluster.values()) / kish(size_of_cluster.values())
    return len(weight_of_cluster) * min(1.0, share)


def kish(weights: Collection[float]) -> float:
    """Return (Σ w)² ÷ Σ w² of at least one weight above 0: how many equal weights would tell as much."""
    return sum(weights) ** 2 / sum(weight**2 for weight in weights)


@dataclass(slots=True)
class _Cluster:
    """What is drawn as a whole: its stratum, and Σ weight · value and Σ weight of each sample."""

    stratum: Hashable
    points: list[float]
    weights: list[float]


def _check_numbers(sample: Sequence[Observation]) -> None:
    """Refuse what cannot be averaged.

    Raises:
        ValueError: A value or weight is no finite number, or a weight is negative; says which.
    """
    finite_numbers("scores", [observation.value for observation in sample])
    finite_numbers("weights", [observation.weight for observation in sample])
    for row, observation in enumerate(sample):
        if observation.weight < 0:
            raise ValueError(f"weight {float(observation.weight)} of observation {row + 1}; allowed: 0 or more")


def cluster_sums(*samples: Sequence[Observation]) -> list[Floats]:
    """Return one table per stratum: a row per cluster, Σ weight · value per sample and then Σ weight per sample.

    Observations of weight 0 are left out; one without a cluster is a cluster of its own. No tables where nothing is left.
    Strata of a single cluster are joined (a lone one with the smallest other), for a cluster drawn from itself alone cannot vary. The order
    of the observations changes nothing.

    Raises:
        ValueError: A value or weight that is no finite number, a negative weight, a cluster in two strata.
    """
    import numpy as np

    clusters: dict[Hashable, _Cluster] = {}
    for column, sample in enumerate(samples):
        _check_numbers(sample)
        weights = relative_weights([observation.weight for observation in sample])
        for row, observation in enumerate(sample):
            weight = weights[row]
            if not weight:
                continue
            key: Hashable = ("cluster", observation.cluster)
            if observation.cluster is None:
                key = ("alone", column, row)
            if key not in clusters:
                clusters[key] = _Cluster(observation.stratum, [0.0] * len(samples), [0.0] * len(samples))
            cluster = clusters[key]
            if cluster.stratum != observation.stratum:
                strata = f"{cluster.stratum!r} and {observation.stratum!r}"
                raise ValueError(f"cluster {observation.cluster!r} lies in two strata, {strata}")
            cluster.points[column] += weight * float(observation.value)
            cluster.weights[column] += weight
    joined = _strata_to_join(Counter(cluster.stratum for cluster in clusters.values()))
    tables: dict[Hashable, list[list[float]]] = {}
    for cluster in clusters.values():
        table: Hashable = ("joined",) if cluster.stratum in joined else ("own", cluster.stratum)
        tables.setdefault(table, []).append([*cluster.points, *cluster.weights])
    sorted_tables = [sorted(rows) for rows in tables.values()]  # so that the random draws do not depend on the order
    return [np.array(rows) for rows in sorted(sorted_tables)]


def _strata_to_join(sizes: Counter[Hashable]) -> set[Hashable]:
    """Return the strata of one cluster, and where that is only one the smallest other; empty where none has a single cluster."""
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
        """Return whether there is no value but the two ends, or all are equal: Σ (x − low)(x − high) is 0."""
        strays = self.squares - (self.low + self.high) * self.total + self.n * self.low * self.high
        return self.n > 0 and abs(strays) <= 1e-6 * max(1.0, self.squares)

    @property
    def gap(self) -> float:
        """Return the distance of the ends; where all values are equal, how far the scale goes from there."""
        if self.are_equal:
            return max(abs(self.low), HIGHEST - self.low)
        return self.high - self.low

    @property
    def are_equal(self) -> bool:
        return self.high - self.low <= 1e-9


def least_variance(
    sample: Outcomes,
    other: Outcomes | None = None,
    *,
    effective: float | None = None,
    resolution: float = RESOLUTION,
    unseen: bool = True,
) -> float:
    """Return the variance between clusters that is taken at least, whatever the sample shows.

    Rounding to whole scores alone gives `resolution`² ÷ 12. Where only two values occur, as with a rule that holds or does not, a few
    clusters may show one of them less often than it comes, or never: then p (1 − p) times the square of their distance, with each of the
    two counted once more, p = (k + 1) ÷ (n + 2), as in Agresti & Caffo, The American Statistician 54 (2000), 280–288. Where all are equal
    the other value is the other sample's that lies farthest off, and where that has none, the farther end of the scale.

    Args:
        other: The sample that this one is compared with; None for a lone one.
        effective: How many equally weighted clusters the sample's tell as much as (`effective_clusters`); None: as many as it has.
        unseen: Whether other draws could show values that the sample does not. False: rounding alone; for what is no draw from many
            outcomes, such as repeats of one judgement.
    """
    rounding = resolution**2 / 12
    if not unseen or not sample.are_two:
        return rounding
    gap = sample.gap
    high_values = 0.0  # how many have the higher of the two values
    if not sample.are_equal:
        high_values = (sample.total - sample.n * sample.low) / gap
    elif other is not None and other.n:
        farthest = max(abs(other.low - sample.low), abs(other.high - sample.low))
        if farthest > 1e-9:
            gap = farthest
    n = sample.n if effective is None else effective
    p = (high_values * (n / sample.n) + 1) / (n + 2)
    return max(rounding, gap**2 * p * (1 - p))


def least_variance_of_pairs(tables: Sequence[Floats], *, effective: float | None = None, unseen: bool = True) -> float:
    """Return the variance between paired differences that is taken at least (see `least_variance`), of tables of two samples.

    Where only two scores occur, a pair differs by their distance or not at all, so a difference that no pair shows lies that far off.
    Where more occur, rounding alone counts: that of two scores.
    """
    import numpy as np

    rows = np.concatenate(list(tables))
    scores = Outcomes.of((rows[:, :2] / rows[:, 2:]).reshape(-1))
    difference = outcomes_of(tables)
    around = difference._replace(low=difference.low - scores.gap, high=difference.high + scores.gap)
    unseen = unseen and scores.are_two
    resolution = RESOLUTION * math.sqrt(2)
    return least_variance(difference, around, effective=effective, resolution=resolution, unseen=unseen)


def outcomes_of(tables: Sequence[Floats]) -> Outcomes:
    """Return the figures of the clusters' means (of paired samples: of their differences), of tables as `cluster_sums` makes them."""
    import numpy as np

    return Outcomes.of(_mean_or_difference(np.concatenate(list(tables))))


@dataclass(frozen=True, slots=True)
class _Drawn:
    """An independently drawn sample: replicates of its mean (or paired difference), its clusters, and their degrees of freedom."""

    replicates: Floats
    clusters: int
    freedom: int


def bootstrap_mean(observations: Sequence[Observation], *, unseen: bool = True, resamples: int = RESAMPLES) -> Estimate:
    """Return the weighted mean of scores, Σ weight · value ÷ Σ weight, with a cluster bootstrap interval.

    Whole clusters are drawn with replacement within each stratum (Davison & Hinkley, "Bootstrap Methods and their Application", 1997,
    sections 2.4 and 3.8). The percentiles are expanded for small samples as in Hesterberg, The American Statistician 69 (2015), 371–386. To
    either end the interval reaches at least as far as Student's t would, with a standard deviation no smaller than `least_variance` gives:
    three equal scores do not prove that all are equal.

    Args:
        unseen: Whether other draws could show scores that these do not, so that equal scores prove little (see `least_variance`).

    Returns:
        `n` counts the clusters. No value without observations of positive weight; no interval for fewer than two clusters.

    Raises:
        ValueError: A value or weight that is no finite number, a negative weight, a cluster in two strata.
    """
    tables = cluster_sums(observations)
    if not tables:
        return Estimate(None, None, 0, "no scores")
    drawn = _draw(tables, resamples)
    effective = effective_clusters(observations)
    least = least_variance(outcomes_of(tables), effective=effective, unseen=unseen)
    variance = _variance_of_mean(drawn, least / effective)
    return _expanded_estimate(mean_of(tables), drawn.replicates, [variance], n=drawn.clusters)


def bootstrap_difference(
    baseline: Sequence[Observation],
    current: Sequence[Observation],
    *,
    paired: bool = False,
    unseen: bool = True,
    resamples: int = RESAMPLES,
) -> Estimate:
    """Return the weighted mean of `current` minus that of `baseline`, with a cluster bootstrap interval; negative: it got worse.

    Args:
        paired: Clusters are items that occur in both samples and are drawn together; those that occur in one only are left out. Without it
            the two samples are drawn independently.
        unseen: Whether other draws could show scores that these do not, so that equal scores prove little (see `least_variance`).

    Returns:
        `n` counts the pairs, or unpaired the clusters of the smaller sample. No value when one is empty (paired: no item in both), no
        interval for fewer than two clusters in one. `bootstrap_mean` gives method and source.

    Raises:
        ValueError: A value or weight that is no finite number, a negative weight, a cluster in two strata.
    """
    if paired:
        return _paired_difference(baseline, current, unseen=unseen, resamples=resamples)
    before = cluster_sums(baseline)
    now = cluster_sums(current)
    if not before:
        return Estimate(None, None, 0, "no scores in the baseline")
    if not now:
        return Estimate(None, None, 0, "no scores now")
    outcomes_before = outcomes_of(before)
    outcomes_now = outcomes_of(now)
    # Each from its own random numbers: with the same ones the two would rise and fall together.
    drawn_before = _draw(before, resamples, streams=2, stream=0)
    drawn_now = _draw(now, resamples, streams=2, stream=1)
    effective_before = effective_clusters(baseline)
    effective_now = effective_clusters(current)
    least_before = least_variance(outcomes_before, outcomes_now, effective=effective_before, unseen=unseen)
    least_now = least_variance(outcomes_now, outcomes_before, effective=effective_now, unseen=unseen)
    variance_before = _variance_of_mean(drawn_before, least_before / effective_before)
    variance_now = _variance_of_mean(drawn_now, least_now / effective_now)
    return _expanded_estimate(
        mean_of(now) - mean_of(before),
        drawn_now.replicates - drawn_before.replicates,
        [variance_before, variance_now],
        n=min(drawn_before.clusters, drawn_now.clusters),
    )


def _paired_difference(
    baseline: Sequence[Observation], current: Sequence[Observation], *, unseen: bool, resamples: int
) -> Estimate:
    """Return the difference over the clusters that are in both samples; no value where none is, no interval for one."""
    clusters_before = {observation.cluster for observation in baseline if observation.weight}
    clusters_now = {observation.cluster for observation in current if observation.weight}
    in_both = clusters_before & clusters_now
    before = [observation for observation in baseline if observation.cluster in in_both]
    now = [observation for observation in current if observation.cluster in in_both]
    tables = cluster_sums(before, now)
    if not tables:
        return Estimate(None, None, 0, "no item has scores in both")
    drawn = _draw(tables, resamples)
    effective = effective_clusters(before, now)
    least = least_variance_of_pairs(tables, effective=effective, unseen=unseen)
    variance = _variance_of_mean(drawn, least / effective)
    return _expanded_estimate(mean_of(tables), drawn.replicates, [variance], n=drawn.clusters)


def _mean_or_difference(totals: Floats) -> Floats:
    """Return the mean, or the difference of two means, of each row of (sums, weights) as `cluster_sums` arranges them."""
    half = totals.shape[-1] // 2
    means = totals[..., :half] / totals[..., half:]
    return means[..., 0] if half == 1 else means[..., 1] - means[..., 0]


def mean_of(tables: Sequence[Floats]) -> float:
    """Return the weighted mean, or with two samples their difference, of tables as `cluster_sums` makes them."""
    import numpy as np

    return float(_mean_or_difference(np.sum([table.sum(axis=0) for table in tables], axis=0)))


def _draw(tables: Sequence[Floats], resamples: int, *, streams: int = 1, stream: int = 0) -> _Drawn:
    """Return replicates of the mean (of two samples: of their difference), the same at every call.

    Args:
        tables: As `cluster_sums` makes them; at least one.
        streams, stream: Which of so many independent streams of random numbers is used.
    """
    import numpy as np

    rng = np.random.default_rng(np.random.SeedSequence(0).spawn(streams)[stream])
    totals = np.zeros((resamples, tables[0].shape[1]))
    for table in tables:
        kinds, counts = np.unique(table, axis=0, return_counts=True)  # whole scores: few kinds, however many messages
        totals += np.concatenate([drawn @ kinds for drawn in resample_counts(counts, resamples=resamples, rng=rng)])
    clusters = sum(len(table) for table in tables)
    return _Drawn(_mean_or_difference(totals), clusters, clusters - len(tables))


@dataclass(frozen=True, slots=True)
class MeanVariance:
    """The variance of a mean, or of a difference of means, and its degrees of freedom."""

    variance: float
    freedom: float


def _variance_of_mean(drawn: _Drawn, least: float) -> MeanVariance:
    """Return the variance of the mean of a drawn sample; 0 without degrees of freedom, where no interval is given.

    Args:
        least: The variance that the mean has at least.
    """
    import numpy as np

    if drawn.freedom < 1:
        return MeanVariance(0.0, drawn.freedom)
    # Resampling alone gives only so much of it: freedom ÷ clusters.
    variance = float(np.var(drawn.replicates)) * drawn.clusters / drawn.freedom
    return MeanVariance(max(variance, least), drawn.freedom)


def variance_of_difference(means: Sequence[MeanVariance]) -> MeanVariance:
    """Return the variance of the difference of independent means, with the degrees of freedom of Welch and Satterthwaite."""
    variance = sum(mean.variance for mean in means)
    freedom = variance**2 / sum(mean.variance**2 / mean.freedom for mean in means)
    return MeanVariance(variance, freedom)


def _expanded_estimate(value: float, replicates: Floats, variances: Sequence[MeanVariance], *, n: int) -> Estimate:
    """Return the value with an interval: expanded percentiles of its replicates, reaching at least as far as Student's t to either end.

    No interval where a sample has no degree of freedom.

    Args:
        variances: Of the mean of each sample that is drawn.
    """
    import numpy as np
    from scipy.special import stdtrit

    if any(mean.freedom < 1 for mean in variances):
        return Estimate(value, None, n, "one message: an interval needs at least 2")
    total = variance_of_difference(variances)
    t = -float(stdtrit(total.freedom, (1 - LEVEL) / 2))
    reach = t * math.sqrt(total.variance)
    spread = float(np.std(replicates))
    # Expanded: the percentiles that a normal distribution as wide as the replicates has at ±reach, not the outer 2.5 %.
    tail = math.erfc(reach / spread / math.sqrt(2)) / 2 if spread else 0.5
    low, high = np.quantile(replicates, [tail, 1 - tail])
    # Percentiles of a handful of clusters end where the data end.
    return Estimate(value, Interval(min(float(low), value - reach), max(float(high), value + reach)), n)
