"""The page of a label set: who labelled how much, how well judge and people agree, and where they differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Avg, Count, F, FloatField, Q
from django.db.models.functions import Abs, Cast
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from agents.console import display
from evaluation.admin.agreement import agreement_badge, figure_notes, figure_rows
from evaluation.admin.display import dimension_badge, judge_badge, procedure_badge
from evaluation.calibration.figures import confusion
from evaluation.calibration.labels import everybody_done, figures_opened, progress
from evaluation.calibration.stored import agreement_of
from evaluation.models import EvaluationScore, JudgeCalibration, LabelSet

MOST_DIFFERENCES = 10
SHADES = 4


def results_context(label_set: LabelSet, *, annotator: str, may_label: bool) -> dict[str, Any]:
    """What the template shows.

    Args:
        annotator: Who looks. Whoever began to label sees no figures before the end, and until all are done only own labels.
        may_label: Whether that person may label; then figures are shown before the first label only when they were opened for good.
    """
    entries = progress([label_set])[label_set.pk]
    mine = next((entry for entry in entries if entry.annotator == annotator), None)
    closed = may_label and mine is None and not figures_opened(label_set=label_set, annotator=annotator)
    hidden = "not begun" if closed else "unfinished" if mine is not None and not mine.done else ""
    only_mine = mine is not None and not everybody_done(entries)
    return {
        "label_set": label_set,
        "judge": judge_badge(label_set.judge),
        "procedure": procedure_badge(label_set.procedure),
        "dimension": dimension_badge(label_set.dimension),
        "drawn": f"{label_set.drawn.count():,} of {label_set.population_size:,}",
        "drawn_at": display.moment(parse_datetime(label_set.population["until"])),
        "runs": len(label_set.population["runs"]),
        "agents": ", ".join(label_set.population.get("agents", [])),
        "entries": entries,
        "hidden": hidden,
        "only_mine": only_mine,
        **({} if hidden else _figures(label_set, [annotator] if only_mine else None)),
    }


def _figures(label_set: LabelSet, annotators: Sequence[str] | None) -> dict[str, Any]:
    row = JudgeCalibration.objects.filter(
        judge=label_set.judge, procedure=label_set.procedure, dimension=label_set.dimension
    ).first()
    return {
        "agreement": agreement_badge(agreement_of(row) if row else None, label_set.dimension),
        "stale": row is not None and row.is_stale,
        "computed": display.moment(row.computed_at) if row else "",
        "figures": figure_rows(row),
        "notes": figure_notes(row),
        "needed": row.figures.get("needed", []) if row else [],
        "confusion": _confusion(confusion(label_set, annotators=annotators)),
        "differences": _differences(label_set, annotators),
    }


def _confusion(table: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Rows from 9 down to 0, as an axis goes; a cell's shade grows with its share of the fullest cell."""
    most = max(map(max, table))
    if not most:
        return []
    return [
        {
            "value": value,
            "cells": [
                {
                    "count": count or "",
                    "shade": -(-SHADES * count // most),
                    "same": value == raw,
                    "title": f"people {value}, judge {raw}: {count}",
                }
                for raw, count in enumerate(table[value])
            ],
        }
        for value in reversed(range(len(table)))
    ]


def _differences(label_set: LabelSet, annotators: Sequence[str] | None) -> list[dict[str, Any]]:
    """The judgements in which people and judge are furthest apart."""
    counted = Q(labels__blind=True, labels__value__isnull=False)
    if annotators is not None:
        counted &= Q(labels__annotator__in=annotators)
    rows = (
        EvaluationScore.objects.filter(label_sets=label_set, raw_score__isnull=False)
        .annotate(people=Avg("labels__value", filter=counted), given=Count("labels", filter=counted))
        .filter(people__isnull=False)
        .annotate(apart=Abs(F("people") - Cast("raw_score", FloatField())))
        .filter(apart__gte=1)
        .order_by("-apart", "pk")[:MOST_DIFFERENCES]
    )
    return [
        {
            "page": display.page_of(row, row.proposition_id),
            "claim": display.visible(row.claim),
            "said": display.visible(display.shortened(row.context_snippet, 160)),
            "people": f"{row.people:g}" if row.given == 1 else f"{row.people:.1f}",
            "judge": row.raw_score,
        }
        for row in rows
    ]


def label_url(label_set: LabelSet, query: str = "") -> str:
    return reverse("admin:evaluation_labelset_label", args=[label_set.pk]) + query
