"""Drift over time: what the measurements of a schedule say, series by series, and the alerts that evaluations raise."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby, pairwise
from typing import Annotated, Any

import sentry_sdk
from django.db import transaction
from django.db.models import Avg, Count, F, Max, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone
from pydantic import BaseModel, Field, InstanceOf, PlainSerializer, computed_field

from agents.kit.alerting import AlertKind, acknowledge_alerts, raise_alert
from agents.models import Agent, Message
from agents.personas.persona import changes_between
from evaluation.calibration.agreement import calibration_of, figure_text, swap_text
from evaluation.change.change import ChangeResult, fell_sharply, mean_of
from evaluation.change.comparison import compare
from evaluation.change.measurements import measurement_of
from evaluation.change.models import Baseline, Change, DriftAlert, Evidence
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationSchedule, EvaluationScore
from evaluation.runs.summary import rounded, summarize, window_statistics
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.change_point import SERIES, Point, apart, find_drops
from evaluation.statistics.difference import error_of

log = logging.getLogger("evaluation.drift")

AGENTS = SERIES  # that share one false alarm a month; a schedule of more agents keeps to that rate, too
MOST_EVALUATIONS = 400  # per agent and schedule: more than a year of days
HANG_TOGETHER = 0.5  # correlation of neighbouring evaluations from which the rate of false alarms is not kept
MOST_RESTARTS = 3  # explained for one series: the newest; each takes a few queries
READ = (
    *("agent_id", "schedule_id", "created_at", "window", "window_start", "window_end", "where", "dimensions"),
    *("series_points", "persona_digest", "judge", "method", "hard", "double_check", "simulated", "swap_test"),
)
NO_DURATION = "the window is no duration, so evaluations look at the same messages again: not tested for drift"


AgentShown = Annotated[InstanceOf[Agent], PlainSerializer(lambda agent: agent.slug)]
ScheduleShown = Annotated[InstanceOf[EvaluationSchedule], PlainSerializer(lambda schedule: schedule.name)]
Time = Annotated[datetime, PlainSerializer(datetime.isoformat)]


class Reading(BaseModel):
    """One point of a series: the score of evaluation `run` at the end of its window.

    Attributes:
        error: Standard error in points; None: not known.
        tested: Whether the test looked at it: it shares no messages with the one before.
        restarts: Whether the series starts again here, because persona, propositions, window or tags changed.
        persona: Digest of the persona it was measured under.
    """

    run: int = Field(serialization_alias="evaluation_run")
    time: Time
    score: float
    error: Annotated[float | None, PlainSerializer(rounded)]
    tested: bool
    restarts: bool
    persona: str = Field("", exclude=True)


class Drop(BaseModel):
    """A lasting fall: `since` when, from which mean score to which, and the run in which it was noticed.

    Attributes:
        correlation: Of neighbouring evaluations before it, 0 to 0.9; from 0.5 on false alarms are likelier than promised.
    """

    run: int = Field(serialization_alias="evaluation_run")
    noticed: Time
    since: Time
    before: Annotated[float, PlainSerializer(rounded)]
    after: Annotated[float, PlainSerializer(rounded)]
    correlation: Annotated[float, PlainSerializer(rounded)] = 0.0


class Restart(BaseModel):
    """A series that starts again with the evaluation `run`."""

    run: int = Field(serialization_alias="evaluation_run")
    time: Time
    because: str


class Series(BaseModel):
    """Scores of one agent and dimension by one judge and procedure, oldest first. Dumped by alias it is what ``--json`` prints.

    Attributes:
        drops: The lasting falls detected, oldest first.
        note: Why nothing was tested (lately); empty when it was.
    """

    agent: AgentShown
    schedule: ScheduleShown
    dimension: str
    judge: str
    procedure: str
    readings: tuple[Reading, ...] = Field(serialization_alias="points")
    drops: tuple[Drop, ...] = ()
    note: str = Field("", exclude_if=lambda note: not note)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def restarts(self) -> tuple[Restart, ...]:
        """The newest restarts, oldest first. What changed is not drift; what fell at the same moment shows in a comparison."""
        restarts = []
        for before, now in [pair for pair in pairwise(self.readings) if pair[1].restarts][-MOST_RESTARTS:]:
            because = "propositions, window or tags changed"
            if before.persona != now.persona:
                changes = changes_between(self.agent.slug, before.persona, now.persona)
                because = "; ".join(map(str, changes)) or "the persona changed; no version says what changed"
            restarts.append(Restart(run=now.run, time=now.time, because=because))
        return tuple(restarts)

    @property
    def newest_restart(self) -> str:
        """When and why it started again, the last time, in a sentence; empty when it never did."""
        if not self.restarts:
            return ""
        day = f"{timezone.localtime(self.restarts[-1].time):%Y-%m-%d}"
        return f"{self.agent.slug} {self.dimension}: starts again on {day}: {self.restarts[-1].because}"


# -- points
def series_points(run: EvaluationRun) -> dict[str, dict[str, Any]]:
    """By dimension: `score` (0 to 9), its standard `error` in points (None: not known) and `of`, a digest of the propositions.

    Dimensions that are counted, and those in which nothing was scored, have no point; an exact statistic has one.
    """
    points = {
        name: {"score": d.score, "error": standard_error(run, name), "of": _asked(run, name)}
        for name, d in summarize(run).dimensions.items()
        if d.score is not None and name not in COUNTED
    }
    for name, by_proposition in window_statistics(run.figures).items():
        rows = [row for observations in by_proposition.values() for row in observations]
        points[name] = {"score": mean_of(rows), "error": error_of(rows), "of": _asked(run, name)}
    return points


def standard_error(run: EvaluationRun, dimension: str) -> float | None:
    """Of the mean over messages drawn at random, each with all its scores; None for fewer than two, or judged as a whole."""
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, dimension=dimension, status="scored", score__isnull=False, message__isnull=False
    )
    means = (
        rows.order_by().values_list("message_id", "proposition_id").annotate(mean=Avg("score"), weight=Max("weight"))
    )
    return error_of([Observation(mean, weight, message) for message, _, mean, weight in means])


def _asked(run: EvaluationRun, dimension: str) -> str:
    """A digest of the propositions asked; of a channel's dimension, of those asked in the agent's channels."""
    if dimension in run.own_dimensions:
        asked = [run.proposition_digests.get(dimension)]
    else:
        linked = run.channel_runs.order_by().values_list("proposition_digests", flat=True)
        asked = [digests.get(dimension) for digests in linked]
    distinct = sorted({json.dumps(one, sort_keys=True) for one in asked})
    return hashlib.sha256("\n".join(distinct).encode()).hexdigest()[:12]


# -- series
def series_of(agent: Agent, *, schedule: EvaluationSchedule | None = None, dimension: str = "") -> list[Series]:
    """An agent's series, by schedule, dimension, judge and procedure; the newest 400 evaluations of each schedule.

    Three queries at most, however many schedules and evaluations there are.
    """
    runs = EvaluationRun.objects.filter(
        agent=agent, schedule__isnull=False, series_points__isnull=False, status=EvaluationRun.Status.COMPLETED
    )
    if schedule is not None:
        runs = runs.filter(schedule=schedule)
    newest = Window(RowNumber(), partition_by=F("schedule_id"), order_by=[F("created_at").desc(), F("pk").desc()])
    by_schedule: dict[int, list[EvaluationRun]] = defaultdict(list)
    for run in runs.only(*READ).annotate(rank=newest).filter(rank__lte=MOST_EVALUATIONS):
        by_schedule[run.schedule_id].append(run)
    active = Count("agents", filter=Q(agents__is_active=True))
    schedules = EvaluationSchedule.objects.filter(pk__in=by_schedule).annotate(measured=active).order_by("name")
    all_agents = Agent.objects.in_use().count() if by_schedule else 0
    series = []
    for one in schedules:
        grouped: dict[tuple[str, str, str], list[EvaluationRun]] = defaultdict(list)
        for run in sorted(by_schedule[one.pk], key=lambda run: (_time(run), run.pk)):
            for name in run.series_points or {}:
                if name == dimension or not dimension:
                    grouped[name, run.judge, run.procedure].append(run)
        series += [_tested(agent, one, *key, runs, one.measured or all_agents) for key, runs in sorted(grouped.items())]
    return series


def _tested(
    agent: Agent,
    schedule: EvaluationSchedule,
    dimension: str,
    judge: str,
    procedure: str,
    runs: Sequence[EvaluationRun],
    agents: int,
) -> Series:
    """A series with its drops: at most one false alarm a month over all series of the schedule together.

    A stretch ends where persona, propositions, window or tags change: a change that was asked for is no drift.
    """
    readings: list[Reading] = []
    drops: list[Drop] = []
    note = ""

    def stored(run: EvaluationRun) -> dict[str, Any]:
        point: dict[str, Any] = (run.series_points or {})[dimension]
        return point

    def same(run: EvaluationRun) -> tuple[str, ...]:
        return (run.persona_digest, stored(run)["of"], run.window, json.dumps(run.where, sort_keys=True))

    for _, group in groupby(runs, key=same):
        stretch = list(group)
        last = stretch[-1]
        points = [Point(_time(run), stored(run)["score"], stored(run)["error"]) for run in stretch]
        lookback = last.window_end - last.window_start if last.window_end and last.window_start else timedelta(0)
        tested = apart(points, lookback) if lookback else []
        run_of = {id(point): run.pk for point, run in zip(points, stretch, strict=True)}
        note = NO_DURATION
        if lookback:
            scan = find_drops(
                tested,
                every=max(schedule.every, lookback),
                series=max(AGENTS, agents) * max(1, sum(name not in COUNTED for name in last.dimensions)),
                limit=schedule.drift_limit,
            )
            note = scan.reason
            for alarm in scan.alarms:
                noticed, since = tested[alarm.index], tested[alarm.onset].time
                run = run_of[id(noticed)]
                fell = {"before": alarm.before, "after": alarm.after, "correlation": alarm.correlation}
                drops.append(Drop(run=run, noticed=noticed.time, since=since, **fell))
        looked_at = set(map(id, tested))
        for number, (point, measured) in enumerate(zip(points, stretch, strict=True)):
            readings.append(
                Reading(
                    run=measured.pk,
                    time=point.time,
                    score=point.score,
                    error=point.error,
                    tested=id(point) in looked_at,
                    restarts=not number and bool(readings),
                    persona=measured.persona_digest,
                )
            )
    return Series(
        agent=agent,
        schedule=schedule,
        dimension=dimension,
        judge=judge,
        procedure=procedure,
        readings=tuple(readings),
        drops=tuple(drops),
        note=note,
    )


def without_series(agents: Sequence[Agent], shown: Iterable[Series]) -> dict[str, str]:
    """Slugs of the agents that have no series, each with how its newest scheduled evaluation ended."""
    with_series = {series.agent.pk for series in shown}
    reasons: dict[str, str] = {}
    for agent in (agent for agent in agents if agent.pk not in with_series):
        scheduled = EvaluationRun.objects.filter(agent=agent, schedule__isnull=False)
        last = scheduled.order_by("-created_at", "-pk").first()
        if last is None:
            reasons[agent.slug] = "measured by no schedule yet"
        else:
            scored = last.overall_score is not None
            why = "scored, but not in what is asked for here" if scored else last.error or "no score"
            reasons[agent.slug] = f"evaluation {last.pk}: {why}"
    return reasons


def _time(run: EvaluationRun) -> datetime:
    return run.window_end or run.created_at


# -- alerts
def next_to_look_at() -> EvaluationRun | None:
    """The oldest completed run of a schedule whose series was not looked at yet."""
    ended = EvaluationRun.objects.filter(
        agent__isnull=False, schedule__isnull=False, series_points__isnull=True, status=EvaluationRun.Status.COMPLETED
    )
    return ended.select_related("agent", "schedule").order_by("created_at", "pk").first()


def look_at_next() -> bool:
    """Look for drift in the run that has waited longest for it; return whether there was one. What workers call when no schedule is due."""
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
    workers one looks. Returns the new alerts; none for a run that was looked at before.
    """
    if run.agent is None or run.schedule_id is None:
        return []
    points = series_points(run)
    with transaction.atomic():
        # One look at a time per schedule: two runs of one series that end together must see each other.
        schedule = EvaluationSchedule.objects.select_for_update().get(pk=run.schedule_id)
        fresh = EvaluationRun.objects.filter(pk=run.pk, series_points__isnull=True)
        if not fresh.update(series_points=points):
            return []
        run.series_points = points
        series = series_of(run.agent, schedule=schedule)
        falls = [_raise(one, drop) for one in series for drop in one.drops if drop.noticed >= _time(run)]
        return [alert for alert in falls if alert is not None]


def look_for_sharp_fall(run: EvaluationRun) -> list[DriftAlert]:
    """Raise an alert at once for each dimension in which a completed evaluation fell sharply (`fell_sharply`).

    Once for a fall: not again while the same baseline stands, or the same evaluation comes before it; and outside of schedules not where
    a message has no time: an old transcript that was imported now is no news. Call it when the evaluation's changes are stored; it does
    the same however often it is called.
    """
    alerts = []
    for name, (change, newest_before) in _changes_since(run).items():
        if not fell_sharply(change):
            continue
        line = {"agent": run.agent, "dimension": name, "judge": run.judge, "procedure": run.procedure}
        if DriftAlert.objects.filter(Q(since__gte=newest_before) | Q(evaluation_run=run), **line).exists():
            continue
        newer = Message.objects.filter(agent=run.agent, said_at__gt=newest_before).order_by("said_at", "pk")
        messages = newer.filter(evaluation_scores__evaluation_run=run, evaluation_scores__dimension=name)
        if not messages.exists():  # judged as a whole
            tags = {f"tags__{key}": value for key, value in run.where.items()}
            messages = newer.filter(synthetic=False, **tags)
        if run.schedule_id is None and messages.filter(sent_at__isnull=True).exists():
            continue
        first = messages.first()
        since = first.said_at if first is not None else newest_before
        fell = {"since": since, "before": change.baseline, "after": change.candidate}
        undated = first is not None and first.sent_at is None
        remark = "the messages are undated, that is when they were stored" if undated else ""
        alert = DriftAlert(evaluation_run=run, schedule=run.schedule, **line, **fell)
        alerts.append(_announce(alert, remark=remark))
    return alerts


def _changes_since(run: EvaluationRun) -> dict[str, tuple[ChangeResult, datetime]]:
    """What a completed evaluation says of each dimension, with when the newest message was said that it is compared with.

    That is what was stored against its baseline; without a baseline it is compared with the evaluation before it. Only of newer messages
    than that judged, by the same judge, procedure and persona.
    """
    if run.agent is None or run.simulated or run.swap_test or run.position_bins:
        return {}
    way = {"agent": run.agent, "judge": run.judge, "procedure": run.procedure}
    stored = {row.dimension: row for row in Change.objects.filter(evaluation_run=run, proposition="")}
    captured = dict(Baseline.objects.filter(**way).values_list("dimension", "evaluation_run"))
    changes = {}
    for name, newest in Evidence.objects.filter(evaluation_run=run).values_list("dimension", "newest_message_at"):
        earlier = Evidence.objects.filter(**way, dimension=name, newest_message_at__lt=newest).exclude(
            evaluation_run=run
        )
        if name in captured:
            earlier = earlier.filter(evaluation_run=captured[name])
        before = earlier.select_related("evaluation_run__agent").order_by("-newest_message_at").first()
        if before is None or before.evaluation_run.persona_digest != run.persona_digest:
            continue
        if name not in captured:
            sides = (measurement_of(each, dimensions=[name]) for each in (before.evaluation_run, run))
            (change,) = compare(*sides, propositions=False).dimensions
            changes[name] = (change, before.newest_message_at)
        elif name in stored and stored[name].baseline_run_id == captured[name]:
            changes[name] = (stored[name].result, before.newest_message_at)
    return changes


def _raise(series: Series, drop: Drop) -> DriftAlert | None:
    """The alert for a fall; None where one was raised before that was noticed and began in the same stretch of time."""
    line = {name: getattr(series, name) for name in ("schedule", "agent", "dimension", "judge", "procedure")}
    raised = DriftAlert.objects.filter(**line, since__lte=drop.noticed).select_related("evaluation_run")
    if any((alert.evaluation_run.window_end or alert.created_at) >= drop.since for alert in raised):
        return None
    fell = {name: getattr(drop, name) for name in ("since", "before", "after")}
    remark = ""
    if drop.correlation >= HANG_TOGETHER:
        remark = (
            f"neighbouring evaluations are alike (correlation {drop.correlation:.1f}), so a false alarm is likelier"
        )
    return _announce(DriftAlert(evaluation_run_id=drop.run, **line, **fell), remark=remark)


def _trust(alert: DriftAlert) -> str:
    """How far its judge can be trusted, in a few words: an alert is read where nothing else stands."""
    known = calibration_of(alert.judge, alert.procedure).get(alert.dimension)
    words = f"its judge: {figure_text(known)}"
    if alert.dimension in BY_MESSAGE:
        words += f", swap test {swap_text(known, agent=alert.agent.slug, brief=True)}"
    return words


def _announce(alert: DriftAlert, *, remark: str = "") -> DriftAlert:
    """Store an alert, and tell Sentry and the log.

    `remark` is what people must know to believe it.

    Sent before the commit: an alert that is sent twice after a crash is better than one that is never sent.
    """
    alert.save()
    schedule = alert.schedule.name if alert.schedule is not None else ""
    fell = f"fell from {alert.before:.1f} to {alert.after:.1f}"
    believed = "; ".join(filter(None, (remark, _trust(alert))))
    line = f"{alert.schedule_id} {alert.agent_id} {alert.dimension} {alert.judge} {alert.procedure}"
    alert.alert_id = raise_alert(
        kind=AlertKind.DRIFT,
        about=f"{line} {alert.since.isoformat()}",
        title=f"{alert.dimension} of {alert.agent.display_name} {fell} (of 9) since {alert.since:%d %b %Y}; {believed}",
        agent=alert.agent,
        page=alert,
    )
    alert.save(update_fields=["alert_id"])
    about = {"agent": alert.agent.slug, "dimension": alert.dimension, "schedule": schedule, "judge": alert.judge}
    tags: dict[str, Any] = about
    change = f"{alert.dimension} of {alert.agent.slug} {fell}"
    with sentry_sdk.new_scope() as scope:
        scope.set_tags(tags)
        scope.fingerprint = ["drift", *map(str, tags.values())]
        sentry_sdk.capture_message(f"drift: {change}", level="warning", scope=scope)
    log.warning(
        "drift: %s since %s (schedule %s, judge %s, evaluation run %s, agent %s)",
        *(change, alert.since.isoformat(timespec="minutes"), schedule or "none", alert.judge),
        *(alert.evaluation_run_id, alert.agent_id),
    )
    return alert


def acknowledge_drifts(drifts: QuerySet[DriftAlert], *, user: Any, note: str = "") -> int:
    """Note who has seen these falls, and acknowledge their alerts; returns how many were new."""
    with transaction.atomic():
        new = DriftAlert.objects.filter(pk__in=drifts.values("pk"), acknowledged_at=None)
        alerts = dict(new.values_list("pk", "alert_id"))
        # The alerts first, and they change their falls: acknowledging an alert on its own page locks in this order, too.
        acknowledge_alerts([pk for pk in alerts.values() if pk is not None], user=user, note=note)
        without_alert = DriftAlert.objects.filter(pk__in=alerts, acknowledged_at=None)
        without_alert.update(acknowledged_at=timezone.now(), acknowledged_by=user, note=note.strip()[:500])
        return len(alerts)


def follow_alerts(ids: Collection[int], *, acknowledged_at: datetime | None, acknowledged_by: Any, note: str) -> None:
    """Acknowledge or reopen the falls of these alerts, in the transaction that does so with the alerts."""
    drifts = DriftAlert.objects.filter(alert_id__in=ids)
    if acknowledged_at is not None:
        drifts = drifts.filter(acknowledged_at=None)
    drifts.update(acknowledged_at=acknowledged_at, acknowledged_by=acknowledged_by, note=note)
