"""The numbers of an evaluation as values: what commands print and the API returns. Without a scored judgement a mean is null (AC-6.0.9)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from django.conf import settings
from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, computed_field, model_serializer

from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, is_heuristic
from evaluation.runs.shares import NOTHING, Share, total
from evaluation.statistics.bootstrap import Observation


class Numbers(BaseModel):
    """The numbers of a proposition or a dimension.

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


MOSTLY_TRUE = 7  # of 9, as in the judge's prompt (evaluation/templates/prompts/judge/rubric.md)


def counted_score(score: float, of_ten: int | None) -> float:
    """Return what the mean score of a proposition counts in its dimension: of a rule with `of_ten` 9 where it holds as often as that.

    Below that it counts in proportion: a rule that should hold in 6 of 10 messages and holds in 3 counts 4.5.
    """
    if of_ten is None:
        return score
    return min(9.0, score * 10 / of_ten)


class PropositionSummary(Numbers):
    """One proposition over a run.

    Attributes:
        of_ten: In how many of ten messages its rule should hold; None: in every one.
    """

    id: str
    weight: float
    inverted: bool
    of_ten: int | None = None

    @property
    def share_of_wanted(self) -> float | None:
        """Return the score as it counts in its dimension, see `counted_score`: by it propositions are ranked."""
        return None if self.score is None else counted_score(self.score, self.of_ten)

    @property
    def is_weak(self) -> bool:
        """Return whether it scored below what the judge's rubric calls mostly true."""
        return self.share_of_wanted is not None and self.share_of_wanted < MOSTLY_TRUE


class ChannelScore(BaseModel):
    """The part of one channel in an agent's dimension. `messages` are the agent's there: its weight in the mean."""

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
        channels: The channels it was measured in, for an agent's run; empty where it was judged in the run itself.
        reason: Why there is no score although there was something to score: too little of it was scored.
        not_evaluable: Why there was nothing to score; empty where there was something.
        statistics: Judgements that an offline judge computed from the text, or would have.
    """

    dimension: str
    propositions: tuple[PropositionSummary, ...] = ()
    noise: float | None = None
    channels: tuple[ChannelScore, ...] = ()
    reason: str = ""
    not_evaluable: str = ""
    statistics: int = 0

    @property
    def measured(self) -> bool:
        """Return whether there is a number: a score or a count."""
        return self.score is not None or self.count is not None

    @property
    def weakest(self) -> PropositionSummary | None:
        """Return the proposition with the lowest mean, of rules with `of_ten` by how far they miss it; None when nothing was scored."""
        scored = [proposition for proposition in self.propositions if proposition.score is not None]
        return min(scored, key=lambda proposition: (proposition.share_of_wanted, proposition.id), default=None)

    @property
    def fell_short(self) -> bool:
        """Return whether there were judgements enough for a score, and too few of them were scored."""
        return bool(self.reason) and self.share.asked >= settings.SCORE_MIN_JUDGEMENTS

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        """Dump it, with ``count`` instead of ``score`` where ideas are counted; ``noise``, ``channels``, ``reason`` only if there are any.

        ``coverage`` is the share scored, 0 to 1 or null.
        """
        number = "count" if self.dimension in COUNTED else "score"
        document: dict[str, Any] = {
            number: getattr(self, number),
            "scored": self.scored,
            "trivial": self.trivial,
            "unscored": self.unscored,
            "coverage": self.share.rounded,
            "propositions": {proposition.id: getattr(proposition, number) for proposition in self.propositions},
        }
        if self.noise is not None:
            document["noise"] = self.noise
        if self.channels:
            document["channels"] = [self._dump_channel(channel, number) for channel in self.channels]
        if self.reason or self.not_evaluable:
            document["reason"] = self.reason or self.not_evaluable
        return document

    @staticmethod
    def _dump_channel(channel_score: ChannelScore, number: str) -> dict[str, Any]:
        """Dump the part of one channel; `number` is the name of what it has: ``score`` or ``count``."""
        channel = channel_score.run.channel
        return {
            "channel": channel.slug if channel else None,
            "evaluation_run": channel_score.run.pk,
            "messages": channel_score.messages,
            number: getattr(channel_score, number),
            "coverage": channel_score.share.rounded,
        }


Usd = Annotated[Decimal | None, PlainSerializer(lambda usd: None if usd is None else float(usd))]


class Spending(BaseModel):
    """Sums over calls: `input_tokens` are all that were sent, from the prompt cache or not; `cost_usd` is None where none has a price."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: Usd = None


class Used(Spending):
    """Sums over calls that were made. `unpriced_calls`: how many of them the cost leaves out."""

    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    unpriced_calls: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cache_read_share(self) -> float | None:
        """Return the share of the input tokens that was read from the prompt cache, 0 to 1; None when nothing was sent."""
        if not self.input_tokens:
            return None
        return round(self.cache_read_tokens / self.input_tokens, 4)


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
        """Return how much was scored over all dimensions."""
        return total(dimension.share for dimension in self.dimensions.values())

    @property
    def measured(self) -> bool:
        """Return whether any dimension has a number. A count is one, and is in no `overall_score`."""
        return any(dimension.measured for dimension in self.dimensions.values())

    @property
    def comparable(self) -> bool:
        """Return whether it can be compared: any dimension has a number, or a statistic."""
        return self.measured or bool(window_statistics(self.run.figures))

    @property
    def searched(self) -> bool:
        """Return whether an offline judge searched messages for cues, be it in vain: the share with a hit compares."""
        by_message = [dimension for name, dimension in self.dimensions.items() if name in BY_MESSAGE]
        return is_heuristic(self.run.judge) and any(dimension.share.asked for dimension in by_message)

    @model_serializer
    def _dump(self) -> dict[str, Any]:
        """Dump it with the run's columns. A dimension of the run that has no judgements is dumped with zeros.

        ``channel`` instead of ``agent`` for a channel's run; how it was judged only where that was not the usual way.
        """
        run = self.run
        document: dict[str, Any] = {}
        if run.channel:
            document["channel"] = run.channel.slug
        else:
            document["agent"] = run.agent.slug if run.agent else None
        document["evaluation_run"] = run.pk
        document["status"] = run.status
        document["error"] = run.error
        if run.procedure != "plumbline" or run.repeats != 1:
            document["procedure"] = run.procedure
            document["repeats"] = run.repeats
        if run.simulated:
            document["simulated"] = True
            document["actor_model"] = run.actor_model
        if run.swap_test:
            document["swap_test"] = run.swap_test
        document["persona_digest"] = run.persona_digest
        document["overall_score"] = self.overall_score
        document["coverage"] = self.share.rounded
        document["dimensions"] = {}
        for name in run.dimensions:
            dimension = self.dimensions.get(name) or DimensionSummary(dimension=name)
            document["dimensions"][name] = dimension.model_dump()
        document["calls"] = self.calls
        document["tokens"] = self.tokens
        document["cost_usd"] = None if self.cost_usd is None else float(self.cost_usd)
        document["unpriced_calls"] = self.unpriced_calls
        document["cache_read_share"] = self.cache_read_share
        return document


def rounded(value: float | None) -> float | None:
    """Round a score to four decimals, as it is stored and shown."""
    return None if value is None else round(value, 4)


def window_statistics(stored: Mapping[str, Any]) -> dict[str, dict[str, list[Observation]]]:
    """Return by dimension and proposition the exact statistic of a window, message by message, from `EvaluationRun.figures`.

    Comparisons go by it, also where the claim itself is unscored: see `evaluation.scorers.fluency.figures`. Dimensions without it are left
    out. A message goes by the key of its text.
    """
    statistics: dict[str, dict[str, list[Observation]]] = {}
    for dimension, figures in stored.items():
        if "phrases" not in figures:
            continue
        statistics[dimension] = {}
        for proposition, phrases in figures["phrases"].items():
            weight = phrases["weight"]
            observations = [Observation(score, weight, message) for message, score in phrases["scores"].items()]
            statistics[dimension][proposition] = observations
    return statistics
