"""How often the interval of a comparison holds the truth where a rule scores 0 or 9.

No message of the baseline breaks the rule; of the messages since a share does. Beside it, as `steady`, how often the comparison says
that nothing changed; and ordinary scores of 4 to 9, which fall by a point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evaluation.statistics.bootstrap import Observation, bootstrap_difference
from evaluation.statistics.difference import decide

SIZES, SHARES, TRIALS, RESAMPLES = (4, 7, 10, 12, 20, 50), (0.0, 0.05, 0.1, 0.2), 500, 1_000
Draw = Callable[[np.random.Generator, int], Sequence[float]]


def measure(before: Draw, now: Draw, change: float, n: int) -> tuple[float, float]:
    """Share of the trials whose interval holds the change, and that are called steady."""
    held = steady = 0
    for trial in range(TRIALS):
        rng = np.random.default_rng([trial, n])
        samples = [[Observation(float(score)) for score in draw(rng, n)] for draw in (before, now)]
        estimate = bootstrap_difference(samples[0], samples[1], resamples=RESAMPLES)
        assert estimate.interval is not None
        held += estimate.interval.low - 1e-9 <= change <= estimate.interval.high + 1e-9
        steady += decide(estimate.value, estimate.interval).verdict == "steady"
    return held / TRIALS, steady / TRIALS


def rule(*broken: float) -> Draw:
    """The mean of rules that are each broken by a share of the messages."""
    return lambda rng, n: np.mean([9 * (rng.random(n) >= share) for share in broken], axis=0).tolist()


def judged(level: float) -> Draw:
    """What a judge gives: whole scores around a level, as far as the scale goes."""
    return lambda rng, n: np.clip(np.rint(rng.normal(level, 1.2, n)), 0, 9).tolist()


def measure_coverage() -> None:
    print("The interval holds the truth / is called steady, by messages of each and the share that breaks the rule now")  # noqa: T201
    print("   n " + "".join(f"{share:>16.0%}" for share in SHARES))  # noqa: T201
    cases: list[tuple[str, Callable[[float], tuple[Draw, Draw, float]]]] = [
        ("one rule, broken by none before", lambda share: (rule(0.0), rule(share), -9 * share)),
        ("one rule, broken by the same share before", lambda share: (rule(share), rule(share), 0.0)),
        (
            "three rules, each broken by none before",
            lambda share: (rule(0.0, 0.0, 0.0), rule(share, share, share), -9 * share),
        ),
    ]
    for name, case in cases:
        print(name)  # noqa: T201
        for n in SIZES:
            cells = ["{:>8.1%} / {:>4.0%} ".format(*measure(*case(share), n)) for share in SHARES]
            print(f"{n:>4} " + "".join(cells))  # noqa: T201
    print("ordinary scores, a point lower now")  # noqa: T201
    for n in SIZES:
        print(f"{n:>4} " + "{:>8.1%} / {:>4.0%}".format(*measure(judged(6.0), judged(5.0), -1.0, n)))  # noqa: T201
