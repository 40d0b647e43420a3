"""What a statistic returns: a value, how sure it is, and in words why it may have none; and the resampling behind intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import PlainSerializer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

LEVEL = 0.95  # of every confidence interval
CELLS_AT_ONCE = 1_000_000  # 8 MB
LEAST_SHARE_DEFINED = 0.9  # of the resamples; an interval from fewer would describe only the lucky ones


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % confidence interval, ends included."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"an interval from {self.low} to {self.high}: low must not exceed high, both finite")


IntervalShown = Annotated[
    Interval | None,
    PlainSerializer(
        lambda one: None if one is None else [round(one.low, 4), round(one.high, 4)],
        return_type=list[float] | None,  # which the API's schema shows
    ),
]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic of `n` independent things (messages, items).

    Attributes:
        value: The statistic; None when it is undefined for this input.
        interval: None when there is none to give.
        reason: Why value or interval is None, as a sentence for people; empty otherwise.
    """

    value: float | None
    interval: Interval | None
    n: int
    reason: str = ""


def numbers(what: str, values: Sequence[float]) -> Floats:
    """The values as an array.

    Raises:
        ValueError: One of them is not a finite number; names which.
    """
    import numpy as np

    array = np.asarray(values, dtype=np.float64).reshape(-1)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ValueError(f"{what}: number {bad[0] + 1} is {array[bad[0]]}; allowed: finite numbers")
    return array


def percentile_estimate(value: float, replicates: Floats, *, n: int) -> Estimate:
    """The value with the percentile bootstrap interval of its replicates (Efron & Tibshirani 1993, chapter 13).

    Args:
        value: The statistic of the data, of `n` independent things.
        replicates: The statistic of each resample; NaN where it was undefined.

    Returns:
        Without an interval when more than a tenth of the replicates is undefined, or when all are equal: a bootstrap that never
        sees a difference does not know how likely one is.
    """
    import numpy as np

    defined = replicates[np.isfinite(replicates)]
    if defined.size < LEAST_SHARE_DEFINED * replicates.size:
        undefined = replicates.size - defined.size
        return Estimate(
            value, None, n, f"undefined in {undefined} of {replicates.size} resamples: too few different ratings"
        )
    low, high = (float(x) for x in np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    if np.ptp(defined) <= 1e-12:
        return Estimate(value, None, n, f"the same in every resample of {n}: the bootstrap cannot say how sure this is")
    return Estimate(value, Interval(low, high), n)


def resample_counts(counts: NDArray[np.int64], *, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Resamples, with replacement, of as many items as there are.

    Items are given as distinct kinds with their counts, shape (kinds,): so a resample does not depend on the order of the items, and
    many equal items cost no more than one.

    Yields:
        Arrays of shape (some resamples, kinds), in all `resamples` rows, each summing to the number of items.
    """
    import numpy as np

    total = int(counts.sum())
    step = max(1, CELLS_AT_ONCE // max(1, counts.size))
    for start in range(0, resamples, step):
        drawn = rng.multinomial(total, counts / total, size=min(step, resamples - start))
        yield drawn.astype(np.float64)


def replicates(statistic: Callable[[Floats], Floats], counts: NDArray[np.int64], *, resamples: int) -> Floats:
    """The statistic of each resample, shape (resamples,); `statistic` maps counts (rows, kinds) to (rows,), NaN = undefined."""
    import numpy as np

    rng = np.random.default_rng(0)
    return np.concatenate([statistic(rows) for rows in resample_counts(counts, resamples=resamples, rng=rng)])
