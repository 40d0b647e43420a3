"""For how many turns does an effect last? Its half-life, from scores by turn of conversations with and without a treatment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaluation.statistics.bootstrap import LEVEL

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RESAMPLES = 1_000
FIRST_TURNS = 3  # whose mean effect is what it decays from: that of one turn is noise

ScoresByTurn = Mapping[int, float]  # of one conversation, turns from 1


@dataclass(frozen=True, slots=True)
class HalfLife:
    """After how many turns the effect had fallen below half of what it was in the first three.

    Attributes:
        turns: How many turns it was at least half as large.
        low, high: Its 95 % interval, whole conversations drawn.
        measured: Turns that were measured. Where `turns` or `high` is as many, it had not halved by then: read it as "at least".
    """

    turns: int
    low: int
    high: int
    measured: int


def half_life(treatment: Sequence[ScoresByTurn], control: Sequence[ScoresByTurn], *, seed: int = 0) -> HalfLife | None:
    """Return the half-life of the difference between the mean scores of conversations with and without a treatment.

    The effect may fall or stay from turn to turn, and is taken not to rise: isotonic regression (Barlow et al., "Statistical Inference
    under Order Restrictions", 1972) keeps the noise of single turns out, without a form of decay that would have to be guessed. It is
    right for a sudden end as for a slow one. Whole conversations are drawn with replacement, in each arm for itself.

    Returns:
        None where an arm has no conversation with a score, or no turn has scores in both.
    """
    import numpy as np

    turns = max((turn for scores in (*treatment, *control) for turn in scores), default=0)
    treated = _table(treatment, turns)
    untreated = _table(control, turns)
    if not turns or not len(treated) or not len(untreated):
        return None
    point = _half_life_of(_means(treated) - _means(untreated))
    if point is None:
        return None
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(RESAMPLES):
        effect = _means(_resampled(treated, random)) - _means(_resampled(untreated, random))
        value = _half_life_of(effect)
        if value is not None:
            drawn.append(value)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="closest_observation")
    return HalfLife(turns=point, low=min(point, int(low)), high=max(point, int(high)), measured=turns)


def _table(conversations: Sequence[ScoresByTurn], turns: int) -> Floats:
    """Return a row for each conversation with scores, and a column for each turn; NaN where a turn has none."""
    import numpy as np

    rows = []
    for scores in conversations:
        if scores:
            rows.append([scores.get(turn, np.nan) for turn in range(1, turns + 1)])
    return np.array(rows, dtype=np.float64)


def _resampled(table: Floats, random: np.random.Generator) -> Floats:
    rows: Floats = table[random.integers(0, len(table), len(table))]
    return rows


def _means(table: Floats) -> Floats:
    """Return the mean of each turn; NaN where no conversation has a score."""
    import numpy as np

    counts = (~np.isnan(table)).sum(axis=0)
    sums = np.nansum(table, axis=0)
    means: Floats = np.divide(sums, counts, out=np.full(table.shape[1], np.nan), where=counts > 0)
    return means


def _half_life_of(effect: Floats) -> int | None:
    """Return up to which turn an effect by turn is at least half of what it is at first; None where no turn has one.

    0 where there is none at first.
    """
    import numpy as np
    from scipy.optimize import isotonic_regression

    indices = np.flatnonzero(~np.isnan(effect))
    if not indices.size:
        return None
    fitted = isotonic_regression(effect[indices], increasing=False).x
    at_first = float(fitted[:FIRST_TURNS].mean())
    if at_first <= 0:
        return 0
    halved = np.flatnonzero(fitted < at_first / 2)
    if not halved.size:
        return len(effect)
    return int(indices[halved[0]])  # turns before that one
