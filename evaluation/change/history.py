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
from datetime import date, datetime
from typing import NamedTuple

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
EVALUATION_COLUMNS = (
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
        """Return the 95 % interval of the mean; None for fewer than two messages."""
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
        """Return how many points have no score."""
        return sum(point.score is None for point in self.points)

    @property
    def now(self) -> float | None:
        """Return the newest rolling mean, of windows the newest score."""
        if self.rolled:
            return self.rolled[-1].mean
        for point in reversed(self.points):
            if point.score is not None:
                return point.score
        return None

    def daily(self, most: int) -> History:
        """Return the same with a point a day where it has more than `most`; the newest `most` of them."""
        if len(self.points) <= most:
            return self
        points_by_day: dict[date, list[Scored]] = defaultdict(list)
        for point in self.points:
            points_by_day[timezone.localtime(point.at).date()].append(point)
        points = [_mean_of_day(of_day) for of_day in points_by_day.values()]
        newest = points[-most:]
        last_rolled = {timezone.localtime(rolled.at).date(): rolled for rolled in self.rolled}
        return replace(
            self,
            points=newest,
            rolled=[rolled for rolled in last_rolled.values() if rolled.at >= newest[0].at],
            by_day=True,
            older=self.older or len(points) > most,
        )


def _mean_of_day(points: Sequence[Scored]) -> Scored:
    """Return the mean of a day's points, with the message that scored lowest; unscored where none has a score."""
    scored = [point for point in points if point.score is not None]
    if not scored:
        return replace(points[-1], score=None, of=1)
    lowest = min(scored, key=lambda point: point.score or 0.0)
    mean = sum(point.score or 0.0 for point in scored) / len(scored)
    return replace(lowest, score=mean, of=len(scored))


class _Line(NamedTuple):
    """What tells the lines of a chart apart."""

    agent: int
    judged: Judged
    dimension: str


def _line_of(run: EvaluationRun, dimension: str) -> _Line:
    return _Line(run.agent_id or 0, Judged(judge=run.judge, procedure=run.procedure), dimension)


def histories(
    *,
    agents: Collection[int],
    tags: Mapping[tuple[int, Tag], datetime],
    dimensions: Collection[str] = (),
    judged: Judged | None = None,
    most_runs: int = MOST_RUNS,
    most: int = MOST_JUDGED,
) -> list[History]:
    """Return the histories of these agents (primary keys), those by models before heuristics, in at most eight queries whatever there is.

    Args:
        tags: What `first_of_tags` says of them: at each build a rolling mean starts again.
        dimensions: Only these; default all but counts.
        judged: Only by this judge and procedure.
        most_runs, most: So many of the newest evaluations, and messages, of the agents together.
    """
    runs = _newest_runs(agents, judged, most_runs)
    wanted = set()
    for run in runs.values():
        wanted |= {name for name in run.dimensions if name not in COUNTED and (not dimensions or name in dimensions)}
    points_of_messages = _points_of_messages(runs, wanted & set(BY_MESSAGE), most)
    by_message = _lines_of_messages(points_of_messages, runs)
    of_windows: dict[_Line, list[Scored]] = defaultdict(list)
    others = _with_other_lines(runs, wanted, by_message)
    for name, point in _points_of_windows(others, wanted):
        line = _line_of(runs[point.run], name)
        if line not in by_message:
            of_windows[line].append(point)
    older = len(points_of_messages) == most or len(runs) == most_runs
    builds: dict[int, list[datetime]] = defaultdict(list)
    for (agent, _), at in tags.items():
        builds[agent].append(at)
    drawn = []
    for line, points in by_message.items():
        points.sort(key=_order_of_points)
        rolled = _rolling_means(points, sorted(builds[line.agent]))
        drawn.append(History(**line._asdict(), points=points, rolled=rolled, older=older))
    for line, points in of_windows.items():
        points.sort(key=_order_of_points)
        drawn.append(History(**line._asdict(), points=points, rolled=[], older=older))
    return sorted(
        drawn, key=lambda history: (is_heuristic(history.judged.judge), str(history.judged), history.dimension)
    )


def _newest_runs(agents: Collection[int], judged: Judged | None, most_runs: int) -> dict[int, EvaluationRun]:
    """Return the newest completed evaluations of real speech by primary key, the newest first."""
    completed = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, agent__in=agents, simulated=False, swap_test="", position_bins=[]
    )
    if judged is not None:
        completed = completed.filter(judge=judged.judge)
    newest = completed.order_by("-created_at", "-pk").only(*EVALUATION_COLUMNS)[:most_runs]
    return {run.pk: run for run in newest if judged is None or run.procedure == judged.procedure}


def _lines_of_messages(
    points: Sequence[tuple[str, Scored]], runs: Mapping[int, EvaluationRun]
) -> dict[_Line, list[Scored]]:
    """Return the points of each line; of a message that was judged again that of the newest evaluation.

    Args:
        points: With their dimension, of the same message those of the newest evaluation first.
    """
    newest: dict[tuple[_Line, int | None], Scored] = {}
    for name, point in reversed(points):
        newest[_line_of(runs[point.run], name), point.message] = point
    lines: dict[_Line, list[Scored]] = defaultdict(list)
    for (line, _), point in newest.items():
        lines[line].append(point)
    return lines


def _with_other_lines(
    runs: Mapping[int, EvaluationRun], wanted: Collection[str], by_message: Collection[_Line]
) -> dict[int, EvaluationRun]:
    """Return the evaluations in which something was not judged message by message."""
    others = {}
    for pk, run in runs.items():
        lines = {_line_of(run, name) for name in run.dimensions if name in wanted}
        if any(line not in by_message for line in lines):
            others[pk] = run
    return others


_SCORED = Q(status="scored")
_SUMS = {
    "points": Sum(F("weight") * F("score"), filter=_SCORED),
    "weights": Sum("weight", filter=_SCORED),
}


def _points_of_messages(runs: Collection[int], dimensions: Collection[str], most: int) -> list[tuple[str, Scored]]:
    """Return dimension and score of each judged message, the newest `most` of them, those of the newest evaluation first."""
    if not dimensions:
        return []
    columns = ("evaluation_run", "dimension", "message", "message__said_at", "message__channel", "message__position")
    judged = EvaluationScore.objects.filter(
        evaluation_run__in=runs, dimension__in=dimensions, message__isnull=False, status__in=["scored", "unscored"]
    )
    newest = judged.order_by("-message__said_at", "-message", "-evaluation_run")
    points = []
    for run, name, message, at, channel, position, weighted, weights in newest.values_list(*columns).annotate(**_SUMS)[
        :most
    ]:
        score = _mean(weighted, weights)
        points.append((name, Scored(at=at, score=score, run=run, message=message, channel=channel, position=position)))
    return points


class _WindowScore(NamedTuple):
    """The score of a window or a channel, and when its newest message was said; None where that is not known."""

    score: float | None
    newest_message_at: datetime | None


def _points_of_windows(runs: Mapping[int, EvaluationRun], dimensions: Collection[str]) -> Iterator[tuple[str, Scored]]:
    """Yield dimension and score of what was judged over a window or a channel as a whole, at its newest message."""
    if not runs:
        return
    scores = _scores_of_windows(runs, dimensions) | _scores_of_channels(runs, dimensions)
    for (pk, name), (score, newest_message_at) in scores.items():
        at = newest_message_at or runs[pk].window_end or runs[pk].created_at
        yield name, Scored(at=at, score=score, run=pk)


def _scores_of_windows(runs: Collection[int], dimensions: Collection[str]) -> dict[tuple[int, str], _WindowScore]:
    """Return by evaluation and dimension the score of what was judged over its window."""
    evidence = Evidence.objects.order_by().filter(
        evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension")
    )
    judged_whole = EvaluationScore.objects.filter(
        Q(over_window=True) | ~Q(dimension__in=BY_MESSAGE),
        message__isnull=True,
        evaluation_run__in=runs,
        dimension__in=dimensions,
    )
    sums = judged_whole.order_by().values_list("evaluation_run", "dimension").annotate(**_SUMS)
    scores = {}
    for pk, name, weighted, weights, at in sums.annotate(newest=Subquery(evidence.values("newest_message_at")[:1])):
        scores[pk, name] = _WindowScore(_mean(weighted, weights), at)
    return scores


def _scores_of_channels(
    runs: Mapping[int, EvaluationRun], dimensions: Collection[str]
) -> dict[tuple[int, str], _WindowScore]:
    """Return by evaluation and dimension the score that an agent has from the evaluations of its channels."""
    wanted = set(dimensions) & set(CHANNEL_DIMENSIONS)
    linked = [run for run in runs.values() if wanted & set(run.dimensions)]
    of_channels = linked_dimensions(linked[:MOST_LINKED])
    if not of_channels:
        return {}
    rows = Evidence.objects.order_by().filter(evaluation_run__in=of_channels, dimension__in=dimensions)
    newest: dict[tuple[int, str], datetime] = {}
    for pk, name, at in rows.values_list("evaluation_run", "dimension", "newest_message_at"):
        newest[pk, name] = at
    scores = {}
    for pk, by_name in of_channels.items():
        for name, dimension in by_name.items():
            if name in dimensions:
                scores[pk, name] = _WindowScore(dimension.score, newest.get((pk, name)))
    return scores


def _mean(weighted: float | None, weights: float | None) -> float | None:
    """Return Σ weight · score ÷ Σ weight; None without scores."""
    if weighted is None or not weights:
        return None
    return round(weighted / weights, 4)


def _order_of_points(point: Scored) -> tuple[datetime, int]:
    return point.at, point.message or point.run


def _rolling_means(points: Sequence[Scored], builds: Sequence[datetime]) -> list[Rolled]:
    """Return the rolling mean at each scored point.

    Args:
        points: Oldest first.
        builds: When the builds were first used, in order; the mean starts again at each.
    """
    means: list[Rolled] = []
    window: list[float] = []
    build_before = -1
    for point in points:
        if point.score is None:
            continue
        build = bisect_right(builds, point.at)
        starts = build != build_before
        if starts:
            window = []
            build_before = build
        window = [*window, point.score][-ROLLING:]
        means.append(Rolled(at=point.at, scores=tuple(window), starts=starts))
    return means
