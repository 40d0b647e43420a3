"""How much of what was asked is scored: shares, how they are written, and when too little is scored for a score."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from django.conf import settings
from django.db.models import Count, Q
from pydantic import PlainSerializer

from evaluation.models import BY_MESSAGE, OUT_OF_REACH, ChannelShare, EvaluationScore

MESSAGES = Q(dimension__in=BY_MESSAGE, over_window=False)  # judged message by message, not once over the window
# What a share is counted of. A claim about a message that this judge cannot reach is left out. One about a window is counted: a window is
# asked few claims, and one of five that is scored is not all of it. A trivial judgement is left out: it could not be false there.
_REACHABLE = ~Q(cause=OUT_OF_REACH) | ~Q(dimension__in=BY_MESSAGE)
COVERABLE = Q(status="scored") | (Q(status="unscored") & ~Q(judge="") & _REACHABLE)

TOO_LITTLE = "not enough data"
FEW = 8  # judgements; of fewer no percentage is shown


def share_counts() -> dict[str, Any]:
    """Return annotations for `EvaluationScore` rows: what was scored of what this judge can score (`asked`); of repeats the first."""
    once = Q(repeat=1)
    return {"scored_once": Count("pk", filter=once & Q(status="scored")), "asked": Count("pk", filter=once & COVERABLE)}


@dataclass(frozen=True, slots=True)
class Share:
    """Judgements scored, of those this judge could have scored. Repeats of a judgement count once."""

    scored: int = 0
    asked: int = 0

    @property
    def value(self) -> float | None:
        """Return 0 to 1; None when there was nothing to score."""
        if not self.asked:
            return None
        return self.scored / self.asked

    @property
    def rounded(self) -> float | None:
        """Return the value as JSON holds it."""
        return None if self.value is None else round(self.value, 4)

    def __add__(self, other: Share) -> Share:
        return Share(self.scored + other.scored, self.asked + other.asked)

    def __str__(self) -> str:
        return f"{self.scored:,} of {self.asked:,}"


NOTHING = Share()
ShareShown = Annotated[Share | None, PlainSerializer(lambda share: share and share.rounded, return_type=float | None)]


def total(shares: Iterable[Share]) -> Share:
    """Add up shares."""
    return sum(shares, NOTHING)


def percent(share: Share | None) -> str:
    """Write a share, e.g. ``24 %``, of a few ``1 of 5``; empty where there was nothing to score. Only all is 100 %, only nothing 0 %."""
    if share is None or share.value is None:
        return ""
    if share.asked < FEW:
        return str(share)
    percentage = round(100 * share.value)
    if 0 < share.scored < share.asked:
        percentage = min(99, max(1, percentage))
    return f"{percentage} %"


def with_share(score: str, share: Share | None, *, between: str = " · ") -> str:
    """Write a score and the share behind it, as every cell has them: ``8.3 · 24 %``."""
    return between.join(part for part in (score, percent(share)) if part)


def words_or_share(score: str, share: Share | None, *, of_words: bool, between: str = " · ") -> str:
    """Write a score of a comparison: ``8.3 · 24 %``; by the statistic of repeated words, which no judge gave, ``8.3 · words``."""
    if of_words:
        return f"{score}{between}words"
    return with_share(score, share, between=between)


def why_too_little(share: Share) -> str:
    """Return why these judgements of single messages make no score; empty when they do, and where there was nothing to score."""
    needed = settings.SCORE_MIN_JUDGEMENTS
    least = settings.SCORE_MIN_COVERAGE
    if not share.asked:
        return ""
    if share.scored < needed:
        return f"{TOO_LITTLE}: {share} judgements scored, a score needs {needed}"
    if share.scored < least * share.asked:
        return f"{TOO_LITTLE}: {share} judgements scored ({percent(share)}), a score needs {100 * least:g} %"
    return ""


def shares_of(runs: Collection[int]) -> dict[int, dict[str, Share]]:
    """Return the share scored per evaluation and dimension, in two queries; dimensions without judgements are left out.

    An agent's channel dimensions are in its channels' evaluations: their shares are added up.

    Args:
        runs: Primary keys.
    """
    # The evaluations to which the judgements of an evaluation count: itself, or the agents' that are linked to a channel's.
    counted_in: dict[int, list[int]] = {run: [run] for run in runs}
    links = ChannelShare.objects.filter(agent_run__in=runs).order_by().values_list("agent_run", "channel_run")
    for run, channel_run in links:
        counted_in.setdefault(channel_run, []).append(run)
    judgements = EvaluationScore.objects.filter(evaluation_run__in=list(counted_in), repeat=1).order_by()
    counts = judgements.values_list("evaluation_run", "dimension").annotate(**share_counts())
    shares: dict[int, dict[str, Share]] = {run: {} for run in runs}
    for judged_run, dimension, scored, asked in counts:
        for run in counted_in[judged_run]:
            before = shares[run].get(dimension, NOTHING)
            shares[run][dimension] = before + Share(scored, asked)
    return shares
