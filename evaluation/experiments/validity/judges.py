"""Published validations of a judge: is kappa what was printed, and how many judges pass their own gate by the ends of their intervals?"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from evaluation.experiments.validity.rows import Group, ValidityRow, outcome_of
from evaluation.statistics.agreement import RESAMPLES, quadratic_weighted_kappa
from evaluation.statistics.bootstrap import Estimate, Interval
from evaluation.statistics.difference import share_interval

FILE = Path(__file__).with_name("data") / "judge_agreement.csv"
SOURCE = "tau2-bench, judge validation, September 2026"
LICENCE = "MIT"
GROUP: Group = "Judge validations"

# Their gate for a judge.
LEAST_PRECISION = 0.75
LEAST_RECALL = 0.75
LEAST_F1 = 0.80
LEAST_KAPPA = 0.60
LEAST_VIOLATIONS = 10  # found by people

PRECISE = 1e-12  # what rounding alone may change of a kappa
MOST_TIMES = 100.0  # as many labels; what takes more is not decided by labels
MOST_ITEMS = 1_000
Z = 1.959964  # of a 95 % interval


@dataclass(frozen=True, slots=True)
class TwoByTwo:
    """How often two raters said yes to the same items: both of them, one of them alone, or neither."""

    both: int
    first_alone: int
    second_alone: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.first_alone + self.second_alone + self.neither


def kappa_of(table: TwoByTwo, *, resamples: int = RESAMPLES) -> Estimate:
    """Return kappa of a table with the interval that decides a judge's passport; yes counts 1, no 0.

    With two answers quadratic weights change nothing: it is Cohen's kappa.
    """
    first = [1] * (table.both + table.first_alone) + [0] * (table.second_alone + table.neither)
    second = [1] * table.both + [0] * table.first_alone + [1] * table.second_alone + [0] * table.neither
    return quadratic_weighted_kappa(first, second, resamples=resamples)


@dataclass(frozen=True, slots=True)
class Validation:
    """One published validation: how often people and the judge found a violation (`table`, people first), and the kappa printed."""

    language: str
    measure: str
    table: TwoByTwo
    published_kappa: float

    @property
    def violations(self) -> int:
        """Return how many violations people found."""
        return self.table.both + self.table.first_alone

    @property
    def flagged(self) -> int:
        """Return how many the judge found."""
        return self.table.both + self.table.second_alone

    @property
    def kappa(self) -> float:
        value = kappa_of(self.table).value
        return 0.0 if value is None else value

    def passes_by_values(self) -> bool:
        """Return whether the gate is passed as they pass it: by the values, however uncertain."""
        precision = self.table.both / self.flagged
        recall = self.table.both / self.violations
        f1 = 2 * precision * recall / (precision + recall)
        is_exact = precision > LEAST_PRECISION and recall > LEAST_RECALL and f1 > LEAST_F1
        return is_exact and self.violations >= LEAST_VIOLATIONS and self.kappa > LEAST_KAPPA

    def kappa_is_shown(self) -> bool:
        """Return whether the lower end of kappa's interval passes."""
        interval = kappa_of(self.table).interval
        return interval is not None and interval.low > LEAST_KAPPA

    def shares_are_shown(self) -> bool:
        """Return whether the lower ends of precision and recall pass."""
        precision = share_interval(self.table.both, self.flagged)
        recall = share_interval(self.table.both, self.violations)
        return precision.low > LEAST_PRECISION and recall.low > LEAST_RECALL

    def all_is_shown(self) -> bool:
        """Return whether the lower ends of kappa, precision and recall pass."""
        return self.shares_are_shown() and self.kappa_is_shown()


def read_validations() -> list[Validation]:
    """Return the published validations."""
    validations = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            table = TwoByTwo(
                both=int(row["true_positive"]),
                first_alone=int(row["false_negative"]),
                second_alone=int(row["false_positive"]),
                neither=int(row["true_negative"]),
            )
            validations.append(Validation(row["language"], row["measure"], table, float(row["published_kappa"])))
    return validations


def usual_kappa_interval(table: TwoByTwo) -> Interval:
    """Return the interval that is usually printed: kappa ± 1.96 standard errors of Fleiss, Cohen & Everitt (1969), for comparison only.

    Source: Psychological Bulletin 72 (1969), 323–327. Perfect agreement has no width by it. Both answers must occur.
    """
    n = table.n
    yes_first = (table.both + table.first_alone) / n
    yes_second = (table.both + table.second_alone) / n
    no_first = 1 - yes_first
    no_second = 1 - yes_second
    by_chance = yes_first * yes_second + no_first * no_second
    value = ((table.both + table.neither) / n - by_chance) / (1 - by_chance)
    miss = 1 - value
    agreeing = table.both / n * (1 - (yes_first + yes_second) * miss) ** 2
    agreeing += table.neither / n * (1 - (no_first + no_second) * miss) ** 2
    differing = (
        table.first_alone / n * (yes_second + no_first) ** 2 + table.second_alone / n * (yes_first + no_second) ** 2
    )
    variance = agreeing + miss**2 * differing - (value - by_chance * miss) ** 2
    reach = Z * math.sqrt(max(0.0, variance)) / (math.sqrt(n) * (1 - by_chance))
    return Interval(value - reach, value + reach)


def times_as_many(validation: Validation) -> float | None:
    """Return how many times as many items of the same kind would pass the gate by all lower ends, to 5 %.

    None where its values do not pass at all, or where a hundred times as many would not do.
    """
    if not validation.passes_by_values() and validation.violations >= LEAST_VIOLATIONS:
        return None
    times = 1.0
    while times <= MOST_TIMES:
        if _scaled(validation, times).all_is_shown():
            return times
        times *= 1.05
    return None


def _scaled(validation: Validation, times: float) -> Validation:
    """Return a validation with so many times as many items, as alike as whole numbers allow."""
    table = validation.table
    scaled = TwoByTwo(
        both=round(times * table.both),
        first_alone=round(times * table.first_alone),
        second_alone=round(times * table.second_alone),
        neither=round(times * table.neither),
    )
    return Validation(validation.language, validation.measure, scaled, validation.published_kappa)


def items_needed(share: float, limit: float) -> int:
    """Return the number of items from which on a share is shown to be above a limit: the lower end of its interval passes.

    The share is as close as whole items allow, so a number may pass and the next one fail; counted is the one after which none fails.
    Numbers up to 1,000 are tried.
    """
    last_failing = 0
    for n in range(1, MOST_ITEMS + 1):
        if share_interval(round(share * n), n).low <= limit:
            last_failing = n
    return last_failing + 1


def judge_rows() -> list[ValidityRow]:
    """Return the rows of the published validations."""
    validations = read_validations()
    n = len(validations)
    errors = [abs(validation.kappa - validation.published_kappa) for validation in validations]
    equal = sum(error <= PRECISE for error in errors)
    passing = sum(validation.passes_by_values() for validation in validations)
    by_kappa = sum(validation.kappa_is_shown() for validation in validations)
    by_usual_error = 0
    all_by_usual_error = 0
    for validation in validations:
        if usual_kappa_interval(validation.table).low > LEAST_KAPPA:
            by_usual_error += 1
            all_by_usual_error += validation.shares_are_shown()
    by_all = sum(validation.all_is_shown() for validation in validations)
    return [
        _row(
            "Cohen's kappa of 29 tables is the one printed",
            "29 values to 16 digits",
            f"{equal} of {n} equal to {PRECISE:.0e}",
            holds=equal == n,
        ),
        _row(
            "judges that pass their own gate by its values (precision and recall > .75, F1 > .80, kappa > .60, ≥ 10 violations)",
            "",
            f"{passing} of {n}",
        ),
        _row(
            "judges whose kappa is shown to be > .60: lower end of the 95 % interval that decides a passport",
            "",
            f"{by_kappa} of {n} (by the usual standard error, which is too sure: {by_usual_error})",
        ),
        _row(
            "judges with kappa, precision and recall shown to pass: all three lower ends (the shares by Wilson)",
            "",
            f"{by_all} of {n} (by the usual standard error: {all_by_usual_error})",
        ),
        _row("as many labels as the others would need, if their rates stay as they are", "", _needed_text(validations)),
    ]


def _needed_text(validations: Sequence[Validation]) -> str:
    """Say how many more labels would license the judges that are not licensed, and how many items one share takes."""
    times = []
    unreachable = 0
    for validation in validations:
        if validation.all_is_shown():
            continue
        factor = times_as_many(validation)
        if factor is None:
            unreachable += 1
        else:
            times.append(factor)
    text = (
        f"{len(times)} judges: {median(times):.1f} × in the median, {min(times):.1f} to {max(times):.1f} ×; "
        f"violations needed to show > .75, if exactly so many come out right: {items_needed(1, LEAST_RECALL)} at 100 %, "
        f"{items_needed(0.95, LEAST_RECALL)} at 95 %, {items_needed(0.9, LEAST_RECALL)} at 90 %, {items_needed(0.85, LEAST_RECALL)} at 85 %"
    )
    if unreachable:
        text += f"; {unreachable} not by labels alone"
    return text


def _row(claim: str, published: str, ours: str, *, holds: bool | None = None) -> ValidityRow:
    outcome = "" if holds is None else outcome_of(holds)
    return ValidityRow(
        group=GROUP, claim=claim, source=SOURCE, licence=LICENCE, published=published, ours=ours, outcome=outcome
    )
