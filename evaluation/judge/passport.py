"""A judge's passport as a value: what is known of the judge, and whether it may be used. `evaluation.calibration.passport` decides it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from evaluation.judge.identity import JudgeIdentity

PassportVerdict = Literal["usable", "not shown", "not usable"]
RowName = Literal["agreement", "people", "swap test", "order", "precision", "recall", "retest", "coverage"]


class PassportRow(BaseModel):
    """One figure of a passport.

    Attributes:
        name: Which figure it is; its title for people is in `evaluation.calibration.passport.TITLES`.
        value: Null where it is not known.
        interval: 95 %, low and high; null where there is none.
        n: How many judgements, texts or pairs it rests on; its unit depends on the row.
        verdict: Null for a figure that decides nothing.
        text: The figure in a few words, or why there is none.
        missing: What would decide it, e.g. ``about 40 more labels``; empty where it is decided.
    """

    name: RowName
    value: float | None
    interval: tuple[float, float] | None
    n: int
    verdict: PassportVerdict | None
    text: str
    missing: str = ""


class Passport(BaseModel):
    """What is known of a judge in one dimension, and whether its scores may be used.

    Attributes:
        identity: Who gave the scores the figures are about; null until an evaluation has completed and a worker computed them.
        decided_by: The rows that decided the verdict.
        labels: Labels in the figures. `items`: judgements that have one. `annotators`: who gave them.
        earlier_labels: Labels of judgements by an earlier model or prompt; they are in no figure.
        stale: Whether the figures are to be computed again: labels, model or prompts changed since, or there are newer evaluations.
        computed_at: When the figures were computed, ISO 8601; empty: never.
    """

    judge: str
    procedure: str
    dimension: str
    verdict: PassportVerdict
    decided_by: list[RowName]
    rows: list[PassportRow]
    identity: JudgeIdentity | None
    labels: int
    items: int
    annotators: int
    earlier_labels: int
    stale: bool
    computed_at: str

    @property
    def is_usable(self) -> bool:
        return self.verdict == "usable"

    @property
    def missing(self) -> list[str]:
        """Return what would decide the rows that keep it from being usable; empty where it is decided."""
        return [row.missing for row in self.rows if row.name in self.decided_by and row.missing]

    def row(self, name: RowName) -> PassportRow | None:
        """Return a row; None where it does not apply."""
        return next((row for row in self.rows if row.name == name), None)
