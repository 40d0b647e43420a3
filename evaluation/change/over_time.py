"""Drift over time: the alerts that evaluations raise, for a lasting fall in a series and at once for a sharp one."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sentry_sdk
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from agents.builds import BUILD_TAGS, tag_name, tag_of, tag_text
from agents.kit.alerting import AlertKind, acknowledge_alerts, came_back, raise_alert
from agents.kit.text.wording import day_text
from agents.models import Message
from evaluation.calibration.passport import JUDGE_IS, passports
from evaluation.change.change import ChangeResult, fell_sharply
from evaluation.change.comparison import compare
from evaluation.change.judge_changes import change_holding, is_being_checked, open_checks, same_judge
from evaluation.change.measurements import measurement_of
from evaluation.change.models import Baseline, Change, DriftAlert, Evidence
from evaluation.change.series import Drop, Series, end_of_window, series_of, series_points
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.statistics.difference import MARGIN

log = logging.getLogger("evaluation.drift")

ALIKE_NEIGHBOURS = 0.5  # correlation of neighbouring evaluations from which the rate of false alarms is not kept


def next_to_look_at() -> EvaluationRun | None:
    """Return the oldest completed run of a schedule whose series was not looked at yet, and whose judge is not being checked."""
    ended = EvaluationRun.objects.filter(
        ~open_checks(),
        agent__isnull=False,
        schedule__isnull=False,
        series_points__isnull=True,
        status=EvaluationRun.Status.COMPLETED,
    )
    return ended.select_related("agent", "schedule").order_by("created_at", "pk").first()


def look_at_next() -> bool:
    """Look for drift in the run that has waited longest for it; return whether there was one. Workers call it when no schedule is due."""
    run = next_to_look_at()
    if run is None:
        return False
    with sentry_sdk.start_transaction(op="evaluation.drift", name="look for drift") as trace:
        trace.set_data("evaluation_run", run.pk)
        look_for_drift(run)
    return True


def look_for_drift(run: EvaluationRun) -> list[DriftAlert]:
    """Add a run to its series, and raise an alert for each lasting fall of at least the schedule's limit that shows in it.

    The points, the alerts and the mark that this run was looked at are one transaction: a look that crashed is repeated, and of two
    workers one looks. Returns the new alerts; none for a run that was looked at before, or that no schedule asked for, and none while
    alerts are held back because the judge changed.
    """
    if run.agent is None or run.schedule_id is None:
        return []
    points = series_points(run)
    with transaction.atomic():
        # One look at a time per schedule: two runs of one series that end together must see each other.
        schedule = EvaluationSchedule.objects.select_for_update().get(pk=run.schedule_id)
        fresh = EvaluationRun.objects.filter(pk=run.pk, series_points__isnull=True)
        if not fresh.update(series_points=points):  # another worker looked at it meanwhile
            return []
        run.series_points = points
        if change_holding(run):
            return []
        series = series_of(run.agent, schedule=schedule)
        new_alerts = []
        for own_series in series:
            for drop in own_series.drops:
                if drop.noticed < end_of_window(run):  # by an earlier evaluation, which raised the alert
                    continue
                alert = _new_alert_for(own_series, drop)
                if alert is not None:
                    new_alerts.append(alert)
        return new_alerts


def look_for_sharp_fall(run: EvaluationRun) -> list[DriftAlert]:
    """Raise an alert at once for each dimension in which a completed evaluation fell sharply (`fell_sharply`).

    An alert that a build resolved is opened again where the same fell again in that build or a later one, be it less sharply (see
    `_fell_again`); in an earlier build it is no news.

    Once for a fall: not again while the same baseline stands, or the same evaluation comes before it; and outside of schedules not where
    a message has no time: an old transcript that was imported now is no news. None where the judge changed; while a judge is being checked
    nothing is looked at, and the check looks at it when it has ended. Call it when the evaluation's changes are stored; it does the same
    however often it is called.
    """
    if is_being_checked(run) or change_holding(run):
        return []
    alerts = []
    for change in _changes_to_judge(run):
        alert = _new_alert_for_sharp_fall(run, change)
        if alert is not None:
            alerts.append(alert)
    return alerts


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewChange:
    """What a completed evaluation says of a dimension, against judgements of earlier messages.

    Attributes:
        newest_before: When the newest message was said that it is compared with.
        is_stored: Whether it is a stored row, of a change from the baseline.
    """

    result: ChangeResult
    newest_before: datetime
    is_stored: bool


def _new_alert_for_sharp_fall(run: EvaluationRun, change: _NewChange) -> DriftAlert | None:
    """Store, send and return the alert for a sharp fall, or for one that came back; None where it is known, or may be old news.

    It is known where this evaluation raised one, or one says that a fall began after the messages it is compared with, and in the builds
    before the one that resolves it. It may be old where no schedule asked for the evaluation and a message has no time.
    """
    line = {
        "agent": run.agent,
        "dimension": change.result.dimension,
        "judge": run.judge,
        "procedure": run.procedure,
    }
    raised = DriftAlert.objects.filter(**line)
    if raised.filter(evaluation_run=run).exists():
        return None
    is_sharp = fell_sharply(change.result)
    earlier = raised.order_by("-pk").first()
    if not is_sharp and not _fell_again(run, change, earlier):
        return None
    build = build_of(run, change.result.dimension)
    is_back = _came_back(earlier, build)
    if is_back is False:
        return None
    if not is_back and (not is_sharp or raised.filter(since__gte=change.newest_before).exists()):
        return None
    messages = _messages_behind(run, change)
    if run.schedule_id is None and messages.filter(sent_at__isnull=True).exists():
        return None
    since = change.newest_before
    remark = ""
    first = messages.first()
    if first is not None:
        since = first.said_at
        if first.sent_at is None:
            remark = "the messages are undated, that is when they were stored"
    scores: dict[str, Any] = {"before": change.result.baseline, "after": change.result.candidate}
    alert = DriftAlert(evaluation_run=run, schedule=run.schedule, since=since, **scores, **line)
    return _store_and_announce(alert, build=build, reopens=earlier if is_back else None, remark=remark)


def build_of(run: EvaluationRun, dimension: str) -> str:
    """Return the build whose messages an evaluation judged in a dimension, such as ``build=41``: the first of `BUILD_TAGS` that all share.

    Where no message was judged alone: the tag that was asked for. Empty where they share none.
    """
    messages = Message.objects.filter(evaluation_scores__evaluation_run=run, evaluation_scores__dimension=dimension)
    all_tags = list(messages.order_by().values_list("tags", flat=True).distinct()) or [run.where]
    for key in BUILD_TAGS:
        values = {tags.get(key) for tags in all_tags}
        value = values.pop()
        if value and not values:
            return tag_text((key, value))
    return ""


def _fell_again(run: EvaluationRun, change: _NewChange, earlier: DriftAlert | None) -> bool:
    """Return whether the stored changes say that the dimension fell significantly, or a proposition that fell when the alert was raised."""
    if earlier is None or not change.is_stored:
        return False
    if change.result.verdict == "drifted":
        return True
    same_way = {"agent": run.agent, "dimension": change.result.dimension}
    fell_before = Change.objects.filter(evaluation_run=earlier.evaluation_run_id, points__lte=-MARGIN, **same_way)
    fell_now = Change.objects.filter(evaluation_run=run, verdict="drifted", **same_way).exclude(proposition="")
    return fell_now.filter(proposition__in=fell_before.values("proposition")).exists()


def _came_back(earlier: DriftAlert | None, build: str) -> bool | None:
    """Return whether a fall that a build resolves came back in `build`, see `agents.kit.alerting.came_back`; None without one."""
    if earlier is None or earlier.alert_id is None:
        return None
    return came_back(earlier.alert_id, build=build)


def _messages_behind(run: EvaluationRun, change: _NewChange) -> QuerySet[Message]:
    """Return the newer messages that show a fall, the first one first: the judged ones; of a window judged as a whole those in it."""
    newer = Message.objects.filter(agent=run.agent, said_at__gt=change.newest_before).order_by("said_at", "pk")
    messages = newer.filter(evaluation_scores__evaluation_run=run, evaluation_scores__dimension=change.result.dimension)
    if messages.exists():
        return messages
    tags = {f"tags__{key}": value for key, value in run.where.items()}
    return newer.filter(synthetic=False, **tags)


def _changes_to_judge(run: EvaluationRun) -> list[_NewChange]:
    """Return what a completed evaluation says of each dimension, against its baseline; without one, against the evaluation before it.

    Only what was judged of newer messages than that, by the same judge and procedure, of the same persona, and not where the judge changed
    in between. None of an evaluation of a
    channel, of simulated speech, by position, or made to test the judge; none against a baseline that was replaced meanwhile.
    """
    if run.agent is None or run.simulated or run.swap_test or run.position_bins:
        return []
    same_way = {"agent": run.agent, "judge": run.judge, "procedure": run.procedure}
    stored = {row.dimension: row for row in Change.objects.filter(evaluation_run=run, proposition="")}
    captured = dict(Baseline.objects.filter(**same_way).values_list("dimension", "evaluation_run"))
    changes = []
    for name, newest in Evidence.objects.filter(evaluation_run=run).values_list("dimension", "newest_message_at"):
        earlier = Evidence.objects.filter(**same_way, dimension=name, newest_message_at__lt=newest)
        earlier = earlier.exclude(evaluation_run=run)
        if name in captured:
            earlier = earlier.filter(evaluation_run=captured[name])
        before = earlier.select_related("evaluation_run__agent").order_by("-newest_message_at").first()
        if before is None or before.evaluation_run.persona_digest != run.persona_digest:
            continue
        if not same_judge([before.evaluation_run, run]):
            continue
        if name not in captured:
            result = _change_since(before.evaluation_run, run, name)
        elif name in stored and stored[name].baseline_run_id == captured[name]:
            result = stored[name].result
        else:
            continue
        changes.append(_NewChange(result=result, newest_before=before.newest_message_at, is_stored=name in captured))
    return changes


def _change_since(before: EvaluationRun, run: EvaluationRun, dimension: str) -> ChangeResult:
    """Return the change of one dimension from one evaluation to another."""
    comparison = compare(measurement_of(before, dimensions=[dimension]), measurement_of(run, dimensions=[dimension]))
    (change,) = comparison.dimensions
    return change


def _new_alert_for(series: Series, drop: Drop) -> DriftAlert | None:
    """Store, send and return the alert for a fall; None where one was raised already, or in a build before the one that resolves it.

    One was raised where the same series has one that began before this fall was noticed, and was itself noticed after this one began.
    """
    line = {
        "schedule": series.schedule,
        "agent": series.agent,
        "dimension": series.dimension,
        "judge": series.judge,
        "procedure": series.procedure,
    }
    raised = DriftAlert.objects.filter(**line, since__lte=drop.noticed).select_related("evaluation_run")
    if any((alert.evaluation_run.window_end or alert.created_at) >= drop.since for alert in raised):
        return None
    noticed_in = EvaluationRun.objects.get(pk=drop.run)
    build = build_of(noticed_in, series.dimension)
    earlier = (
        DriftAlert.objects.filter(
            agent=series.agent, dimension=series.dimension, judge=series.judge, procedure=series.procedure
        )
        .order_by("-pk")
        .first()
    )
    is_back = _came_back(earlier, build)
    if is_back is False:
        return None
    remark = ""
    if drop.correlation >= ALIKE_NEIGHBOURS:
        remark = (
            f"neighbouring evaluations are alike (correlation {drop.correlation:.1f}), so a false alarm is likelier"
        )
    alert = DriftAlert(evaluation_run=noticed_in, since=drop.since, before=drop.before, after=drop.after, **line)
    return _store_and_announce(alert, build=build, reopens=earlier if is_back else None, remark=remark)


def _trust_in_judge(alert: DriftAlert) -> str:
    """Return whether the judge of an alert may be used, in a few words: an alert is read where nothing else stands."""
    judge_passports = passports(alert.judge, alert.procedure, [alert.dimension], agent=alert.agent.slug)
    return "; ".join(JUDGE_IS[passport.verdict] for passport in judge_passports)


def _store_and_announce(alert: DriftAlert, *, build: str, reopens: DriftAlert | None, remark: str = "") -> DriftAlert:
    """Store an alert, and tell people, Sentry and the log.

    Sent before the commit: an alert that is sent twice after a crash is better than one that is never sent.

    Args:
        build: The build that it is of, see `build_of`.
        reopens: The fall that came back, whose alert is opened again.
        remark: What people must know to believe it.
    """
    alert.save()
    series = f"{alert.schedule_id} {alert.agent_id} {alert.dimension} {alert.judge} {alert.procedure}"
    fell = f"fell from {alert.before:.1f} to {alert.after:.1f}"
    believed = "; ".join(filter(None, (remark, _trust_in_judge(alert))))
    since = day_text(alert.since)
    if build:
        since = f"{since}, {tag_name(tag_of(build))}"
    alert.alert_id = raise_alert(
        kind=AlertKind.DRIFT,
        about=f"{series} {alert.since.isoformat()}",
        title=f"{alert.dimension} of {alert.agent.display_name} {fell} (of 9) since {since}; {believed}",
        agent=alert.agent,
        page=alert,
        build=build,
        reopens=reopens.alert_id if reopens is not None else None,
    )
    alert.save(update_fields=["alert_id"])
    schedule = alert.schedule.name if alert.schedule is not None else ""
    change = f"{alert.dimension} of {alert.agent.slug} {fell}"
    tags: dict[str, Any] = {
        "agent": alert.agent.slug,
        "dimension": alert.dimension,
        "schedule": schedule,
        "judge": alert.judge,
    }
    with sentry_sdk.new_scope() as scope:
        scope.set_tags(tags)
        scope.fingerprint = ["drift", *tags.values()]
        sentry_sdk.capture_message(f"drift: {change}", level="warning", scope=scope)
    log.warning(
        "drift: %s since %s (schedule %s, judge %s, evaluation run %s, agent %s)",
        change,
        alert.since.isoformat(timespec="minutes"),
        schedule or "none",
        alert.judge,
        alert.evaluation_run_id,
        alert.agent_id,
    )
    return alert


def acknowledge_drifts(drifts: QuerySet[DriftAlert], *, user: Any) -> int:
    """Note who has seen these falls, and acknowledge their alerts; return how many were new."""
    with transaction.atomic():
        new = DriftAlert.objects.filter(pk__in=drifts.values("pk"), acknowledged_at=None)
        alerts = dict(new.values_list("pk", "alert_id"))
        # The alerts first, and they change their falls: acknowledging an alert on its own page locks in this order, too.
        acknowledge_alerts([pk for pk in alerts.values() if pk is not None], user=user)
        without_alert = DriftAlert.objects.filter(pk__in=alerts, acknowledged_at=None)
        without_alert.update(acknowledged_at=timezone.now(), acknowledged_by=user)
        return len(alerts)


def follow_alerts(ids: Collection[int], *, acknowledged_at: datetime | None, acknowledged_by: Any, note: str) -> None:
    """Acknowledge or reopen the falls of these alerts, in the transaction that does so with the alerts."""
    drifts = DriftAlert.objects.filter(alert_id__in=ids)
    if acknowledged_at is not None:
        drifts = drifts.filter(acknowledged_at=None)
    drifts.update(acknowledged_at=acknowledged_at, acknowledged_by=acknowledged_by, note=note)
