"""How small a change the sample at hand can find, and how many messages a change of a given size takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.comparison.chance import ALPHA
from evaluation.comparison.spread import detectable
from evaluation.comparison.values import Change, Comparison
from evaluation.statistics.difference import n_to_detect


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """What one dimension of one comparison can find, with power 0.8, beside the others it is looked at with.

    Attributes:
        smallest: The smallest change in points that these messages would find.
        needed: Messages on each side (pairs, where paired) for a change of `change` points; None: more than ten million.
        needed_now: The same with the baseline as it is; None: no number suffices, the baseline is too small.
    """

    target: str
    dimension: str
    change: float
    sd: float
    n: int
    baseline_n: int
    unit: str
    smallest: float | None
    needed: int | None
    needed_now: int | None

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "dimension": self.dimension,
            "change": self.change,
            "sd": round(self.sd, 2),
            "n": self.n,
            "baseline_n": self.baseline_n,
            "unit": self.unit,
            "smallest_detectable": None if self.smallest is None else round(self.smallest, 2),
            "needed": self.needed,
            "needed_with_this_baseline": self.needed_now,
        }


def detections(comparisons: Sequence[Comparison], change: float) -> list[Detection]:
    """What these comparisons can find, for each dimension whose spread is known.

    Verdicts allow for all dimensions looked at together; so does this, by Bonferroni's share of the 5 % for each (Holm gives no less).

    Args:
        comparisons: Those looked at together.
        change: In points, more than 0.
    """
    rows = [(c, row) for c in comparisons for row in c.dimensions]
    tested = sum(row.p_value is not None for _, row in rows)
    return [_detection(c.current.target, row, change, ALPHA / tested) for c, row in rows if row.sd is not None]


def _detection(target: str, row: Change, change: float, alpha: float) -> Detection:
    sd = row.sd or 0.0
    fixed = not row.n or not row.baseline_n
    needed = n_to_detect(change, sd, alpha=alpha, paired=row.paired or fixed)
    alone = row.paired or fixed or row.baseline_n < 2
    return Detection(
        target=target,
        dimension=row.dimension,
        change=change,
        sd=sd,
        n=row.n,
        baseline_n=row.baseline_n,
        unit=row.unit,
        smallest=detectable(sd, n=row.n, baseline_n=row.baseline_n, paired=row.paired, alpha=alpha),
        needed=needed,
        needed_now=needed if alone else n_to_detect(change, sd, alpha=alpha, baseline_n=row.baseline_n),
    )
