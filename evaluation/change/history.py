"""Scores at the time of their messages, for charts: what was said before anything measured it has a history, too.

A message has the mean of its judgements in the newest evaluation that judged it; what is judged over a whole window stands at the
window's newest message. Simulated speech, samples by position and swap tests are left out, and every judge and procedure has a line
of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import F, OuterRef, Q, Subquery, Sum
from django.utils import timezone

from agents.builds import Tag
from evaluation.change.evidence import Judged
from evaluation.change.models import Evidence
from evaluation.dimensions import CHANNEL_DIMENSIONS
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.summary import linked_dimensions
from evaluation.statistics.bootstrap import Interval
from evaluation.statistics.difference import mean_interval

MOST_RUNS = 400  # the newest evaluations
MOST_JUDGED = 2_000  # messages, the newest; an evaluation that judged one again makes it count again
MOST_LINKED = 60  # evaluations whose channels are read
ROLLING = 10  # messages in a rolling mean
READ = (
    *("agent_id", "judge", "method", "hard", "double_check", "simulated", "swap_test", "dimensions"),
    *("window_end", "created_at"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What was scored at one time: `score` 0 to 9, None where nothing could be scored.

    `message` (its primary key) is None of what is judged over a window. `of`: how many messages it is the mean of; `message` is then the
    one that scored lowest.
    """

    at: datetime
    score: float | None
    run: int
    message: int | None = None
    channel: int | None = None
    position: int = 0
    of: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """The mean of the last `ROLLING` scored messages up to a time; at the first message of a build it `starts` again."""

    at: datetime
    scores: tuple[float, ...]
    starts: bool

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)

    @property
    def interval(self) -> Interval | None:
        """95 %; None for fewer than two messages."""
        return mean_interval(self.scores)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An agent's scores in one dimension by one judge and procedure.

    Attributes:
        points: Oldest first.
        rolled: The rolling mean at each scored point; empty for scores of whole windows.
        by_day: Whether each point is a day's mean, because there are too many messages to draw.
        older: Whether older scores were left out.
    """

    agent: int
    judged: Judged
    dimension: str
    points: Sequence[Scored]
    rolled: Sequence[Rolled] = ()
    by_day: bool = False
    older: bool = False

    @property
    def unscored(self) -> int:
        """How many points have no score."""
        return sum(point.score is None for point in self.points)

    @property
    def now(self) -> float | None:
        """The newest rolling mean, of windows the newest score."""
        if self.rolled:
            return self.rolled[-1].mean
        return next((point.score for point in reversed(self.points) if point.score is not None), None)

    def daily(self, most: int) -> History:
        """The same with a point a day where it has more than `most`; the newest `most` of them."""
        if len(self.points) <= most:
            return self
        days: dict[Any, list[Scored]] = defaultdict(list)
        for point in self.points:
            days[timezone.localtime(point.at).date()].append(point)
        points = []
        for (
            of
        ) in days.values():  # the mean of a day, with the message that scored lowest; unscored where none has a score
            scored = [point for point in of if point.score is not None]
            lowest = min(scored, key=lambda point: point.score or 0.0, default=of[-1])
            mean = sum(point.score or 0.0 for point in scored) / len(scored) if scored else None
            points.append(replace(lowest, score=mean, of=len(scored) or 1))
        last_of_day = {timezone.localtime(one.at).date(): one for one in self.rolled}
        first = points[-most:][0].at
        return replace(
            self,
            points=points[-most:],
            rolled=[one for one in last_of_day.values() if one.at >= first],
            by_day=True,
            older=self.older or len(points) > most,
        )


Key = tuple[int, Judged, str]  # agent, judge and procedure, dimension


def histories(
    *,
    agents: Collection[int],
    tags: Mapping[tuple[int, Tag], datetime],
    dimensions: Collection[str] = (),
    judged: Judged | None = None,
    most_runs: int | None = None,
    most: int | None = None,
) -> list[History]:
    """Return the histories of these agents (primary keys), those by models before heuristics, in at most eight queries whatever there is.

    Args:
        tags: What `first_of_tags` says of them: at each build a rolling mean starts again.
        dimensions: Only these; default all but counts.
        judged: Only by this judge and procedure.
        most_runs, most: Of the agents together the newest evaluations and messages; default `MOST_RUNS` and `MOST_JUDGED`.
    """
    ran = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, agent__in=agents, simulated=False, swap_test="", position_bins=[]
    )
    if judged is not None:
        ran = ran.filter(judge=judged.judge)
    most_runs = MOST_RUNS if most_runs is None else most_runs
    most = MOST_JUDGED if most is None else most
    newest = ran.order_by("-created_at", "-pk").only(*READ)[:most_runs]
    runs = {run.pk: run for run in newest if judged is None or run.procedure == judged.procedure}
    measured = {name for run in runs.values() for name in run.dimensions if name not in COUNTED}
    wanted = {name for name in measured if not dimensions or name in dimensions}
    lines: dict[Key, list[Scored]] = defaultdict(list)
    rows = _of_messages(runs, wanted & set(BY_MESSAGE), most)
    newest_of = {(_line(runs[point.run], name), point.message): point for name, point in reversed(rows)}
    for (line, _), point in newest_of.items():
        lines[line].append(point)
    by_message = set(lines)
    others = {}  # evaluations in which something was not judged message by message
    for pk, run in runs.items():
        if any(_line(run, name) not in by_message for name in wanted & set(run.dimensions)):
            others[pk] = run
    for name, point in _of_windows(others, wanted):
        if (whose := _line(runs[point.run], name)) not in by_message:
            lines[whose].append(point)
    older = len(rows) == most or len(runs) == most_runs
    builds: dict[int, list[datetime]] = defaultdict(list)
    for (agent, _), at in tags.items():
        builds[agent].append(at)
    drawn = (
        _history(key, points, sorted(builds[key[0]]) if key in by_message else None, older=older)
        for key, points in lines.items()
    )
    return sorted(drawn, key=lambda one: (is_heuristic(one.judged.judge), str(one.judged), one.dimension))


def _line(run: EvaluationRun, dimension: str) -> Key:
    return run.agent_id or 0, Judged(judge=run.judge, procedure=run.procedure), dimension


_SCORED = Q(status="scored")
_SUMS = {"points": Sum(F("weight") * F("score"), filter=_SCORED), "weights": Sum("weight", filter=_SCORED)}


def _of_messages(runs: Collection[int], dimensions: Collection[str], most: int) -> list[tuple[str, Scored]]:
    """Return dimension and score of each judged message, the newest `most` of them, those of the newest evaluation first."""
    if not dimensions:
        return []
    about = ("evaluation_run", "dimension", "message", "message__said_at", "message__channel", "message__position")
    rows = (
        EvaluationScore.objects.filter(evaluation_run__in=runs, dimension__in=dimensions, message__isnull=False)
        .filter(status__in=["scored", "unscored"])
        .order_by("-message__said_at", "-message", "-evaluation_run")
        .values_list(*about)
        .annotate(**_SUMS)
    )
    return [
        (name, Scored(at=at, score=_mean(points, weights), run=run, message=pk, channel=channel, position=position))
        for run, name, pk, at, channel, position, points, weights in rows[:most]
    ]


def _of_windows(runs: dict[int, EvaluationRun], dimensions: set[str]) -> Iterator[tuple[str, Scored]]:
    """Return dimension and score of what was judged over a window or a channel as a whole, at its newest message."""
    if not runs:
        return
    whole = EvaluationScore.objects.filter(Q(over_window=True) | ~Q(dimension__in=BY_MESSAGE), message__isnull=True)
    evidence = Evidence.objects.order_by().filter(dimension__in=dimensions)
    its_own = evidence.filter(evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension"))
    sums = (
        whole.filter(evaluation_run__in=runs, dimension__in=dimensions)
        .order_by()
        .values_list("evaluation_run", "dimension")
        .annotate(**_SUMS, newest=Subquery(its_own.values("newest_message_at")[:1]))
    )
    scores: dict[tuple[int, str], float | None] = {}
    newest: dict[tuple[int, str], datetime | None] = {}
    for pk, name, points, weights, at in sums:
        scores[pk, name], newest[pk, name] = _mean(points, weights), at
    linked = [run for run in runs.values() if dimensions & (set(run.dimensions) & set(CHANNEL_DIMENSIONS))]
    of_channels = linked_dimensions(linked[:MOST_LINKED])
    for pk, by_name in of_channels.items():
        scores |= {(pk, name): one.score for name, one in by_name.items() if name in dimensions}
    if of_channels:
        rows = evidence.filter(evaluation_run__in=of_channels)
        newest |= {row[:2]: row[2] for row in rows.values_list("evaluation_run", "dimension", "newest_message_at")}
    for (pk, name), score in scores.items():
        at = newest.get((pk, name)) or runs[pk].window_end or runs[pk].created_at
        yield name, Scored(at=at, score=score, run=pk)


def _mean(points: float | None, weights: float | None) -> float | None:
    return round(points / weights, 4) if points is not None and weights else None


def _history(key: Key, points: list[Scored], builds: Sequence[datetime] | None, *, older: bool) -> History:
    """One line, with a rolling mean where the times of its builds are given."""
    points.sort(key=lambda point: (point.at, point.message or point.run))
    rolled: list[Rolled] = []
    window: list[float] = []
    build = -1
    for point in points if builds is not None else ():
        if point.score is None:
            continue
        if starts := (now := bisect_right(builds or (), point.at)) != build:
            window, build = [], now
        window = [*window, point.score][-ROLLING:]
        rolled.append(Rolled(at=point.at, scores=tuple(window), starts=starts))
    agent, judged, dimension = key
    return History(agent=agent, judged=judged, dimension=dimension, points=points, rolled=rolled, older=older)
