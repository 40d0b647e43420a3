"""Since when has a score been lower? A sequential test with a stated rate of false alarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from agents.kit.text.wording import counted
from evaluation.statistics.bootstrap import finite_numbers

if TYPE_CHECKING:
    import numpy as np

    from evaluation.statistics.bootstrap import Floats

SERIES = 40  # agents × dimensions that share the rate of false alarms
FALSE_ALARMS_PER_MONTH = 1.0
DAYS_PER_MONTH = 30.0
LIMIT = 0.5  # points: less is no drift worth an alarm
WARM_UP = 8  # evaluations before the first that is tested
ALLOWANCE = 0.5  # standard deviations by which a score may be lower without adding to the chart
NOISE_FLOOR = 0.1  # points: no error is taken to be smaller
ASSUMED_CORRELATION = 0.5  # of neighbours, where nothing is known
ASSUMED_SCORES = 8  # this many scores' worth
MOST_CORRELATED = 0.9
SAFETY = 1.5  # normal theory is not exact for skewed scores with unknown errors: aim below the rate promised
SMALLEST_TAIL = 1e-9  # of a probability, so that its normal number is finite


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation: when, the score, and its standard error in points (None: unknown)."""

    time: datetime
    score: float
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Alarm:
    """A drop that was detected.

    Attributes:
        index: The evaluation at which it was detected, counted from 0 in the points given.
        onset: The evaluation since which the score is lower, as far as the scores show; ``index − onset + 1`` is the delay at most.
        before: Mean score before, each evaluation weighted by its precision.
        after: Mean score since.
        correlation: Of neighbouring evaluations before the onset, see `lag_one`.
    """

    index: int
    onset: int
    before: float
    after: float
    correlation: float = 0.0


@dataclass(frozen=True, slots=True)
class Scan:
    """What a series of scores says: its drops, oldest first, the chart's present value and threshold, and why nothing was tested."""

    alarms: tuple[Alarm, ...]
    statistic: float
    threshold: float
    reason: str = ""


def find_drops(points: Sequence[Point], *, every: timedelta, series: int = SERIES, limit: float = LIMIT) -> Scan:
    """Find drops in a series of scores: Page's one-sided CUSUM on self-started, studentised recursive residuals.

    Each evaluation is compared with the precision-weighted mean of those before it; divided by their spread, the difference has a t
    distribution under "nothing changed" and becomes a standard normal number. The chart S = max(0, S − number − 0.5) alarms above a
    threshold; after an alarm the series starts again at the onset.

    Sources: Page, Biometrika 41 (1954), 100–115; self-starting: Hawkins, The Statistician 36 (1987), 299–315; unequal noise: recursive
    residuals of Brown, Durbin & Evans, JRSS B 37 (1975), 149–192, with variances error² + τ², where τ², what varies between evaluations
    beyond their errors, is estimated by DerSimonian & Laird (Controlled Clinical Trials 7, 1986); threshold: Siegmund, "Sequential
    Analysis" (1985), section II.6.

    **False alarms**: while nothing changes, at most one a month over all `series` together in expectation, if the evaluations of one series
    share no messages (`apart` sees to that). Scores that hang together from one evaluation to the next for other reasons (a topic that
    lasts for days) would raise the rate: the numbers are divided by the square root of (1 + r) / (1 − r), r being the correlation of
    neighbours before the onset (`lag_one`): the spread of sums of a first-order autoregressive series. Where r is near 0.8 the promise
    is broken all the same, for few evaluations tell r badly. **Not detected**: a drop within the first eight evaluations, and a slide so
    slow that the mean follows it.

    Args:
        points: Of one agent and dimension, by one judge, oldest first; fewer than 9 give no alarm, and a reason.
        every: Time between evaluations as scheduled.
        series: How many series (agents × dimensions) share the rate.
        limit: A drop smaller than this raises no alarm, ≥ 0, in points.

    Raises:
        ValueError: Points out of order, a score or error that is no finite number, a negative error, an option out of range.
    """
    threshold = alarm_threshold(every=every, series=series)
    if not (math.isfinite(limit) and limit >= 0):
        raise ValueError(f"limit is {limit}; allowed: 0 or more")
    scores = finite_numbers("scores", [point.score for point in points])
    variances = _variances(points)
    if any(later.time < earlier.time for earlier, later in pairwise(points)):
        raise ValueError("the points are not in order of time")
    if len(points) <= WARM_UP:
        return Scan((), 0.0, threshold, f"{counted(len(points), 'evaluation')}; at least {WARM_UP + 1} are needed")
    alarms: list[Alarm] = []
    start = 0  # of what is compared with: the first evaluation since the last alarm
    onset = 0  # of a drop that is under suspicion
    statistic = 0.0
    for index in range(len(points)):
        if index - start < WARM_UP:  # too few to compare with
            onset = index + 1
            continue
        number = _standard_number(scores[start:index], variances[start:index], scores[index], variances[index])
        correlation = lag_one(scores[start : max(onset, start + WARM_UP)])  # of those before the drop, eight at least
        number /= math.sqrt((1 + correlation) / (1 - correlation))
        statistic = max(0.0, statistic - number - ALLOWANCE)
        if statistic == 0.0:  # a drop begins with the next evaluation, if at all
            onset = index + 1
            continue
        # `onset == start`: the chart has not been back at 0 since an alarm, so nothing lies before the onset to compare with.
        if statistic <= threshold or onset == start:
            continue
        before = _precision_weighted_mean(scores[start:onset], variances[start:onset])
        after = _precision_weighted_mean(scores[onset : index + 1], variances[onset : index + 1])
        if before - after >= limit:  # else the chart goes on: the drop may yet grow
            alarms.append(Alarm(index, onset, before, after, correlation))
            start = onset  # what is lower now is what later ones are compared with
            statistic = 0.0
    return Scan(tuple(alarms), statistic, threshold)


def lag_one(scores: Floats) -> float:
    """Return the correlation of each score with the one before it, 0 to 0.9.

    The estimate of n scores is too low by about (1 + 4r) / n (Kendall, Biometrika 41, 1954, 403–404), which is corrected. Few scores say
    little of it: as much as eight scores would say counts for a correlation of 0.5, so that a young series is taken with caution.

    Args:
        scores: In order of time, more than four.
    """
    n = scores.size
    deviations = scores - scores.mean()
    total = float((deviations**2).sum())
    estimate = float((deviations[1:] * deviations[:-1]).sum()) / total if total else 0.0
    unbiased = min(1.0, max(-0.5, (n * estimate + 1) / (n - 4)))
    cautious = (n * unbiased + ASSUMED_SCORES * ASSUMED_CORRELATION) / (n + ASSUMED_SCORES)
    return min(MOST_CORRELATED, max(0.0, cautious))


def apart(points: Sequence[Point], at_least: timedelta) -> list[Point]:
    """Return the points that stand at least so far apart, from the first on: they share no message when each looks back `at_least`."""
    chosen: list[Point] = []
    for point in points:
        if not chosen or point.time - chosen[-1].time >= at_least:
            chosen.append(point)
    return chosen


def alarm_threshold(*, every: timedelta, series: int = SERIES) -> float:
    """Return the threshold at which a chart's mean run to a false alarm is what the rate allows, with a safety factor of 1.5.

    Args:
        every: Time between evaluations.
        series: How many series share the one false alarm a month.

    Raises:
        ValueError: `every` or `series` is not above 0.
    """
    looks = _tests_to_false_alarm(every, series)
    low = 0.0
    high = 100.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if mean_run_length(middle) < looks:
            low = middle
        else:
            high = middle
    return high


def level_of_one_test(*, every: timedelta) -> float:
    """Return the p value up to which one look of a series raises an alarm, where each look is tested by itself.

    The rate is that of `alarm_threshold`: looks at which nothing changed come to one false alarm a month over `SERIES` series, with the
    safety factor. By Bonferroni's inequality that holds however the looks depend on each other, e.g. because they share what they are
    compared with: in 90 days of daily looks a series has a false alarm with at most 5 % chance.

    Args:
        every: Time between looks, more than 0.
    """
    return 1 / _tests_to_false_alarm(every, SERIES)


def _tests_to_false_alarm(every: timedelta, series: int) -> float:
    """Return after how many looks at one series a false alarm is allowed: as many as all series have in a month, by the safety factor."""
    days = every / timedelta(days=1)
    if days <= 0 or series < 1:
        raise ValueError(f"every is {every}, series is {series}; allowed: more than 0")
    return max(2.0, SAFETY * series * DAYS_PER_MONTH / days / FALSE_ALARMS_PER_MONTH)


def mean_run_length(threshold: float) -> float:
    """Return after how many evaluations a one-sided CUSUM of standard normal numbers passes the threshold by chance, on average.

    Siegmund's approximation: (e^(2kb) − 2kb − 1) ÷ (2k²) with b = threshold + 1.166; within 4 % of the exact values for k = 0.5 and
    thresholds from 3 to 6.
    """
    exponent = 2 * ALLOWANCE * (threshold + 1.166)
    return (math.exp(exponent) - exponent - 1) / (2 * ALLOWANCE**2)


def _variances(points: Sequence[Point]) -> Floats:
    """Return squared errors, at least the floor's; unknown ones are taken to be like the median of the known, without any like the floor.

    Raises:
        ValueError: An error that is negative or no finite number.
    """
    import numpy as np

    known_errors = finite_numbers("errors", [point.error for point in points if point.error is not None])
    if known_errors.size and known_errors.min() < 0:
        raise ValueError(f"an error is {known_errors.min()}; allowed: 0 or more")
    typical = float(np.median(known_errors)) if known_errors.size else 0.0
    errors = np.array([typical if point.error is None else point.error for point in points], dtype=np.float64)
    return np.asarray(np.maximum(errors, NOISE_FLOOR) ** 2)


def _precision_weighted_mean(scores: Floats, variances: Floats) -> float:
    """Return the mean weighted by precision."""
    return float((scores / variances).sum() / (1 / variances).sum())


def _standard_number(past: Floats, variances: Floats, score: np.float64, variance: np.float64) -> float:
    """Return how a score compares with those before it: standard normal if nothing changed, below 0 where it is lower.

    Args:
        past: The scores before it, at least two; `variances` are their squared errors.
        variance: The squared error of the score.
    """
    from scipy.special import ndtri, stdtr

    between = _variance_between(past, variances)
    weights = 1 / (variances + between)
    total = float(weights.sum())
    mean = float((weights * past).sum()) / total
    freedom = past.size - 1
    # How much more (or less) they vary than their errors say.
    scale = float((weights * (past - mean) ** 2).sum()) / freedom
    spread = math.sqrt(max(scale * (float(variance) + between + 1 / total), NOISE_FLOOR**2))
    tail = float(stdtr(freedom, (float(score) - mean) / spread))
    return float(ndtri(min(1 - SMALLEST_TAIL, max(SMALLEST_TAIL, tail))))


def _variance_between(past: Floats, variances: Floats) -> float:
    """Return τ²: the variance between evaluations beyond their errors (DerSimonian & Laird's moment estimate), ≥ 0."""
    weights = 1 / variances
    total = float(weights.sum())
    mean = float((weights * past).sum()) / total
    excess = float((weights * (past - mean) ** 2).sum()) - (past.size - 1)
    return max(0.0, excess / (total - float((weights**2).sum()) / total))
