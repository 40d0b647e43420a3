"""Score series of an agent: per dimension, judge, procedure and schedule, with the drops found in them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from django.db.models import Count, F, Q, Window
from django.db.models.functions import RowNumber

from agents.models import Agent
from evaluation.models import COUNTED, EvaluationRun, EvaluationSchedule
from evaluation.statistics.change_point import SERIES, Alarm, Point, apart, find_drops

AGENTS = SERIES  # that share one false alarm a month; a schedule of more agents keeps to that rate, too
MOST_EVALUATIONS = 400  # per agent and schedule: more than a year of days
READ = (
    *(
        "agent_id",
        "schedule_id",
        "created_at",
        "window",
        "window_start",
        "window_end",
        "where",
        "dimensions",
        "series_points",
    ),
    *("persona_digest", "judge", "method", "hard", "double_check", "simulated"),
)
NO_DURATION = "the window is no duration, so evaluations look at the same messages again: not tested for drift"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One point of a series.

    Attributes:
        run: Primary key of the evaluation run.
        time: The end of its window.
        score: 0 to 9.
        error: Standard error in points; None: not known.
        tested: Whether the test looked at it: it shares no messages with the one before.
        restarts: Whether the series starts anew here, because persona, propositions, window or tags changed.
        persona: Digest of the persona it was measured under.
    """

    run: int
    time: datetime
    score: float
    error: float | None
    tested: bool
    restarts: bool
    persona: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A lasting fall: `since` when, from which mean score to which, and the run in which it was noticed."""

    run: int
    noticed: datetime
    since: datetime
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Scores of one agent and dimension by one judge and procedure, oldest first.

    Attributes:
        drops: The lasting falls found, oldest first.
        note: Why nothing was tested (lately); empty when it was.
    """

    agent: Agent
    schedule: EvaluationSchedule
    dimension: str
    judge: str
    procedure: str
    evaluations: tuple[Evaluation, ...]
    drops: tuple[Drop, ...]
    note: str = ""


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
    everybody = Agent.objects.filter(is_active=True).count() if by_schedule else 0
    return [
        found
        for one in schedules
        for found in _of_schedule(agent, one, by_schedule[one.pk], one.measured or everybody, dimension)
    ]


def _of_schedule(
    agent: Agent, schedule: EvaluationSchedule, runs: Sequence[EvaluationRun], agents: int, dimension: str
) -> list[Series]:
    grouped: dict[tuple[str, str, str], list[EvaluationRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (_time(run), run.pk)):
        for name in run.series_points or {}:
            if name == dimension or not dimension:
                grouped[name, run.judge, run.procedure].append(run)
    return [_series(agent, schedule, key, runs_of, agents) for key, runs_of in sorted(grouped.items())]


def _series(
    agent: Agent,
    schedule: EvaluationSchedule,
    key: tuple[str, str, str],
    runs: Sequence[EvaluationRun],
    agents: int,
) -> Series:
    dimension, judge, procedure = key
    evaluations: list[Evaluation] = []
    drops: list[Drop] = []
    note = ""
    for _, stretch in groupby(runs, key=lambda run: _what(run, dimension)):
        same = list(stretch)
        points = [_point(run, dimension) for run in same]
        lookback = _lookback(same[-1])
        tested = [] if lookback is None else apart(points, lookback)
        alarms, note = _test(tested, schedule, same[-1], agents) if lookback else ((), NO_DURATION)
        run_at = {id(point): run for point, run in zip(points, same, strict=True)}
        drops.extend(_drop(alarm, run_at[id(tested[alarm.index])]) for alarm in alarms)
        kept = {id(point) for point in tested}
        for number, (point, run) in enumerate(zip(points, same, strict=True)):
            evaluations.append(
                Evaluation(
                    run=run.pk,
                    time=point.time,
                    score=point.score,
                    error=point.error,
                    tested=id(point) in kept,
                    restarts=not number and bool(evaluations),
                    persona=run.persona_digest,
                )
            )
    return Series(
        agent=agent,
        schedule=schedule,
        dimension=dimension,
        judge=judge,
        procedure=procedure,
        evaluations=tuple(evaluations),
        drops=tuple(drops),
        note=note,
    )


def _test(
    points: Sequence[Point], schedule: EvaluationSchedule, run: EvaluationRun, agents: int
) -> tuple[tuple[Alarm, ...], str]:
    lookback = _lookback(run) or timedelta(0)
    dimensions = sum(name not in COUNTED for name in run.dimensions)
    scan = find_drops(
        points,
        every=max(schedule.every, lookback),
        series=max(AGENTS, agents) * max(1, dimensions),
        limit=schedule.drift_limit,
    )
    return scan.alarms, scan.reason


def _what(run: EvaluationRun, dimension: str) -> tuple[str, ...]:
    """What must be the same for two evaluations to be of one stretch: a change that was asked for is no drift."""
    of = (run.series_points or {})[dimension]["of"]
    return (run.persona_digest, of, run.window, json.dumps(run.where, sort_keys=True))


def _time(run: EvaluationRun) -> datetime:
    return run.window_end or run.created_at


def _lookback(run: EvaluationRun) -> timedelta | None:
    return run.window_end - run.window_start if run.window_end and run.window_start else None


def _point(run: EvaluationRun, dimension: str) -> Point:
    found = (run.series_points or {})[dimension]
    return Point(_time(run), found["score"], found["error"])


def _drop(alarm: Alarm, run: EvaluationRun) -> Drop:
    return Drop(run=run.pk, noticed=alarm.time, since=alarm.onset_time, before=alarm.before, after=alarm.after)
