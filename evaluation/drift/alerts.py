"""Looking for drift in what a schedule measured: once per run, whoever looks and whenever it crashes."""

from __future__ import annotations

import logging
from typing import Any

import sentry_sdk
from django.db import transaction

from evaluation.drift.points import points_of
from evaluation.drift.series import Drop, Series, series_of
from evaluation.models import DriftAlert, EvaluationRun, EvaluationSchedule

log = logging.getLogger("evaluation.drift")


def next_to_look_at() -> EvaluationRun | None:
    """The oldest completed run of a schedule whose series was not looked at yet."""
    ended = EvaluationRun.objects.filter(
        agent__isnull=False,
        schedule__isnull=False,
        series_points__isnull=True,
        status=EvaluationRun.Status.COMPLETED,
    )
    run: EvaluationRun | None = ended.select_related("agent", "schedule").order_by("created_at", "pk").first()
    return run


def look_for_drift(run: EvaluationRun) -> list[DriftAlert]:
    """Add a run to its series, and raise an alert for each lasting fall of at least the schedule's limit that shows in it.

    The points, the alerts and the mark that this run was looked at are one transaction: a look that crashed is made again, and of two
    workers one looks. An alert is a row, a Sentry event and a line of the log ``evaluation.drift``; none has a word of what was said.

    Returns:
        The new alerts; none for a run that was looked at before.
    """
    if run.agent is None or run.schedule_id is None:
        return []
    points = points_of(run)
    with transaction.atomic():
        # One look at a time per schedule: two runs of one series that end together must see each other.
        schedule = EvaluationSchedule.objects.select_for_update().get(pk=run.schedule_id)
        fresh = EvaluationRun.objects.filter(pk=run.pk, series_points__isnull=True)
        if not fresh.update(series_points=points):
            return []
        run.series_points = points
        time = run.window_end or run.created_at
        alerts = []
        for series in series_of(run.agent, schedule=schedule):
            for drop in series.drops:
                if drop.noticed >= time and not _known(series, drop):
                    alerts.append(_raise(series, drop))
        return alerts


def _known(series: Series, drop: Drop) -> bool:
    """Whether an alert was raised for this fall before: one that was noticed and began in the same stretch of time."""
    raised = DriftAlert.objects.filter(
        schedule=series.schedule,
        agent=series.agent,
        dimension=series.dimension,
        judge=series.judge,
        procedure=series.procedure,
        since__lte=drop.noticed,
    ).select_related("evaluation_run")
    return any((alert.evaluation_run.window_end or alert.created_at) >= drop.since for alert in raised)


def _raise(series: Series, drop: Drop) -> DriftAlert:
    alert = DriftAlert.objects.create(
        schedule=series.schedule,
        agent=series.agent,
        dimension=series.dimension,
        judge=series.judge,
        procedure=series.procedure,
        evaluation_run_id=drop.run,
        since=drop.since,
        before=drop.before,
        after=drop.after,
    )
    # Sent before the commit: an alert that is told twice after a crash is better than one that is never told.
    tags: dict[str, Any] = {
        "agent": series.agent.slug,
        "dimension": series.dimension,
        "schedule": series.schedule.name,
        "judge": series.judge,
    }
    change = f"{series.dimension} of {series.agent.slug} fell from {drop.before:.1f} to {drop.after:.1f}"
    with sentry_sdk.new_scope() as scope:
        scope.set_tags(tags)
        scope.fingerprint = ["drift", *map(str, tags.values())]
        sentry_sdk.capture_message(f"drift: {change}", level="warning", scope=scope)
    log.warning(
        "drift: %s since %s (schedule %r, judge %s, evaluation run %s, agent %s)",
        *(change, drop.since.isoformat(timespec="minutes"), series.schedule.name, series.judge),
        *(drop.run, series.agent.pk),
    )
    return alert
