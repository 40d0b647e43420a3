"""A proposition and a dimension as they were measured: scores, and the judgements behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evaluation.change.change import HIT, Sample, mean_of
from evaluation.runs.numbers import counted_score, rounded
from evaluation.runs.shares import Share, total
from evaluation.statistics.bootstrap import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProposition(Sample):
    """One proposition.

    Attributes:
        observations: Mean of the repeats, weight of the proposition × inclusion weight. The cluster is a text: ``message:KEY``,
            ``conversation:KEY`` where conversations were kept by chance (the item is then the message), ``situation:ID`` where speech
            was simulated (so that the same situations pair), ``channel:SLUG`` for an agent's channel dimensions, ``repeat:N`` where a
            whole window is judged at once.
        share: How much was scored of what the judge can score; None where that is not known.
        by_message: Whether it is judged message by message.
        digest: Of everything in it that can change a score; empty where that is not known.
        unjudged: Whether it was asked and the judge could score nothing of it; of a file that is not known.
        inverted: Whether a high score says that the claim does not hold.
        of_ten: Of a rule that need not hold in every message: in how many of 10 it should; None: in every one.
        scored, unscored: Judgements that were scored, and those that could not be, each repeat for itself; 0 in a file.
        deleted: Judgements of messages that were deleted since.
    """

    share: Share | None = None
    by_message: bool = False
    digest: str = ""
    unjudged: bool = False
    inverted: bool = False
    of_ten: int | None = None
    scored: int = 0
    unscored: int = 0
    deleted: int = 0

    @property
    def hits(self) -> Share | None:
        """Return how many of the messages break the rule, or have a cue against it; None where that is not known."""
        if not self.by_message or self.share is None:
            return None
        if not all(is_message(observation) for observation in self.observations):
            return None
        hits = [observation for observation in self.observations if observation.value <= HIT]
        return Share(len(hits), self.share.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDimension:
    """One dimension.

    Attributes:
        reason: Why it has no score although there was something to score.
        messages, unscored: Messages that were judged one by one, and those of them that no proposition scored.
        unscored_because: Of self-consistency without a score: the reason that most of its judgements give; a file holds none.
        stated: How much was scored, as a file states it for the dimension as a whole.
    """

    score: float | None = None
    reason: str = ""
    propositions: Mapping[str, MeasuredProposition] = field(default_factory=dict)
    messages: int = 0
    unscored: int = 0
    unscored_because: str = ""
    stated: Share | None = None

    @property
    def sample(self) -> Sample:
        """Return the dimension as a whole."""
        observations = [o for measured in self.propositions.values() for o in measured.observations]
        return Sample(score=self.score, observations=observations)

    @property
    def share(self) -> Share | None:
        """Return how much was scored; None where that is not known."""
        if self.stated is not None:
            return self.stated
        shares = [measured.share for measured in self.propositions.values() if measured.share is not None]
        return total(shares) if shares else None


def dimension_score(propositions: Iterable[MeasuredProposition]) -> float | None:
    """Return the score of a dimension: the mean of its judgements, None without any. Of a rule with `of_ten` see `counted_score`."""
    points = weights = 0.0
    for measured in propositions:
        weight = sum(observation.weight for observation in measured.observations)
        mean = mean_of(measured.observations)
        if mean is not None:
            points += weight * counted_score(mean, measured.of_ten)
            weights += weight
    return rounded(points / weights) if weights else None


def item_of(observation: Observation) -> str:
    """Return what was judged: a message, or what else the cluster is."""
    return str(observation.cluster if observation.item is None else observation.item)


def is_message(observation: Observation) -> bool:
    """Return whether it is the score of one message."""
    return item_of(observation).startswith("message:")
