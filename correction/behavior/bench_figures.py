"""The figures of a bench: shares with Wilson's intervals, F1 by bootstrap, calibration by confidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from correction.behavior.answers import CONFIDENCES
from correction.behavior.bench import Bench, Judged
from correction.gate.thresholds import wilson_interval
from evaluation.models import is_heuristic
from evaluation.runs.terminal import spent_json
from evaluation.statistics.estimates import percentile_estimate, replicates

if TYPE_CHECKING:
    from evaluation.statistics.estimates import Floats

RESAMPLES = 4_000
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with Wilson's 95 % interval; no value of none."""

    hits: int
    of: int

    @property
    def value(self) -> float | None:
        return self.hits / self.of if self.of else None

    @property
    def interval(self) -> Range | None:
        return wilson_interval(self.hits, self.of) if self.of else None


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found right and wrong among judged cases."""

    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @classmethod
    def of(cls, scored: Sequence[Judged]) -> Figures:
        def count(asked: bool, found: bool) -> int:
            return sum(one.case.request is asked and one.found is found for one in scored)

        return cls(count(True, True), count(False, True), count(True, False), count(False, False))

    @property
    def n(self) -> int:
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    @property
    def precision(self) -> Share:
        return Share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> Share:
        return Share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def false_positive_rate(self) -> Share:
        return Share(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def f1(self) -> float | None:
        """2 TP ÷ (2 TP + FP + FN); None where there is no request and none was found."""
        wrong = self.false_positives + self.false_negatives
        return 2 * self.true_positives / (2 * self.true_positives + wrong) if self.true_positives + wrong else None

    def f1_interval(self, *, seed: int = 0) -> Range | None:
        """The percentile bootstrap's 95 % interval over cases (Efron & Tibshirani 1993, chapter 13); None where it cannot say."""
        import numpy as np

        if self.f1 is None:
            return None
        counts = np.array(
            [self.true_positives, self.false_positives, self.false_negatives, self.true_negatives], dtype=np.int64
        )

        def f1(rows: Floats) -> Floats:
            hits, wrong = 2 * rows[:, 0], rows[:, 1] + rows[:, 2]
            with np.errstate(invalid="ignore"):
                return np.asarray(hits / (hits + wrong), dtype=np.float64)

        found = percentile_estimate(
            self.f1, replicates(f1, counts, resamples=RESAMPLES, seed=seed), level=0.95, n=self.n
        )
        return (found.interval.low, found.interval.high) if found.interval else None


def calibration(scored: Sequence[Judged]) -> dict[str, dict[str, Share]]:
    """Per level of confidence: of the requests found, and of the messages passed over, how many rightly."""

    def share(level: str, found: bool) -> Share:
        there = [one for one in scored if one.confidence == level and one.found is found]
        return Share(sum(one.case.request is found for one in there), len(there))

    return {level: {"found": share(level, True), "denied": share(level, False)} for level in CONFIDENCES}


def groups(scored: Sequence[Judged], key: Callable[[Judged], str]) -> dict[str, Figures]:
    """Figures per kind or language, of those that name one."""
    names = sorted({key(one) for one in scored} - {""})
    return {name: Figures.of([one for one in scored if key(one) == name]) for name in names}


def bench_json(found: Bench, *, errors: bool) -> dict[str, Any]:
    """A bench as JSON: n, precision, recall, f1 and false_positive_rate at the top, everything else beside them."""
    scored = found.scored
    figures = Figures.of(scored)
    document: dict[str, Any] = {
        "n": figures.n,
        "precision": _round(figures.precision.value),
        "recall": _round(figures.recall.value),
        "f1": _round(figures.f1),
        "false_positive_rate": _round(figures.false_positive_rate.value),
        "intervals": {
            "precision": _ends(figures.precision.interval),
            "recall": _ends(figures.recall.interval),
            "f1": _ends(figures.f1_interval()),
            "false_positive_rate": _ends(figures.false_positive_rate.interval),
        },
        "judge": found.judge,
        "heuristic": is_heuristic(found.judge),
        "unscored": len(found.judged) - len(scored),
        "confusion": {name: getattr(figures, name) for name in Figures.__dataclass_fields__},
        "calibration": {
            level: {side: {"n": share.of, "precision": _round(share.value)} for side, share in sides.items()}
            for level, sides in calibration(scored).items()
        },
        "kinds": {name: _group(one) for name, one in groups(scored, lambda one: one.case.kind).items()},
        "languages": {name: _group(one) for name, one in groups(scored, lambda one: one.case.language).items()},
        **spent_json(found.spent),
        "stopped": found.stopped,
    }
    if errors:
        document["errors"] = [
            {"line": one.case.line, "text": one.case.text, "request": one.case.request, "found": one.found,
             "confidence": one.confidence, "why": one.why}
            for one in found.judged if one.found is not one.case.request
        ]  # fmt: skip
    return document


def _group(figures: Figures) -> dict[str, Any]:
    return {
        "n": figures.n,
        "recall": _round(figures.recall.value),
        "false_positive_rate": _round(figures.false_positive_rate.value),
    }


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _ends(interval: Range | None) -> list[float] | None:
    return None if interval is None else [round(end, 4) for end in interval]
