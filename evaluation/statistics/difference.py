"""Did a mean change? Tests of a difference, the verdict its interval allows, and how many messages a verdict takes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from evaluation.statistics.bootstrap import (
    HIGHEST,
    LEVEL,
    Interval,
    MeanVariance,
    Observation,
    Outcomes,
    cluster_sums,
    effective_clusters,
    kish,
    least_variance,
    least_variance_of_pairs,
    mean_of,
    outcomes_of,
    relative_weights,
    variance_of_difference,
)

if TYPE_CHECKING:
    from evaluation.statistics.bootstrap import Floats

Verdict = Literal["drifted", "possibly drifted", "steady", "improved", "not enough data"]
Scores = Sequence[Observation]

ALPHA = 0.05  # chance to call a difference significant that is not there, over all that is compared
POWER = 0.8  # chance to detect a difference that is there
MARGIN = 0.5  # points: half-width of "no change"
MOST_MESSAGES = 10_000_000
LEAST_P = 1e-300  # given for any smaller p: no p is 0, but a computer's number may underflow


# -- verdicts
@dataclass(frozen=True, slots=True)
class Decision:
    """What a difference says, with the reason in a sentence.

    `drifted`, `improved` and `steady` (no change that matters) are sure. `n_more`: how many messages more would decide if difference and
    spread stay as they are; None when decided, or when that cannot be said or reached.
    """

    verdict: Verdict
    n_more: int | None
    reason: str


def undecided(delta: float | None, margin: float = MARGIN) -> Verdict:
    """Return the verdict where nothing is significant: ``possibly drifted`` for a fall of at least the margin."""
    if delta is not None and delta <= -margin:
        return "possibly drifted"
    return "not enough data"


def decide(
    delta: float | None,
    interval: Interval | None,
    margin: float = MARGIN,
    *,
    n: int | None = None,
    baseline_n: int | None = None,
    effective: float = 1.0,
    baseline_effective: float = 1.0,
    unit: str = "messages",
) -> Decision:
    """Return whether something drifted, as far as an interval decides it.

    ``steady`` only if the whole interval lies within ±margin: then the difference is too small to matter, whether or not it is zero
    (equivalence by confidence interval: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657–680; with a 95 %
    interval each of the two one-sided tests is at 2.5 %). ``drifted`` or ``improved`` if the interval leaves zero out and is not within
    the margin. Otherwise the data do not decide: ``possibly drifted`` for a fall of at least the margin, else ``not enough data``.

    Args:
        delta: Candidate minus baseline, in points; None when there is none.
        interval: Its confidence interval; None when there is none.
        margin: Half-width of what counts as no change, > 0, in points.
        n: Messages of the candidate (pairs, when paired); None: `Decision.n_more` is None.
        baseline_n: Messages of a baseline that stays as it is; None: both would grow alike, or the difference is paired.
        effective, baseline_effective: Which share of them, above 0, would tell as much if all counted alike (`effective_clusters`).
        unit: What they are, for the sentence.

    Raises:
        ValueError: `margin` is not above 0.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"margin is {margin}; allowed: more than 0")
    if delta is None or interval is None:
        return Decision(undecided(delta, margin), None, "there is no interval to decide by: too few messages")
    if -margin <= interval.low and interval.high <= margin:
        return Decision("steady", None, f"the whole interval lies within ±{margin:g}")
    leaves_zero_out = f"the interval leaves zero out and reaches beyond ±{margin:g}"
    if interval.low > 0:
        return Decision("improved", None, leaves_zero_out)
    if interval.high < 0:
        return Decision("drifted", None, leaves_zero_out)
    verdict = undecided(delta, margin)
    if n is None:
        return Decision(verdict, None, "the interval is too wide")
    effective_baseline = None if baseline_n is None else baseline_n * baseline_effective
    n_more = _n_more(delta, interval, margin, n * effective, effective_baseline)
    if n_more is not None:
        n_more = math.ceil(n_more / effective)
    if n_more is not None:
        return Decision(verdict, n_more, f"some {n_more} more {unit} would make the interval narrow enough")
    if baseline_n is not None:
        too_small = f"the baseline of {baseline_n} {unit} is too small to decide by: it takes a larger one"
        return Decision(verdict, None, too_small)
    return Decision(verdict, None, "the interval is too wide")


def _n_more(delta: float, interval: Interval, margin: float, n: float, baseline_n: float | None) -> int | None:
    """Return how many more messages would narrow the interval, centred on `delta`, until it leaves out zero or lies within the margin.

    Its width goes with √(1/n), or with √(1/n + 1/baseline_n) when the baseline stays (`baseline_n` is None where it grows, too). None when
    it takes more than ten million, or the baseline alone makes it too wide.
    """
    width = max(abs(delta - interval.low), abs(interval.high - delta))
    width_needed = max(abs(delta), margin - abs(delta))
    of_baseline = 1 / baseline_n if baseline_n else 0.0
    inverse_n_needed = (1 / n + of_baseline) * (width_needed / width) ** 2 - of_baseline
    if inverse_n_needed <= 1 / MOST_MESSAGES:
        return None
    return max(1, math.ceil(1 / inverse_n_needed - n - 1e-9))  # 1e-9: rounding alone asks for no further message


# -- tests
def difference_p(baseline: Scores, candidate: Scores, *, paired: bool = False, unseen: bool = True) -> float | None:
    """Return the two-sided p of no difference between two weighted means; clusters are drawn, scores within one belong together.

    Welch's t test on the clusters' linearised contributions (Student's on the differences, when paired): the variance of a ratio by
    Taylor linearisation, Cochran, "Sampling Techniques" (1977), section 6.3. With one score per cluster and equal weights it is the
    textbook test. No variance is taken to be smaller than `least_variance`, as in `bootstrap_difference`.

    Args:
        baseline, candidate: The scores; paired: with the same clusters in both.
        unseen: Whether other draws could show scores that these do not, so that equal scores prove little (see `least_variance`).

    Returns:
        None for fewer than two clusters in one of the two (paired: fewer than two pairs).
    """
    from scipy.special import stdtr

    difference = _difference_of(baseline, candidate, paired=paired, unseen=unseen)
    if difference is None:
        return None
    t = abs(difference.value) / math.sqrt(difference.variance.variance)
    return float(2 * stdtr(difference.variance.freedom, -t))


def difference_interval(baseline: Scores, candidate: Scores, *, paired: bool = False, unseen: bool = True) -> Interval:
    """Return the 95 % interval of candidate minus baseline, by Student's t: for many clusters, where resampling would only cost time.

    Args:
        unseen: Whether other draws could show scores that these do not, so that equal scores prove little (see `least_variance`).

    Raises:
        ValueError: Fewer than two clusters in one of the two (paired: fewer than two pairs).
    """
    difference = _difference_of(baseline, candidate, paired=paired, unseen=unseen)
    if difference is None:
        raise ValueError("fewer than two clusters in a sample; allowed: 2 or more")
    return _student_interval(difference.value, difference.variance)


def _student_interval(value: float, variance: MeanVariance) -> Interval:
    from scipy.special import stdtrit

    reach = -float(stdtrit(variance.freedom, (1 - LEVEL) / 2)) * math.sqrt(variance.variance)
    return Interval(value - reach, value + reach)


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return Σ weight · value ÷ Σ weight (Hájek's mean where weights are 1 ÷ the chances to be in the sample); at least one value."""
    relative = relative_weights(weights)
    return sum(weight * value for value, weight in zip(values, relative, strict=True)) / sum(relative)


def mean_interval_of_clusters(scores: Scores) -> Interval | None:
    """Return the 95 % interval of the weighted mean of scores, 0 to 9, whole clusters drawn, by Student's t; None for fewer than two.

    No variance is taken to be smaller than `least_variance`; the interval is cut to 0 … 9.
    """
    tables = cluster_sums(scores)
    if _cluster_count(tables) < 2:
        return None
    effective = effective_clusters(scores)
    least = least_variance(outcomes_of(tables), effective=effective)
    interval = _student_interval(mean_of(tables), _variance_of_mean(tables, least / effective))
    return Interval(max(0.0, interval.low), min(HIGHEST, interval.high))


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Return the 95 % interval of the mean of single scores, 0 to 9, by Student's t; None for fewer than two.

    No variance is taken to be smaller than `least_variance`; the interval is cut to 0 … 9.
    """
    n = len(values)
    if n < 2:
        return None
    total = sum(values)
    squares = sum(value**2 for value in values)
    least = least_variance(Outcomes(n, total, squares, min(values), max(values)))
    between = max(0.0, squares - total**2 / n) / (n - 1)
    variance = MeanVariance(max(between, least) / n, n - 1)
    interval = _student_interval(total / n, variance)
    return Interval(max(0.0, interval.low), min(HIGHEST, interval.high))


def rate_interval(scores: Scores) -> Interval | None:
    """Return the 95 % interval of the mean of scores of 0 and 9, whole clusters drawn; None for fewer than two clusters.

    It is that of `mean_interval_of_clusters`, and where it reaches farther Wilson's of as many messages, with Student's t: a few messages
    may by chance show never what is not so rare. A bound below its upper end has p above 0.05 in `below_p`.
    """
    from scipy.special import stdtrit

    by_clusters = mean_interval_of_clusters(scores)
    if by_clusters is None:
        return None
    tables = cluster_sums(scores)
    messages = _effective_messages(scores)
    share = mean_of(tables) / HIGHEST
    t_squared = float(stdtrit(_cluster_count(tables) - 1, (1 - LEVEL) / 2)) ** 2
    centre = (share + t_squared / (2 * messages)) / (1 + t_squared / messages)
    reach = math.sqrt(t_squared * (share * (1 - share) + t_squared / (4 * messages)) / messages)
    reach /= 1 + t_squared / messages
    low = min(by_clusters.low, HIGHEST * (centre - reach))
    high = max(by_clusters.high, HIGHEST * (centre + reach))
    return Interval(max(0.0, low), min(HIGHEST, high))


def below_p(scores: Scores, bound: float) -> float | None:
    """Return the two-sided p of a mean of scores of 0 and 9 that is not below a bound, by Student's t; 1 where the mean reaches it.

    Whole clusters are drawn, and no variance is taken to be smaller than that of as many messages whose mean is the bound: that none of
    ten keeps a rule says little where two should. None for fewer than two clusters.

    Args:
        bound: Above 0 and below 9.
    """
    from scipy.special import stdtr

    tables = cluster_sums(scores)
    if _cluster_count(tables) < 2:
        return None
    effective = effective_clusters(scores)
    least = least_variance(outcomes_of(tables), effective=effective) / effective
    at_bound = bound * (HIGHEST - bound) / _effective_messages(scores)
    variance = _variance_of_mean(tables, max(least, at_bound))
    t = (mean_of(tables) - bound) / math.sqrt(variance.variance)
    return min(1.0, float(2 * stdtr(variance.freedom, t)))


def _effective_messages(scores: Scores) -> float:
    """Return how many scores that count alike would tell as much, were they independent: (Σ w)² ÷ Σ w²; there is one at least."""
    return kish(relative_weights([score.weight for score in scores]))


def shares_p(before: tuple[int, int], now: tuple[int, int]) -> float:
    """Return the two-sided p of no difference between two shares, each as (hits, of so many, at least one): Fisher's exact test."""
    from scipy.stats import fisher_exact

    return float(fisher_exact([[hits, n - hits] for hits, n in (before, now)]).pvalue)


def shares_interval(before: tuple[int, int], now: tuple[int, int]) -> Interval:
    """Return the 95 % interval of the second share less the first, −1 to 1; each as (hits, of so many, at least one).

    By the score intervals of both, also where nothing or all was hit: method 10 of Newcombe, Statistics in Medicine 17 (1998), 873–890.
    """

    share_before = before[0] / before[1]
    share_now = now[0] / now[1]
    wilson_before = share_interval(*before)
    wilson_now = share_interval(*now)
    difference = share_now - share_before
    below = math.hypot(share_now - wilson_now.low, wilson_before.high - share_before)
    above = math.hypot(wilson_now.high - share_now, share_before - wilson_before.low)
    return Interval(difference - below, difference + above)


def share_interval(hits: int, n: int) -> Interval:
    """Return the score interval of a share: `hits` of `n`, which is at least 1.

    Source: Wilson, Journal of the American Statistical Association 22 (1927), 209–212.
    """
    from scipy.stats import binomtest

    wilson = binomtest(hits, n).proportion_ci(LEVEL, method="wilson")
    return Interval(float(wilson.low), float(wilson.high))


def error_of(scores: Scores) -> float | None:
    """Return the standard error of a weighted mean in points, clusters drawn; None for fewer than two clusters.

    It may be 0: unlike in the tests, no variance is added for what rounding hides.
    """
    tables = cluster_sums(scores)
    if _cluster_count(tables) < 2:
        return None
    return math.sqrt(_variance_of_mean(tables, least=0.0).variance)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return adjusted p values, in the order given: Holm, Scandinavian Journal of Statistics 6 (1979), 65–70.

    Whatever depends on whatever, the chance that any true "no difference" gets one of at most 0.05 is at most 5 %. None is below `LEAST_P`.
    """
    smallest_first = sorted(range(len(p_values)), key=lambda number: p_values[number])
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, number in enumerate(smallest_first):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = max(LEAST_P, largest)
    return adjusted


@dataclass(frozen=True, slots=True)
class _Difference:
    """A difference of two weighted means."""

    value: float
    variance: MeanVariance


def _difference_of(baseline: Scores, candidate: Scores, *, paired: bool, unseen: bool) -> _Difference | None:
    """Return candidate minus baseline, of weighted means; None for fewer than two clusters in one of the two (paired: two pairs)."""
    if paired:
        tables = cluster_sums(baseline, candidate)
        if _cluster_count(tables) < 2:
            return None
        effective = effective_clusters(baseline, candidate)
        least = least_variance_of_pairs(tables, effective=effective, unseen=unseen)
        variance = _variance_of_mean(tables, least / effective)
        return _Difference(mean_of(tables), variance)
    before = cluster_sums(baseline)
    now = cluster_sums(candidate)
    if _cluster_count(before) < 2 or _cluster_count(now) < 2:
        return None
    outcomes_before = outcomes_of(before)
    outcomes_now = outcomes_of(now)
    effective_before = effective_clusters(baseline)
    effective_now = effective_clusters(candidate)
    least_before = least_variance(outcomes_before, outcomes_now, effective=effective_before, unseen=unseen)
    least_now = least_variance(outcomes_now, outcomes_before, effective=effective_now, unseen=unseen)
    variance_before = _variance_of_mean(before, least_before / effective_before)
    variance_now = _variance_of_mean(now, least_now / effective_now)
    return _Difference(mean_of(now) - mean_of(before), variance_of_difference([variance_before, variance_now]))


def _cluster_count(tables: Sequence[Floats]) -> int:
    """Return how many clusters are in tables as `cluster_sums` makes them."""
    return sum(len(table) for table in tables)


def _variance_of_mean(tables: Sequence[Floats], least: float) -> MeanVariance:
    """Return the variance of a weighted mean (of two samples: of the mean difference of pairs), of at least two clusters.

    Args:
        least: The variance that the mean has at least.
    """
    import numpy as np

    table = np.concatenate(list(tables))
    clusters = len(table)
    samples = table.shape[1] // 2  # a row holds a sum of each sample, then a weight of each
    sums = table[:, :samples]
    weights = table[:, samples:]
    # How much each cluster moves the mean (Taylor linearisation).
    errors = (sums - weights * (sums.sum(axis=0) / weights.sum(axis=0))) / weights.mean(axis=0)
    deviation = errors[:, 0]
    if samples == 2:
        deviation = errors[:, 1] - errors[:, 0]
    variance = float((deviation**2).sum()) / (clusters - 1) / clusters
    return MeanVariance(max(variance, least), clusters - 1)


# -- planning
def spread(baseline: Scores, candidate: Scores, *, paired: bool = False, unseen: bool = True) -> float | None:
    """Return the standard deviation between messages, pooled over both samples (paired: of the differences), in points.

    Never smaller than `least_variance` gives. None for exactly one message in a sample; each must have one (else numpy's ValueError).

    Args:
        paired: Whether the same messages are in both, and each is compared with itself.
        unseen: Whether other draws could show scores that these do not (see `least_variance`).
    """
    import numpy as np

    if paired:
        pairs = cluster_sums(baseline, candidate)
        rows = np.concatenate(pairs)  # columns: sum before, sum now, weight before, weight now
        differences = rows[:, 1] / rows[:, 3] - rows[:, 0] / rows[:, 2]
        return _pooled([differences], [least_variance_of_pairs(pairs, unseen=unseen)])
    before = np.concatenate(cluster_sums(baseline))
    now = np.concatenate(cluster_sums(candidate))
    means_before = before[:, 0] / before[:, 1]
    means_now = now[:, 0] / now[:, 1]
    outcomes_before = Outcomes.of(means_before)
    outcomes_now = Outcomes.of(means_now)
    least_before = least_variance(outcomes_before, outcomes_now, unseen=unseen)
    least_now = least_variance(outcomes_now, outcomes_before, unseen=unseen)
    return _pooled([means_before, means_now], [least_before, least_now])


def _pooled(samples: Sequence[Floats], least: Sequence[float]) -> float | None:
    """Return the standard deviation within samples, weighted by their degrees of freedom; None for fewer than two values in one.

    Args:
        least: The variance that each sample is taken to have at least.
    """
    import numpy as np

    squares = 0.0
    freedom = 0
    for values, at_least in zip(samples, least, strict=True):
        if len(values) < 2:
            return None
        squares += max(float(np.var(values)) * len(values), at_least * (len(values) - 1))
        freedom += len(values) - 1
    return math.sqrt(squares / freedom)


def smallest_detectable_change(
    n: float, sd: float, *, alpha: float = ALPHA, baseline_n: float | None = None, paired: bool = False
) -> float | None:
    """Return the smallest true change of a mean that a comparison of this size would find with power 0.8, two-sided.

    (t₁₋α/₂ + t_power) · standard error, at the comparison's degrees of freedom; the approximation to the non-central t of Cohen,
    "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2, e.g. 64 each for half a standard deviation.

    Args:
        n: What was measured of the candidate; with `paired`, where the same items are in both, pairs. Where they count unequally, how many
            equal ones would tell as much (`effective_clusters`).
        sd: Standard deviation between them (paired: of the differences), ≥ 0, in points.
        alpha: Chance to detect a change that is not there.
        baseline_n: The same of the baseline; None: as many as `n`. Not used when paired.

    Returns:
        In points, ≥ 0. None for fewer than 2 in one of the two.
    """
    before = n if baseline_n is None or paired else baseline_n
    if min(n, before) < 2:
        return None
    from scipy.special import stdtrit

    freedom = n + before - 2
    squared_error = 1 / n + 1 / before  # of the difference, in squared standard deviations
    if paired:
        freedom = n - 1
        squared_error = 1 / n
    quantiles = float(stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, POWER))
    return quantiles * sd * math.sqrt(squared_error)


def n_to_detect(
    change: float, sd: float, *, alpha: float = ALPHA, baseline_n: float | None = None, paired: bool = False
) -> int | None:
    """Return the fewest messages that detect a true change of this size, above 0, with power 0.8: at least 2.

    None when no number suffices: the baseline is too small, or a doubled number has passed ten million. The arguments are those of
    `smallest_detectable_change`, of which this is the inverse: with `baseline_n` the messages are of the candidate, else of each
    of the two (paired: pairs).
    """

    def finds(n: int) -> bool:
        smallest = smallest_detectable_change(n, sd, alpha=alpha, baseline_n=baseline_n, paired=paired)
        return smallest is not None and smallest <= change

    high = 2
    while not finds(high):
        high *= 2
        if high > MOST_MESSAGES:
            return None
    low = high // 2 + 1  # half as many were too few
    return low + bisect_left(range(low, high), True, key=finds)
