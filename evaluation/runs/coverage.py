"""How much of what a judge can score it scored, and whether that is enough for a score.

A proposition that this judge cannot score at all (offline one without a rule, cues or a statistic) does not count. Nor does what
could not be judged at all: a deleted message, an empty text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db.models import Count, Q

from evaluation.judge.verdicts import OUT_OF_REACH
from evaluation.models import BY_MESSAGE, ChannelShare, EvaluationScore

# Settled, and not out of reach. A trivial judgement is left out: it could not be false there, so nothing is missing.
COVERABLE = Q(status="scored") | (Q(status="unscored") & ~Q(judge="") & ~Q(cause=OUT_OF_REACH))
MESSAGES = Q(dimension__in=BY_MESSAGE, over_window=False)  # judged message by message, not once over the window

TOO_LITTLE = "not enough data"


def share_counts(only: Q = Q()) -> dict[str, Any]:  # noqa: B008 (a Q is never changed)
    """Annotations for `EvaluationScore` rows: what was scored (`hits`) of what this judge can score (`asked`), of `only` these.

    Repeats of a judgement count once: the first one speaks for them.
    """
    once = only & Q(repeat=1)
    return {"hits": Count("pk", filter=once & Q(status="scored")), "asked": Count("pk", filter=once & COVERABLE)}


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


def total(shares: Iterable[Share]) -> Share:
    return sum(shares, NOTHING)


def percent(share: Share | None) -> str:
    """E.g. ``24 %``; empty where there was nothing to score. Only all is 100 %, and only nothing is 0 %."""
    if share is None or share.value is None:
        return ""
    shown = round(100 * share.value)
    if 0 < share.scored < share.asked:
        shown = min(99, max(1, shown))
    return f"{shown} %"


def with_share(score: str, share: Share | None, *, between: str = " · ") -> str:
    """A score and the share behind it, as every cell has them: ``8.3 · 24 %``."""
    return between.join(filter(None, (score, percent(share))))


def why_too_little(share: Share) -> str:
    """Why these judgements of messages make no score; empty when they do, and where there was nothing to score.

    Args:
        share: The judgements of messages in a dimension that is judged message by message.
    """
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
    parts: dict[int, set[int]] = {pk: {pk} for pk in runs}
    links = ChannelShare.objects.filter(agent_run__in=parts).order_by().values_list("agent_run", "channel_run")
    for run, channel_run in links:
        parts[run].add(channel_run)
    rows = EvaluationScore.objects.filter(evaluation_run__in=set().union(*parts.values()), repeat=1).order_by()
    counts = rows.values_list("evaluation_run", "dimension").annotate(**share_counts())
    of_part: dict[int, dict[str, Share]] = {}
    for run, dimension, scored, asked in counts:
        of_part.setdefault(run, {})[dimension] = Share(scored, asked)
    found: dict[int, dict[str, Share]] = {run: {} for run in parts}
    for run, of_run in parts.items():
        for part in of_run:
            for dimension, share in of_part.get(part, {}).items():
                found[run][dimension] = found[run].get(dimension, NOTHING) + share
    return found
