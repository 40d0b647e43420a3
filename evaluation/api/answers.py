"""Evaluations and judgements as the API shows them. Every judge has its *heuristic*."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, RootModel
from rest_framework.request import Request
from rest_framework.reverse import reverse

from agents.kit.api.rows import Answer, Context, Row, Url, attribute, described, link, one_of, optional, shown
from evaluation.judge.passport import Passport
from evaluation.models import Dimension, EvaluationRun, EvaluationScore, SwapHalf, is_heuristic
from evaluation.runs.control import Progress, progress_of
from evaluation.runs.ideas import DistinctIdea

COVERAGE = "share scored of the judgements this judge can make, 0 to 1; null where there are none"
DimensionName = Annotated[str, one_of(Dimension.choices)]
Status = Annotated[str, one_of(EvaluationRun.Status.choices)]


def heuristic_of(judge: str = "judge") -> Any:
    """Declare whether a judge is an offline one, whose scores are never compared with a model's."""
    judge_of = attribute(judge)
    return shown(lambda row, context: is_heuristic(judge_of(row, context)))


def may_read_messages(context: Context) -> bool:
    """Return whether the user who asks may view messages, and with them what quotes these."""
    return bool(context["request"].user.has_perm("agents.view_message"))


class QuotingRow(Row):
    """A row that quotes messages. Its model's `blank_quotes` blanks that for users who may not view messages."""

    @classmethod
    def all_of(cls, rows: Iterable[Any], context: Context) -> list[Self]:
        """Return the answers that show these rows, without quotes where the user may not read them."""
        rows = list(rows)
        if not may_read_messages(context):
            for row in rows:
                row.blank_quotes()
        return super().all_of(rows, context)


def run_url_of(run: str = "evaluation_run_id") -> Any:
    """Declare the address of the row's evaluation."""
    return shown(link("evaluationrun-detail", run))


class ProgressAnswer(Answer):
    """Judgements settled, and all; those of its channels included."""

    settled: int
    total: int


def _progress(run: EvaluationRun, context: Context) -> Progress:
    progress: Progress = context["progress"][run.pk]
    return progress


class EvaluationRow(
    Row,
    table=EvaluationRun,
    columns=(
        *("id", "url", "agent", "channel", "status", "error", "dimensions", "is_baseline", "judge"),
        *("heuristic", "procedure", "repeats", "batch", "window", "window_start", "window_end", "where"),
        *("samples", "sample_size", "seed", "per_call", "history", "history_where", "simulated"),
        *("overall_score", "coverage", "token_usage", "progress", "waits_for", "created_at", "started_at"),
        "finished_at",
    ),
):
    """An evaluation as lists show it."""

    dimensions: list[DimensionName]
    where: dict[str, str]
    history_where: dict[str, str]
    heuristic: bool = heuristic_of()
    procedure: str
    coverage: float | None = shown(lambda run, context: _progress(run, context).share.rounded, COVERAGE)
    progress: ProgressAnswer = shown(_progress)
    waits_for: str = shown(
        lambda run, context: _progress(run, context).waits_for,
        "the batches it waits for, and how far they are; mostly empty",
    )

    @classmethod
    def together(cls, rows: Sequence[EvaluationRun]) -> Context:
        return {"progress": progress_of(rows)}


def links_of(request: Request, run: EvaluationRun) -> dict[str, str]:
    """Return the addresses that lead on from an evaluation."""
    links: dict[str, str] = {}
    for name in ("scores", "cancel", "resume"):
        links[f"{name}_url"] = str(reverse(f"evaluationrun-{name}", [run.pk], request=request))
    if run.agent is not None:
        compare = reverse("baseline-compare", [run.agent.slug], request=request)
        links["compare_url"] = f"{compare}?run={run.pk}"
    return links


class BlindScoreRow(
    QuotingRow,
    table=EvaluationScore,
    columns=(
        *("id", "dimension", "proposition_id", "claim", "weight", "inclusion_weight", "inverted", "repeat", "message"),
        *("position", "channel", "compared_with", "context_snippet"),
    ),
):
    """What was judged, without what the judge said."""

    position: int | None = shown("message.position")
    channel: str | None = shown("message.channel.slug")


class ScoreRow(
    BlindScoreRow,
    columns=(
        *("status", "score", "raw_score", "first_score", "count", "flaws", "evidence", "reasoning"),
        *("justification", "confidence", "recommendations", "reason", "judge", "heuristic", "served_model"),
        *("call", "judged_at"),
    ),
):
    """One judgement: a proposition on a message, or on all that was said when `message` is null."""

    flaws: list[str]
    heuristic: bool = heuristic_of()


class ScoreToRead(RootModel[ScoreRow | BlindScoreRow]):
    """A judgement, with what the judge said of it or without."""


class ChannelScoreAnswer(Answer):
    channel: str | None
    evaluation_run: int
    messages: int
    score: float | None = optional()
    count: int | float | None = optional()
    coverage: float | None = Field(description=COVERAGE)


class DimensionSummaryAnswer(Answer):
    """A dimension of an evaluation; one that is counted has `count` where others have `score`."""

    score: float | None = optional("0 to 9")
    count: int | float | None = optional()
    scored: int
    trivial: int
    unscored: int
    coverage: float | None = Field(description=COVERAGE)
    propositions: dict[str, int | float | None]
    passport: Passport = optional("what is known of the judge, and whether it may be used; not where ideas are counted")
    noise: float = optional("spread of repeated judgements, in points")
    figures: Any = optional()
    ideas: list[DistinctIdea] = optional()
    channels: list[ChannelScoreAnswer] = optional()
    reason: str = optional("why there is no score")


class SummaryAnswer(Answer):
    """What an evaluation measured."""

    agent: str | None = optional()
    channel: str = optional()
    evaluation_run: int
    status: Status
    error: str
    procedure: str = optional()
    repeats: int = optional()
    simulated: bool = optional()
    swap_test: Annotated[str, one_of(SwapHalf.choices)] = optional(
        f"made to test the judge, not the agent\n\n{described(SwapHalf.choices)}"
    )
    actor_model: str = optional()
    persona_digest: str
    overall_score: float | None
    coverage: float | None = Field(description=COVERAGE)
    dimensions: dict[str, DimensionSummaryAnswer]
    calls: int
    tokens: int
    cost_usd: float | None = Field(description="of the priced calls; null = none has a price")
    unpriced_calls: int
    cache_read_share: float | None


class ChannelEvaluation(Row):
    """An evaluation of a channel that stands behind an agent's."""

    channel: str | None = shown("channel_run.channel.slug")
    messages: int
    status: Status = shown("channel_run.status")
    evaluation_run: int = shown("channel_run_id")
    url: Url = run_url_of("channel_run_id")


class WholeEvaluation(EvaluationRow):
    """One evaluation with what it found."""

    scores_url: Url
    cancel_url: Url
    resume_url: Url
    compare_url: Url = optional("of an agent's evaluation")
    summary: SummaryAnswer
    channels: list[ChannelEvaluation]
    scores: list[ScoreRow]
    scores_complete: bool


class AcceptedEvaluation(EvaluationRow):
    """An evaluation that a worker will make."""

    taken_up: bool = optional("the same was asked for before and has not ended")


class CuesAnswer(Answer):
    supports: list[str]
    contradicts: list[str]


class PropositionAnswer(Row):
    """A claim that a judge scores, as its file has it."""

    dimension: DimensionName
    id: str
    agent: str | None = shown(lambda proposition, context: context["agent"], "null = of the defaults")
    level: Literal["evaluation", "action"] = shown(lambda proposition, context: context["level"])
    claim: str
    weight: float
    inverted: bool
    hard: bool
    include_personas: bool
    target_type: str
    first_n: int
    last_n: int
    recommendations_for_improvement: str = shown("recommendations")
    precondition: str | None = Field(description="what must hold for it to be asked")
    rule: dict[str, Any] | None = shown(
        lambda proposition, context: proposition.rule.checks() if proposition.rule else None,
        "checked exactly, without a judge",
    )
    of_ten: int | None = Field(description="in how many of 10 messages its rule should hold; null = in every one")
    cues: CuesAnswer | None
    measure: str | None = Field(description="counted, without a judge")
    trait: str = Field(description="the trait it speaks of; mostly none")
    over_window: bool = Field(description="judged once over the window, not message by message")
    active: bool
    rejected: bool
    retired: bool
    quote: str
    source: str
