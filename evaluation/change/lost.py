"""Where so much less is scored than in the baseline that what is left says little: neither a pass nor drift, but a lack of data.

Both tests compare scored shares, not scores. Hits are no part of them: fewer hits are good news, and no loss of data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from evaluation.change.change import Probability
from evaluation.propositions.schema import DimensionId
from evaluation.runs.shares import Share
from evaluation.statistics.bootstrap import HIGHEST, Observation
from evaluation.statistics.difference import ALPHA, Scores, difference_p, holm

FELL_BELOW = 0.5  # of the share scored in the baseline

SharesByProposition = Mapping[tuple[str, str], Share]  # by dimension and proposition


class Lost(BaseModel):
    """A proposition, or a dimension (`proposition` is empty), of which significantly less than half as much is scored as in the baseline.

    What is left of it says little now: a dimension has no score. `p`: chance of such a fall where there is none (Holm). Scored are so
    many of those that the judge could have scored; `without_hits`: but for propositions compared by hits.
    """

    model_config = ConfigDict(frozen=True)

    dimension: DimensionId
    proposition: str
    p: Probability
    baseline_scored: int
    baseline_of: int
    scored: int
    of: int
    without_hits: bool = Field(False, exclude=True)

    @property
    def before(self) -> Share:
        return Share(self.baseline_scored, self.baseline_of)

    @property
    def now(self) -> Share:
        return Share(self.scored, self.of)

    def __str__(self) -> str:
        figures = f"{self.before} judgements scored in the baseline, {self.now} now"
        if self.proposition:
            return f"{self.proposition}: {figures}"
        exception = ", without what is compared by hits" if self.without_hits else ""
        return f"less than half as much is scored as in the baseline: {figures}{exception}"


def lost_propositions(before: SharesByProposition, now: SharesByProposition) -> tuple[Lost, ...]:
    """Return the propositions of one agent, judged message by message, whose scored share fell significantly, to less than half.

    Fisher's exact test for each, one-sided; Holm's correction for all of which anything was scored before: no other can fall.
    """
    from scipy.stats import fisher_exact

    tested = []
    p_values = []
    for key, share_before in before.items():
        share_now = now.get(key)
        if share_now is None or not share_now.asked or not share_before.scored:
            continue
        table = [
            [share_before.scored, share_before.asked - share_before.scored],
            [share_now.scored, share_now.asked - share_now.scored],
        ]
        tested.append(key)
        p_values.append(float(fisher_exact(table, alternative="greater").pvalue))
    lost = []
    for (dimension, proposition), p in zip(tested, holm(p_values), strict=True):
        share_before = before[dimension, proposition]
        share_now = now[dimension, proposition]
        if p <= ALPHA and fell_below_half(share_before, share_now):
            lost.append(_lost(dimension, proposition, p, share_before, share_now))
    return tuple(lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredShare:
    """How much of a dimension was scored.

    Attributes:
        share: In all.
        messages: Messages that were judged.
        scored: Of each message with a score, how many of its judgements were scored.
    """

    share: Share
    messages: int
    scored: Mapping[object, int]

    @property
    def observations(self) -> Scores:
        """Return the scored share of each message, as points of 0 to 9."""
        if not self.messages or not self.share.asked:
            return []
        # On average: a message with more scores than that counts as all scored.
        asked_per_message = self.share.asked / self.messages
        observations = []
        for message, scored in self.scored.items():
            observations.append(Observation(HIGHEST * min(1.0, scored / asked_per_message), 1.0, message))
        for number in range(self.messages - len(self.scored)):
            observations.append(Observation(0.0, 1.0, f"unscored:{number}"))
        return observations


def lost_dimensions(shares: Mapping[str, tuple[ScoredShare, ScoredShare]]) -> tuple[Lost, ...]:
    """Return the dimensions of one agent whose scored share fell significantly, to less than half.

    Judgements of one message belong together, so the shares of the messages are compared, as scores are (`difference_p`), with Holm's
    correction for all dimensions of which anything was scored before.

    Args:
        shares: By dimension that of the baseline and of the candidate, over propositions that are the same in both.
    """
    tested = []
    p_values = []
    for dimension, (before, now) in shares.items():
        if not before.share.scored or not now.share.asked:
            continue
        tested.append(dimension)
        p_values.append(_p_of_loss(before, now))
    lost = []
    for dimension, p in zip(tested, holm(p_values), strict=True):
        if p <= ALPHA:  # `_p_of_loss` gives 1 where no more than half was lost
            before, now = shares[dimension]
            lost.append(_lost(dimension, "", p, before.share, now.share))
    return tuple(lost)


def _p_of_loss(before: ScoredShare, now: ScoredShare) -> float:
    """Return the p value of a loss; 1 where no more than half was lost, or too few messages were judged for a test."""
    if not fell_below_half(before.share, now.share):
        return 1.0
    p = difference_p(before.observations, now.observations)
    return 1.0 if p is None else p


def _lost(dimension: str, proposition: str, p: float, before: Share, now: Share) -> Lost:
    """Return a loss with the counts of both shares."""
    return Lost(
        dimension=dimension,
        proposition=proposition,
        p=p,
        baseline_scored=before.scored,
        baseline_of=before.asked,
        scored=now.scored,
        of=now.asked,
    )


def fell_below_half(before: Share, now: Share) -> bool:
    """Return whether less than half as much is scored as before, be it by chance."""
    share_before = before.value or 0.0
    share_now = now.value or 0.0
    return share_now < FELL_BELOW * share_before
