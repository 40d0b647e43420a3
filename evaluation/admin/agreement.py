"""How well a judge agrees with people, as it stands beside its scores in the console."""

from __future__ import annotations

from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from evaluation.calibration.presentation import notes_of_figures
from evaluation.calibration.stored import Key, all_agreements, calibration_of
from evaluation.calibration.values import NOT_CALIBRATED, Agreement
from evaluation.models import COUNTED, Baseline, JudgeCalibration
from evaluation.wording import decimal

MEANING = "quadratic-weighted kappa of this judge and people, with its 95 % interval: 0 is chance, 1 perfect agreement"
FIGURES = (
    ("kappa", "Quadratic-weighted kappa", "0 is chance, 1 is perfect agreement"),
    ("spearman", "Spearman's rank correlation", "whether they put judgements in the same order"),
    ("alpha", "Krippendorff's alpha, judge and people", "as two raters"),
    ("people_alpha", "Krippendorff's alpha, among people", "what can be expected of a judge at best"),
    ("bias", "Bias: judge minus people", "in points where higher is better; above 0 the judge is too lenient"),
)


def agreement_badge(found: Agreement | None, dimension: str) -> SafeString | str:
    """The figure of a judge in a dimension; nothing for a dimension that is counted."""
    if dimension in COUNTED:
        return ""
    changed = "a worker computes it again"
    stale = display.badge("labels changed since", "warning", changed) if found is not None and found.stale else ""
    if found is None or not found.labels:
        unknown = "no labels of people: how far this judge can be trusted is not known"
        return format_html("{} {}", display.badge(NOT_CALIBRATED, "plain", unknown), stale)
    return format_html("{} {}", display.badge(found.figure, "info" if found.enough else "plain", MEANING), stale)


def mark_agreements(baselines: list[Baseline]) -> None:
    """Put each baseline's figure on it, in one query for all."""
    found = all_agreements()
    for row in baselines:
        row.agreement = found.get(Key(row.judge, row.procedure, row.dimension))  # type: ignore[attr-defined]


def agreement_of_baseline(baseline: Baseline) -> SafeString | str:
    """The figure put there by `mark_agreements`, or looked up for a baseline alone."""
    if not hasattr(baseline, "agreement"):
        found = calibration_of(baseline.judge, baseline.procedure).get(baseline.dimension)
        return agreement_badge(found, baseline.dimension)
    return agreement_badge(baseline.agreement, baseline.dimension)


def figure_rows(row: JudgeCalibration | None) -> list[dict[str, Any]]:
    """The stored figures as the page of a label set shows them; empty before they were computed."""
    figures = row.figures if row is not None else {}
    shown = [_figure(name, meaning, figures[key]) for key, name, meaning in FIGURES if key in figures]
    for mean in figures.get("prediction_powered", ()):
        about = f"over the {mean['population']:,} judgements it was drawn from, higher is better"
        judge = {"value": mean["judge_mean"], "interval": None, "n": mean["population"], "reason": "not corrected"}
        shown.append(_figure(f"{mean['label_set']}: mean by the judge", about, judge))
        shown.append(_figure(f"{mean['label_set']}: mean by the labels alone", about, mean["labels_only"]))
        shown.append(_figure(f"{mean['label_set']}: prediction-powered mean", about, mean["mean"]))
    return shown


def figure_notes(row: JudgeCalibration | None) -> list[str]:
    return notes_of_figures(row.figures) if row is not None and row.figures else []


def _figure(name: str, meaning: str, found: dict[str, Any]) -> dict[str, Any]:
    interval = found["interval"]
    return {
        "name": display.visible(name),
        "meaning": meaning,
        "value": display.EMPTY if found["value"] is None else decimal(found["value"], 2),
        "interval": f"{decimal(interval[0], 2)} to {decimal(interval[1], 2)}" if interval else found["reason"],
        "n": f"{found['n']:,}",
    }
