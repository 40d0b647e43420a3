"""Propositions of which surely much less is scored than before: a score of what is left must not pass for the whole."""

from __future__ import annotations

from collections.abc import Mapping

from evaluation.comparison.chance import ALPHA, holm
from evaluation.comparison.values import Lost
from evaluation.runs.coverage import Share

FELL_BELOW = 0.5  # of the share before

Shares = Mapping[tuple[str, str], Share]  # by dimension and proposition


def lost_propositions(before: Shares, now: Shares) -> tuple[Lost, ...]:
    """The propositions of one agent whose scored share fell by more than half, and surely so.

    Fisher's exact test for each, one-sided: only a fall is looked for, so that the whole 5 % lie there. Holm's correction for all of the
    agent's propositions of which anything was scored before: no other can fall.

    Args:
        before, now: What was judged message by message; what stands on one side only is left out.
    """
    from scipy.stats import fisher_exact

    names = [name for name, share in before.items() if share.scored and name in now and now[name].asked]
    chances = []
    for name in names:
        table = [[share.scored, share.asked - share.scored] for share in (before[name], now[name])]
        chances.append(float(fisher_exact(table, alternative="greater").pvalue))
    return tuple(
        Lost(dimension=name[0], proposition=name[1], before=before[name], now=now[name], p=p)
        for name, p in zip(names, holm(chances), strict=True)
        if p <= ALPHA and (now[name].value or 0.0) < FELL_BELOW * (before[name].value or 0.0)
    )
