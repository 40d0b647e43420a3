"""How small a change comparisons can detect, and how many messages a change of a given size takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from evaluation.change.change import ChangeResult, rounded_to
from evaluation.change.comparison import Comparison
from evaluation.statistics.difference import ALPHA, n_to_detect, smallest_detectable_change


class Detection(BaseModel):
    """What one dimension of one comparison can detect, with power 0.8, beside the others that are compared at once.

    Attributes:
        smallest: The smallest change in points that these messages would show.
        needed: Messages, that all count alike, of each of the two (pairs, where paired) for a change of `change` points; None: more than
            ten million.
        needed_now: The same with the baseline as it is; None: no number suffices, the baseline is too small.
    """

    model_config = ConfigDict(frozen=True, serialize_by_alias=True)

    target: str
    dimension: str
    change: float
    sd: Annotated[float, rounded_to(2)]
    n: int
    baseline_n: int
    unit: str
    smallest: Annotated[float | None, rounded_to(2)] = Field(serialization_alias="smallest_detectable")
    needed: int | None
    needed_now: int | None = Field(serialization_alias="needed_with_this_baseline")


def detections(comparisons: Sequence[Comparison], points: float) -> list[Detection]:
    """Return what these comparisons can detect, for each dimension whose spread is known.

    Verdicts are corrected for all dimensions compared at once. So is this, by Bonferroni's share of the 5 % for each (Holm gives no less).

    Args:
        comparisons: Those corrected together.
        points: The size of the change to detect, more than 0.
    """
    tested = 0  # above 0 where a spread is known: both take an interval
    for comparison in comparisons:
        tested += sum(change.p_value is not None for change in comparison.dimensions)
    rows = []
    for comparison in comparisons:
        for change in comparison.dimensions:
            if change.sd is not None:
                rows.append(_detection(comparison.target, change, change.sd, points, alpha=ALPHA / tested))
    return rows


def _detection(target: str, change: ChangeResult, sd: float, points: float, *, alpha: float) -> Detection:
    """Return what one comparison can detect, and how many messages it takes to detect `points`.

    `needed_now`, with the baseline as it is, is the same as `needed` where pairs grow on both sides, or the baseline has fewer than two.

    Args:
        sd: Of `change`, where it is known.
        points: The size of the change to detect.
        alpha: Chance to detect a change that is not there.
    """
    needed = n_to_detect(points, sd, alpha=alpha, paired=change.paired)
    needed_now = needed
    if not change.paired and change.baseline_n >= 2:
        needed_now = n_to_detect(points, sd, alpha=alpha, baseline_n=change.effective_baseline_n)
    return Detection(
        target=target,
        dimension=change.dimension,
        change=points,
        sd=sd,
        n=change.n,
        baseline_n=change.baseline_n,
        unit=change.unit,
        smallest=smallest_detectable_change(
            change.effective_n, sd, alpha=alpha, baseline_n=change.effective_baseline_n, paired=change.paired
        ),
        needed=needed,
        needed_now=needed_now,
    )
