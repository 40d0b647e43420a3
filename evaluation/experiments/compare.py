"""Compare two arms in one measure: the naive and the clustered p side by side, effect sizes, and what the next run could see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from evaluation.statistics.arms import (
    Arm,
    detectable,
    effect,
    environments_needed,
    intraclass,
    permutation_p,
    welch,
)
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
        t, df, naive_p: Welch's test, each value for itself: too small where agents of a conversation are alike.
        p: Of the permutation test over environments. `p_adjusted`: by Holm over the judged (or the counted) rows; the
            verdict rests on it.
        why: Why there is no p, or none that could be small enough.
        d, g: Effect sizes with their 95 % intervals. `icc`: how alike values of one environment are.
        detectable: The smallest true difference that as many environments would find with power 0.8.
        environments_needed: How many environments an arm would find a difference of this size with power 0.8.
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
    t: float | None = None
    df: float | None = None
    naive_p: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    why: str = ""
    d: float | None = None
    d_interval: tuple[float, float] | None = None
    g: float | None = None
    g_interval: tuple[float, float] | None = None
    icc: float | None = None
    detectable: float | None = None
    environments_needed: int | None = None
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
        mean = math.fsum(flat) / len(flat) if flat else None
        sd = None
        if mean is not None and len(flat) > 1:
            sd = math.sqrt(math.fsum((value - mean) ** 2 for value in flat) / (len(flat) - 1))
        return Cell(arm=self.arm, n=len(flat), missing=self.missing, mean=mean, sd=sd)


def compare(measure: Measure, treatment: Values, control: Values, *, paired: bool, seed: int = 0) -> Row:
    """Compare two arms. `Row.p_adjusted` and the verdict follow in `settled`."""
    a, b = treatment.flat, control.flat
    test, size = welch(a, b), effect(a, b)
    means = treatment.cell.mean, control.cell.mean
    delta = None if means[0] is None or means[1] is None else means[0] - means[1]
    why = _why_no_p(measure, treatment, control, paired=paired)
    one, other = dict(treatment.values), dict(control.values)
    return Row(
        measure=measure.id,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        treatment=treatment.cell,
        control=control.cell,
        delta=delta,
        t=test.t if test and not measure.heuristic else None,
        df=test.df if test and not measure.heuristic else None,
        naive_p=test.p if test and not measure.heuristic else None,
        p=None if why else permutation_p(one, other, paired=paired, seed=seed),
        why=why or _why_no_verdict(treatment, control, paired=paired),
        d=size.d if size else None,
        d_interval=(size.interval.low, size.interval.high) if size else None,
        g=size.g if size else None,
        g_interval=(size.g_interval.low, size.g_interval.high) if size else None,
        icc=intraclass(one, other),
        detectable=detectable(one, other, paired=paired) or None,
        environments_needed=environments_needed(delta, one, other, paired=paired) if delta else None,
    )


def _why_no_p(measure: Measure, treatment: Values, control: Values, *, paired: bool) -> str:
    if measure.heuristic:
        return HEURISTIC
    arms = (treatment, control)
    for one in arms:
        expected = one.cell.n + one.missing
        if one.missing > MOST_MISSING * expected:
            return f"{one.missing} of {expected} values missing in {one.arm}; allowed: {MOST_MISSING:.0%}"
    fewest = min(_environments(treatment, control, paired=paired))
    return f"{fewest} environments; a test needs {LEAST}" if fewest < LEAST else ""


def _environments(treatment: Values, control: Values, *, paired: bool) -> tuple[int, int]:
    """How many environments of each arm the test takes; paired: those that both have."""
    one, other = ({key for key, values in arm.values.items() if values} for arm in (treatment, control))
    return (len(one & other), len(one & other)) if paired else (len(one), len(other))


def _why_no_verdict(treatment: Values, control: Values, *, paired: bool) -> str:
    """Why no p could be small enough, whatever the difference: there are too few ways to swap the environments."""
    n, m = _environments(treatment, control, paired=paired)
    least = 2 / 2 ** min(n, m) if paired else 2 / math.comb(n + m, n)
    return f"with {min(n, m)} environments no p is below {least:.2g}" if least >= ALPHA else ""


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


def as_arm(values: Sequence[float]) -> Arm:
    """Values without environments: each for itself."""
    return {number: [value] for number, value in enumerate(values)}
