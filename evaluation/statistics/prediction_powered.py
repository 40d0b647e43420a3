"""A mean that people would have given, from a few of their labels and the judge's scores of everything."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from agents.kit.text.wording import counted
from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval, finite_numbers, kish

if TYPE_CHECKING:
    from evaluation.statistics.bootstrap import Floats

LEAST_LABELS = 50
ROUNDING_VARIANCE = 1 / 12  # of whole numbers (Sheppard's correction)


def prediction_powered_mean(
    labels: Sequence[float],
    judged: Sequence[float],
    judged_rest: Sequence[float],
    *,
    weights: Sequence[float] = (),
    rest_weights: Sequence[float] = (),
    clusters: Sequence[Hashable] = (),
    rest_clusters: Sequence[Hashable] = (),
) -> Estimate:
    """Return the mean on the people's scale, with interval: mean of λ · judge over the rest + mean of label − λ · judge over the labelled.

    Source: Angelopoulos, Bates, Fannjiang, Jordan & Zrnic, "Prediction-powered inference", Science 382 (2023), 669–674; λ by power
    tuning as in PPI++ (Angelopoulos, Duchi & Zrnic, arXiv:2311.01453, 2023, section 6), clipped to 0 … 1. The interval is valid
    however bad the judge is, *if* the labelled messages are a random sample; a bad judge only makes it as wide as the labels alone. It
    is never narrower than the rounding of labels to whole numbers would make it.

    Args:
        labels: What people gave, shape (n,), a random sample of the messages.
        judged: What the judge gave the same messages, in the same order.
        judged_rest: What the judge gave all other messages, shape (N,).
        weights, rest_weights: For how much each of the labelled and of the other messages counts, > 0, shapes (n,) and (N,): 1 ÷ the chance
            with which its conversation was kept. None: all count alike. Where they differ, both means are Hájek's, with the variance of a
            ratio by Taylor linearisation (Cochran, "Sampling Techniques", 1977, section 6.3).
        clusters, rest_clusters: What each of them was drawn with as a whole, e.g. its conversation, shapes (n,) and (N,); some may be
            in both. None: each was drawn alone. With them the interval is Student's t of the clusters with labels.

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
    weights_of_labelled = _weights_for(label_scores, weights)
    weights_of_rest = _weights_for(judge_rest, rest_weights)
    are_equal = len({*weights_of_labelled.tolist(), *weights_of_rest.tolist()}) <= 1
    if are_equal and not clusters:
        return _estimate(label_scores, judge_scores, judge_rest, tuning)
    corrections = _linearised(label_scores - tuning * judge_scores, weights_of_labelled)
    value = corrections.mean
    parts = _sums_by_cluster("labelled", corrections.parts, clusters)
    clusters_with_labels = len(parts)
    if tuning:
        rest = _linearised(judge_rest, weights_of_rest)
        value += tuning * rest.mean
        for cluster, part in _sums_by_cluster("rest", rest.parts, rest_clusters).items():
            parts[cluster] = parts.get(cluster, 0.0) + tuning * part
    if clusters_with_labels < 2:
        return Estimate(value, None, n, "all labels are of one conversation: an interval needs at least 2")
    squares = sum(part**2 for part in parts.values())
    variance = squares * clusters_with_labels / (clusters_with_labels - 1)
    # Equal labels do not prove that all are equal.
    rounding = ROUNDING_VARIANCE / kish(weights_of_labelled.tolist())
    return _with_interval(value, max(variance, rounding), n, freedom=clusters_with_labels - 1)


def _weights_for(scores: Floats, weights: Sequence[float]) -> Floats:
    """Return a weight for each score; 1 where none are given.

    Raises:
        ValueError: Not one for each, or one that is no finite number above 0.
    """
    import numpy as np

    if not weights:
        return np.ones(scores.size)
    checked = finite_numbers("weights", weights)
    if checked.size != scores.size or float(checked.min()) <= 0:
        raise ValueError(f"{checked.size} weights for {scores.size} scores; allowed: one above 0 for each")
    return checked


@dataclass(frozen=True, slots=True)
class _Linearised:
    """A Hájek mean, Σ weight · score ÷ Σ weight, and how much each score moves it, shape of the scores."""

    mean: float
    parts: Floats


def _linearised(scores: Floats, weights: Floats) -> _Linearised:
    total = float(weights.sum())
    mean = float((weights * scores).sum()) / total
    return _Linearised(mean, weights * (scores - mean) / total)


def _sums_by_cluster(sample: str, parts: Floats, clusters: Sequence[Hashable]) -> dict[Hashable, float]:
    """Return the sum of the parts in each cluster; without clusters each part alone.

    Raises:
        ValueError: Not one cluster for each.
    """
    if not clusters:
        return {(sample, row): part for row, part in enumerate(parts.tolist())}
    if len(clusters) != parts.size:
        raise ValueError(f"{len(clusters)} clusters for {parts.size} scores; allowed: one for each")
    sums: dict[Hashable, float] = defaultdict(float)
    for cluster, part in zip(clusters, parts.tolist(), strict=True):
        sums[cluster] += part
    return dict(sums)


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
    return _with_interval(value, variance, int(labels.size))


def _with_interval(value: float, variance: float, n: int, *, freedom: int | None = None) -> Estimate:
    """Return a mean of so many labels with its interval: Student's t of these degrees of freedom, or None: normal."""
    quantile = NormalDist().inv_cdf((1 + LEVEL) / 2)
    if freedom is not None:
        from scipy.special import stdtrit

        quantile = float(stdtrit(freedom, (1 + LEVEL) / 2))
    width = quantile * math.sqrt(variance)
    return Estimate(value, Interval(value - width, value + width), n)
