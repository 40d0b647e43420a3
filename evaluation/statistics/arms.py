"""Two arms of an experiment: their means, effect sizes, and how sure a difference is, taking each score and taking each environment.

Agents that talk to each other are alike, so scores of one environment are not independent: a test that takes each for itself (`welch`)
finds effects that are not there. `permutation_p` takes environments, which were assigned to arms as wholes; the verdict is its.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluation.statistics.bootstrap import LEVEL, Interval, numbers
from evaluation.statistics.difference import n_to_detect, smallest_detectable_change

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

PERMUTATIONS = 9_999
MOST_EXACT = 10_000  # ways to assign the environments; up to here all are gone through

Arm = Mapping[Any, Sequence[float]]  # the scores of each environment


@dataclass(frozen=True, slots=True)
class Welch:
    """Welch's t test: the statistic, its degrees of freedom (Welch–Satterthwaite), two-sided p."""

    t: float
    df: float
    p: float


@dataclass(frozen=True, slots=True)
class Effect:
    """A standardised difference of means: Cohen's `d`, by the pooled standard deviation, and Hedges' `g`, each with its 95 % interval."""

    d: float
    g: float
    interval: Interval
    g_interval: Interval


def welch(treatment: Sequence[float], control: Sequence[float]) -> Welch | None:
    """Test the difference of two means, each score taken for itself; None for fewer than 2 scores in one, or none that varies."""
    a, b = numbers("treatment", treatment), numbers("control", control)
    if min(len(a), len(b)) < 2 or not (a.var() or b.var()):
        return None
    from scipy.special import stdtr

    one, other = float(a.var(ddof=1)) / len(a), float(b.var(ddof=1)) / len(b)
    t = float(a.mean() - b.mean()) / math.sqrt(one + other)
    df = (one + other) ** 2 / (one**2 / (len(a) - 1) + other**2 / (len(b) - 1))
    return Welch(t, df, float(2 * stdtr(df, -abs(t))))


def effect(treatment: Sequence[float], control: Sequence[float]) -> Effect | None:
    """How large the difference of two means is, in standard deviations; None for fewer than 2 scores in one, or none that varies.

    Hedges & Olkin, "Statistical Methods for Meta-Analysis" (1985), chapter 5: g with the exact factor, the variance of d from its size.
    """
    a, b = numbers("treatment", treatment), numbers("control", control)
    n, m = len(a), len(b)
    if min(n, m) < 2:
        return None
    pooled = math.sqrt(((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / (n + m - 2))
    if not pooled:
        return None
    from scipy.special import ndtri

    d = float(a.mean() - b.mean()) / pooled
    df = n + m - 2
    factor = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    reach = float(ndtri((1 + LEVEL) / 2)) * math.sqrt((n + m) / (n * m) + d * d / (2 * (n + m)))
    interval = Interval(d - reach, d + reach)
    return Effect(d, factor * d, interval, Interval(factor * interval.low, factor * interval.high))


def intraclass(*arms: Arm) -> float | None:
    """How alike scores of one environment are, 1 = equal: ICC(1) of a one-way analysis of variance with unequal sizes, arms apart.

    Donner, International Statistical Review 54 (1986), 67–82. Below 0 when environments differ less than chance makes them.

    Returns:
        None where no environment has two scores, or all scores are equal.
    """
    groups = [[numbers("scores", scores) for scores in arm.values() if len(scores)] for arm in arms]
    sizes = [len(scores) for arm in groups for scores in arm]
    freedom = len(sizes) - sum(bool(arm) for arm in groups)
    inside = sum(sizes) - len(sizes)
    if freedom < 1 or inside < 1:
        return None
    between = within = typical = 0.0
    for arm in groups:
        total = sum(len(scores) for scores in arm)
        mean = sum(float(scores.sum()) for scores in arm) / total if total else 0.0
        between += sum(len(scores) * (float(scores.mean()) - mean) ** 2 for scores in arm)
        within += sum(float(((scores - scores.mean()) ** 2).sum()) for scores in arm)
        typical += total - sum(len(scores) ** 2 for scores in arm) / total if total else 0.0
    size = typical / freedom
    a, b = between / freedom, within / inside
    return (a - b) / (a + (size - 1) * b) if a or b else None


def permutation_p(treatment: Arm, control: Arm, *, paired: bool = False, seed: int = 0) -> float | None:
    """Two-sided p of no difference of the means of all scores: environments swap arms, their scores stay together.

    All ways are gone through up to 10,000 of them, else 9,999 drawn ones and the real one (Phipson & Smyth, Statistical Applications in
    Genetics and Molecular Biology 9 (2010), 39).

    Args:
        paired: The same environments are in both arms, and each swaps with its like; those that are in one only are left out.

    Returns:
        In (0, 1]; None for fewer than 3 environments in one of the two.
    """
    import numpy as np

    a, b = _sums(treatment), _sums(control)
    if paired:
        both = [key for key in a if key in b]
        a, b = {key: a[key] for key in both}, {key: b[key] for key in both}
    n, m = len(a), len(b)
    if min(n, m) < 3:
        return None
    rows = np.array([*a.values(), *b.values()])
    rng = np.random.default_rng(seed)
    if paired:
        exact = 2**n <= MOST_EXACT
        flips = _all_flips(n) if exact else rng.integers(0, 2, (PERMUTATIONS, n)).astype(bool)
        chosen = np.concatenate([~flips, flips], axis=1)
    else:
        exact = math.comb(n + m, n) <= MOST_EXACT
        chosen = _all_choices(n + m, n) if exact else rng.permuted(_first(PERMUTATIONS, n + m, n), axis=1)
    real = abs(_difference(rows, _first(1, n + m, n))[0])
    extreme = int((np.abs(_difference(rows, chosen)) >= real - 1e-9 * max(1.0, real)).sum())
    return extreme / len(chosen) if exact else (1 + extreme) / (1 + PERMUTATIONS)


def detectable(treatment: Arm, control: Arm, *, paired: bool = False) -> float | None:
    """The smallest true difference that as many environments would find with power 0.8, in points; None below 2 in one of the two."""
    deviation, n, m = _spread(treatment, control, paired=paired)
    return None if deviation is None else smallest_detectable_change(n, deviation, baseline_n=m, paired=paired)


def environments_needed(change: float, treatment: Arm, control: Arm, *, paired: bool = False) -> int | None:
    """How many environments an arm find a true difference of so many points with power 0.8; None below 2, or where no number suffices."""
    deviation, _, _ = _spread(treatment, control, paired=paired)
    if deviation is None or not change:
        return None
    return n_to_detect(abs(change), max(deviation, 1e-9), paired=paired)


def _sums(arm: Arm) -> dict[Hashable, tuple[float, float]]:
    return {key: (float(numbers("scores", scores).sum()), float(len(scores))) for key, scores in arm.items() if scores}


def _spread(treatment: Arm, control: Arm, *, paired: bool) -> tuple[float | None, int, int]:
    """The standard deviation between environments' means (paired: of their differences), pooled, and their numbers."""
    import numpy as np

    a = {key: total / n for key, (total, n) in _sums(treatment).items()}
    b = {key: total / n for key, (total, n) in _sums(control).items()}
    if paired:
        differences = [a[key] - b[key] for key in a if key in b]
        n = len(differences)
        return (float(np.std(differences, ddof=1)) if n > 1 else None), n, n
    n, m = len(a), len(b)
    if min(n, m) < 2:
        return None, n, m
    squares = (n - 1) * np.var([*a.values()], ddof=1) + (m - 1) * np.var([*b.values()], ddof=1)
    return math.sqrt(float(squares) / (n + m - 2)), n, m


def _difference(rows: Floats, chosen: NDArray[np.bool_]) -> Floats:
    """The difference of the means of all scores, for each way to choose the treatment's environments."""
    one = chosen.astype(float) @ rows
    rest = rows.sum(axis=0) - one
    difference: Floats = one[:, 0] / one[:, 1] - rest[:, 0] / rest[:, 1]
    return difference


def _first(ways: int, of: int, n: int) -> NDArray[np.bool_]:
    import numpy as np

    return np.tile(np.arange(of) < n, (ways, 1))


def _all_choices(of: int, n: int) -> NDArray[np.bool_]:
    from itertools import combinations

    import numpy as np

    ways = list(combinations(range(of), n))
    chosen = np.zeros((len(ways), of), dtype=bool)
    chosen[np.arange(len(ways))[:, None], ways] = True
    return chosen


def _all_flips(n: int) -> NDArray[np.bool_]:
    import numpy as np

    flips: NDArray[np.bool_] = (np.arange(2**n)[:, None] >> np.arange(n)) & 1 == 1
    return flips
