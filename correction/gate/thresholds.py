"""What the gate would have done to the latest messages with another threshold (specification 000, S-7.3), from scores that exist."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, F, FloatField, Min, Q, QuerySet, Sum
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, computed_field, field_serializer

from agents.models import Agent, Message
from correction.config.settings import GATE_DIMENSIONS
from correction.models import GateDimensionResult, GateSession, synthetic_logs
from evaluation.dimensions import TAKES_RULES
from evaluation.models import RULE_JUDGE, EvaluationRun, EvaluationScore, Method, is_heuristic
from evaluation.windows import MessageWindow

Mark, Status = GateDimensionResult.Mark, GateDimensionResult.Status
Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def mark_result(
    *,
    result: GateDimensionResult,
    mark: str,
    user: AbstractBaseUser | AnonymousUser | None,
    expected: str | None = None,
) -> GateDimensionResult:
    """Note what a person says of one failed dimension; an empty mark takes it back.

    Args:
        mark: ``right``, ``false_alarm`` or empty.
        expected: Only where the mark still is this one, as the person saw it; None = whatever it is.

    Raises:
        ValueError: The mark is none of these, the dimension did not fail, or its mark is not the expected one.
    """
    if mark not in ("", *Mark.values):
        raise ValueError(f"mark {mark!r}: allowed: {', '.join(Mark.values)}, or empty to take a mark back")
    if result.passed:
        raise ValueError(f"{result.dimension} did not fail here; allowed: marks on failed dimensions")
    rows = GateDimensionResult.objects.filter(pk=result.pk)
    if expected is not None:
        rows = rows.filter(mark=expected)
    by = user.pk if mark and user is not None else None
    changed = rows.update(mark=mark, marked_by=by, marked_at=timezone.now() if mark else None)
    result.refresh_from_db(fields=["mark", "marked_by", "marked_at"])
    if not changed:
        said = f"marked {result.get_mark_display()}" if result.mark else "without a mark"
        raise ValueError(f"it is {said}{f' by {result.marked_by}' if result.marked_by else ''} already")
    return result


class Precision(BaseModel):
    """How often a failed check was right, as far as people marked it; `low` and `high` are Wilson's 95 % interval."""

    model_config = ConfigDict(frozen=True)

    dimension: str
    threshold: Decimal
    judge: str
    right: int
    false_alarms: int

    @field_serializer("threshold")
    def _number(self, threshold: Decimal) -> float:
        return float(threshold)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def marked(self) -> int:
        return self.right + self.false_alarms

    @computed_field(description="right ÷ marked, 0 to 1")  # type: ignore[prop-decorator]
    @property
    def precision(self) -> float:
        return self.right / self.marked

    @computed_field  # type: ignore[prop-decorator]
    @property
    def low(self) -> float:
        return wilson_interval(self.right, self.marked)[0]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def high(self) -> float:
        return wilson_interval(self.right, self.marked)[1]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def heuristic(self) -> bool:
        return is_heuristic(self.judge)


def precision(*, agent: Agent | None, window: MessageWindow, dimension: str = "") -> list[Precision]:
    """Precision per dimension, threshold and judge, of the marked failures among drafts checked in the window; in one query.

    Verdicts of the gate, observed ones and external ones count alike: a false alarm is one wherever it rang.
    """
    where: dict[str, Any] = {
        "log__session__agent": agent,
        "dimension": dimension,
        "log__created_at__gte": window.start,
        "log__created_at__lte": window.end,
    }
    marked = GateDimensionResult.objects.exclude(mark="").filter(~synthetic_logs("log__"))
    rows = (
        marked.filter(**{name: value for name, value in where.items() if value})
        .order_by("dimension", "threshold", "log__judge")
        .values("dimension", "threshold", "log__judge")
        .annotate(
            right=Count("pk", filter=Q(mark=Mark.RIGHT)), false_alarms=Count("pk", filter=Q(mark=Mark.FALSE_ALARM))
        )
    )
    return [Precision(judge=row.pop("log__judge"), **row) for row in map(dict, rows)]


def wilson_interval(successes: int, total: int, *, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a share, by default of 95 %; (0, 1) where nothing was counted (Wilson 1927, JASA 22).

    Raises:
        ValueError: `successes` is not between 0 and `total`.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} of {total} is no share")
    if total == 0:
        return 0.0, 1.0
    share, z2 = successes / total, z**2
    centre = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = z / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, centre - half), min(1.0, centre + half)


LAST = (20, 50, 200)  # latest messages that can be replayed
USUAL = 50
NEWEST_RUNS = 20  # evaluations whose judgements are read
MARKED = 2_000  # latest marks of people
Origin = Literal["gate", "observed", "evaluated"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Score:
    """What one message got on one dimension, in whole tenths of a point: 47 stands for 4.7 up to 4.8.

    Thresholds have one decimal place, so a message fails with a threshold exactly when its tenths lie below those of the threshold.

    Attributes:
        origin: Judged by the gate before it was sent (its first draft), observed afterwards, or in an evaluation.
    """

    tenths: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one dimension, counted by tenths.

    Attributes:
        by_origin: How many messages have each score, by where it comes from.
        marks: Failed checks that people marked, of any attempt: how many were right, and how many false alarms; of the latest 2,000.
    """

    by_origin: dict[Origin, Counter[int]] = field(default_factory=lambda: {origin: Counter() for origin in ORIGINS})
    marks: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def messages(self) -> Counter[int]:
        return sum(self.by_origin.values(), Counter[int]())

    def marked_below(self, threshold: Decimal) -> tuple[int, int]:
        """Right alarms and false ones that this threshold would have raised, too."""
        raised = [counts for tenths, counts in self.marks.items() if tenths < 10 * threshold]
        return sum(right for right, _ in raised), sum(false for _, false in raised)


def failing(counts: Mapping[int, int], threshold: Decimal) -> int:
    """How many of the scores lie below the threshold."""
    return sum(count for tenths, count in counts.items() if tenths < 10 * threshold)


@dataclass(frozen=True, slots=True)
class Replay:
    """The latest messages and their scores.

    Attributes:
        messages: Primary keys, newest first, each with its scores by dimension; without a score it could not be sent back.
        tried: Dimensions by message that the gate or its observing looked at and could not score.
        judges: Who gave the scores.
        dimensions: Scores and marks by dimension.
    """

    messages: dict[int, dict[str, Score]]
    tried: dict[int, set[str]]
    judges: tuple[str, ...]
    dimensions: dict[str, Scores]

    def sent_back(self, thresholds: Mapping[str, Decimal]) -> list[int]:
        """The messages that fail at least one of these thresholds."""
        return [
            message
            for message, scores in self.messages.items()
            if any(scores[d].tenths < 10 * limit for d, limit in thresholds.items() if d in scores)
        ]

    def unjudged(self, dimensions: Iterable[str], *, evaluated: bool = False) -> list[int]:
        """The messages that were not judged on at least one of these dimensions; `evaluated` ones only where that is asked for."""
        open_ones = []
        for message, scores in self.messages.items():
            known = {d for d, score in scores.items() if not (evaluated and score.origin == "evaluated")}
            if set(dimensions) - known - self.tried.get(message, set()):
                open_ones.append(message)
        return open_ones


def replay(*, agent: Agent | None, heuristic: bool, last: int = USUAL) -> Replay:
    """Read what is known of the latest real messages, in five queries however many there are.

    Where the gate judged a message, its first draft counts; else what was observed; else its newest evaluation, combined as the gate
    combines: the worst of the judge's mean and of each rule. Evaluations ask the persona's propositions, the gate asks its own, so
    their scores are an estimate of the gate's.

    Args:
        agent: Whose messages; None for those of every agent.
        heuristic: Scores of offline judges (True) or of models (False): they are not comparable. What only rules judged counts with both.
        last: How many messages, the newest first.
    """
    said = Message.objects.filter(synthetic=False, agent__isnull=False)
    newest = said.order_by("-pk") if agent is None else said.filter(agent=agent).order_by("-said_at", "-pk")
    messages: dict[int, dict[str, Score]] = {pk: {} for pk in newest.values_list("pk", flat=True)[:last]}
    judges: set[str] = set()
    for message, dimension, judge, value in _evaluated(agent, list(messages), heuristic):
        messages[message][dimension] = Score(_tenths(value), "evaluated")
        judges.add(judge)
    judged = GateDimensionResult.objects.filter(
        log__session__message__in=list(messages),
        log__attempt=1,
        log__session__source__in=[GateSession.Source.GATE, GateSession.Source.OBSERVE],
        status__in=[Status.SCORED, Status.UNSCORED, Status.TRIVIAL],
    )
    tried: dict[int, set[str]] = defaultdict(set)
    columns = ("log__session__message", "dimension", "log__session__source", "log__judge", "status", "score")
    rows = _of_kind(judged, heuristic).order_by("-log__session__source", "log_id").values_list(*columns)
    for message, dimension, source, judge, status, value in rows:  # observed first, so that what the gate judged counts
        if status != Status.SCORED:
            tried[message].add(dimension)
            continue
        origin: Origin = "gate" if source == GateSession.Source.GATE else "observed"
        messages[message][dimension] = Score(_tenths(value), origin)
        judges.add(judge or RULE_JUDGE)
    dimensions = _marks(agent, heuristic)
    for of_message in messages.values():
        for dimension, score in of_message.items():
            dimensions.setdefault(dimension, Scores()).by_origin[score.origin][score.tenths] += 1
    return Replay(messages, dict(tried), tuple(sorted(judges)), dimensions)


def _tenths(score: float) -> int:
    return math.floor(score * 10 + 1e-9)  # 4.6 * 10 may be a little less than 46


def _evaluated(agent: Agent | None, messages: list[int], heuristic: bool) -> list[tuple[int, str, str, float]]:
    """Message, dimension, judge and score by the newest evaluation of each that judged as the gate does."""
    runs = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, method=Method.PLUMBLINE, hard=False, double_check=False,
        simulated=False, swap_test="", agent__isnull=False,
    )  # fmt: skip
    if agent is not None:
        runs = runs.filter(agent=agent)
    offline = Q(judge__startswith="offline:")
    newest = (runs.filter(offline) if heuristic else runs.exclude(offline)).order_by("-created_at", "-pk")
    judge_of = dict(newest.values_list("pk", "judge")[:NEWEST_RUNS])
    rows = EvaluationScore.objects.filter(
        evaluation_run__in=list(judge_of),
        message__in=messages,
        dimension__in=GATE_DIMENSIONS,
        status=EvaluationScore.Status.SCORED,
        score__isnull=False,
    ).order_by()
    summed = rows.values_list("evaluation_run", "message", "dimension", "judge").annotate(
        total=Sum(F("score") * F("weight"), output_field=FloatField()), weights=Sum("weight"), least=Min("score")
    )
    place = {run: number for number, run in enumerate(judge_of)}
    scores: dict[tuple[int, str], tuple[int, str, float]] = {}
    for run, message, dimension, judge, total, weight, least in sorted(summed, key=lambda row: place[row[0]]):
        # A rule decides alone, and so does a cue offline.
        is_own = judge == RULE_JUDGE or (heuristic and dimension in TAKES_RULES)
        value = float(least) if is_own else round(total / weight, 2)
        newest_run, _, worst = scores.get((message, dimension), (run, "", value))
        if run == newest_run:
            scores[message, dimension] = run, judge_of[run], min(worst, value)
    return [(message, dimension, judge, value) for (message, dimension), (_, judge, value) in scores.items()]


def _marks(agent: Agent | None, heuristic: bool) -> dict[str, Scores]:
    by_dimension: dict[str, Scores] = {}
    newest = GateDimensionResult.objects.exclude(mark="").order_by("-pk")
    if agent is not None:
        newest = newest.filter(log__session__agent=agent)
    marked = GateDimensionResult.objects.filter(
        ~synthetic_logs("log__"), pk__in=newest.values("pk")[:MARKED], score__isnull=False
    )
    rows = _of_kind(marked, heuristic).order_by().values_list("dimension", "score", "mark")
    for dimension, score, mark in rows:
        marks, place = by_dimension.setdefault(dimension, Scores()).marks, _tenths(score or 0.0)
        right, false = marks.get(place, (0, 0))
        marks[place] = (right + 1, false) if mark == Mark.RIGHT else (right, false + 1)
    return by_dimension


def _of_kind(rows: QuerySet[GateDimensionResult], heuristic: bool) -> QuerySet[GateDimensionResult]:
    """What offline judges (or models) were asked about; what only rules judged counts with both."""
    offline = Q(log__judge__startswith="offline:")
    return rows.filter(offline | Q(log__judge="")) if heuristic else rows.exclude(offline)
