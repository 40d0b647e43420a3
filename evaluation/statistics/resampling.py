"""Bootstrap resamples as counts: how often each distinct item was drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.estimates import Floats

CELLS_AT_ONCE = 1_000_000  # 8 MB


def resample_counts(counts: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Resamples, with replacement, of as many items as there are.

    Items are given as distinct kinds with their counts: so a resample does not depend on the order of the items, and many equal
    items cost no more than one.

    Args:
        counts: Shape (kinds,), how often each kind occurs.
        resamples: How many to draw.
        rng: Where chance comes from.

    Yields:
        Arrays of shape (some resamples, kinds), in all `resamples` rows, each summing to the number of items.
    """
    import numpy as np

    total = int(counts.sum())
    step = max(1, CELLS_AT_ONCE // max(1, counts.size))
    for start in range(0, resamples, step):
        drawn = rng.multinomial(total, counts / total, size=min(step, resamples - start))
        yield drawn.astype(np.float64)


def replicates(
    statistic: Callable[[Floats], Floats], counts: NDArray[np.int64], *, resamples: int, seed: int
) -> Floats:
    """The statistic of each resample, shape (resamples,); `statistic` maps counts (rows, kinds) to (rows,), NaN = undefined."""
    import numpy as np

    if resamples < 100:
        raise ValueError(f"resamples is {resamples}; an interval needs at least 100")
    rng = np.random.default_rng(seed)
    return np.concatenate([statistic(rows) for rows in resample_counts(counts, resamples=resamples, rng=rng)])
