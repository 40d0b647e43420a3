"""Scores that belong together: weighted sums per cluster, clusters grouped by stratum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from evaluation.statistics.estimates import numbers

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Floats


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
