"""A mean that people would have given, from a few of their labels and the judge's scores of everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from agents.kit.text.wording import counted
from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval, numbers

if TYPE_CHECKING:
    from evaluation.statistics.bootstrap import Floats

LEAST_LABELS = 50
ROUNDING_VARIANCE = 1 / 12  # of whole numbers (Sheppard's correction)


def prediction_powered_mean(labels: Sequence[float], judged: Sequence[float], judged_rest: Sequence[float]) -> Estimate:
    """Mean on the people's scale, with interval: mean of λ · judge over the rest + mean of (label − λ · judge) over the labelled.

    Source: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, "Prediction-powered inference", Science 382 (2023), 669–674; λ by power
    tuning as in PPI++ (Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023, section 6), clipped to 0 … 1. The interval is valid
    however bad the judge is, *if* the labelled messages are a random sample; a bad judge only makes it as wide as the labels alone. It
    is never narrower than the rounding of labels to whole numbers would make it.

    Args:
        labels: What people gave, shape (n,), a random sample of the messages.
        judged: What the judge gave the same messages, in the same order.
        judged_rest: What the judge gave all other messages, shape (N,).

    Returns:
        `n` counts the labels. No value for fewer than 50: the interval is asymptotic. λ is 0 with an empty rest, where none can help.

    Raises:
        ValueError: Lists that do not match, or a score that is no finite number.
    """
    y, f, rest = numbers("labels", labels), numbers("judged", judged), numbers("judged_rest", judged_rest)
    if y.size != f.size:
        raise ValueError(f"{y.size} labels but {f.size} judge scores for them; each label needs its judge score")
    if y.size < LEAST_LABELS:
        too_few = f"{counted(y.size, 'label')}; at least {LEAST_LABELS} from a random sample are needed"
        return Estimate(None, None, int(y.size), too_few)
    return _estimate(y, f, rest, _tuning(y, f, rest) if rest.size > 1 else 0.0)


def _tuning(y: Floats, f: Floats, rest: Floats) -> float:
    """The λ of the narrowest interval: cov(label, judge) ÷ (var(judge, labelled) + n/N · var(judge, rest)), clipped to 0 … 1."""
    import numpy as np

    variance = float(np.var(f, ddof=1)) + y.size / rest.size * float(np.var(rest, ddof=1))
    if variance <= 1e-12:
        return 0.0
    return min(1.0, max(0.0, float(np.cov(y, f, ddof=1)[0, 1]) / variance))


def _estimate(y: Floats, f: Floats, rest: Floats, tuning: float) -> Estimate:
    import numpy as np

    rectifier = y - tuning * f
    value, variance = float(rectifier.mean()), float(np.var(rectifier, ddof=1)) / y.size
    if tuning:
        value += tuning * float(rest.mean())
        variance += tuning**2 * float(np.var(rest, ddof=1)) / rest.size
    variance = max(variance, ROUNDING_VARIANCE / y.size)  # equal labels do not prove that all are equal
    width = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(variance)
    return Estimate(value, Interval(value - width, value + width), int(y.size))
