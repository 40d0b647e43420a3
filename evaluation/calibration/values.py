"""What calibration gives: how well a judge agrees with people, in full and in one line. No database here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from evaluation.statistics.estimates import Estimate
from evaluation.statistics.prediction_powered import LEAST_LABELS, PredictionPowered
from evaluation.wording import counted, decimal

LEAST_ITEMS = 20
"""Fewest labelled judgements whose kappa is shown beside scores: intervals of fewer are not to be trusted."""
WANTED_HALF_WIDTH = 0.1
MOST_WANTED = 2_000  # more labels than anybody gives: then only "many" is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How well a judge agrees with people in one dimension: what stands beside every score of that judge.

    Attributes:
        kappa: Quadratic-weighted kappa of the judge's raw scores and people's labels; None when it cannot be computed. `low`, `high`: 95 %.
        labels: Blind labels with a value; `items` the judgements that have one, `annotators` the people who gave them.
        stale: Labels changed since it was computed.
    """

    dimension: str
    kappa: float | None
    low: float | None
    high: float | None
    labels: int
    items: int
    annotators: int
    stale: bool = False
    computed_at: datetime | None = None

    @property
    def enough(self) -> bool:
        """Whether there are labels enough for the figure to be shown."""
        return self.items >= LEAST_ITEMS and self.kappa is not None

    @property
    def by_chance(self) -> bool:
        """Whether these labels do not show the judge to be better than chance: kappa, or what may be it, is not above 0."""
        return self.enough and self.kappa is not None and (self.kappa if self.low is None else self.low) <= 0

    @property
    def figure(self) -> str:
        """E.g. ``κ 0.62 [0.48, 0.74], 80 labels``; a judge that agrees no better than chance is said to."""
        if not self.labels:
            return NOT_CALIBRATED
        if self.items < LEAST_ITEMS:
            return f"{self.items} of {LEAST_ITEMS} labels needed"
        if self.kappa is None:
            return f"κ undefined, {labels_text(self.labels)}"
        interval = (
            "" if self.low is None or self.high is None else f" [{decimal(self.low, 2)}, {decimal(self.high, 2)}]"
        )
        chance = ": no better than chance so far" if self.by_chance else ""
        return f"κ {decimal(self.kappa, 2)}{interval}, {labels_text(self.labels)}{chance}"

    def __str__(self) -> str:
        """The figure, with a word when it is stale."""
        return f"{self.figure} (labels changed since)" if self.stale else self.figure


NOT_CALIBRATED = "not calibrated"


def labels_text(count: int) -> str:
    return counted(count, "label")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoweredMean:
    """The mean people would have given a label set's whole population, from their labels and the judge's scores of everything.

    Attributes:
        label_set: Its name.
        population: Judgements it was drawn from; `drawn` how many were, `labelled` those with a label.
        result: On the scale where higher is better: the judge's and people's numbers for anti-patterns are flipped.
    """

    label_set: str
    population: int
    drawn: int
    labelled: int
    result: PredictionPowered


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A judge beside people in one dimension. What is compared is the claim as written: the judge's raw score and the labels.

    Where several people labelled a judgement, their mean stands for them. Trivial and unscored judgements, exact rules, "cannot tell"
    and labels that were not given blind are in no figure.

    Attributes:
        labels: Labels in the figures; `items` judgements that have one, `annotators` who gave them.
        cannot_tell: Labels without a value. `not_blind`: labels given after the judge's score was shown.
        kappa: Quadratic-weighted kappa, judge and people.
        spearman: Rank correlation, judge and people.
        alpha: Krippendorff's alpha (interval metric), judge and people as two raters.
        people_alpha: The same among the annotators: what can be expected of a judge at best.
        bias: Judge minus people, in points, higher is better: positive where the judge is too lenient.
        powered: One per label set with a random draw.
        digest: SHA-256 of the labels and scores compared.
    """

    judge: str
    procedure: str
    dimension: str
    labels: int
    items: int
    annotators: int
    cannot_tell: int
    not_blind: int
    kappa: Estimate
    spearman: Estimate
    alpha: Estimate
    people_alpha: Estimate
    bias: Estimate
    powered: tuple[PoweredMean, ...] = ()
    digest: str = ""

    @property
    def agreement(self) -> Agreement:
        interval = self.kappa.interval
        return Agreement(
            dimension=self.dimension,
            kappa=self.kappa.value,
            low=interval.low if interval else None,
            high=interval.high if interval else None,
            labels=self.labels,
            items=self.items,
            annotators=self.annotators,
        )

    @property
    def needed(self) -> tuple[str, ...]:
        """What is too little to say more, each with how many labels would do; empty when nothing is."""
        return tuple(filter(None, (self._for_kappa(), self._for_means(), self._for_people())))

    def _for_kappa(self) -> str:
        if self.items < LEAST_ITEMS:
            return f"{_more(LEAST_ITEMS - self.items)} until kappa stands beside the judge's scores ({LEAST_ITEMS})"
        interval = self.kappa.interval
        if interval is None:
            return f"kappa has no interval: {self.kappa.reason}" if self.kappa.reason else ""
        half = (interval.high - interval.low) / 2
        wanted = ceil(self.items * (half / WANTED_HALF_WIDTH) ** 2)  # widths shrink with the root of the number
        if wanted <= self.items:
            return ""
        some = "many more labels" if wanted - self.items > MOST_WANTED else f"about {_more(wanted - self.items)}"
        return f"{some} to know kappa to within ±{WANTED_HALF_WIDTH:g} (now ±{half:.2f})"

    def _for_means(self) -> str:
        if not self.powered:
            return f"no random draw: --draw {LEAST_LABELS} or more, labelled, gives a prediction-powered mean"
        most = max(self.powered, key=lambda mean: mean.labelled)
        if most.labelled >= LEAST_LABELS:
            return ""
        missing = LEAST_LABELS - most.labelled
        if most.drawn < LEAST_LABELS:
            return f"{most.label_set} has only {most.drawn} judgements: draw {LEAST_LABELS} or more for a prediction-powered mean"
        return f"{_more(missing)} in {most.label_set} for its prediction-powered mean ({LEAST_LABELS})"

    def _for_people(self) -> str:
        return "" if self.annotators != 1 else "a second annotator, to know how well people agree with each other"


def _more(count: int) -> str:
    return "1 more label" if count == 1 else f"{count:,} more labels"


def agreements_text(found: Sequence[tuple[str, Agreement | None]]) -> str:
    """Dimensions with their figures on one line, e.g. ``adherence κ 0.62 [0.48, 0.74], 80 labels; fluency not calibrated``."""
    return "; ".join(f"{dimension} {NOT_CALIBRATED if row is None else row}" for dimension, row in found)
