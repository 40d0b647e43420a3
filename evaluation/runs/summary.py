"""Sum up an evaluation from its stored judgements: means over scored ones, coverage, cost (AC-6.0.9)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from statistics import median_low
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum
from django.db.models.functions import Coalesce

from agents.kit.llm import ledger
from agents.kit.models import LLMBatch
from evaluation.models import COUNTED, STATISTIC, ChannelShare, EvaluationRun, EvaluationScore
from evaluation.runs.failures import unanswered
from evaluation.runs.numbers import (
    ChannelScore,
    DimensionSummary,
    Numbers,
    PropositionSummary,
    RunSummary,
    Spending,
    Used,
    counted_score,
    rounded,
)
from evaluation.runs.shares import MESSAGES, TOO_LITTLE, Share, share_counts, total, why_too_little

STATISTICS = Q(judge__startswith="offline:", served_model=STATISTIC)
NOT_EVALUABLE = Q(status="unscored", judge="")  # no judge was asked: there was nothing to ask

_STATUSES = ("scored", "trivial", "unscored", "pending")
_COUNTS_BY_STATUS = {status: Count("pk", filter=Q(status=status)) for status in _STATUSES}
# The judgements of these are only a part, so they have no score.
WITHOUT_SCORE = (EvaluationRun.Status.FAILED, EvaluationRun.Status.ERRORED, EvaluationRun.Status.CANCELLED)


# -- sums of judgements
@dataclass(slots=True)
class _PropositionSums:
    """Sums over the judgements of one proposition in one run.

    Attributes:
        scored, trivial, unscored, pending: Judgements in that status.
        items: What was scored: a message, a pair, or the window judged at once; its repeats are one item. Each counts as often as its
            inclusion weight says: 1, unless its conversation was kept by chance.
        total: Sum of the items' mean scores, each as often.
        squares: Sum of the squared deviations of scores from their item's mean; ÷ `freedom` it is the variance of one judgement.
        freedom: Scored repeats beyond the first of each item; 0 without repeats.
        scored_once, asked: See `share_counts`.
        of_messages: Judgements of single messages.
        statistics: Judgements that an offline judge computes.
        why: The reason of one of these without a score.
        why_nothing: The reason of a judgement for which there was nothing to ask, as it was not evaluable.
        count: What was counted; None where it is scored.
    """

    run: int
    dimension: str
    proposition_id: str
    weight: float = 0.0
    inverted: bool = False
    of_ten: int | None = None
    scored: int = 0
    trivial: int = 0
    unscored: int = 0
    pending: int = 0
    items: float = 0.0
    total: float = 0.0
    squares: float = 0.0
    freedom: int = 0
    scored_once: int = 0
    asked: int = 0
    of_messages: int = 0
    statistics: int = 0
    why: str = ""
    why_nothing: str = ""
    count: int | None = None

    @property
    def share(self) -> Share:
        return Share(self.scored_once, self.asked)

    @property
    def is_counted(self) -> bool:
        """Return whether its judgements are counts (of ideas), not scores."""
        return self.count is not None

    def summary(self) -> PropositionSummary:
        """Return what was judged of the proposition."""
        score = None
        if self.items and not self.is_counted:
            score = rounded(self.total / self.items)
        return PropositionSummary(
            id=self.proposition_id,
            score=score,
            weight=self.weight,
            inverted=self.inverted,
            of_ten=self.of_ten,
            count=self.count,
            share=self.share,
            scored=self.scored,
            trivial=self.trivial,
            unscored=self.unscored,
            pending=self.pending,
        )


def _dimension_summaries(sums: Iterable[_PropositionSums]) -> dict[str, DimensionSummary]:
    """Sum up the dimensions of one run from the sums of its propositions."""
    by_dimension: dict[str, list[_PropositionSums]] = {}
    for proposition in sums:
        by_dimension.setdefault(proposition.dimension, []).append(proposition)
    return {dimension: _dimension(dimension, group) for dimension, group in sorted(by_dimension.items())}


def _dimension(dimension: str, sums: Sequence[_PropositionSums]) -> DimensionSummary:
    """Sum up one dimension of one run; its score is None where too little was scored for one (`reason` says so)."""
    ordered = sorted(sums, key=lambda proposition: proposition.proposition_id)
    propositions = tuple(proposition.summary() for proposition in ordered)
    reason = _why_no_score(ordered)
    numbers = _numbers_together([(1, proposition) for proposition in propositions])
    return DimensionSummary(
        dimension=dimension,
        propositions=propositions,
        score=None if reason else _weighted_mean(ordered),
        count=numbers.count,
        scored=numbers.scored,
        trivial=numbers.trivial,
        unscored=numbers.unscored,
        pending=numbers.pending,
        share=numbers.share,
        noise=_noise(ordered),
        reason=reason,
        not_evaluable=_why_nothing(ordered, numbers),
        statistics=sum(proposition.statistics for proposition in ordered),
    )


def _weighted_mean(sums: Sequence[_PropositionSums]) -> float | None:
    """Return the mean over all scored items, each weighted by its proposition, counts left out; None when none was scored (AC-6.0.9).

    The items of a rule that need not hold in every message count together, see `counted_score`.
    """
    points = weights = 0.0
    for proposition in sums:
        if not proposition.is_counted and proposition.items:
            mean = counted_score(proposition.total / proposition.items, proposition.of_ten)
            points += proposition.weight * proposition.items * mean
            weights += proposition.weight * proposition.items
    if not weights:
        return None
    return rounded(points / weights)


def _noise(sums: Sequence[_PropositionSums]) -> float | None:
    """Return the standard deviation of a judgement around the mean of its item's repeats; None without repeats."""
    freedom = sum(proposition.freedom for proposition in sums)
    if not freedom:
        return None
    squares = sum(proposition.squares for proposition in sums)
    return rounded(sqrt(squares / freedom))


def _why_no_score(sums: Sequence[_PropositionSums]) -> str:
    """Return why too little was scored for a score; empty when it was enough, and where there was nothing to score.

    Only propositions about single messages are looked at: one about a whole window is scored or not. Where nothing was scored and an
    offline judge computes a statistic, its own reason is given.
    """
    share = total(proposition.share for proposition in sums if proposition.of_messages)
    reason = why_too_little(share)
    if not reason or share.scored:
        return reason
    for proposition in sums:
        if proposition.why:
            return f"{TOO_LITTLE}: {proposition.why}"
    return reason


def _why_nothing(sums: Sequence[_PropositionSums], numbers: Numbers) -> str:
    """Return why there was nothing to score in a dimension; empty where any of it was, will be, or could have been scored."""
    if numbers.scored or numbers.trivial or numbers.pending or numbers.share.asked:
        return ""
    return next((proposition.why_nothing for proposition in sums if proposition.why_nothing), "")


def _numbers_together(parts: Sequence[tuple[float, Numbers]]) -> Numbers:
    """Return the numbers of several parts: the mean of their scores, weighted; the sums of their counts and judgements.

    Score and count are None where no part has one.

    Args:
        parts: Each with its weight.
    """
    points = 0.0
    weights = 0.0
    counts: list[int] = []
    for weight, part in parts:
        if part.score is not None:
            points += weight * part.score
            weights += weight
        if part.count is not None:
            counts.append(part.count)
    return Numbers(
        score=rounded(points / weights) if weights else None,
        count=sum(counts) if counts else None,
        scored=sum(part.scored for _, part in parts),
        trivial=sum(part.trivial for _, part in parts),
        unscored=sum(part.unscored for _, part in parts),
        pending=sum(part.pending for _, part in parts),
        share=total(part.share for _, part in parts),
    )


def _linked_dimension(dimension: str, parts: Sequence[tuple[ChannelShare, DimensionSummary]]) -> DimensionSummary:
    """Sum up one dimension of an agent over its channels: the mean of their scores, weighted by `ChannelShare.weight`; the sum of counts.

    Of each proposition, too; its weight and whether it is inverted are those in the first channel that has it. The noise is the root
    mean square of the channels' noises; None where no channel has repeats. Without `parts` all numbers are 0 or None. It is not evaluable
    where no channel is.
    """
    noises: list[float] = []
    channels: list[ChannelScore] = []
    by_id: dict[str, list[tuple[float, PropositionSummary]]] = {}
    for link, summary in parts:
        if summary.noise is not None:
            noises.append(summary.noise)
        channels.append(
            ChannelScore(
                run=link.channel_run,
                messages=link.messages,
                score=summary.score,
                count=summary.count,
                share=summary.share,
            )
        )
        for proposition in summary.propositions:
            by_id.setdefault(proposition.id, []).append((link.weight, proposition))
    reasons = [summary.not_evaluable for _, summary in parts]
    not_evaluable = "; ".join(dict.fromkeys(reasons)) if all(reasons) else ""
    propositions: list[PropositionSummary] = []
    for _, group in sorted(by_id.items()):
        first = group[0][1]
        propositions.append(first.model_copy(update=dict(_numbers_together(group))))
    noise = None
    if noises:
        noise = rounded(sqrt(sum(noise_of_channel**2 for noise_of_channel in noises) / len(noises)))
    return DimensionSummary(
        dimension=dimension,
        propositions=tuple(propositions),
        noise=noise,
        statistics=sum(summary.statistics for _, summary in parts),
        not_evaluable=not_evaluable,
        channels=tuple(channels),
        **dict(_numbers_together([(link.weight, summary) for link, summary in parts])),
    )


_PROPOSITION_OF_RUN = ("evaluation_run", "dimension", "proposition_id")


def _sums_by_run(runs: Sequence[EvaluationRun]) -> dict[int, list[_PropositionSums]]:
    """Sum up the judgements of each proposition, by run; in as many queries as for one run."""
    by_run: dict[int, list[_PropositionSums]] = {run.pk: [] for run in runs}
    without_repeats = [run.pk for run in runs if run.repeats == 1]
    with_repeats = [run.pk for run in runs if run.repeats > 1]
    for sums in _sums_without_repeats(without_repeats):
        by_run[sums.run].append(sums)
    if with_repeats:
        for sums in _sums_of_repeats(with_repeats):
            by_run[sums.run].append(sums)
    return by_run


def _sums_without_repeats(runs: Collection[int]) -> Iterator[_PropositionSums]:
    """Sum up the judgements of runs that judged each item once: each scored judgement is an item."""
    judgements = EvaluationScore.objects.filter(evaluation_run__in=runs).order_by()
    rows: Any = judgements.values(*_PROPOSITION_OF_RUN).annotate(
        heaviest=Max("weight"),  # a proposition has one weight in all rows of a run
        wanted=Max("of_ten"),
        with_inverted=Count("pk", filter=Q(inverted=True)),
        total=Coalesce(Sum(F("score") * F("inclusion_weight"), filter=Q(status="scored")), 0.0),
        items=Coalesce(Sum("inclusion_weight", filter=Q(status="scored")), 0.0),
        **share_counts(),
        **_COUNTS_BY_STATUS,
        of_messages=Count("pk", filter=MESSAGES),
        statistics=Count("pk", filter=STATISTICS),
        why=Min("reason", filter=STATISTICS & Q(status="unscored")),
        why_nothing=Min("reason", filter=NOT_EVALUABLE),
        counted=Sum("count"),  # of one row: nothing is repeated
    )
    for row in rows:
        yield _PropositionSums(
            run=row["evaluation_run"],
            dimension=row["dimension"],
            proposition_id=row["proposition_id"],
            weight=float(row["heaviest"]),
            inverted=bool(row["with_inverted"]),
            of_ten=row["wanted"],
            scored=row["scored"],
            trivial=row["trivial"],
            unscored=row["unscored"],
            pending=row["pending"],
            items=row["items"],
            total=float(row["total"]),
            scored_once=row["scored_once"],
            asked=row["asked"],
            of_messages=row["of_messages"],
            statistics=row["statistics"],
            why=row["why"] or "",
            why_nothing=row["why_nothing"] or "",
            count=row["counted"],
        )


def _sums_of_repeats(runs: Collection[int]) -> Iterator[_PropositionSums]:
    """Sum up the judgements of runs that judged each item several times: an item's score is the mean of its scored repeats.

    A count is the median of the repeats; of two middle ones the smaller. Why a statistic has no score (`why`) is not read here.
    """
    scored = Q(status="scored", score__isnull=False)
    judgements = EvaluationScore.objects.filter(evaluation_run__in=runs).order_by()
    # An item is a message (of a pair the later one); None is the whole window.
    items: Any = judgements.values(*_PROPOSITION_OF_RUN, "message").annotate(
        heaviest=Max("weight"),
        wanted=Max("of_ten"),
        inclusion=Max("inclusion_weight"),  # an item has one in all its repeats
        with_inverted=Count("pk", filter=Q(inverted=True)),
        points=Coalesce(Sum("score", filter=scored), 0),
        squared=Coalesce(Sum(F("score") * F("score"), filter=scored), 0),
        with_score=Count("pk", filter=scored),
        of_messages=Count("pk", filter=MESSAGES),
        statistics=Count("pk", filter=STATISTICS),
        why_nothing=Min("reason", filter=NOT_EVALUABLE),
        **share_counts(),
        **_COUNTS_BY_STATUS,
    )
    by_proposition: dict[tuple[int, str, str], _PropositionSums] = {}
    for item in items.iterator(chunk_size=2000):
        key = (item["evaluation_run"], item["dimension"], item["proposition_id"])
        if key not in by_proposition:
            by_proposition[key] = _PropositionSums(*key)
        _add_item(by_proposition[key], item)
    counts: dict[tuple[int, str, str], list[int]] = {}
    counted = judgements.filter(status="scored", count__isnull=False)
    for run, dimension, proposition_id, count in counted.values_list(*_PROPOSITION_OF_RUN, "count"):
        counts.setdefault((run, dimension, proposition_id), []).append(count or 0)
    for key, sums in by_proposition.items():
        if key in counts:
            sums.count = median_low(counts[key])
        yield sums


def _add_item(sums: _PropositionSums, item: Mapping[str, Any]) -> None:
    """Add the repeats of one item (a row of `_sums_of_repeats`) to the sums of its proposition.

    The item counts as scored when any of its repeats is; statuses are counted repeat by repeat.
    """
    sums.scored += item["scored"]
    sums.trivial += item["trivial"]
    sums.unscored += item["unscored"]
    sums.pending += item["pending"]
    sums.scored_once += item["scored_once"]
    sums.asked += item["asked"]
    sums.of_messages += item["of_messages"]
    sums.statistics += item["statistics"]
    sums.weight = max(sums.weight, float(item["heaviest"]))
    sums.of_ten = item["wanted"]
    sums.why_nothing = sums.why_nothing or item["why_nothing"] or ""
    if item["with_inverted"]:
        sums.inverted = True
    scored_repeats = item["with_score"]
    if scored_repeats:
        mean = item["points"] / scored_repeats
        sums.items += item["inclusion"]
        sums.freedom += scored_repeats - 1
        sums.total += mean * item["inclusion"]
        # The squared deviations from the mean, by the sum of squares; rounding must not make it negative.
        sums.squares += max(0.0, item["squared"] - scored_repeats * mean**2)


# -- evaluations
def overall(dimensions: Iterable[DimensionSummary]) -> float | None:
    """Return the mean of the dimensions that have a score of 0 to 9; None when none has, or one fell short of what a score needs.

    A statistic proves that something is repeated or unlike, never that a persona is kept: dimensions scored by one are left out.
    """
    scores: list[float] = []
    for dimension in dimensions:
        if dimension.statistics:
            continue
        if dimension.fell_short:
            return None
        if dimension.score is not None and dimension.dimension not in COUNTED:
            scores.append(dimension.score)
    if not scores:
        return None
    return rounded(sum(scores) / len(scores))


def summarize(run: EvaluationRun) -> RunSummary:
    """Sum up one run."""
    return summarize_all([run])[0]


def summarize_all(runs: Sequence[EvaluationRun]) -> list[RunSummary]:
    """Sum up several runs, in their order, in as many queries as for one.

    A dimension in which the judge answered nothing has no score, though rules may have scored something. An agent's channel dimensions
    are summed up from the runs of its channels.
    """
    sums_by_run = _sums_by_run(runs)
    spent_by_work = ledger.totals_of_work([run.work_id for run in runs])
    # Only where something is unscored can calls have failed.
    with_unscored = [run for run in runs if any(sums.unscored for sums in sums_by_run[run.pk])]
    unanswered_dimensions = unanswered(with_unscored)
    linked_by_run = linked_dimensions([run for run in runs if set(run.dimensions) - set(run.own_dimensions)])
    summaries: list[RunSummary] = []
    for run in runs:
        dimensions = _dimension_summaries(sums_by_run[run.pk])
        for name, dimension in dimensions.items():
            if (run.pk, name) in unanswered_dimensions:
                dimensions[name] = dimension.model_copy(update={"score": None})
        dimensions |= linked_by_run.get(run.pk, {})
        summaries.append(_run_summary(run, dimensions, spent_by_work[run.work_id]))
    return summaries


def _run_summary(run: EvaluationRun, dimensions: dict[str, DimensionSummary], spent: ledger.Totals) -> RunSummary:
    """Put together a run, its dimensions and what its own calls used; no overall score for one that failed or was cancelled.

    The cost leaves out calls without a price; it is None where all calls are without one, and 0 where there was no call.
    """
    sent = spent.input_tokens + spent.cache_read_tokens + spent.cache_write_tokens
    overall_score = None
    if run.status not in WITHOUT_SCORE:
        overall_score = overall(dimensions.values())
    has_price = not spent.calls or spent.unpriced < spent.calls
    return RunSummary(
        run=run,
        overall_score=overall_score,
        dimensions=dimensions,
        calls=spent.calls,
        tokens=sent + spent.output_tokens,
        cost_usd=spent.cost_usd if has_price else None,
        unpriced_calls=spent.unpriced,
        input_tokens=sent,
        output_tokens=spent.output_tokens,
        cache_read_tokens=spent.cache_read_tokens,
        cache_write_tokens=spent.cache_write_tokens,
    )


def dimension_scores(runs: Collection[EvaluationRun]) -> dict[int, dict[str, float]]:
    """Return the scores by run and dimension of what was judged in the runs themselves, where enough was scored.

    Of a run of one dimension the overall score, where it has one, is its score and not read again.
    """
    to_read: list[EvaluationRun] = []
    scores: dict[int, dict[str, float]] = {}
    for run in runs:
        if len(run.dimensions) == 1 and run.overall_score is not None:
            scores[run.pk] = {run.dimensions[0]: run.overall_score}
        else:
            to_read.append(run)
    for pk, sums in _sums_by_run(to_read).items():
        summaries = _dimension_summaries(sums).values()
        scores[pk] = {summary.dimension: summary.score for summary in summaries if summary.score is not None}
    return scores


def linked_dimensions(runs: Sequence[EvaluationRun]) -> dict[int, dict[str, DimensionSummary]]:
    """Return agents' channel dimensions by run and name, from the runs of their channels that did not fail and were not cancelled.

    A score is the mean of the channels' scores, weighted by how much the agent said in each; a count is the sum. A channel dimension that
    no channel has is there without numbers.
    """
    if not runs:
        return {}
    links_by_run: dict[int, list[ChannelShare]] = {run.pk: [] for run in runs}
    channel_runs: dict[int, EvaluationRun] = {}
    links = ChannelShare.objects.filter(agent_run__in=runs).exclude(channel_run__status__in=WITHOUT_SCORE)
    for link in links.select_related("channel_run__channel"):
        links_by_run[link.agent_run_id].append(link)
        channel_runs[link.channel_run_id] = link.channel_run
    sums_by_run = _sums_by_run(list(channel_runs.values()))
    summaries = {pk: _dimension_summaries(sums) for pk, sums in sums_by_run.items()}
    linked: dict[int, dict[str, DimensionSummary]] = {}
    for run in runs:
        linked[run.pk] = {}
        for name in run.dimensions:
            if name in run.own_dimensions:
                continue
            parts = [
                (link, summaries[link.channel_run_id][name])
                for link in links_by_run[run.pk]
                if name in summaries[link.channel_run_id]
            ]
            linked[run.pk][name] = _linked_dimension(name, parts)
    return linked


def worst_judgement(run: EvaluationRun, dimension: str, proposition_id: str) -> EvaluationScore | None:
    """Return the lowest scored judgement of a proposition, the oldest of equals; None when none was scored."""
    scored = run.scores.filter(dimension=dimension, proposition_id=proposition_id, status="scored")
    return scored.order_by("score", "pk").first()


def pending_count(run: EvaluationRun) -> int:
    """Count the judgements of a run that are still to be made."""
    return run.scores.filter(status=EvaluationScore.Status.PENDING).count()


def channels_of(summaries: Iterable[RunSummary]) -> list[RunSummary]:
    """Sum up the evaluations of channels from which those of agents have numbers, each once, in order of the channels' names."""
    channel_runs: dict[int, EvaluationRun] = {}
    for summary in summaries:
        for dimension in summary.dimensions.values():
            for channel in dimension.channels:
                channel_runs[channel.run.pk] = channel.run
    return summarize_all(sorted(channel_runs.values(), key=lambda run: str(run.channel)))


def spent_on(summaries: Iterable[RunSummary]) -> Used:
    """Add up what these evaluations used, with those of their channels, each once.

    The cost is of what has a price; None where there were calls and none has one.
    """
    summaries = list(summaries)
    by_run = {summary.run.pk: summary for summary in (*summaries, *channels_of(summaries))}
    # One that made no call costs nothing; it must not give the others a price.
    with_calls = [summary for summary in by_run.values() if summary.calls]
    costs = [summary.cost_usd for summary in with_calls if summary.cost_usd is not None]
    cost = sum(costs, Decimal(0)) if costs or not with_calls else None
    return Used(
        calls=sum(summary.calls for summary in with_calls),
        input_tokens=sum(summary.input_tokens for summary in with_calls),
        output_tokens=sum(summary.output_tokens for summary in with_calls),
        cache_read_tokens=sum(summary.cache_read_tokens for summary in with_calls),
        cache_write_tokens=sum(summary.cache_write_tokens for summary in with_calls),
        unpriced_calls=sum(summary.unpriced_calls for summary in with_calls),
        cost_usd=cost,
    )


def spending_json(estimate: Spending | None, actual: Used) -> dict[str, Any]:
    """Dump ``estimate`` (null where nothing was estimated: an offline judge costs nothing) and ``actual``, over all runs and channels."""
    return {"estimate": estimate and estimate.model_dump(), "actual": actual.model_dump()}


def waiting_words(runs: Sequence[EvaluationRun]) -> dict[int, str]:
    """Say what each run waits for, by primary key, in one query. Runs that wait for no batch are left out."""
    keys = {run.work_id: run.pk for run in runs}
    waiting: dict[int, str] = {}
    for batch in LLMBatch.objects.filter(work_id__in=list(keys), status__in=LLMBatch.OPEN).order_by("pk"):
        run = keys[batch.work_id]
        words = _batch_words(batch)
        if run in waiting:
            words = f"{waiting[run]}; {words}"
        waiting[run] = words
    return waiting


def _batch_words(batch: LLMBatch) -> str:
    """Say how far a batch is, e.g. ``waiting for batch msgbatch_1: 3 of 40 answered (the last look failed)``."""
    name = batch.batch_id or "(being submitted)"
    words = f"waiting for batch {name}: {batch.answered} of {batch.requests} answered"
    if batch.cancel_requested_at is not None:
        words = f"batch {name} is being cancelled"
    if batch.error:
        words += f" ({batch.error})"
    return words
