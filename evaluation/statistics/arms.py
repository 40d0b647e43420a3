"""Two arms of an experiment: their means, effect sizes, and how sure a difference is, taking each score and taking each environment.

Agents that talk to each other are alike, so scores of one environment are not independent: a test that takes each for itself (`welch`)
finds effects that are not there. `permutation_p` takes environments, which were assigned to arms as wholes; the verdict is its.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evaluation.statistics.bootstrap import LEVEL, Estimate, Interval, numbers
from evaluation.statistics.difference import smallest_detectable_change, welch_p

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

PERMUTATIONS = 9_999
MOST_EXACT = 10_000  # ways to assign the environments; up to here all are gone through

Arm = Mapping[Any, Sequence[float]]  # the scores of each environment


def welch(treatment: Sequence[float], control: Sequence[float]) -> float | None:
    """Two-sided p of no difference of two means, each score taken for itself (Welch's t test).

    None for fewer than 2 scores in one, or none that varies.
    """
    samples = numbers("treatment", treatment), numbers("control", control)
    a, b = samples
    if min(len(a), len(b)) < 2 or not (a.var() or b.var()):
        return None
    variances = [(float(one.var(ddof=1)) / len(one), len(one) - 1) for one in samples]
    return welch_p(float(a.mean() - b.mean()), variances)


def effect(treatment: Sequence[float], control: Sequence[float]) -> Estimate | None:
    """Cohen's d, the difference of two means in pooled standard deviations, with its interval by the normal approximation.

    The variance of d from its size: Hedges & Olkin, "Statistical Methods for Meta-Analysis" (1985), chapter 5. None for fewer than 2
    scores in one, or none that varies.
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
    reach = float(ndtri((1 + LEVEL) / 2)) * math.sqrt((n + m) / (n * m) + d * d / (2 * (n + m)))
    return Estimate(d, Interval(d - reach, d + reach), n + m)


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
