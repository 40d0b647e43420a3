"""What schedules measured over time: series of scores, tested for lasting falls."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import groupby, pairwise
from typing import Annotated, Any, NamedTuple

from django.db.models import Avg, Count, F, Max, Q, Window
from django.db.models.functions import RowNumber
from pydantic import BaseModel, Field, InstanceOf, PlainSerializer, computed_field

from agents.kit.text.wording import day_text
from agents.models import Agent
from agents.personas.persona import changes_between
from evaluation.change.change import mean_of
from evaluation.change.judge_changes import Moments, judge_since, moments_of_change
from evaluation.models import COUNTED, EvaluationRun, EvaluationSchedule, EvaluationScore
from evaluation.runs.numbers import rounded, window_statistics
from evaluation.runs.summary import summarize
from evaluation.statistics.bootstrap import Observation
from evaluation.statistics.change_point import SERIES, Point, apart, find_drops
from evaluation.statistics.difference import error_of

AGENTS = SERIES  # that share one false alarm a month; a schedule of more agents keeps to that rate, too
MOST_EVALUATIONS = 400  # per agent and schedule: more than a year of days
MOST_RESTARTS = 3  # explained for one series: the newest; each takes a few queries
COLUMNS = (
    *("agent_id", "schedule_id", "created_at", "finished_at"),
    *("window", "window_start", "window_end", "where", "dimensions"),
    *("series_points", "persona_digest", "judge", "method", "hard", "double_check", "few_shot", "simulated"),
    *("swap_test", "additional_context"),
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
        restarts: Whether the series starts again here, because persona, propositions, window, tags or background changed.
        persona: Digest of the persona it was measured under.
        judge_since: When the judge began to answer as it did; None: it never changed.
    """

    run: int = Field(serialization_alias="evaluation_run")
    time: Time
    score: float
    error: Annotated[float | None, PlainSerializer(rounded)]
    tested: bool
    restarts: bool
    persona: str = Field("", exclude=True)
    judge_since: datetime | None = Field(None, exclude=True)


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
        because = "propositions, window, tags or background changed"
        if before.persona != now.persona:
            changes = changes_between(self.agent.slug, before.persona, now.persona)
            because = "; ".join(map(str, changes)) or "the persona changed; no version says what changed"
        elif before.judge_since != now.judge_since:
            because = "the judge changed, its new answers were accepted, or it went back"
        return Restart(run=now.run, time=now.time, because=because)

    @property
    def newest_restart(self) -> str:
        """Return when and why it started again, the last time, in a sentence; empty when it never did."""
        if not self.restarts:
            return ""
        restart = self.restarts[-1]
        return f"{self.agent} {self.dimension}: starts again on {day_text(restart.time)}: {restart.because}"


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
    for name, by_proposition in window_statistics(run.figures).items():  # the statistic takes the place of a score
        observations = [observation for rows in by_proposition.values() for observation in rows]
        points[name] = {
            "score": mean_of(observations),
            "error": error_of(observations),
            "of": _digest_of_propositions(run, name),
        }
    return points


def standard_error(run: EvaluationRun, dimension: str) -> float | None:
    """Return the standard error of a dimension's mean in points, messages (or, sampled, conversations) drawn at random with all scores.

    None for fewer than two messages, and for what is judged as a whole.
    """
    rows = EvaluationScore.objects.filter(
        evaluation_run=run,
        dimension=dimension,
        status="scored",
        score__isnull=False,
        message__isnull=False,
        of_ten=None,
    )
    by_message = rows.order_by().values("message_id", "message__channel_id", "proposition_id")
    means = list(by_message.annotate(mean=Avg("score"), heaviest=Max("weight"), inclusion=Max("inclusion_weight")))
    # Of conversations that were kept by chance whole ones were drawn.
    is_sampled = any(row["inclusion"] != 1 for row in means)
    observations = []
    for row in means:
        cluster = row["message__channel_id"] if is_sampled else row["message_id"]
        observations.append(Observation(row["mean"], row["heaviest"] * row["inclusion"], cluster))
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

    Four queries at most, however many schedules and evaluations there are. Empty where no schedule measured it, or no run was looked
    at yet (`over_time`).

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
    moments = moments_of_change()
    series = []
    for own in schedules.order_by("name"):
        # How many agents share the rate of false alarms: a schedule that names none measures all.
        agents = own.named_agents or all_agents
        for line, runs_of_line in sorted(_by_line(by_schedule[own.pk], dimension).items()):
            series.append(_tested_series(agent, own, line, runs_of_line, agents=agents, moments=moments))
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
    for run in sorted(runs, key=lambda run: (end_of_window(run), run.pk)):
        for name in run.series_points or {}:
            if dimension in ("", name):
                by_line[_Line(name, run.judge, run.procedure)].append(run)
    return by_line


def _tested_series(
    agent: Agent,
    schedule: EvaluationSchedule,
    line: _Line,
    runs: Sequence[EvaluationRun],
    *,
    agents: int,
    moments: Moments,
) -> Series:
    """Return a series with its drops: at most one false alarm a month over all series of the schedule together.

    A stretch ends where persona, propositions, window, tags or background change: a change that was asked for is no drift. So it
    does where the judge changed.

    Args:
        runs: Oldest first; at least one.
        agents: How many the schedule measures.
        moments: When judges changed.
    """
    points: list[SeriesPoint] = []
    drops: list[Drop] = []
    note = ""
    for measured, group in groupby(runs, key=lambda run: _what_is_measured(run, line.dimension, moments)):
        stretch = _Stretch(schedule, line.dimension, list(group), agents=agents)
        points += stretch.points(is_first=not points, judge_since=measured.judge_since)
        drops += stretch.drops
        note = stretch.note  # of the last stretch: why nothing is tested now
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


class _Measured(NamedTuple):
    """What must stay the same for scores to be comparable: what is judged, by what, and by which judge behind the judge's name."""

    persona: str
    propositions: str
    window: str
    where: str
    background: str
    judge_since: datetime | None


def _what_is_measured(run: EvaluationRun, dimension: str, moments: Moments) -> _Measured:
    return _Measured(
        persona=run.persona_digest,
        propositions=_stored_point(run, dimension)["of"],
        window=run.window,
        where=json.dumps(run.where, sort_keys=True),
        background=json.dumps(run.additional_context, sort_keys=True),
        judge_since=judge_since(run, moments),
    )


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
        """Test the points of these evaluations.

        Args:
            runs: Oldest first; at least one.
            agents: How many the schedule measures.
        """
        self.drops: list[Drop] = []
        self.note = NO_DURATION
        self._runs = runs
        self._points = []
        self._tested_runs: list[int] = []
        for run in runs:
            point = _stored_point(run, dimension)
            self._points.append(Point(end_of_window(run), point["score"], point["error"]))
        last = runs[-1]  # all of the stretch have the same window
        if last.window_start and last.window_end and last.window_end > last.window_start:
            scores = [name for name in last.dimensions if name not in COUNTED]
            lookback = last.window_end - last.window_start
            self._find_drops(schedule, lookback, series=max(AGENTS, agents) * max(1, len(scores)))

    def _find_drops(self, schedule: EvaluationSchedule, lookback: timedelta, *, series: int) -> None:
        """Fill `drops`, `note` and which points were tested: those that share no messages.

        Args:
            lookback: How long the window of each evaluation is.
            series: How many series of the schedule share the rate of one false alarm a month.
        """
        tested = apart(self._points, lookback)  # a window or more between them
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

    def points(self, *, is_first: bool, judge_since: datetime | None) -> list[SeriesPoint]:
        """Return the points as people see them.

        Args:
            is_first: Whether the series begins with this stretch, so that it does not restart here.
            judge_since: When the judge began to answer as it did; None: it never changed.
        """
        points = []
        for number, (point, run) in enumerate(zip(self._points, self._runs, strict=True)):
            series_point = SeriesPoint(
                run=run.pk,
                time=point.time,
                score=point.score,
                error=point.error,
                tested=run.pk in self._tested_runs,
                restarts=number == 0 and not is_first,
                persona=run.persona_digest,
                judge_since=judge_since,
            )
            points.append(series_point)
        return points


def without_series(agents: Sequence[Agent], series: Iterable[Series]) -> dict[str, str]:
    """Return by slug, of the agents that have none of these series, how their newest scheduled evaluation ended."""
    with_series = {one_series.agent.pk for one_series in series}
    reasons: dict[str, str] = {}
    for agent in agents:
        if agent.pk not in with_series:
            reasons[agent.slug] = _why_no_series(agent)
    return reasons


def _why_no_series(agent: Agent) -> str:
    """Return how the newest scheduled evaluation of an agent ended."""
    scheduled = EvaluationRun.objects.filter(agent=agent, schedule__isnull=False)
    last = scheduled.order_by("-created_at", "-pk").first()
    if last is None:
        return "measured by no schedule yet"
    if last.overall_score is not None:  # it has series, but of another schedule or dimension
        return f"evaluation {last.pk}: scored, but not in what is asked for here"
    return f"evaluation {last.pk}: {last.error or 'no score'}"


def end_of_window(run: EvaluationRun) -> datetime:
    """Return when the point of a run stands in its series."""
    return run.window_end or run.created_at
