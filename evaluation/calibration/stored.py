"""The figures as they are kept, so that no page computes them: marked stale when labels change, computed again by a worker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from agents.work.queues import wake_workers
from evaluation.calibration.as_json import calibration_details
from evaluation.calibration.figures import calibration
from evaluation.calibration.population import procedure_fields
from evaluation.calibration.values import Agreement, Calibration
from evaluation.models import EvaluationScore, JudgeCalibration, LabelSet, ScoreLabel, procedure_name


class Key(NamedTuple):
    """What figures are about."""

    judge: str
    procedure: str
    dimension: str


def key_of(score: EvaluationScore) -> Key:
    run = score.evaluation_run
    return Key(run.judge, run.procedure, score.dimension)


def mark_changed(keys: Iterable[Key]) -> None:
    """Note that labels changed: their figures are stale until a worker (or `manage.py calibrate_judge`) computes them again."""
    for key in sorted(set(keys)):
        row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
        JudgeCalibration.objects.filter(pk=row.pk).update(changes=F("changes") + 1)
    transaction.on_commit(wake_workers)


def refresh(key: Key) -> Calibration:
    """Compute the figures of a judge in a dimension and keep them.

    Labels that change meanwhile leave them stale; two that do this at once do the same work twice, and no harm.
    """
    row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
    found = calibration(**key._asdict())
    shown = found.agreement
    JudgeCalibration.objects.filter(pk=row.pk).update(
        kappa=shown.kappa,
        kappa_low=shown.low,
        kappa_high=shown.high,
        labels=shown.labels,
        items=shown.items,
        annotators=shown.annotators,
        figures=calibration_details(found),
        labels_digest=found.digest,
        computed_changes=row.changes,
        computed_at=timezone.now(),
    )
    return found


def work_one(*, owner: str) -> bool:
    """Compute one judge's figures whose labels changed; whether there was one. What `manage.py work` calls.

    The row is not claimed: computing takes a fraction of a second and calls no model.
    """
    stale = JudgeCalibration.objects.exclude(changes=F("computed_changes")).order_by("computed_at", "pk").first()
    if stale is None:
        return False
    refresh(Key(stale.judge, stale.procedure, stale.dimension))
    return True


def calibration_of(judge: str, procedure: str) -> dict[str, Agreement]:
    """By dimension, how well a judge agrees with people; dimensions without labels are missing. One query."""
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure)
    return {row.dimension: agreement_of(row) for row in rows}


def all_agreements() -> dict[Key, Agreement]:
    """Every judge's figures, for lists of many judges. One query."""
    rows = JudgeCalibration.objects.defer("figures")
    return {Key(row.judge, row.procedure, row.dimension): agreement_of(row) for row in rows}


def agreement_of(row: JudgeCalibration) -> Agreement:
    return Agreement(
        dimension=row.dimension,
        kappa=row.kappa,
        low=row.kappa_low,
        high=row.kappa_high,
        labels=row.labels,
        items=row.items,
        annotators=row.annotators,
        stale=row.is_stale,
        computed_at=row.computed_at,
    )


def labels_of(
    *,
    judge: str | None = None,
    procedure: str | None = None,
    dimension: str | None = None,
    label_set: LabelSet | None = None,
) -> QuerySet[ScoreLabel]:
    """The labels of these judges and dimensions; None = of any."""
    labels = ScoreLabel.objects.filter(withdrawn=False)
    if judge is not None:
        labels = labels.filter(evaluation_score__evaluation_run__judge=judge)
    if procedure is not None:
        fields = procedure_fields(procedure)
        labels = labels.filter(**{f"evaluation_score__evaluation_run__{name}": value for name, value in fields.items()})
    if dimension is not None:
        labels = labels.filter(evaluation_score__dimension=dimension)
    return labels if label_set is None else labels.filter(evaluation_score__label_sets=label_set)


def labelled_keys(
    *,
    judge: str | None = None,
    procedure: str | None = None,
    dimension: str | None = None,
    label_set: LabelSet | None = None,
) -> list[Key]:
    """The judges and dimensions that have labels."""
    run = "evaluation_score__evaluation_run__"
    fields = (f"{run}judge", f"{run}method", f"{run}hard", f"{run}double_check", f"{run}simulated")
    labels = labels_of(judge=judge, procedure=procedure, dimension=dimension, label_set=label_set)
    rows = labels.order_by().values_list(*fields, "evaluation_score__dimension").distinct()
    return sorted(
        Key(name, procedure_name(method=method, hard=hard, double_check=double, simulated=simulated), about)
        for name, method, hard, double, simulated, about in rows
    )
