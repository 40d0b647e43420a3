"""The stored row behind a judge's passport: computed when labels or evaluations change, by a worker, so that no page computes it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.db.models import Exists, F, OuterRef
from django.utils import timezone

from evaluation.calibration.agreement import JudgeAgreement, Observed, compute_agreement
from evaluation.calibration.labels import Key, mark_changed
from evaluation.calibration.models import JudgeCalibration
from evaluation.judge.identity import JudgeIdentity, identity_in
from evaluation.models import COUNTED, RULE_JUDGE, EvaluationRun, EvaluationScore, procedure_fields
from evaluation.runs.numbers import rounded
from evaluation.runs.shares import share_counts
from evaluation.statistics.agreement import judge_noise

OBSERVED_FOR = timedelta(days=1)
NEWEST = 50  # evaluations that coverage and the spread between repeats are taken from


def refresh(key: Key) -> JudgeAgreement:
    """Compute the figures of a judge in a dimension from all its labels, and store them in its `JudgeCalibration`.

    Labels that change meanwhile leave them stale; two that do this at once do the same work twice, and no harm.

    Raises:
        ValueError: A procedure that is not allowed.
    """
    row, _ = JudgeCalibration.objects.get_or_create(**key._asdict())
    figures = compute_agreement(**key._asdict())
    low, high = figures.kappa.interval or (None, None)
    JudgeCalibration.objects.filter(pk=row.pk).update(
        kappa=figures.kappa.value,
        kappa_low=low,
        kappa_high=high,
        **figures.model_dump(include={"labels", "items", "annotators"}),
        figures=figures.model_dump(mode="json"),
        identity=_dumped(figures.identity),
        observed=observe(key, figures.identity).model_dump(mode="json"),
        computed_changes=row.changes,  # as read before computing: what changed since makes the figures stale
        computed_at=timezone.now(),
    )
    return figures


def _dumped(identity: JudgeIdentity | None) -> dict[str, Any]:
    """Return an identity as it is stored; empty where it is not known."""
    return {} if identity is None else identity.model_dump(mode="json")


def observe(key: Key, identity: JudgeIdentity | None) -> Observed:
    """Return what the newest evaluations of a judge show of it: how much it scores, and how far repeats of a judgement lie apart.

    Args:
        identity: Only evaluations by this model and prompt; None: of any.
    """
    of_dimension = EvaluationScore.objects.filter(evaluation_run=OuterRef("pk"), dimension=key.dimension)
    runs = EvaluationRun.objects.filter(
        Exists(of_dimension),
        judge=key.judge,
        swap_test="",
        status=EvaluationRun.Status.COMPLETED,
        **procedure_fields(key.procedure),
    )
    if identity is not None:
        runs = runs.filter(judge_endpoint=identity.endpoint, prompt_digest=identity.prompt_digest)
    newest = list(runs.order_by("-pk").values_list("pk", flat=True)[:NEWEST])
    scores = EvaluationScore.objects.filter(evaluation_run__in=newest, dimension=key.dimension).order_by()
    counts = scores.filter(repeat=1).aggregate(**share_counts())
    repeats: dict[tuple[Any, ...], list[int]] = {}
    repeated = scores.filter(evaluation_run__repeats__gt=1, status=EvaluationScore.Status.SCORED, score__isnull=False)
    item = ("evaluation_run", "proposition_id", "message", "compared_with")
    for *judged, score in repeated.exclude(judge=RULE_JUDGE).values_list(*item, "score"):
        repeats.setdefault(tuple(judged), []).append(score)
    judged_twice = [judgements for judgements in repeats.values() if len(judgements) > 1]
    return Observed(
        evaluations=len(newest),
        scored=counts["scored_once"],
        asked=counts["asked"],
        noise=rounded(judge_noise(judged_twice)),
        repeated=len(judged_twice),
    )


def identity_of(run: EvaluationRun, dimension: str) -> JudgeIdentity | None:
    """Return who judged a dimension of an evaluation; None where the judge answered nothing."""
    answered = EvaluationScore.objects.filter(evaluation_run=run, dimension=dimension, judge=run.judge)
    served = answered.exclude(served_model="").order_by("-pk").values_list("served_model", flat=True).first()
    return None if served is None else identity_in(run, served)


def follow_evaluation(run: EvaluationRun) -> None:
    """Give the judge of a completed evaluation its rows, and mark as stale those whose model or prompt is another than before.

    From then on figures of the earlier one do not count. A worker computes stale rows again, those older than a day, for what is observed
    of a judge changes with each evaluation, and those of an evaluation with repeats, which shows the spread between them.
    """
    if run.swap_test:
        return
    answered = EvaluationScore.objects.filter(evaluation_run=run, judge=run.judge).exclude(served_model="")
    served = dict(answered.order_by("pk").values_list("dimension", "served_model"))  # the last one counts
    rows = calibration_of(run.judge, run.procedure)
    changed: list[Key] = []
    for dimension, served_model in served.items():
        if dimension in COUNTED:
            continue
        identity = _dumped(identity_in(run, served_model))
        is_known = dimension in rows and rows[dimension].identity == identity
        if is_known and run.repeats == 1 and _is_recent(rows[dimension]):
            continue
        key = Key(run.judge, run.procedure, dimension)
        JudgeCalibration.objects.update_or_create(**key._asdict(), defaults={"identity": identity})
        changed.append(key)
    if changed:
        mark_changed(changed)


def _is_recent(row: JudgeCalibration) -> bool:
    """Return whether figures were computed within the last day, or are waiting for it."""
    if row.is_stale:
        return True
    return row.computed_at is not None and timezone.now() - row.computed_at < OBSERVED_FOR


def work_one(*, owner: str) -> bool:
    """Compute one judge's figures whose labels changed; return whether there was one. `manage.py work` calls it.

    The row is not leased: computing takes a fraction of a second and calls no model.
    """
    stale = JudgeCalibration.objects.exclude(changes=F("computed_changes")).order_by("computed_at", "pk").first()
    if stale is None:
        return False
    refresh(Key(stale.judge, stale.procedure, stale.dimension))
    return True


def calibration_of(judge: str, procedure: str) -> dict[str, JudgeCalibration]:
    """Return how well a judge agrees with people, by dimension; dimensions without a row are missing. One query."""
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure)
    return {row.dimension: row for row in rows}


def agreements_of(judges: Collection[str]) -> dict[Key, JudgeCalibration]:
    """Return the figures of these judges, for lists of many judges. One query."""
    rows = JudgeCalibration.objects.filter(judge__in=judges)
    return {Key(row.judge, row.procedure, row.dimension): row for row in rows}
