"""How far messages lie apart, and how small a change can be found for that."""

from __future__ import annotations

import math
from collections.abc import Sequence

from evaluation.comparison.chance import ALPHA
from evaluation.statistics.bootstrap import RESOLUTION, Observation, cluster_sums
from evaluation.statistics.difference import smallest_detectable_change

Scores = Sequence[Observation]
ROUNDING_SD = RESOLUTION / math.sqrt(12)


def spread(first: Scores, second: Scores, *, paired: bool = False) -> float | None:
    """Standard deviation between messages, pooled over both sides (paired: of the differences), in points.

    Never smaller than rounding alone gives. None for fewer than two messages on a side; a side without scores is left out.
    """
    import numpy as np

    if paired:
        rows = np.concatenate(cluster_sums(first, second))
        deviations = [rows[:, 1] / rows[:, 3] - rows[:, 0] / rows[:, 2]]
    else:
        tables = [np.concatenate(cluster_sums(side)) for side in (first, second) if side]
        deviations = [table[:, 0] / table[:, 1] for table in tables]
    if not deviations or any(len(values) < 2 for values in deviations):
        return None
    freedom = sum(len(values) - 1 for values in deviations)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in deviations)
    return max(math.sqrt(squares / freedom), ROUNDING_SD * (math.sqrt(2) if paired else 1))


def detectable(sd: float | None, *, n: int, baseline_n: int, paired: bool, alpha: float = ALPHA) -> float | None:
    """The smallest change such a comparison finds with power 0.8; a side without judgements (0) is taken as exact."""
    if sd is None:
        return None
    if not n or not baseline_n:
        return smallest_detectable_change(max(n, baseline_n), sd, alpha=alpha, paired=True)
    return smallest_detectable_change(n, sd, alpha=alpha, baseline_n=baseline_n, paired=paired)
