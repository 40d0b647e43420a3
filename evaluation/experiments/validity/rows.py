"""The rows of the table: a claim, where it comes from, what was published or promised, and what we find."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agents.kit.commands import Cell, Emphasis
from evaluation.statistics.bootstrap import Interval
from evaluation.statistics.difference import share_interval

Group = Literal["Judge validations", "Experiments", "Statistics", "Voice", "Drift"]
Outcome = Literal["holds", "a little below", "a little above", "not shown", "fails", ""]

HEADS = ["Claim", "Source", "Licence", "Published or promised", "Ours", ""]
OURS = "our code"  # the licence of a row that needs no data
A_LITTLE = 0.025  # of a share: what is not significantly off by more is named and breaks nothing
_EMPHASIS: dict[Outcome, Emphasis] = {
    "holds": "",
    "a little below": "warning",
    "a little above": "warning",
    "not shown": "faint",
    "fails": "bad",
    "": "",
}


class ValidityRow(BaseModel):
    """One row.

    Attributes:
        published: The figure that was published or is promised; empty where there is none.
        ours: The figure that we find, or why there is none.
        outcome: Whether the promise holds (see `outcome_at_least`); empty where none was made, or nothing was measured.
    """

    model_config = ConfigDict(frozen=True)

    group: Group
    claim: str
    source: str
    licence: str
    published: str
    ours: str
    outcome: Outcome = ""

    def cells(self) -> list[Cell]:
        """Return the row under `HEADS`."""
        return [
            self.claim,
            self.source,
            self.licence,
            self.published or None,
            self.ours,
            (self.outcome, _EMPHASIS[self.outcome]),
        ]


class ValidityReport(BaseModel):
    """All rows. `version`: of this form."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    rows: list[ValidityRow]

    def failures(self) -> list[ValidityRow]:
        """Return the rows whose promise does not hold."""
        return [row for row in self.rows if row.outcome == "fails"]


def outcome_of(holds: bool) -> Outcome:
    return "holds" if holds else "fails"


def outcome_at_least(hits: int, n: int, promised: float) -> Outcome:
    """Return whether a share of at least `promised` (0 to 1) is kept in trials, decided by the 95 % interval of the share.

    * The interval lies below the promise: "fails" where all of it is off by more than 2.5 points, else "a little below".
    * It does not, and leaves out what is off by 2.5 points: "holds".
    * Otherwise the trials are too few to tell: "not shown".
    """
    if n == 0:
        return "not shown"
    interval = share_interval(hits, n)
    if interval.high < promised:
        return "fails" if interval.high < promised - A_LITTLE else "a little below"
    if interval.low > promised - A_LITTLE:
        return "holds"
    return "not shown"


def outcome_at_most(hits: int, n: int, promised: float) -> Outcome:
    """Return whether a share of at most `promised` (0 to 1) is kept in trials; as `outcome_at_least`, the other way round."""
    outcome = outcome_at_least(n - hits, n, 1 - promised)
    return "a little above" if outcome == "a little below" else outcome


def percent(hits: int, n: int, decimals: int = 0) -> str:
    """Return a share without an interval, e.g. ``16 %``; a dash of none."""
    if n == 0:
        return "–"
    return f"{100 * hits / n:.{decimals}f} %"


def share_text(hits: int, n: int) -> str:
    """Return a share with its 95 % interval, e.g. ``95.2 % [93.7, 96.4] of 1,000``."""
    if n == 0:
        return "no trial gave one"
    interval = share_interval(hits, n)
    return f"{percent(hits, n, 1)} [{100 * interval.low:.1f}, {100 * interval.high:.1f}] of {n:,}"


def figure_text(value: float, interval: Interval | None) -> str:
    """Return a figure with its interval, where it has one, e.g. ``0.61 [0.55, 0.67]``."""
    if interval is None:
        return f"{value:.2f}"
    return f"{value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"
