"""Replay the latest messages with other thresholds (specification 000, S-7.3), from scores that exist."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, get_args

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.db.models import Count, F, FloatField, Max, Min, Q, QuerySet, Sum
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
    """Store what a person says of one failed dimension, with who and when; return the result as it is then. An empty mark takes it back.

    Args:
        mark: ``right``, ``false_alarm`` or empty.
        user: Who marks; None where it is not known.
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
    if mark:
        changed = rows.update(mark=mark, marked_by=user.pk if user is not None else None, marked_at=timezone.now())
    else:
        changed = rows.update(mark="", marked_by=None, marked_at=None)
    result.refresh_from_db(fields=["mark", "marked_by", "marked_at"])
    if not changed:
        raise ValueError(_marked_already(result))
    return result


def _marked_already(result: GateDimensionResult) -> str:
    """Return a sentence on the mark that another person gave meanwhile."""
    by = f" by {result.marked_by}" if result.marked_by else ""
    if result.mark:
        return f"it is marked {result.get_mark_display()}{by} already"
    return f"it is without a mark{by} already"


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
    """Return the precision (share of right alarms among the marked ones) per dimension, threshold and judge; in one query.

    Counts marked failures of drafts checked in the window, without those of simulations; a group without a mark is left out. Verdicts of
    the gate, observed ones and external ones count alike: a false alarm is one wherever it was raised.

    Args:
        agent: None: of all agents.
        dimension: Empty: of all dimensions.
    """
    marked = GateDimensionResult.objects.exclude(mark="").filter(~synthetic_logs("log__"))
    if agent is not None:
        marked = marked.filter(log__session__agent=agent)
    if dimension:
        marked = marked.filter(dimension=dimension)
    if window.start is not None:
        marked = marked.filter(log__created_at__gte=window.start)
    if window.end is not None:
        marked = marked.filter(log__created_at__lte=window.end)
    groups = marked.order_by("dimension", "threshold", "log__judge").values("dimension", "threshold", "log__judge")
    groups = groups.annotate(
        right=Count("pk", filter=Q(mark=Mark.RIGHT)), false_alarms=Count("pk", filter=Q(mark=Mark.FALSE_ALARM))
    )
    return [
        Precision(
            dimension=group["dimension"],
            threshold=group["threshold"],
            judge=group["log__judge"],
            right=group["right"],
            false_alarms=group["false_alarms"],
        )
        for group in groups
    ]


def wilson_interval(successes: int, total: int, *, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's score interval of a share, by default of 95 %; (0, 1) where nothing was counted (Wilson 1927, JASA 22).

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


REPLAYABLE = (20, 50, 200)  # numbers of latest messages that can be replayed
USUALLY_REPLAYED = 50
NEWEST_RUNS = 20  # evaluations whose judgements are read
NEWEST_MARKS = 2_000  # of people, that are counted
IS_ASKED_OFFLINE = Q(log__judge__startswith="offline:")
Origin = Literal["gate", "observed", "evaluated"]
ORIGINS: tuple[Origin, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one message on one dimension, in whole tenths of a point: 47 stands for 4.7 up to 4.8.

    Thresholds have one decimal place, so a message fails with a threshold exactly when its tenths lie below those of the threshold.

    Attributes:
        origin: Judged by the gate before it was sent (its first draft), observed afterwards, or in an evaluation.
        weight: For how many messages it stands: 1 ÷ the chance with which its conversation was kept and judged.
    """

    tenths: int
    origin: Origin
    weight: float = 1.0

    def is_below(self, threshold: Decimal) -> bool:
        """Return whether the message fails with this threshold."""
        return self.tenths < 10 * threshold


@dataclass(slots=True)
class MarkCounts:
    """How many alarms people marked right, and how many false."""

    right: int = 0
    false_alarms: int = 0


@dataclass(frozen=True, slots=True)
class Failing:
    """How many of so many messages would be sent back.

    Attributes:
        share: Each message counted for as many as it stands for, 0 to 1; None of no messages.
    """

    number: int
    total: int
    share: float | None


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of one dimension, counted by tenths.

    Attributes:
        by_origin: How many messages have each score, by where it comes from.
        weights: The sum of the weights of these messages.
        marks: The latest 2,000 failed checks that people marked, of any attempt.
    """

    by_origin: dict[Origin, Counter[int]] = field(default_factory=lambda: {origin: Counter() for origin in ORIGINS})
    weights: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    marks: dict[int, MarkCounts] = field(default_factory=dict)

    def add(self, score: Score) -> None:
        """Count the score of one message."""
        self.by_origin[score.origin][score.tenths] += 1
        self.weights[score.tenths] += score.weight

    def failing(self, threshold: Decimal) -> Failing:
        """Return how many of the messages lie below the threshold."""
        counts = self.messages
        weight = sum(weight for tenths, weight in self.weights.items() if tenths < 10 * threshold)
        total_weight = sum(self.weights.values())
        share = weight / total_weight if total_weight else None
        return Failing(failing(counts, threshold), counts.total(), share)

    @property
    def messages(self) -> Counter[int]:
        """Return how many messages have each score."""
        return sum(self.by_origin.values(), Counter[int]())

    def marked_below(self, threshold: Decimal) -> MarkCounts:
        """Count the marked alarms that this threshold would have raised, too."""
        below = MarkCounts()
        for tenths, counts in self.marks.items():
            if tenths < 10 * threshold:
                below.right += counts.right
                below.false_alarms += counts.false_alarms
        return below


def failing(counts: Mapping[int, int], threshold: Decimal) -> int:
    """Return how many of the scores, counted by tenths, lie below the threshold."""
    return sum(count for tenths, count in counts.items() if tenths < 10 * threshold)


@dataclass(frozen=True, slots=True)
class Replay:
    """The latest messages and their scores.

    Attributes:
        messages: Primary keys, newest first, each with its scores by dimension; without a score it could not be sent back.
        tried: Dimensions by message that the gate or its observing looked at and could not score.
        judges: Who gave the scores.
        dimensions: Scores and marks by dimension.
        weights: For how many messages each stands: 1 ÷ the chance with which its conversation was kept.
    """

    messages: dict[int, dict[str, Score]]
    tried: dict[int, set[str]]
    judges: tuple[str, ...]
    dimensions: dict[str, Scores]
    weights: dict[int, float]

    def failing(self, thresholds: Mapping[str, Decimal]) -> Failing:
        """Return how many messages fail at least one of these thresholds."""
        failed = self.sent_back(thresholds)
        share = None
        if self.weights:
            share = sum(self.weights[message] for message in failed) / sum(self.weights.values())
        return Failing(len(failed), len(self.messages), share)

    def sent_back(self, thresholds: Mapping[str, Decimal]) -> list[int]:
        """Return the messages that fail at least one of these thresholds."""
        return [message for message, scores in self.messages.items() if _is_below_any(scores, thresholds)]

    def unjudged(self, dimensions: Iterable[str], *, evaluated: bool = False) -> list[int]:
        """Return the messages that were not judged on at least one of these dimensions.

        Args:
            evaluated: True: a score of an evaluation, which only estimates the gate's, counts as none; so more messages are returned.
        """
        unjudged = []
        for message, scores in self.messages.items():
            # Looked at, and no score came of it: another try would bring none.
            judged_dimensions = set(self.tried.get(message, ()))
            for dimension, score in scores.items():
                if score.origin != "evaluated" or not evaluated:
                    judged_dimensions.add(dimension)
            if not judged_dimensions.issuperset(dimensions):
                unjudged.append(message)
        return unjudged


def _is_below_any(scores: Mapping[str, Score], thresholds: Mapping[str, Decimal]) -> bool:
    """Return whether one of the scores lies below the threshold of its dimension."""
    return any(score.is_below(thresholds[dimension]) for dimension, score in scores.items() if dimension in thresholds)


def replay(*, agent: Agent | None, heuristic: bool, last: int = USUALLY_REPLAYED) -> Replay:
    """Read what is known of the latest real messages, in five queries however many there are.

    Where the gate judged a message, its first draft counts; else what was observed; else its newest evaluation, combined as the gate
    combines: the worst of the judge's mean and of each rule. Evaluations ask the persona's propositions, the gate asks its own, so
    their scores are an estimate of the gate's. A message of which nothing is known is there, too, without a score.

    Args:
        agent: Whose messages; None for those of every agent.
        heuristic: Scores of offline judges (True) or of models (False): they are not comparable. What only rules judged counts with both.
        last: How many messages, the newest first.
    """
    weights = _latest_messages(agent, last)
    messages: dict[int, dict[str, Score]] = {pk: {} for pk in weights}
    judges: set[str] = set()
    # The order decides: a later score of the same message and dimension takes the place of an earlier one.
    for evaluated in _scores_of_evaluations(agent, list(messages), heuristic):
        messages[evaluated.message][evaluated.dimension] = Score(
            _tenths(evaluated.score), "evaluated", evaluated.weight
        )
        judges.add(evaluated.judge)
    tried: dict[int, set[str]] = defaultdict(set)
    for row in _gate_results(list(messages), heuristic):
        session = row.log.session
        if row.score is None or row.status != Status.SCORED:  # an evaluation's score, if any, stays
            tried[session.message_id].add(row.dimension)
            continue
        origin: Origin = "gate" if session.source == GateSession.Source.GATE else "observed"
        messages[session.message_id][row.dimension] = Score(
            _tenths(row.score), origin, max(session.inclusion_weight, weights[session.message_id])
        )
        judges.add(row.log.judge or RULE_JUDGE)
    dimensions = _marks_by_dimension(agent, heuristic)
    for scores in messages.values():
        for dimension, score in scores.items():
            dimensions.setdefault(dimension, Scores()).add(score)
    return Replay(messages, dict(tried), tuple(sorted(judges)), dimensions, weights)


def _latest_messages(agent: Agent | None, number: int) -> dict[int, float]:
    """Return the keys of the latest real messages, newest first, with their weights: 1 ÷ the chance to keep their conversation."""
    newest = Message.objects.filter(synthetic=False, agent__isnull=False).order_by("-pk")
    if agent is not None:  # an index has the times of an agent
        newest = newest.filter(agent=agent).order_by("-said_at", "-pk")
    rows = newest.values_list("pk", "channel__inclusion_probability")[:number]
    return {pk: 1.0 / probability for pk, probability in rows}


def _tenths(score: float) -> int:
    return math.floor(score * 10 + 1e-9)  # 4.6 * 10 may be a little less than 46


def _gate_results(messages: Collection[int], heuristic: bool) -> Iterable[Any]:
    """Return the verdicts on the first drafts of these messages; those of the gate come last, so that they win over observed ones.

    Without those whose call failed (timeout, overload, error, budget): they say nothing of the message.
    """
    results = GateDimensionResult.objects.filter(
        log__session__message__in=messages,
        log__attempt=1,
        log__session__source__in=[GateSession.Source.GATE, GateSession.Source.OBSERVE],
        status__in=[Status.SCORED, Status.UNSCORED, Status.TRIVIAL],
    )
    results = (
        _by_kind_of_judge(results, heuristic).select_related("log__session").order_by("-log__session__source", "log_id")
    )
    # "observe" sorts after "gate": descending, the gate's come last.
    return results.only(
        *("dimension", "status", "score", "log__judge", "log__session__message", "log__session__source"),
        "log__session__inclusion_weight",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvaluatedScore:
    """The score of one message and dimension by one evaluation; `judge` is the evaluation's."""

    run: int
    message: int
    dimension: str
    judge: str
    score: float
    weight: float


def _scores_of_evaluations(
    agent: Agent | None, messages: Collection[int], heuristic: bool
) -> Iterable[_EvaluatedScore]:
    """Return the scores (0 to 9) of these messages by the newest evaluation of each that judged as the gate does; one per dimension."""
    judges = _newest_evaluations(agent, heuristic)
    rows = EvaluationScore.objects.filter(
        evaluation_run__in=list(judges),
        message__in=messages,
        dimension__in=GATE_DIMENSIONS,
        status=EvaluationScore.Status.SCORED,
        score__isnull=False,
    ).order_by()
    by_judge = rows.values("evaluation_run", "message", "dimension", "judge").annotate(
        total=Sum(F("score") * F("weight"), output_field=FloatField()),
        weights=Sum("weight"),
        least=Min("score"),
        inclusion=Max("inclusion_weight"),
    )
    newest_first = list(judges)
    scores: dict[tuple[int, str], _EvaluatedScore] = {}
    for row in sorted(by_judge, key=lambda row: newest_first.index(row["evaluation_run"])):
        score = round(row["total"] / row["weights"], 2)
        # A rule decides alone, and so does a cue offline: the worst of them counts, not their mean.
        if row["judge"] == RULE_JUDGE or (heuristic and row["dimension"] in TAKES_RULES):
            score = float(row["least"])
        key = (row["message"], row["dimension"])
        earlier = scores.get(key)
        if earlier is not None and (earlier.run != row["evaluation_run"] or earlier.score <= score):
            continue  # it is of a newer evaluation, or as low: of one evaluation's judge and rules the worst counts
        scores[key] = _EvaluatedScore(
            run=row["evaluation_run"],
            message=row["message"],
            dimension=row["dimension"],
            judge=judges[row["evaluation_run"]],
            score=score,
            weight=row["inclusion"],
        )
    return scores.values()


def _newest_evaluations(agent: Agent | None, heuristic: bool) -> dict[int, str]:
    """Return the judges of the newest 20 completed evaluations that judged as the gate does, by the evaluation's key, newest first.

    Left out are those of simulations, in hard mode, with a double check, with examples or with a swap test: the gate judges otherwise.
    """
    runs = EvaluationRun.objects.filter(
        status=EvaluationRun.Status.COMPLETED, method=Method.PLUMBLINE, hard=False, double_check=False,
        few_shot="", simulated=False, swap_test="", agent__isnull=False,
    )  # fmt: skip
    if agent is not None:
        runs = runs.filter(agent=agent)
    is_offline = Q(judge__startswith="offline:")
    runs = runs.filter(is_offline if heuristic else ~is_offline)
    return dict(runs.order_by("-created_at", "-pk").values_list("pk", "judge")[:NEWEST_RUNS])


def _marks_by_dimension(agent: Agent | None, heuristic: bool) -> dict[str, Scores]:
    """Return by dimension the newest 2,000 marks of people, counted by the marked score in tenths; without those of simulations."""
    newest = GateDimensionResult.objects.exclude(mark="").order_by("-pk")
    if agent is not None:
        newest = newest.filter(log__session__agent=agent)
    marked = GateDimensionResult.objects.filter(
        ~synthetic_logs("log__"), pk__in=newest.values("pk")[:NEWEST_MARKS], score__isnull=False
    )
    by_dimension: dict[str, Scores] = {}
    for result in _by_kind_of_judge(marked, heuristic).order_by().only("dimension", "score", "mark"):
        marks = by_dimension.setdefault(result.dimension, Scores()).marks
        counts = marks.setdefault(_tenths(result.score or 0.0), MarkCounts())
        if result.mark == Mark.RIGHT:
            counts.right += 1
        else:
            counts.false_alarms += 1
    return by_dimension


def _by_kind_of_judge(rows: QuerySet[GateDimensionResult], heuristic: bool) -> QuerySet[GateDimensionResult]:
    """Keep the verdicts by offline judges (or by models); what only rules judged is kept with both."""
    if heuristic:
        return rows.filter(IS_ASKED_OFFLINE | Q(log__judge=""))
    return rows.exclude(IS_ASKED_OFFLINE)
