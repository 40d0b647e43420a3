"""Compare two arms in one measure: the naive and the clustered p side by side, effect sizes, and what the next run could see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agents.kit.text.wording import percentage
from evaluation.change.change import Probability
from evaluation.statistics.arms import (
    Arm,
    detectable,
    effect,
    environments_needed,
    intraclass,
    least_p,
    pairs_for_a_verdict,
    permutation_p,
    welch,
)
from evaluation.statistics.difference import ALPHA, holm

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
        p: Of the permutation test over environments. `p_adjusted`: by Holm over the family: the rows that were tested at once,
            judged ones and counted ones apart; the verdict rests on it.
        why: Why there is no verdict: no p, or none that could be small enough.
        d, g: Effect sizes with their 95 % intervals. `icc`: how alike values of one environment are.
        detectable: The smallest true difference that as many environments would find with power 0.8 after Holm's correction, were
            it the only one of its family. None where none could be found, or where the difference is as large and still not sure.
        environments_needed: How many environments an arm would find a difference of this size so.
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
    naive_p: Probability | None = None
    p: Probability | None = None
    p_adjusted: Probability | None = None
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
        """Return which way it went, significant or not."""
        if not self.better or not self.delta:
            return ""
        return "gain" if (self.delta > 0) is (self.better == "higher") else "harm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A measure in which arms are compared. `heuristic`: its values are an offline judge's, of which nothing is claimed."""

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
    def all_values(self) -> list[float]:
        return [value for values in self.values.values() for value in values]

    @property
    def cell(self) -> Cell:
        """Return the arm's number of values, mean and standard deviation."""
        values = self.all_values
        if not values:
            return Cell(arm=self.arm, n=0, missing=self.missing)
        mean = math.fsum(values) / len(values)
        sd = None
        if len(values) > 1:
            squares = [(value - mean) ** 2 for value in values]
            sd = math.sqrt(math.fsum(squares) / (len(values) - 1))
        return Cell(arm=self.arm, n=len(values), missing=self.missing, mean=mean, sd=sd)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A treatment beside the control in one measure. Environments of the same key are a pair."""

    measure: Measure
    treatment: Values
    control: Values


def compare_family(comparisons: Sequence[Comparison], *, seed: int = 0) -> list[Row]:
    """Compare arms pair by pair, in the order given; p is corrected, and power computed, for all comparisons together.

    Rows for which there can be no verdict (`Row.why`: heuristic, too many values missing) are not tested and not part of the family, nor
    are those without a p, which have fewer than 3 pairs of environments.
    """
    rows = [describe(comparison.measure, comparison.treatment, comparison.control) for comparison in comparisons]
    tested = [number for number, row in enumerate(rows) if not row.why]
    p_values: dict[int, float] = {}
    for number in tested:
        comparison = comparisons[number]
        p = permutation_p(comparison.treatment.values, comparison.control.values, seed=seed)
        if p is not None:
            p_values[number] = p
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    family = max(1, len(p_values))
    for number in tested:
        row = rows[number].model_copy(update={"p": p_values.get(number), "p_adjusted": adjusted.get(number)})
        rows[number] = _with_verdict(row, comparisons[number], family=family)
    return rows


def describe(measure: Measure, treatment: Values, control: Values) -> Row:
    """Return means, effect sizes and the naive test of two arms, without a verdict.

    `Row.why` says why there can be none: an offline judge's scores, which are not tested either, or too many values missing in an arm.
    """
    fields: dict[str, Any] = {}
    treatment_mean = treatment.cell.mean
    control_mean = control.cell.mean
    if treatment_mean is not None and control_mean is not None:
        fields["delta"] = treatment_mean - control_mean
    size = effect(treatment.all_values, control.all_values)
    if size:
        fields["d"] = size.d
        fields["d_interval"] = (size.interval.low, size.interval.high)
        fields["g"] = size.g
        fields["g_interval"] = (size.g_interval.low, size.g_interval.high)
    if measure.heuristic:
        fields["verdict"] = "heuristic"
        fields["why"] = HEURISTIC
    else:
        fields["why"] = _why_missing(treatment) or _why_missing(control)
        test = welch(treatment.all_values, control.all_values)
        if test:
            fields["t"] = test.t
            fields["df"] = test.df
            fields["naive_p"] = test.p
    return Row(
        measure=measure.id,
        label=measure.label,
        unit=measure.unit,
        better=measure.better,
        treatment=treatment.cell,
        control=control.cell,
        icc=intraclass(treatment.values, control.values),
        **fields,
    )


def _why_missing(arm: Values) -> str:
    """Say that too many of an arm's values are missing for a verdict; empty when not."""
    expected = arm.cell.n + arm.missing
    if arm.missing <= MOST_MISSING * expected:
        return ""
    return f"{arm.missing} of {expected} values missing in {arm.arm}; allowed: {percentage(MOST_MISSING)}"


def _with_verdict(row: Row, comparison: Comparison, *, family: int) -> Row:
    """Return a row that has its adjusted p with its verdict, and what as many pairs could find.

    Significant: gain, harm, or "differs" where no way is better. Else "no difference seen"; but where so few pairs could not be
    significant at all, the verdict stays "not enough data", and `Row.why` says what it takes.

    Args:
        row: As `describe` returns it, with `p` and `p_adjusted`; None: too few pairs for a test.
        family: Comparisons that were tested at once.
    """
    treatment = comparison.treatment.values
    control = comparison.control.values
    changes: dict[str, Any] = {}
    if row.delta:
        changes["environments_needed"] = environments_needed(row.delta, treatment, control, family)
    smallest = detectable(treatment, control, family)
    if smallest and abs(row.delta or 0.0) < smallest:  # no power is stated for a difference that is there
        changes["detectable"] = smallest
    pairs = sum(bool(scores) and bool(control.get(key)) for key, scores in treatment.items())
    is_significant = row.p_adjusted is not None and row.p_adjusted < ALPHA
    if is_significant and row.delta:
        changes["verdict"] = row.leaning or "differs"
    elif family * least_p(pairs) >= ALPHA:  # even the smallest p of so many pairs is not significant once corrected
        changes["why"] = too_few(pairs, family)
    else:
        changes["verdict"] = "no difference seen"
    return row.model_copy(update=changes)


def too_few(conversations: int, comparisons: int) -> str:
    """Say that no difference, however large, could be significant, and how many conversations it takes."""
    among = f" for {comparisons} comparisons" if comparisons > 1 else ""
    return (
        f"too few conversations ({conversations}){among}; a significant result takes {pairs_for_a_verdict(comparisons)}"
    )


def as_arm(values: Sequence[float]) -> Arm:
    """Return values that have no environment as an arm in which each has its own."""
    return {number: [value] for number, value in enumerate(values)}
