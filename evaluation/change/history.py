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

from django.db.models import F, Max, Q, Sum
from django.utils import timezone

from agents.builds import Tag
from evaluation.change.evidence import JudgeAndProcedure
from evaluation.change.models import Evidence
from evaluation.dimensions import CHANNEL_DIMENSIONS
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, EvaluationScore, is_heuristic
from evaluation.runs.summary import linked_dimensions
from evaluation.statistics.bootstrap import Interval, Observation
from evaluation.statistics.difference import mean_interval, mean_interval_of_clusters, weighted_mean

MOST_RUNS = 400  # the newest evaluations of the agents together
MOST_JUDGED = 2_000  # their newest messages; an evaluation that judged one again makes it count again
MOST_LINKED = 60  # evaluations whose channels are read
ROLLING = 10  # messages in a rolling mean
RUN_FIELDS = (
    "agent_id",
    "judge",
    "method",
    "hard",
    "double_check",
    "few_shot",
    "simulated",
    "swap_test",
    "dimensions",
    "window_end",
    "created_at",
)
_SCORED = Q(status="scored")
SUM_OF_WEIGHTED_SCORES = Sum(F("weight") * F("score"), filter=_SCORED)
SUM_OF_WEIGHTS = Sum("weight", filter=_SCORED)
INCLUSION_WEIGHT = Max("inclusion_weight")  # a message has one in all its rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What was scored at one time.

    Attributes:
        score: 0 to 9; None where nothing could be scored.
        message: Primary key; None of what is judged over a window. Of several messages the one that scored lowest.
        messages: How many messages it is the mean of.
        weight: For how many messages the message stands: 1 ÷ the chance with which its conversation was kept.
    """

    at: datetime
    score: float | None
    run: int
    message: int | None = None
    channel: int | None = None
    position: int = 0
    messages: int = 1
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingMean:
    """The mean of the last `ROLLING` scored messages up to a time; at the first message of a build it `starts` again.

    Attributes:
        channels: The conversation of each score.
    """

    at: datetime
    scores: tuple[float, ...]
    weights: tuple[float, ...]
    channels: tuple[int | None, ...]
    starts: bool

    @property
    def mean(self) -> float:
        return weighted_mean(self.scores, self.weights)

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the mean; None for fewer than two messages.

        Where conversations were kept by chance whole ones were drawn: then None for fewer than two conversations.
        """
        if all(weight == 1 for weight in self.weights):
            return mean_interval(self.scores)
        observations = []
        for score, weight, channel in zip(self.scores, self.weights, self.channels, strict=True):
            observations.append(Observation(score, weight, channel))
        return mean_interval_of_clusters(observations)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An agent's scores in one dimension by one judge and procedure.

    Attributes:
        points: Oldest first.
        rolling_means: The one at each scored point; empty for scores of whole windows.
        by_day: Whether each point is a day's mean, because there are too many messages to draw.
        older: Whether older scores were left out.
    """

    agent: int
    judged: JudgeAndProcedure
    dimension: str
    points: Sequence[Scored]
    rolling_means: Sequence[RollingMean] = ()
    by_day: bool = False
    older: bool = False

    @property
    def unscored(self) -> int:
        """Return how many points have no score."""
        return sum(point.score is None for point in self.points)

    @property
    def now(self) -> float | None:
        """Return the newest rolling mean, of windows the newest score; None where nothing has a score."""
        if self.rolling_means:
            return self.rolling_means[-1].mean
        return next((point.score for point in reversed(self.points) if point.score is not None), None)

    def daily(self, most: int) -> History:
        """Return the history with one point a day, a mean, where it has more than `most` points; of the days the newest `most`."""
        if len(self.points) <= most:
            return self
        points_by_day: dict[date, list[Scored]] = defaultdict(list)
        for point in self.points:
            points_by_day[_day(point.at)].append(point)
        days = [_mean_of_day(points) for points in points_by_day.values()]
        drawn = days[-most:]
        last_mean_of_day = {_day(mean.at): mean for mean in self.rolling_means}  # oldest first, so the last one stays
        return replace(
            self,
            points=drawn,
            rolling_means=[mean for mean in last_mean_of_day.values() if mean.at >= drawn[0].at],
            by_day=True,
            older=self.older or len(days) > most,
        )


def _day(at: datetime) -> date:
    return timezone.localtime(at).date()


def _mean_of_day(points: Sequence[Scored]) -> Scored:
    """Return the mean of a day, with the message that scored lowest; unscored where none of them has a score."""
    scored = [point for point in points if point.score is not None]
    if not scored:
        return points[-1]
    lowest = min(scored, key=lambda point: point.score or 0.0)
    mean = weighted_mean([point.score or 0.0 for point in scored], [point.weight for point in scored])
    return replace(lowest, score=mean, messages=len(scored))


@dataclass(frozen=True, slots=True)
class HistoryKey:
    """What a history is of: an agent (primary key), by one judge and procedure, in one dimension."""

    agent: int
    judged: JudgeAndProcedure
    dimension: str


def histories(
    *,
    agents: Collection[int],
    tags: Mapping[tuple[int, Tag], datetime],
    dimensions: Collection[str] = (),
    judged: JudgeAndProcedure | None = None,
) -> list[History]:
    """Return the histories of these agents (primary keys), those by models before heuristics, in at most eight queries whatever there is.

    Args:
        tags: When each agent first said something with a tag of a build (`first_said_with_tag`): there a rolling mean starts again.
        dimensions: Only these; empty: all. Counts are in none.
        judged: Only by this judge and procedure.
    """
    runs = _newest_runs(agents, judged)
    names: set[str] = set()
    for run in runs.values():
        names.update(run.dimensions)
    names.difference_update(COUNTED)
    if dimensions:
        names &= set(dimensions)
    scored_messages = _scores_of_messages(runs, names & set(BY_MESSAGE))
    by_message = _newest_scores(scored_messages, runs)
    by_window: dict[HistoryKey, list[Scored]] = defaultdict(list)
    for name, scored in _scores_of_windows(_runs_with_windows(runs, names, set(by_message)), names):
        key = _key(runs[scored.run], name)
        if key not in by_message:  # scores of messages tell more: one kind of point in a line
            by_window[key].append(scored)
    older = len(scored_messages) == MOST_JUDGED or len(runs) == MOST_RUNS  # a limit was reached, so there may be more
    drawn = []
    for key, points in by_message.items():
        builds = sorted(at for (agent, _), at in tags.items() if agent == key.agent)
        points.sort(key=_by_time)
        drawn.append(_history(key, points, older=older, rolling_means=_rolling_means(points, builds)))
    for key, points in by_window.items():
        points.sort(key=_by_time)
        drawn.append(_history(key, points, older=older))
    return sorted(drawn, key=_models_first)


def _newest_runs(agents: Collection[int], judged: JudgeAndProcedure | None) -> dict[int, EvaluationRun]:
    """Return the newest evaluations of these agents by primary key, without simulated speech, positions and swap tests."""
    completed = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, agent__in=agents, simulated=False, swap_test="", position_bins=[]
    )
    if judged is not None:
        completed = completed.filter(judge=judged.judge)
    newest = completed.order_by("-created_at", "-pk").only(*RUN_FIELDS)[:MOST_RUNS]
    return {run.pk: run for run in newest if judged is None or run.procedure == judged.procedure}


def _key(run: EvaluationRun, dimension: str) -> HistoryKey:
    return HistoryKey(run.agent_id or 0, JudgeAndProcedure(judge=run.judge, procedure=run.procedure), dimension)


def _newest_scores(
    scored_messages: Sequence[tuple[str, Scored]], runs: Mapping[int, EvaluationRun]
) -> dict[HistoryKey, list[Scored]]:
    """Return each message's score in the newest evaluation that judged it.

    Args:
        scored_messages: With their dimensions; of a message the newest evaluation first.
    """
    newest: dict[HistoryKey, dict[int | None, Scored]] = defaultdict(dict)
    for name, scored in scored_messages:
        newest[_key(runs[scored.run], name)].setdefault(scored.message, scored)
    return {key: list(by_message.values()) for key, by_message in newest.items()}


def _runs_with_windows(
    runs: Mapping[int, EvaluationRun], names: set[str], by_message: set[HistoryKey]
) -> dict[int, EvaluationRun]:
    """Return the evaluations that have one of these dimensions without a history of messages.

    Args:
        by_message: The histories that there are of messages.
    """
    others = {}
    for pk, run in runs.items():
        if any(_key(run, name) not in by_message for name in names.intersection(run.dimensions)):
            others[pk] = run
    return others


def _scores_of_messages(runs: Collection[int], dimensions: Collection[str]) -> list[tuple[str, Scored]]:
    """Return dimension and score of judged messages, the newest message first, of one message the newest evaluation first.

    At most `MOST_JUDGED`: a message counts in each dimension, and in each evaluation that judged it.
    """
    if not dimensions:
        return []
    rows = (
        EvaluationScore.objects.filter(evaluation_run__in=runs, dimension__in=dimensions, message__isnull=False)
        .filter(status__in=["scored", "unscored"], of_ten=None)  # other rules need not hold in each message
        .order_by("-message__said_at", "-message", "-evaluation_run")
        .values("evaluation_run", "dimension", "message", "message__said_at", "message__channel", "message__position")
        .annotate(points=SUM_OF_WEIGHTED_SCORES, weights=SUM_OF_WEIGHTS, inclusion=INCLUSION_WEIGHT)
    )
    scores = []
    for row in rows[:MOST_JUDGED]:
        scored = Scored(
            at=row["message__said_at"],
            score=_weighted_mean(row["points"], row["weights"]),
            run=row["evaluation_run"],
            message=row["message"],
            channel=row["message__channel"],
            position=row["message__position"],
            weight=row["inclusion"],
        )
        scores.append((row["dimension"], scored))
    return scores


def _scores_of_windows(runs: Mapping[int, EvaluationRun], dimensions: set[str]) -> Iterator[tuple[str, Scored]]:
    """Yield dimension and score of what was judged over a window or a channel as a whole, at its newest message.

    Of channels only for the first 60 evaluations that have their dimensions.

    Args:
        runs: The newest first.
    """
    if not runs:
        return
    scores = _window_scores(runs, dimensions)
    # An agent's scores of channel dimensions come from the evaluations of the channels.
    of_channels = [run for run in runs.values() if dimensions & set(run.dimensions) & set(CHANNEL_DIMENSIONS)]
    for pk, summaries in linked_dimensions(of_channels[:MOST_LINKED]).items():
        for name, summary in summaries.items():
            if name in dimensions:
                scores[pk, name] = summary.score
    newest_messages = _newest_messages(scores)
    for (pk, name), score in scores.items():
        at = newest_messages.get((pk, name)) or runs[pk].window_end or runs[pk].created_at
        yield name, Scored(at=at, score=score, run=pk)


def _window_scores(runs: Collection[int], dimensions: Collection[str]) -> dict[tuple[int, str], float | None]:
    """Return by evaluation and dimension the mean of the judgements of whole windows; None where none of them was scored.

    A judgement without a message of what is judged message by message is of one that was deleted, so not among them.
    """
    whole = EvaluationScore.objects.filter(Q(over_window=True) | ~Q(dimension__in=BY_MESSAGE), message__isnull=True)
    rows = (
        whole.filter(evaluation_run__in=runs, dimension__in=dimensions)
        .order_by()
        .values("evaluation_run", "dimension")
        .annotate(points=SUM_OF_WEIGHTED_SCORES, weights=SUM_OF_WEIGHTS)
    )
    scores: dict[tuple[int, str], float | None] = {}
    for row in rows:
        scores[row["evaluation_run"], row["dimension"]] = _weighted_mean(row["points"], row["weights"])
    return scores


def _newest_messages(keys: Collection[tuple[int, str]]) -> dict[tuple[int, str], datetime | None]:
    """Return by evaluation and dimension when the newest message was said that was judged."""
    evidence = Evidence.objects.filter(evaluation_run__in={pk for pk, _ in keys}).order_by()
    rows = evidence.values_list("evaluation_run", "dimension", "newest_message_at")
    return {(pk, name): at for pk, name, at in rows}


def _weighted_mean(points: float | None, weights: float | None) -> float | None:
    return round(points / weights, 4) if points is not None and weights else None


def _rolling_means(points: Sequence[Scored], builds: Sequence[datetime]) -> list[RollingMean]:
    """Return the rolling mean at each scored point; it starts again where a build began.

    Args:
        builds: When the builds began, oldest first.
    """
    means: list[RollingMean] = []
    window: list[Scored] = []
    build = -1
    for point in points:
        if point.score is None:
            continue
        build_of_point = bisect_right(builds, point.at)  # how many builds had begun by then
        starts = build_of_point != build
        if starts:
            window = []
            build = build_of_point
        window = [*window, point][-ROLLING:]
        scores = tuple(scored.score for scored in window if scored.score is not None)
        weights = tuple(scored.weight for scored in window)
        channels = tuple(scored.channel for scored in window)
        means.append(RollingMean(at=point.at, scores=scores, weights=weights, channels=channels, starts=starts))
    return means


def _history(
    key: HistoryKey, points: Sequence[Scored], *, older: bool, rolling_means: Sequence[RollingMean] = ()
) -> History:
    return History(
        agent=key.agent,
        judged=key.judged,
        dimension=key.dimension,
        points=points,
        rolling_means=rolling_means,
        older=older,
    )


def _by_time(scored: Scored) -> tuple[datetime, int]:
    return scored.at, scored.message or scored.run


def _models_first(history: History) -> tuple[bool, str, str]:
    return is_heuristic(history.judged.judge), str(history.judged), history.dimension
