"""Calibration as the JSON objects that commands print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evaluation.calibration.values import Agreement, Calibration, PoweredMean
from evaluation.statistics.estimates import Estimate


def calibration_json(found: Agreement | None) -> dict[str, Any] | None:
    """What stands beside a judge's scores in one dimension; null when it is not calibrated.

    `kappa` is quadratic-weighted, null when it cannot be computed; `interval` its 95 % interval, null when there is none.
    """
    if found is None or not found.labels:
        return None
    return {
        "kappa": _rounded(found.kappa),
        "interval": None if found.low is None or found.high is None else [_rounded(found.low), _rounded(found.high)],
        "labels": found.labels,
        "items": found.items,
        "annotators": found.annotators,
        "enough": found.enough,
        "stale": found.stale,
    }


def calibrations_json(found: Mapping[str, Agreement], dimensions: Iterable[str]) -> dict[str, Any]:
    """The object above for each of these dimensions."""
    return {dimension: calibration_json(found.get(dimension)) for dimension in dimensions}


def calibration_details(found: Calibration) -> dict[str, Any]:
    """All figures of a judge in one dimension."""
    return {
        "judge": found.judge,
        "procedure": found.procedure,
        "dimension": found.dimension,
        "labels": found.labels,
        "items": found.items,
        "annotators": found.annotators,
        "cannot_tell": found.cannot_tell,
        "not_blind": found.not_blind,
        "kappa": estimate_json(found.kappa),
        "spearman": estimate_json(found.spearman),
        "alpha": estimate_json(found.alpha),
        "people_alpha": estimate_json(found.people_alpha),
        "bias": estimate_json(found.bias),
        "prediction_powered": [_powered(mean) for mean in found.powered],
        "needed": list(found.needed),
    }


def estimate_json(found: Estimate) -> dict[str, Any]:
    """A figure: value and 95 % interval, each null with `reason` saying why."""
    interval = None if found.interval is None else [_rounded(found.interval.low), _rounded(found.interval.high)]
    return {"value": _rounded(found.value), "interval": interval, "n": found.n, "reason": found.reason}


def _powered(found: PoweredMean) -> dict[str, Any]:
    result = found.result
    return {
        "label_set": found.label_set,
        "population": found.population,
        "drawn": found.drawn,
        "labelled": found.labelled,
        "mean": estimate_json(result.estimate),
        "labels_only": estimate_json(result.labels_only),
        "judge_mean": _rounded(result.judge_mean),
        "tuning": _rounded(result.tuning),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
