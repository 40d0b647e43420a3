"""How much a judge differs from itself: the same thing judged several times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evaluation.statistics.estimates import Interval, check_level, numbers


@dataclass(frozen=True, slots=True)
class Noise:
    """The judge's own noise.

    Attributes:
        within_sd: Standard deviation between judgements of the same item, in points; None when no item was judged twice.
        interval: Its confidence interval; None without `within_sd`.
        of_mean: Standard error that this noise alone gives the mean over the items (each item's mean counted once), in points: what would
            still vary if the same messages were judged again. None without `within_sd`.
        items: Items with a judgement.
        repeated: Items judged at least twice.
        reason: Why `within_sd` is None; empty otherwise.
    """

    within_sd: float | None
    interval: Interval | None
    of_mean: float | None
    items: int
    repeated: int
    reason: str = ""


def judge_noise(repeats: Iterable[Sequence[float]], *, level: float = 0.95) -> Noise:
    """Within-item standard deviation, pooled over items, and the noise it puts into the mean.

    Source: Bland & Altman, "Measurement error", BMJ 313 (1996), 744: √(Σ squared deviations from the item's mean ÷ Σ (repeats − 1)),
    the root of the residual mean square of a one-way analysis of variance. Interval: chi-squared, so exact for normal noise and a
    guide for scores of 0 to 9.

    Args:
        repeats: Per item its judgements, in points. Items without any are passed over; items with one count for the mean only.
        level: Confidence level.

    Raises:
        ValueError: A judgement that is no finite number, or `level` out of range.
    """
    check_level(level)
    items = [row for number, scores in enumerate(repeats, 1) if (row := numbers(f"item {number}", scores)).size]
    twice = [row for row in items if row.size > 1]
    freedom = sum(row.size - 1 for row in twice)
    if not freedom:
        return Noise(None, None, None, len(items), 0, "no item was judged twice; use two repeats or more")
    squares = sum(float(((row - row.mean()) ** 2).sum()) for row in twice)
    sd = math.sqrt(squares / freedom)
    of_mean = noise_of_mean(sd, [row.size for row in items])
    return Noise(sd, _interval(squares, freedom, level), of_mean, len(items), len(twice))


def noise_of_mean(within_sd: float, repeats: Sequence[int]) -> float:
    """Standard error, in points, that judge noise alone gives the mean of item means.

    Args:
        within_sd: Standard deviation between judgements of one item, ≥ 0.
        repeats: How often each item is judged, each ≥ 1.

    Raises:
        ValueError: No items, an item without a judgement, or a negative standard deviation.
    """
    if not repeats or min(repeats) < 1:
        raise ValueError(f"repeats is {list(repeats)[:5]}; allowed: one number of 1 or more per item")
    if not (math.isfinite(within_sd) and within_sd >= 0):
        raise ValueError(f"within_sd is {within_sd}; allowed: 0 or more")
    return within_sd * math.sqrt(sum(1 / k for k in repeats)) / len(repeats)


def _interval(squares: float, freedom: int, level: float) -> Interval:
    from scipy.special import chdtri

    upper_tail = [(1 - level) / 2, (1 + level) / 2]
    low, high = (math.sqrt(squares / float(chdtri(freedom, tail))) for tail in upper_tail)
    return Interval(low, high, level)
