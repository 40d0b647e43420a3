"""Sum up an evaluation: means over scored judgements, coverage, cost. Weighted means are null where nothing was scored (AC-6.0.9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from statistics import median_low
from typing import Annotated, Any

from django.conf import settings
from django.db.models import Count, F, Max, Min, Q, Sum
from django.db.models.functions import Coalesce
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, model_serializer

from agents.kit.llm import ledger
from agents.kit.llm.requests import is_misconfigured
from agents.kit.models import LLMBatch
from evaluation.models import (
    BY_MESSAGE,
    COUNTED,
    OUT_OF_REACH,
    RULE_JUDGE,
    STATISTIC,
    ChannelShare,
    EvaluationRun,
    EvaluationScore,
    is_heuristic,
)
from evaluation.statistics.bootstrap import Observation

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected")  # of the call, not of the answer
CALL_FAILED = Q(status="unscored", cause__in=FAILURES)


def reopen_failed(run: EvaluationRun) -> int:
    """Make items whose call failed pending again, so that the run judges them when it resumes; returns how many."""
    reopened = run.scores.filter(CALL_FAILED).update(status="pending", reason="", cause="", call=None, judged_at=None)
    if reopened and run.series_points is not None:  # its series looks at it again when it has ended
        EvaluationRun.objects.filter(pk=run.pk).update(series_points=None)
    return reopened


def failed_call(run: EvaluationRun) -> str:
    """Why one of the run's calls failed; empty when none did."""
    return run.scores.filter(CALL_FAILED).values_list("reason", flat=True).first() or ""


def judge_answered(run: EvaluationRun) -> bool:
    """Whether the judge answered any call: what rules and preconditions settle needs no judge."""
    return run.scores.filter(judge=run.judge).exclude(CALL_FAILED).exists()


ANSWERED = ~CALL_FAILED & ~Q(judge__in=["", RULE_JUDGE])  # by the judge, be it that it cannot tell


def unanswered(runs: Sequence[EvaluationRun]) -> set[tuple[int, str]]:
    """Run and dimension where the judge was asked and answered nothing: what rules score there is no score of this judge."""
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    per_dimension = rows.values("evaluation_run", "dimension").annotate(
        failed=Count("pk", filter=CALL_FAILED), answered=Count("pk", filter=ANSWERED)
    )
    return set(per_dimension.filter(failed__gt=0, answered=0).values_list("evaluation_run", "dimension"))


def refusal(runs: Iterable[EvaluationRun]) -> str:
    """Why the judge refused every question of these runs, and would again: key, model or address are wrong; else empty."""
    keys = {run.pk for run in runs}
    keys.update(ChannelShare.objects.filter(agent_run__in=keys).values_list("channel_run", flat=True))
    rows = EvaluationScore.objects.filter(evaluation_run__in=keys)
    reasons = list(rows.filter(CALL_FAILED).order_by().values_list("reason", flat=True).distinct())
    if not reasons or not all(map(is_misconfigured, reasons)) or rows.filter(ANSWERED).exists():
        return ""
    return f"the judge answered nothing: {reasons[0]}"


MESSAGES = Q(dimension__in=BY_MESSAGE, over_window=False)  # judged message by message, not once over the window
# Settled, and of messages not out of reach; a window is asked few claims, and one of five that is scored is not all of it. A trivial
# judgement is left out: it could not be false there, so nothing is missing.
COVERABLE = Q(status="scored") | (
    Q(status="unscored") & ~Q(judge="") & (~Q(cause=OUT_OF_REACH) | ~Q(dimension__in=BY_MESSAGE))
)
STATISTICS = Q(judge__startswith="offline:", served_model=STATISTIC)

TOO_LITTLE = "not enough data"
FEW = 8  # judgements of which no percentage is shown


def share_counts() -> dict[str, Any]:
    """Annotations for `EvaluationScore` rows: what was scored of what this judge can score (`asked`); of repeats the first."""
    once = Q(repeat=1)
    return {"scored_once": Count("pk", filter=once & Q(status="scored")), "asked": Count("pk", filter=once & COVERABLE)}


@dataclass(frozen=True, slots=True)
class Share:
    """Judgements scored, of those this judge could have scored. Repeats of a judgement count once."""

    scored: int = 0
    asked: int = 0

    @property
    def value(self) -> float | None:
        """0 to 1; None when there was nothing to score."""
        return self.scored / self.asked if self.asked else None

    @property
    def rounded(self) -> float | None:
        """As JSON holds it."""
        return None if self.value is None else round(self.value, 4)

    def __add__(self, other: Share) -> Share:
        return Share(self.scored + other.scored, self.asked + other.asked)

    def __str__(self) -> str:
        return f"{self.scored:,} of {self.asked:,}"


NOTHING = Share()
ShareShown = Annotated[Share | None, PlainSerializer(lambda share: share and share.rounded, return_type=float | None)]


def total(shares: Iterable[Share]) -> Share:
    return sum(shares, NOTHING)


def percent(share: Share | None) -> str:
    """E.g. ``24 %``, of a few ``1 of 5``; empty where there was nothing to score. Only all is 100 %, and only nothing is 0 %."""
    if share is None or share.value is None:
        return ""
    if share.asked < FEW:
        return str(share)
    shown = round(100 * share.value)
    if 0 < share.scored < share.asked:
        shown = min(99, max(1, shown))
    return f"{shown} %"


def with_share(score: str, share: Share | None, *, between: str = " · ") -> str:
    """A score and the share behind it, as every cell has them: ``8.3 · 24 %``."""
    return between.join(filter(None, (score, percent(share))))


def words_or_share(score: str, share: Share | None, *, of_words: bool, between: str = " · ") -> str:
    """A score of a comparison: ``8.3 · 24 %``; by the statistic of repeated words, which no judge gave, ``8.3 · words``."""
    return f"{score}{between}words" if of_words else with_share(score, share, between=between)


def why_too_little(share: Share) -> str:
    """Why these judgements of single messages make no score; empty when they do, and where there was nothing to score."""
    needed, least = settings.SCORE_MIN_JUDGEMENTS, settings.SCORE_MIN_COVERAGE
    if not share.asked:
        return ""
    if share.scored < needed:
        return f"{TOO_LITTLE}: {share} judgements scored, a score needs {needed}"
    if share.scored < least * share.asked:
        return f"{TOO_LITTLE}: {share} judgements scored ({percent(share)}), a score needs {100 * least:g} %"
    return ""


def shares_of(runs: Collection[int]) -> dict[int, dict[str, Share]]:
    """The share scored per evaluation and dimension, an agent's channel dimensions from its channels' evaluations; in two queries."""
    agent_runs: dict[int, list[int]] = {pk: [pk] for pk in runs}  # by the evaluation that has the judgements
    links = ChannelShare.objects.filter(agent_run__in=runs).order_by().values_list("agent_run", "channel_run")
    for run, channel_run in links:
        agent_runs.setdefault(channel_run, []).append(run)
    rows = EvaluationScore.objects.filter(evaluation_run__in=list(agent_runs), repeat=1).order_by()
    shares: dict[int, dict[str, Share]] = {pk: {} for pk in runs}
    for part, dimension, scored, asked in rows.values_list("evaluation_run", "dimension").annotate(**share_counts()):
        for run in agent_runs[part]:
            shares[run][dimension] = shares[run].get(dimension, NOTHING) + Share(scored, asked)
    return shares


def window_statistics(stored: Mapping[str, Any]) -> dict[str, dict[str, list[Observation]]]:
    """By dimension and proposition the exact statistic of a window, message by message, from `EvaluationRun.figures`.

    Comparisons go by it, also where the claim itself is unscored: see `evaluation.scorers.fluency.figures`.
    """
    return {
        dimension: {
            proposition: [Observation(score, of["weight"], key) for key, score in of["scores"].items()]
            for proposition, of in figures["phrases"].items()
        }
        for dimension, figures in stored.items()
        if "phrases" in figures
    }


Usd = Annotated[Decimal | None, PlainSerializer(lambda usd: None if usd is None else float(usd))]


class Numbers(BaseModel):
    """What was judged of a proposition or a dimension.

    Attributes:
        score: Mean over its items of their scored judgements, 0 to 9; None when none was scored.
        count: Distinct ideas, where they are counted instead of scored.
        scored, trivial, unscored, pending: Judgements in that status.
        share: How much of it the judge scored, of what it can score; repeats count once.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    score: float | None = None
    count: int | None = None
    scored: int = 0
    trivial: int = 0
    unscored: int = 0
    pending: int = 0
    share: Share = NOTHING


class PropositionSummary(Numbers):
    """One proposition over a run."""

    id: str
    weight: float
    inverted: bool


class ChannelScore(BaseModel):
    """What one channel contributes to an agent's dimension. `messages` are the agent's there: its weight in the mean."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    run: EvaluationRun
    messages: int
    score: float | None
    count: int | None
    share: Share


class DimensionSummary(Numbers):
    """One dimension over a run. Its score is weighted by proposition; an agent's in a channel's dimension is that of its channels.

    Dumped, one that is counted has `count` where others have `score`; `coverage` is the share scored, 0 to 1 or null.

    Attributes:
        noise: Standard deviation of a judgement around the mean of its item's repeats, in points; None without repeats.
        channels: The channels it was measured in, for an agent's run.
        reason: Why there is no score although there was something to score: too little of it was scored.
        statistics: Judgements that an offline judge computed from the text, or would have.
    """

    dimension: str
    propositions: tuple[PropositionSummary, ...] = ()
    noise: float | None = None
    channels: tuple[ChannelScore, ...] = ()
    reason: str = ""
    statistics: int = 0

    @property
    def measured(self) -> bool:
        """Whether there is a number: a score or a count."""
        return self.score is not None or self.count is not None

    @property
    def weakest(self) -> PropositionSummary | None:
        """The proposition with the lowest mean; None when nothing was scored."""
        return min((p for p in self.propositions if p.score is not None), key=lambda p: (p.score, p.id), default=None)

    @property
    def fell_short(self) -> bool:
        """Whether there were judgements enough for a score, and too few of them were scored; with fewer there was little to judge."""
        return bool(self.reason) and self.share.asked >= settings.SCORE_MIN_JUDGEMENTS

    @model_serializer
    def _dumped(self) -> dict[str, Any]:
        number = "count" if self.dimension in COUNTED else "score"
        channels = [
            {
                "channel": part.run.channel.slug if part.run.channel else None,
                "evaluation_run": part.run.pk,
                "messages": part.messages,
                number: getattr(part, number),
                "coverage": part.share.rounded,
            }
            for part in self.channels
        ]
        return {
            number: getattr(self, number),
            **{name: getattr(self, name) for name in ("scored", "trivial", "unscored")},
            "coverage": self.share.rounded,
            "propositions": {p.id: getattr(p, number) for p in self.propositions},
            **({} if self.noise is None else {"noise": self.noise}),
            **({"channels": channels} if channels else {}),
            **({"reason": self.reason} if self.reason else {}),
        }


class Spending(BaseModel):
    """Sums over calls: `input_tokens` are all that were sent, from the prompt cache or not; `cost_usd` is None where none has a price."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Usd = None


class Used(Spending):
    """What calls that were made used. `unpriced_calls`: how many of them the cost leaves out."""

    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cache_read_share(self) -> float | None:
        """Share of the input tokens that was read from the prompt cache, 0 to 1; None when nothing was sent."""
        return round(self.cache_read_tokens / self.input_tokens, 4) if self.input_tokens else None


class RunSummary(Used):
    """A run in numbers; dumped it is what ``--json`` and the API show of a run. Tokens and cost are sums over the ledger.

    `overall_score` is the mean of its dimensions' scores without statistics; empty where one of these dimensions fell short: the mean of
    the others would rise when the persona is lost. `procedure` is given for runs that were not judged in the usual way.
    """

    run: EvaluationRun
    overall_score: float | None
    dimensions: dict[str, DimensionSummary] = Field(default_factory=dict)
    tokens: int = 0

    @property
    def share(self) -> Share:
        """How much was scored over all dimensions."""
        return total(d.share for d in self.dimensions.values())

    @property
    def measured(self) -> bool:
        """Whether any dimension has a number. A count is one, and is in no `overall_score`."""
        return any(d.measured for d in self.dimensions.values())

    @property
    def comparable(self) -> bool:
        """Whether it can be compared: any dimension has a number, or a statistic."""
        return self.measured or bool(window_statistics(self.run.figures))

    @property
    def searched(self) -> bool:
        """Whether an offline judge searched messages for cues, be it in vain: the share with a hit compares."""
        by_message = [dimension for name, dimension in self.dimensions.items() if name in BY_MESSAGE]
        return is_heuristic(self.run.judge) and any(dimension.share.asked for dimension in by_message)

    @model_serializer
    def _dumped(self) -> dict[str, Any]:
        run = self.run
        usual = run.procedure == "plumbline" and run.repeats == 1
        return {
            **({"channel": run.channel.slug} if run.channel else {"agent": run.agent.slug if run.agent else None}),
            "evaluation_run": run.pk,
            "status": run.status,
            "error": run.error,
            **({} if usual else {"procedure": run.procedure, "repeats": run.repeats}),
            **({"simulated": True, "actor_model": run.actor_model} if run.simulated else {}),
            **({"swap_test": run.swap_test} if run.swap_test else {}),
            "persona_digest": run.persona_digest,
            "overall_score": self.overall_score,
            "coverage": self.share.rounded,
            "dimensions": {
                name: (self.dimensions.get(name) or DimensionSummary(dimension=name)).model_dump()
                for name in run.dimensions
            },
            **{name: getattr(self, name) for name in ("calls", "tokens")},
            "cost_usd": None if self.cost_usd is None else float(self.cost_usd),
            **{name: getattr(self, name) for name in ("unpriced_calls", "cache_read_share")},
        }


def rounded(value: float | None) -> float | None:
    """As scores are stored and shown: four decimals."""
    return None if value is None else round(value, 4)


_STATUSES = ("scored", "trivial", "unscored", "pending")
_BY_STATUS = {status: Count("pk", filter=Q(status=status)) for status in _STATUSES}
# What they have is partial.
WITHOUT_SCORE = (EvaluationRun.Status.FAILED, EvaluationRun.Status.ERRORED, EvaluationRun.Status.CANCELLED)


# -- sums of judgements
def dimension_summaries(scores: Iterable[Mapping[str, Any]]) -> dict[str, DimensionSummary]:
    """Dimensions from a row per dimension and proposition.

    A row has `dimension`, `proposition_id`, `weight`, `inverted`, the judgements by status, `total` (the sum of the means of its
    `items`; without repeats each scored judgement is one), `scored_once` and `asked` (see `share_counts`), `of_messages` (how many are
    judged message by message), `statistics` (how many an offline judge computes), `why` (the reason of one of these without a score),
    `count` (None where it is scored); with repeats also `squares` and `freedom` for the noise.
    """
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in scores:
        grouped.setdefault(str(row["dimension"]), []).append(row)
    return {dimension: _dimension(dimension, rows) for dimension, rows in sorted(grouped.items())}


def _dimension(dimension: str, rows: list[Mapping[str, Any]]) -> DimensionSummary:
    propositions = []
    weighted = weights = 0.0
    for row in sorted(rows, key=lambda r: str(r["proposition_id"])):
        items, points, weight = row.get("items", row["scored"]), float(row["total"]), float(row["weight"])
        if (count := row["count"]) is None:
            weighted += weight * points
            weights += weight * items
        propositions.append(
            PropositionSummary(
                id=str(row["proposition_id"]),
                score=rounded(points / items) if items and count is None else None,
                weight=weight,
                inverted=bool(row["inverted"]),
                count=count,
                share=Share(row["scored_once"], row["asked"]),
                **{status: row[status] for status in _STATUSES},
            )
        )
    of_messages = total(Share(row["scored_once"], row["asked"]) for row in rows if row["of_messages"])
    reason = why_too_little(of_messages)
    if reason and not of_messages.scored:
        why = next((row["why"] for row in rows if row.get("why")), "")
        reason = f"{TOO_LITTLE}: {why}" if why else reason
    freedom = sum(row.get("freedom", 0) for row in rows)
    return DimensionSummary(
        dimension=dimension,
        propositions=tuple(propositions),
        noise=rounded(sqrt(sum(row.get("squares", 0.0) for row in rows) / freedom)) if freedom else None,
        reason=reason,
        statistics=sum(row.get("statistics", 0) for row in rows),
        **{
            **_together([(1, p) for p in propositions]),
            "score": rounded(weighted / weights) if weights and not reason else None,
        },
    )


def _together(parts: Sequence[tuple[int, Numbers]]) -> dict[str, Any]:
    """The numbers of several parts: the mean of their scores, weighted; the sums of their counts and judgements."""
    scored = [(n, part.score) for n, part in parts if part.score is not None]
    counts = [part.count for _, part in parts if part.count is not None]
    return {
        "score": rounded(sum(n * score for n, score in scored) / sum(n for n, _ in scored)) if scored else None,
        "count": sum(counts) if counts else None,
        "share": total(part.share for _, part in parts),
        **{status: sum(getattr(part, status) for _, part in parts) for status in _STATUSES},
    }


def _linked_dimension(dimension: str, parts: Sequence[tuple[ChannelShare, DimensionSummary]]) -> DimensionSummary:
    """One dimension of an agent from its channels: the mean of their scores weighted by its messages there, the sum of their counts."""
    noises = [part.noise for _, part in parts if part.noise is not None]
    by_id: dict[str, list[tuple[int, PropositionSummary]]] = {}
    for share, part in parts:
        for proposition in part.propositions:
            by_id.setdefault(proposition.id, []).append((share.messages, proposition))
    return DimensionSummary(
        dimension=dimension,
        propositions=tuple(group[0][1].model_copy(update=_together(group)) for _, group in sorted(by_id.items())),
        noise=rounded(sqrt(sum(noise**2 for noise in noises) / len(noises))) if noises else None,
        statistics=sum(part.statistics for _, part in parts),
        channels=tuple(
            ChannelScore(
                run=share.channel_run, messages=share.messages, score=part.score, count=part.count, share=part.share
            )
            for share, part in parts
        ),
        **_together([(share.messages, part) for share, part in parts]),
    )


def _repeated_rows(runs: Collection[int]) -> Iterator[dict[str, Any]]:
    """Rows for `dimension_summaries` from the repeats of each item (a message, a pair, or the window judged at once).

    `squares` (squared deviations from the items' means) ÷ `freedom` is the variance of one judgement.
    """
    scored = Q(status="scored", score__isnull=False)
    judgements = EvaluationScore.objects.filter(evaluation_run__in=runs).order_by()
    items: Any = judgements.values(*_ABOUT, "message").annotate(
        heaviest=Max("weight"),
        inverted=Count("pk", filter=Q(inverted=True)),
        points=Coalesce(Sum("score", filter=scored), 0),
        squared=Coalesce(Sum(F("score") * F("score"), filter=scored), 0),
        with_score=Count("pk", filter=scored),
        of_messages=Count("pk", filter=MESSAGES),
        statistics=Count("pk", filter=STATISTICS),
        **share_counts(),
        **_BY_STATUS,
    )
    sums: dict[tuple[Any, ...], Counter[str]] = {}
    for item in items.iterator(chunk_size=2000):
        row = sums.setdefault(tuple(item[name] for name in _ABOUT), Counter(dict.fromkeys(_SUMS, 0)))
        row.update(
            {name: item[name] for name in (*_STATUSES, "scored_once", "asked", "inverted", "of_messages", "statistics")}
        )
        row["weight"] = max(row["weight"], item["heaviest"])
        if n := item["with_score"]:
            mean = item["points"] / n
            row.update({"items": 1, "freedom": n - 1})
            row["total"] += mean
            row["squares"] += max(0.0, item["squared"] - n * mean**2)
    counts: dict[tuple[Any, ...], list[int]] = {}
    for *about, count in judgements.filter(status="scored", count__isnull=False).values_list(*_ABOUT, "count"):
        counts.setdefault(tuple(about), []).append(count or 0)
    for key, row in sums.items():  # the median; of two middle ones the smaller
        yield {
            **dict(zip(_ABOUT, key, strict=True)),
            "count": median_low(counts[key]) if key in counts else None,
            **row,
        }


_ABOUT = ("evaluation_run", "dimension", "proposition_id")
_SUMS = (
    *_STATUSES,
    "scored_once",
    "asked",
    "inverted",
    "of_messages",
    "statistics",
    "weight",
    "items",
    "freedom",
    "total",
    "squares",
)


# -- evaluations
def overall(dimensions: Iterable[DimensionSummary]) -> float | None:
    """Mean of the dimensions that have a score of 0 to 9; None when none has, or one fell short of what a score needs.

    A statistic proves that something is repeated or unlike, never that a persona is kept: dimensions scored by one are left out.
    """
    dimensions = [d for d in dimensions if not d.statistics]
    if any(d.fell_short for d in dimensions):
        return None
    scores = [d.score for d in dimensions if d.score is not None and d.dimension not in COUNTED]
    return rounded(sum(scores) / len(scores)) if scores else None


def summarize(run: EvaluationRun) -> RunSummary:
    """The numbers of one run."""
    return summarize_all([run])[0]


def summarize_all(runs: Sequence[EvaluationRun]) -> list[RunSummary]:
    """The numbers of several runs, in their order, in as many queries as for one."""
    rows, used = _rows(runs), ledger.totals_of_work([run.work_id for run in runs])
    silent = unanswered([run for run in runs if any(row["unscored"] for row in rows[run.pk])])
    linked = linked_dimensions([run for run in runs if set(run.dimensions) - set(run.own_dimensions)])
    summaries = []
    for run in runs:
        dimensions = dimension_summaries(rows[run.pk])
        for name, dimension in dimensions.items():
            if (run.pk, name) in silent:  # what is left is of exact rules, and no score of this judge
                dimensions[name] = dimension.model_copy(update={"score": None})
        dimensions |= linked.get(run.pk, {})
        spent = used[run.work_id]
        sent = spent.input_tokens + spent.cache_read_tokens + spent.cache_write_tokens
        summaries.append(
            RunSummary(
                run=run,
                overall_score=None if run.status in WITHOUT_SCORE else overall(dimensions.values()),
                dimensions=dimensions,
                calls=spent.calls,
                tokens=sent + spent.output_tokens,
                cost_usd=spent.cost_usd if spent.unpriced < spent.calls or not spent.calls else None,
                unpriced_calls=spent.unpriced,
                input_tokens=sent,
                output_tokens=spent.output_tokens,
                cache_read_tokens=spent.cache_read_tokens,
                cache_write_tokens=spent.cache_write_tokens,
            )
        )
    return summaries


def _rows(runs: Sequence[EvaluationRun]) -> dict[int, list[dict[str, Any]]]:
    """Rows for `dimension_summaries`, by run; in as many queries as for one."""
    by_run: dict[int, list[dict[str, Any]]] = {run.pk: [] for run in runs}
    rows: Any = (
        EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs if run.repeats == 1])
        .order_by()
        .values(*_ABOUT)
        .annotate(
            weight=Max("weight"),
            inverted=Count("pk", filter=Q(inverted=True)),
            total=Coalesce(Sum("score", filter=Q(status="scored")), 0),
            **share_counts(),
            **_BY_STATUS,
            of_messages=Count("pk", filter=MESSAGES),
            statistics=Count("pk", filter=STATISTICS),
            why=Min("reason", filter=STATISTICS & Q(status="unscored")),
            counted=Sum("count"),  # of one row: nothing is repeated
        )
    )
    for row in rows:
        by_run[row["evaluation_run"]].append({**row, "count": row["counted"]})
    if several := [run.pk for run in runs if run.repeats > 1]:
        for row in _repeated_rows(several):
            by_run[row["evaluation_run"]].append(row)
    return by_run


def dimension_scores(runs: Collection[EvaluationRun]) -> dict[int, dict[str, float]]:
    """The scores by run and dimension of what was judged in the runs themselves, where enough was scored.

    Of a run of one dimension the overall score, where it has one, is its score and not read again.
    """
    rows = _rows([run for run in runs if len(run.dimensions) > 1 or run.overall_score is None])
    summaries = {pk: dimension_summaries(of_run).values() for pk, of_run in rows.items()}
    scores = {pk: {d.dimension: d.score for d in of_run if d.score is not None} for pk, of_run in summaries.items()}
    for run in runs:
        if len(run.dimensions) == 1 and run.overall_score is not None:
            scores[run.pk] = {run.dimensions[0]: run.overall_score}
    return scores


def linked_dimensions(runs: Sequence[EvaluationRun]) -> dict[int, dict[str, DimensionSummary]]:
    """Agents' channel dimensions by run, from the runs of their channels that are not failed.

    A score is the mean of the channels' scores, weighted by how much the agent said in each; a count is the sum.
    """
    if not runs:
        return {}
    shares: dict[int, list[ChannelShare]] = {run.pk: [] for run in runs}
    there = ChannelShare.objects.filter(agent_run__in=runs).exclude(channel_run__status__in=WITHOUT_SCORE)
    for share in there.select_related("channel_run__channel"):
        shares[share.agent_run_id].append(share)
    channel_runs = {share.channel_run_id: share.channel_run for group in shares.values() for share in group}
    parts = {pk: dimension_summaries(rows) for pk, rows in _rows(list(channel_runs.values())).items()}
    return {
        run.pk: {
            name: _linked_dimension(
                name, [(s, parts[s.channel_run_id][name]) for s in shares[run.pk] if name in parts[s.channel_run_id]]
            )
            for name in run.dimensions
            if name not in run.own_dimensions
        }
        for run in runs
    }


def worst_judgement(run: EvaluationRun, dimension: str, proposition_id: str) -> EvaluationScore | None:
    """The lowest scored judgement of a proposition, the oldest of equals."""
    scored = run.scores.filter(dimension=dimension, proposition_id=proposition_id, status="scored")
    return scored.order_by("score", "pk").first()


def pending_count(run: EvaluationRun) -> int:
    """Judgements of a run that are still to be made."""
    return run.scores.filter(status=EvaluationScore.Status.PENDING).count()


def channels_of(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """The evaluations of channels that stand behind these of agents, each once, by channel."""
    runs = {c.run.pk: c.run for summary in summaries for d in summary.dimensions.values() for c in d.channels}
    return summarize_all(sorted(runs.values(), key=lambda run: str(run.channel)))


def spent_on(summaries: Iterable[RunSummary]) -> Used:
    """What these evaluations used, with those of their channels, each once."""
    summaries = list(summaries)
    used = {summary.run.pk: summary for summary in (*summaries, *channels_of(summaries))}.values()
    costs = [one.cost_usd for one in used if one.cost_usd is not None and one.calls]
    counted = ("calls", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "unpriced_calls")
    return Used(
        **{name: sum(getattr(one, name) for one in used) for name in counted},
        cost_usd=sum(costs, Decimal(0)) if costs or not any(one.calls for one in used) else None,
    )


def spending_json(estimate: Spending | None, actual: Used) -> dict[str, Any]:
    """``estimate`` (null where nothing was estimated: an offline judge costs nothing) and ``actual``, each over all runs and channels."""
    return {"estimate": estimate and estimate.model_dump(), "actual": actual.model_dump()}


def waiting_words(runs: Sequence[EvaluationRun]) -> dict[int, str]:
    """What each run waits for, by primary key, its channels' batches included; one query for any number of runs. Others are left out."""
    by_work = {run.work_id: run.pk for run in runs}
    waiting: dict[int, str] = {}
    for batch in LLMBatch.objects.filter(work_id__in=list(by_work), status__in=LLMBatch.OPEN).order_by("pk"):
        name, run = batch.batch_id or "(being submitted)", by_work[batch.work_id]
        words = f"waiting for batch {name}: {batch.answered} of {batch.requests} answered"
        if batch.cancel_requested_at is not None:
            words = f"batch {name} is being cancelled"
        words += f" ({batch.error})" if batch.error else ""
        waiting[run] = f"{waiting[run]}; {words}" if run in waiting else words
    return waiting
