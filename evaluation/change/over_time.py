"""Drift over time: what the measurements of a schedule say, series by series, and the alerts that evaluations raise."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby, pairwise
from typing import Annotated, Any, NamedTuple

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
ALIKE_NEIGHBOURS = 0.5  # correlation of neighbouring evaluations from which the rate of false alarms is not kept
MOST_RESTARTS = 3  # explained for one series: the newest; each takes a few queries
COLUMNS = (
    *("agent_id", "schedule_id", "created_at", "window", "window_start", "window_end", "where", "dimensions"),
    *("series_points", "persona_digest", "judge", "method", "hard", "double_check", "simulated", "swap_test"),
)
NO_DURATION = "the window is no duration, so evaluations look at the same messages again: not tested for drift"


AgentShown = Annotated[InstanceOf[Agent], PlainSerializer(lambda agent: agent.slug)]
ScheduleShown = Annotated[InstanceOf[EvaluationSchedule], PlainSerializer(lambda schedule: schedule.name)]
Time = Annotated[datetime, PlainSerializer(datetime.isoformat)]


class SeriesPoint(BaseModel):
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
    points: tuple[SeriesPoint, ...]
    drops: tuple[Drop, ...] = ()
    note: str = Field("", exclude_if=lambda note: not note)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def restarts(self) -> tuple[Restart, ...]:
        """Return the newest restarts, oldest first. What changed is not drift; what fell at the same moment shows in a comparison."""
        restarts = []
        for before, now in pairwise(self.points):
            if now.restarts:
                restarts.append((before, now))
        return tuple(self._restart(before, now) for before, now in restarts[-MOST_RESTARTS:])

    def _restart(self, before: SeriesPoint, now: SeriesPoint) -> Restart:
        """Return why the series starts again with a point."""
        because = "propositions, window or tags changed"
        if before.persona != now.persona:
            changes = changes_between(self.agent.slug, before.persona, now.persona)
            because = "; ".join(map(str, changes)) or "the persona changed; no version says what changed"
        return Restart(run=now.run, time=now.time, because=because)

    @property
    def newest_restart(self) -> str:
        """Return when and why it started again, the last time, in a sentence; empty when it never did."""
        if not self.restarts:
            return ""
        restart = self.restarts[-1]
        day = f"{timezone.localtime(restart.time):%Y-%m-%d}"
        return f"{self.agent.slug} {self.dimension}: starts again on {day}: {restart.because}"


# -- points
def series_points(run: EvaluationRun) -> dict[str, dict[str, Any]]:
    """Return the points that a run adds to series, by dimension.

    A point has its `score` (0 to 9), its standard `error` in points (None: not known) and `of`, a digest of the propositions.
    Dimensions that are counted, and those in which nothing was scored, have no point; an exact statistic has one.
    """
    points = {}
    for name, dimension in summarize(run).dimensions.items():
        if dimension.score is None or name in COUNTED:
            continue
        points[name] = {
            "score": dimension.score,
            "error": standard_error(run, name),
            "of": _digest_of_propositions(run, name),
        }
    for name, by_proposition in window_statistics(run.figures).items():
        observations = [observation for rows in by_proposition.values() for observation in rows]
        points[name] = {
            "score": mean_of(observations),
            "error": error_of(observations),
            "of": _digest_of_propositions(run, name),
        }
    return points


def standard_error(run: EvaluationRun, dimension: str) -> float | None:
    """Return that of the mean over messages drawn at random, each with all its scores; None for fewer than two, or judged as a whole."""
    rows = EvaluationScore.objects.filter(
        evaluation_run=run, dimension=dimension, status="scored", score__isnull=False, message__isnull=False
    )
    by_message = rows.order_by().values_list("message_id", "proposition_id")
    observations = []
    for message, _, mean, weight in by_message.annotate(mean=Avg("score"), weight=Max("weight")):
        observations.append(Observation(mean, weight, message))
    return error_of(observations)


def _digest_of_propositions(run: EvaluationRun, dimension: str) -> str:
    """Return a digest of the propositions asked; of a channel's dimension, of those asked in the agent's channels."""
    if dimension in run.own_dimensions:
        digests = [run.proposition_digests]
    else:
        digests = list(run.channel_runs.order_by().values_list("proposition_digests", flat=True))
    distinct = {json.dumps(of_run.get(dimension), sort_keys=True) for of_run in digests}
    return hashlib.sha256("\n".join(sorted(distinct)).encode()).hexdigest()[:12]


# -- series
def series_of(agent: Agent, *, schedule: EvaluationSchedule | None = None, dimension: str = "") -> list[Series]:
    """Return an agent's series, by schedule, dimension, judge and procedure; the newest 400 evaluations of each schedule.

    Three queries at most, however many schedules and evaluations there are.

    Args:
        schedule: Only what this one measured.
        dimension: Only this one.
    """
    runs = EvaluationRun.objects.filter(
        agent=agent, schedule__isnull=False, series_points__isnull=False, status=EvaluationRun.Status.COMPLETED
    )
    if schedule is not None:
        runs = runs.filter(schedule=schedule)
    newest = Window(RowNumber(), partition_by=F("schedule_id"), order_by=[F("created_at").desc(), F("pk").desc()])
    by_schedule: dict[int, list[EvaluationRun]] = defaultdict(list)
    for run in runs.only(*COLUMNS).annotate(rank=newest).filter(rank__lte=MOST_EVALUATIONS):
        by_schedule[run.schedule_id].append(run)
    if not by_schedule:
        return []
    named_agents = Count("agents", filter=Q(agents__is_active=True))
    schedules = EvaluationSchedule.objects.filter(pk__in=by_schedule).annotate(named_agents=named_agents)
    all_agents = Agent.objects.in_use().count()
    series = []
    for own in schedules.order_by("name"):
        # A schedule that names no agents measures all.
        agents = own.named_agents or all_agents
        for line, runs_of_line in sorted(_by_line(by_schedule[own.pk], dimension).items()):
            series.append(_tested_series(agent, own, line, runs_of_line, agents=agents))
    return series


class _Line(NamedTuple):
    """What tells the series of one agent and schedule apart."""

    dimension: str
    judge: str
    procedure: str


def _by_line(runs: Iterable[EvaluationRun], dimension: str) -> dict[_Line, list[EvaluationRun]]:
    """Return the evaluations behind each series, oldest first.

    Args:
        dimension: Only this one; empty: all.
    """
    by_line: dict[_Line, list[EvaluationRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (_end_of_window(run), run.pk)):
        for name in run.series_points or {}:
            if dimension in ("", name):
                by_line[_Line(name, run.judge, run.procedure)].append(run)
    return by_line


def _tested_series(
    agent: Agent, schedule: EvaluationSchedule, line: _Line, runs: Sequence[EvaluationRun], *, agents: int
) -> Series:
    """Return a series with its drops: at most one false alarm a month over all series of the schedule together.

    A stretch ends where persona, propositions, window or tags change: a change that was asked for is no drift.

    Args:
        runs: Oldest first; at least one.
        agents: How many the schedule measures.
    """
    points: list[SeriesPoint] = []
    drops: list[Drop] = []
    note = ""
    for _, group in groupby(runs, key=lambda run: _what_is_measured(run, line.dimension)):
        stretch = _Stretch(schedule, line.dimension, list(group), agents=agents)
        points += stretch.points(is_first=not points)
        drops += stretch.drops
        note = stretch.note
    return Series(
        agent=agent,
        schedule=schedule,
        dimension=line.dimension,
        judge=line.judge,
        procedure=line.procedure,
        points=tuple(points),
        drops=tuple(drops),
        note=note,
    )


def _what_is_measured(run: EvaluationRun, dimension: str) -> tuple[str, ...]:
    """Return what must stay the same for scores to be comparable."""
    propositions = _stored_point(run, dimension)["of"]
    return run.persona_digest, propositions, run.window, json.dumps(run.where, sort_keys=True)


def _stored_point(run: EvaluationRun, dimension: str) -> dict[str, Any]:
    """Return the point that `series_points` gave for a dimension."""
    point: dict[str, Any] = (run.series_points or {})[dimension]
    return point


class _Stretch:
    """A part of a series in which the same was measured, tested for lasting falls.

    Attributes:
        drops: The falls detected, oldest first.
        note: Why nothing was tested; empty when it was.
    """

    def __init__(
        self, schedule: EvaluationSchedule, dimension: str, runs: Sequence[EvaluationRun], *, agents: int
    ) -> None:
        self.drops: list[Drop] = []
        self.note = NO_DURATION
        self._runs = runs
        self._points = []
        self._tested_runs: list[int] = []
        for run in runs:
            point = _stored_point(run, dimension)
            self._points.append(Point(_end_of_window(run), point["score"], point["error"]))
        last = runs[-1]
        if last.window_start and last.window_end and last.window_end > last.window_start:
            scores = [name for name in last.dimensions if name not in COUNTED]
            lookback = last.window_end - last.window_start
            self._find_drops(schedule, lookback, series=max(AGENTS, agents) * max(1, len(scores)))

    def _find_drops(self, schedule: EvaluationSchedule, lookback: timedelta, *, series: int) -> None:
        """Test the points that share no messages.

        Args:
            lookback: How long the window of each evaluation is.
            series: How many series of the schedule share the rate of false alarms.
        """
        tested = apart(self._points, lookback)
        run_of_point = {id(point): run.pk for point, run in zip(self._points, self._runs, strict=True)}
        self._tested_runs = [run_of_point[id(point)] for point in tested]
        scan = find_drops(tested, every=max(schedule.every, lookback), series=series, limit=schedule.drift_limit)
        self.note = scan.reason
        for alarm in scan.alarms:
            drop = Drop(
                run=self._tested_runs[alarm.index],
                noticed=tested[alarm.index].time,
                since=tested[alarm.onset].time,
                before=alarm.before,
                after=alarm.after,
                correlation=alarm.correlation,
            )
            self.drops.append(drop)

    def points(self, *, is_first: bool) -> list[SeriesPoint]:
        """Return the points as people see them.

        Args:
            is_first: Whether the series begins with this stretch, so that it does not restart here.
        """
        points = []
        for number, (point, run) in enumerate(zip(self._points, self._runs, strict=True)):
            shown = SeriesPoint(
                run=run.pk,
                time=point.time,
                score=point.score,
                error=point.error,
                tested=run.pk in self._tested_runs,
                restarts=number == 0 and not is_first,
                persona=run.persona_digest,
            )
            points.append(shown)
        return points


def without_series(agents: Sequence[Agent], shown: Iterable[Series]) -> dict[str, str]:
    """Return by slug of the agents that have no series how their newest scheduled evaluation ended."""
    with_series = {series.agent.pk for series in shown}
    reasons: dict[str, str] = {}
    for agent in agents:
        if agent.pk not in with_series:
            reasons[agent.slug] = _why_no_series(agent)
    return reasons


def _why_no_series(agent: Agent) -> str:
    scheduled = EvaluationRun.objects.filter(agent=agent, schedule__isnull=False)
    last = scheduled.order_by("-created_at", "-pk").first()
    if last is None:
        return "measured by no schedule yet"
    if last.overall_score is not None:
        return f"evaluation {last.pk}: scored, but not in what is asked for here"
    return f"evaluation {last.pk}: {last.error or 'no score'}"


def _end_of_window(run: EvaluationRun) -> datetime:
    return run.window_end or run.created_at


# -- alerts
def next_to_look_at() -> EvaluationRun | None:
    """Return the oldest completed run of a schedule whose series was not looked at yet."""
    ended = EvaluationRun.objects.filter(
        agent__isnull=False, schedule__isnull=False, series_points__isnull=True, status=EvaluationRun.Status.COMPLETED
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
        new_alerts = []
        for own_series in series:
            for drop in own_series.drops:
                if drop.noticed < _end_of_window(run):
                    continue
                alert = _alert_for(own_series, drop)
                if alert is not None:
                    new_alerts.append(alert)
        return new_alerts


def look_for_sharp_fall(run: EvaluationRun) -> list[DriftAlert]:
    """Raise an alert at once for each dimension in which a completed evaluation fell sharply (`fell_sharply`).

    Once for a fall: not again while the same baseline stands, or the same evaluation comes before it; and outside of schedules not where
    a message has no time: an old transcript that was imported now is no news. Call it when the evaluation's changes are stored; it does
    the same however often it is called.
    """
    alerts = []
    for change in _changes_to_judge(run):
        if not fell_sharply(change.result):
            continue
        alert = _alert_for_sharp_fall(run, change)
        if alert is not None:
            alerts.append(alert)
    return alerts


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewChange:
    """What a completed evaluation says of a dimension, against judgements of earlier messages.

    Attributes:
        newest_before: When the newest message was said that it is compared with.
    """

    result: ChangeResult
    newest_before: datetime


def _alert_for_sharp_fall(run: EvaluationRun, change: _NewChange) -> DriftAlert | None:
    """Store and return the alert for a sharp fall; None where it is known, or may be old news."""
    line = {
        "agent": run.agent,
        "dimension": change.result.dimension,
        "judge": run.judge,
        "procedure": run.procedure,
    }
    if DriftAlert.objects.filter(Q(since__gte=change.newest_before) | Q(evaluation_run=run), **line).exists():
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
    return _announce(alert, remark=remark)


def _messages_behind(run: EvaluationRun, change: _NewChange) -> QuerySet[Message]:
    """Return the newer messages that show a fall, the first one first: the judged ones; of a window judged as a whole those in it."""
    newer = Message.objects.filter(agent=run.agent, said_at__gt=change.newest_before).order_by("said_at", "pk")
    judged = newer.filter(evaluation_scores__evaluation_run=run, evaluation_scores__dimension=change.result.dimension)
    if judged.exists():
        return judged
    tags = {f"tags__{key}": value for key, value in run.where.items()}
    return newer.filter(synthetic=False, **tags)


def _changes_to_judge(run: EvaluationRun) -> list[_NewChange]:
    """Return what a completed evaluation says of each dimension, against its baseline; without one, against the evaluation before it.

    Only what was judged of newer messages than that, by the same judge and procedure, of the same persona.
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
        if name not in captured:
            result = _change_since(before.evaluation_run, run, name)
        elif name in stored and stored[name].baseline_run_id == captured[name]:
            result = stored[name].result
        else:
            continue
        changes.append(_NewChange(result=result, newest_before=before.newest_message_at))
    return changes


def _change_since(before: EvaluationRun, run: EvaluationRun, dimension: str) -> ChangeResult:
    """Return the change of one dimension from one evaluation to another."""
    comparison = compare(
        measurement_of(before, dimensions=[dimension]), measurement_of(run, dimensions=[dimension]), propositions=False
    )
    (change,) = comparison.dimensions
    return change


def _alert_for(series: Series, drop: Drop) -> DriftAlert | None:
    """Store and return the alert for a fall; None where one was raised before that was noticed and began in the same stretch of time."""
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
    remark = ""
    if drop.correlation >= ALIKE_NEIGHBOURS:
        remark = (
            f"neighbouring evaluations are alike (correlation {drop.correlation:.1f}), so a false alarm is likelier"
        )
    alert = DriftAlert(evaluation_run_id=drop.run, since=drop.since, before=drop.before, after=drop.after, **line)
    return _announce(alert, remark=remark)


def _trust_in_judge(alert: DriftAlert) -> str:
    """Return how far the judge of an alert can be trusted, in a few words: an alert is read where nothing else stands."""
    known = calibration_of(alert.judge, alert.procedure).get(alert.dimension)
    words = f"its judge: {figure_text(known)}"
    if alert.dimension in BY_MESSAGE:
        words += f", swap test {swap_text(known, agent=alert.agent.slug, brief=True)}"
    return words


def _announce(alert: DriftAlert, *, remark: str = "") -> DriftAlert:
    """Store an alert, and tell people, Sentry and the log.

    Sent before the commit: an alert that is sent twice after a crash is better than one that is never sent.

    Args:
        remark: What people must know to believe it.
    """
    alert.save()
    series = f"{alert.schedule_id} {alert.agent_id} {alert.dimension} {alert.judge} {alert.procedure}"
    fell = f"fell from {alert.before:.1f} to {alert.after:.1f}"
    believed = "; ".join(filter(None, (remark, _trust_in_judge(alert))))
    alert.alert_id = raise_alert(
        kind=AlertKind.DRIFT,
        about=f"{series} {alert.since.isoformat()}",
        title=f"{alert.dimension} of {alert.agent.display_name} {fell} (of 9) since {alert.since:%d %b %Y}; {believed}",
        agent=alert.agent,
        page=alert,
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


def acknowledge_drifts(drifts: QuerySet[DriftAlert], *, user: Any, note: str = "") -> int:
    """Note who has seen these falls, and acknowledge their alerts; return how many were new."""
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
