"""Compare two arms in one measure: the naive and the clustered p side by side, effect sizes, and what the next run could see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluation.statistics.arms import detectable, effect, permutation_p, welch
from evaluation.statistics.difference import ALPHA, holm

LEAST = 3  # environments of an arm for a p
HEURISTIC = "an offline judge's scores: no claim rests on them"
MOST_MISSING = 0.1  # share of scores that may be missing for a verdict

Better = Literal["higher", "lower", ""]
Verdict = Literal["gain", "harm", "differs", "no difference seen", "not enough data", "heuristic"]


class Cell(BaseModel):
    """An arm in one measure. `n`: values; `missing`: those that should be there and are not. `mean`, `sd`: None where undefined."""

    model_config = ConfigDict(frozen=True)

    arm: str
    n: int
    missing: int = 0
    mean: float | None = None
    sd: float | None = None


class Row(BaseModel):
    """One measure in a treatment beside the control.

    Attributes:
        measure: Its id; `label` for people; `unit` of its values. `better`: which way is a gain; empty = neither.
        delta: Treatment minus control.
        naive_p: Of Welch's test, each value for itself: too small where agents of a conversation are alike.
        p: Of the permutation test over environments. `p_adjusted`: by Holm over the judged (or the counted) rows; the
            verdict rests on it.
        why: Why there is no p, or none that could be small enough.
        d: Cohen's effect size with its 95 % interval.
        detectable: The smallest true difference that as many environments would find with power 0.8.
        verdict: What may be said.
    """

    model_config = ConfigDict(frozen=True)

    measure: str
    label: str
    unit: str
    better: Better
    treatment: Cell
    control: Cell
    delta: float | None = None
    naive_p: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    why: str = ""
    d: float | None = None
    d_interval: tuple[float, float] | None = None
    detectable: float | None = None
    verdict: Verdict = "not enough data"

    @property
    def leaning(self) -> Literal["gain", "harm", ""]:
        """Which way it went, sure or not."""
        if not self.better or not self.delta:
            return ""
        return "gain" if (self.delta > 0) is (self.better == "higher") else "harm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What is compared. `heuristic`: its values are an offline judge's, of which nothing is claimed."""

    id: str
    label: str
    unit: str
    better: Better = "higher"
    heuristic: bool = False


@dataclass(frozen=True, slots=True)
class Values:
    """An arm's values by environment, and how many are missing."""

    arm: str
    values: Mapping[Any, Sequence[float]]
    missing: int = 0

    @property
    def flat(self) -> list[float]:
        return [value for values in self.values.values() for value in values]

    @property
    def cell(self) -> Cell:
        flat = self.flat
        mean, sd = fmean(flat) if flat else None, stdev(flat) if len(flat) > 1 else None
        return Cell(arm=self.arm, n=len(flat), missing=self.missing, mean=mean, sd=sd)


def compare(measure: Measure, treatment: Values, control: Values, *, seed: int = 0) -> Row:
    """Compare two arms. `Row.p_adjusted` and the verdict follow in `settled`."""
    a, b = treatment.flat, control.flat
    naive_p, size = welch(a, b), effect(a, b)
    means = treatment.cell.mean, control.cell.mean
    delta = None if means[0] is None or means[1] is None else means[0] - means[1]
    why = _why_no_p(measure, treatment, control)
    one, other = dict(treatment.values), dict(control.values)
    return Row(
        measure=measure.id,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        treatment=treatment.cell,
        control=control.cell,
        delta=delta,
        naive_p=None if measure.heuristic else naive_p,
        p=None if why else permutation_p(one, other, paired=True, seed=seed),
        why=why or _why_no_verdict(treatment, control),
        d=size.value if size else None,
        d_interval=(size.interval.low, size.interval.high) if size and size.interval else None,
        detectable=detectable(one, other, paired=True) or None,
    )


def _why_no_p(measure: Measure, treatment: Values, control: Values) -> str:
    if measure.heuristic:
        return HEURISTIC
    arms = (treatment, control)
    for one in arms:
        expected = one.cell.n + one.missing
        if one.missing > MOST_MISSING * expected:
            return f"{one.missing} of {expected} values missing in {one.arm}; allowed: {MOST_MISSING:.0%}"
    shared = _shared(treatment, control)
    return f"{shared} environments; a test needs {LEAST}" if shared < LEAST else ""


def _shared(treatment: Values, control: Values) -> int:
    """How many environments have values in both arms: those that the test takes."""
    one, other = ({key for key, values in arm.values.items() if values} for arm in (treatment, control))
    return len(one & other)


def _why_no_verdict(treatment: Values, control: Values) -> str:
    """Why no p could be small enough, whatever the difference: there are too few ways to swap the environments."""
    shared = _shared(treatment, control)
    least = 2 / 2**shared
    return f"with {shared} environments no p is below {least:.2g}" if least >= ALPHA else ""


def settled(rows: Sequence[Row]) -> list[Row]:
    """The rows with their adjusted p and verdict."""
    tested = [row for row in rows if row.p is not None]
    adjusted = dict(zip(map(id, tested), holm([row.p for row in tested if row.p is not None]), strict=True))
    return [
        row.model_copy(update={"p_adjusted": adjusted.get(id(row)), "verdict": _verdict(row, adjusted.get(id(row)))})
        for row in rows
    ]


def _verdict(row: Row, p: float | None) -> Verdict:
    if p is None or row.why:
        return "heuristic" if row.why == HEURISTIC else "not enough data"
    if p >= ALPHA or not row.delta:
        return "no difference seen"
    return row.leaning or "differs"
