"""A mean that people would have given, from a few of their labels and the judge's scores of everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from agents.kit.text.wording import counted
from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval, finite_numbers

if TYPE_CHECKING:
    from evaluation.statistics.bootstrap import Floats

LEAST_LABELS = 50
ROUNDING_VARIANCE = 1 / 12  # of whole numbers (Sheppard's correction)


def prediction_powered_mean(labels: Sequence[float], judged: Sequence[float], judged_rest: Sequence[float]) -> Estimate:
    """Return the mean on the people's scale, with interval: mean of λ · judge over the rest + mean of label − λ · judge over the labelled.

    Source: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, "Prediction-powered inference", Science 382 (2023), 669–674; λ by power
    tuning as in PPI++ (Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023, section 6), clipped to 0 … 1. The interval is valid
    however bad the judge is, *if* the labelled messages are a random sample; a bad judge only makes it as wide as the labels alone. It
    is never narrower than the rounding of labels to whole numbers would make it.

    Args:
        labels: What people gave, shape (n,), a random sample of the messages.
        judged: What the judge gave the same messages, in the same order.
        judged_rest: What the judge gave all other messages, shape (N,).

    Returns:
        `n` counts the labels. No value for fewer than 50: the interval is asymptotic. λ is 0 with fewer than two in the rest, which says
        nothing of its spread: the mean of the labels.

    Raises:
        ValueError: Lists that do not match, or a score that is no finite number.
    """
    label_scores = finite_numbers("labels", labels)
    judge_scores = finite_numbers("judged", judged)
    judge_rest = finite_numbers("judged_rest", judged_rest)
    n = int(label_scores.size)
    if n != judge_scores.size:
        raise ValueError(f"{n} labels but {judge_scores.size} judge scores for them; each label needs its judge score")
    if n < LEAST_LABELS:
        too_few = f"{counted(n, 'label')}; at least {LEAST_LABELS} from a random sample are needed"
        return Estimate(None, None, n, too_few)
    tuning = 0.0
    if judge_rest.size > 1:
        tuning = _tuning(label_scores, judge_scores, judge_rest)
    return _estimate(label_scores, judge_scores, judge_rest, tuning)


def _tuning(labels: Floats, judged: Floats, judged_rest: Floats) -> float:
    """Return the λ of the narrowest interval: cov(label, judge) ÷ (var(judge, labelled) + n/N · var(judge, rest)), clipped to 0 … 1."""
    import numpy as np

    variance_labelled = float(np.var(judged, ddof=1))
    variance_rest = float(np.var(judged_rest, ddof=1))
    variance = variance_labelled + labels.size / judged_rest.size * variance_rest
    if variance <= 1e-12:
        return 0.0
    covariance = float(np.cov(labels, judged, ddof=1)[0, 1])
    return min(1.0, max(0.0, covariance / variance))


def _estimate(labels: Floats, judged: Floats, judged_rest: Floats, tuning: float) -> Estimate:
    """Return the mean with its interval.

    Args:
        tuning: λ: how much the judge's scores count, 0 to 1.
    """
    import numpy as np

    corrections = labels - tuning * judged
    value = float(corrections.mean())
    variance = float(np.var(corrections, ddof=1)) / labels.size
    if tuning:
        value += tuning * float(judged_rest.mean())
        variance += tuning**2 * float(np.var(judged_rest, ddof=1)) / judged_rest.size
    variance = max(variance, ROUNDING_VARIANCE / labels.size)  # equal labels do not prove that all are equal
    width = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(variance)
    return Estimate(value, Interval(value - width, value + width), int(labels.size))
