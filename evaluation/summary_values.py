"""The numbers of an evaluation as values: per proposition, per dimension, per run."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

from django.conf import settings

from evaluation.coverage import NOTHING, Share, total
from evaluation.models import EvaluationRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PropositionSummary:
    """One proposition over a run.

    Attributes:
        score: Mean over its items of their scored judgements, 0 to 9; None when none was scored.
        count: Distinct ideas, where the proposition is counted instead of scored.
        scored, trivial, unscored, pending: Judgements in that status.
        share: How much of it the judge scored, of what it can score; repeats count once.
    """

    id: str
    score: float | None
    weight: float
    inverted: bool
    scored: int
    trivial: int
    unscored: int
    pending: int
    count: int | None = None
    share: Share = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelScore:
    """What one channel contributes to an agent's dimension. `messages` are the agent's there: its weight in the mean.

    `share` is how much was scored there.
    """

    run: EvaluationRun
    messages: int
    score: float | None
    count: int | None
    share: Share = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionSummary:
    """One dimension over a run.

    Attributes:
        score: Mean weighted by proposition over all scored items; over its channels where the run is an agent's and the dimension a
            channel's. None when there are none.
        count: Distinct ideas; None for dimensions that are scored.
        noise: Standard deviation of a judgement around the mean of its item's repeats, in points; None without repeats.
        channels: The channels it was measured in, for an agent's run.
        share: How much of it the judge scored, of what it can score; repeats count once.
        reason: Why there is no score although there was something to score: too little of it was scored.
    """

    dimension: str
    score: float | None
    scored: int
    trivial: int
    unscored: int
    pending: int
    propositions: tuple[PropositionSummary, ...]
    count: int | None = None
    noise: float | None = None
    channels: tuple[ChannelScore, ...] = ()
    share: Share = NOTHING
    reason: str = ""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run in numbers. `overall_score` is the mean of its dimensions' scores; tokens and cost are sums over the ledger.

    It is empty where a dimension fell short: the mean of the others would rise when the persona is lost.

    `input_tokens` are all that were sent, those that the prompt cache held (`cache_read_tokens`) included.
    """

    run: EvaluationRun
    overall_score: float | None
    dimensions: dict[str, DimensionSummary] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0
    cost_usd: Decimal | None = None
    unpriced_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    @property
    def cache_read_share(self) -> float | None:
        """Share of the input tokens that was read from the prompt cache, 0 to 1; None when nothing was sent."""
        return round(self.cache_read_tokens / self.input_tokens, 4) if self.input_tokens else None

    @property
    def share(self) -> Share:
        """How much was scored over all dimensions."""
        return total(d.share for d in self.dimensions.values())

    @property
    def measured(self) -> bool:
        """Whether any dimension has a number. A count is one, and is in no `overall_score`."""
        return any(d.measured for d in self.dimensions.values())


def rounded(value: float | None) -> float | None:
    """As scores are stored and shown: four decimals."""
    return None if value is None else round(value, 4)
