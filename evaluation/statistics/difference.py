"""From a difference and its interval to a decision, and how many messages a decision takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from evaluation.statistics.estimates import Interval

Outcome = Literal["drifted", "steady", "cannot tell yet", "not enough data"]

MARGIN = 0.5
MOST_MESSAGES = 10_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What a difference says.

    Attributes:
        verdict: ``drifted``, ``steady`` or ``cannot tell yet``.
        n_more: For ``cannot tell yet``, how many messages more would make the interval narrow enough if difference and spread stay as they
            are; None when decided, or when that cannot be said or reached (see `reason`).
        reason: The verdict in a sentence.
    """

    verdict: Outcome
    n_more: int | None
    reason: str


def verdict(
    delta: float | None,
    interval: Interval | None,
    margin: float = MARGIN,
    *,
    n: int | None = None,
    baseline_n: int | None = None,
    unit: str = "messages",
) -> Decision:
    """Whether something drifted.

    ``steady`` only if the whole interval lies within ±margin: then the difference is too small to matter, whether or not it is zero
    (equivalence by confidence interval: Schuirmann, Journal of Pharmacokinetics and Biopharmaceutics 15 (1987), 657–680; with a 95 %
    interval each of the two one-sided tests is at 2.5 %). ``drifted`` if the interval leaves zero out and is not within the margin.
    Otherwise the data do not decide, and nothing is claimed.

    Args:
        delta: Current minus baseline, in points; None when there is none.
        interval: Its confidence interval; None when there is none.
        margin: Half-width of what counts as no change, > 0, in points.
        n: Messages the current side has (pairs, when paired). Needed for `Decision.n_more`.
        baseline_n: Messages of a baseline that stays as it is; None: both sides would grow alike, or the difference is paired.
        unit: What they are, for the sentence.

    Raises:
        ValueError: `margin`, `n` or `baseline_n` out of range, or a delta that is no finite number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise ValueError(f"margin is {margin}; allowed: more than 0")
    if any(count is not None and count < 1 for count in (n, baseline_n)):
        raise ValueError(f"n is {n}, baseline_n is {baseline_n}; allowed: 1 or more")
    if delta is None or interval is None:
        return Decision("cannot tell yet", None, "there is no interval to decide by: too few messages")
    if not math.isfinite(delta):
        raise ValueError(f"delta is {delta}; allowed: a finite number")
    if -margin <= interval.low and interval.high <= margin:
        return Decision("steady", None, f"the whole interval lies within ±{margin:g}")
    if interval.low > 0 or interval.high < 0:
        return Decision("drifted", None, f"the interval leaves zero out and reaches beyond ±{margin:g}")
    n_more = None if n is None else _n_more(delta, interval, margin, n, baseline_n)
    if n_more is not None:
        return Decision("cannot tell yet", n_more, f"some {n_more} more {unit} would make the interval narrow enough")
    too_small = n is not None and baseline_n is not None
    reason = (
        f"the baseline of {baseline_n} {unit} is too small to decide by: it takes a larger one"
        if too_small
        else "the interval is too wide"
    )
    return Decision("cannot tell yet", None, reason)


def _n_more(delta: float, interval: Interval, margin: float, n: int, baseline_n: int | None) -> int | None:
    """Messages that would narrow the interval, centred on `delta`, until it leaves out zero or lies within the margin.

    Its width goes with √(1/n), or with √(1/n + 1/baseline_n) when the baseline stays.
    """
    width = max(abs(delta - interval.low), abs(interval.high - delta))
    wanted = max(abs(delta), margin - abs(delta))
    fixed = 1 / baseline_n if baseline_n else 0.0
    left = (1 / n + fixed) * (wanted / width) ** 2 - fixed
    if left <= 1 / MOST_MESSAGES:
        return None
    return max(1, math.ceil(1 / left - n - 1e-9))


def smallest_detectable_change(
    n: int,
    sd: float,
    power: float = 0.8,
    alpha: float = 0.05,
    *,
    baseline_n: int | None = None,
    paired: bool = False,
) -> float | None:
    """The smallest true change of a mean that a comparison of this size would find with the given power, two-sided.

    (t₁₋α/₂ + t_power) · standard error, at the comparison's degrees of freedom; the approximation to the non-central t of Cohen,
    "Statistical Power Analysis for the Behavioral Sciences" (1988), chapter 2, e.g. 64 messages a side for half a standard deviation.

    Args:
        n: Messages on the current side, or pairs.
        sd: Standard deviation between messages (paired: of the differences), ≥ 0, in points.
        power: Chance to find the change if it is there, above 0.5 and below 1.
        alpha: Chance to find one that is not there, between 0 and 1.
        baseline_n: Messages of the baseline; None: as many as `n`. Not used when paired.
        paired: The same items on both sides.

    Returns:
        In points, ≥ 0. None for fewer than 2 messages on a side.

    Raises:
        ValueError: An argument out of range.
    """
    _check(sd=sd, power=power, alpha=alpha)
    before = n if baseline_n is None or paired else baseline_n
    if n < 0 or before < 0:
        raise ValueError(f"n is {n}, baseline_n is {baseline_n}; allowed: 0 or more")
    if min(n, before) < 2:
        return None
    from scipy.special import stdtrit

    freedom = n - 1 if paired else n + before - 2
    quantiles = float(stdtrit(freedom, 1 - alpha / 2) + stdtrit(freedom, power))
    return quantiles * sd * math.sqrt(1 / n if paired else 1 / n + 1 / before)


def n_to_detect(
    change: float,
    sd: float,
    power: float = 0.8,
    alpha: float = 0.05,
    *,
    baseline_n: int | None = None,
    paired: bool = False,
) -> int | None:
    """How many messages find a true change of this size with the given power: the inverse of `smallest_detectable_change`.

    Args:
        change: In points, > 0; its sign does not matter.
        sd: Standard deviation between messages (paired: of the differences), ≥ 0, in points.
        power: As above.
        alpha: As above.
        baseline_n: Messages of a baseline that stays as it is; None: both sides get as many.
        paired: The same items on both sides.

    Returns:
        Messages on the current side (without `baseline_n` on each), at least 2. None when no number suffices: the baseline is too
        small, or more than ten million would be needed.

    Raises:
        ValueError: An argument out of range.
    """
    if not math.isfinite(change) or not change:
        raise ValueError(f"change is {change}; allowed: any finite number but 0")

    def enough(n: int) -> bool:
        smallest = smallest_detectable_change(n, sd, power, alpha, baseline_n=baseline_n, paired=paired)
        return smallest is not None and smallest <= abs(change)

    high = 2
    while not enough(high):
        high *= 2
        if high > MOST_MESSAGES:
            return None
    low = high // 2  # not enough, or below 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(*, sd: float, power: float, alpha: float) -> None:
    if not (math.isfinite(sd) and sd >= 0):
        raise ValueError(f"sd is {sd}; allowed: 0 or more")
    if not 0.5 < power < 1:
        raise ValueError(f"power is {power}; allowed: above 0.5 and below 1")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; allowed: between 0 and 1")
