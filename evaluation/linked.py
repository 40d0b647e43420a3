"""An agent's numbers in the dimensions that are measured of whole channels."""

from __future__ import annotations

from math import sqrt

from evaluation.coverage import total
from evaluation.models import ChannelShare
from evaluation.summary_values import ChannelScore, DimensionSummary, PropositionSummary, rounded


def linked_dimension(dimension: str, parts: list[tuple[ChannelShare, DimensionSummary]]) -> DimensionSummary:
    """One dimension of an agent from its channels: the mean of their scores weighted by its messages there, the sum of their counts."""
    scored = [(share.messages, part.score) for share, part in parts if part.score is not None]
    counts = [part.count for _, part in parts if part.count is not None]
    noises = [part.noise for _, part in parts if part.noise is not None]
    return DimensionSummary(
        dimension=dimension,
        score=rounded(sum(n * score for n, score in scored) / sum(n for n, _ in scored)) if scored else None,
        **{
            name: sum(getattr(part, name) for _, part in parts) for name in ("scored", "trivial", "unscored", "pending")
        },
        propositions=_linked_propositions(parts),
        count=sum(counts) if counts else None,
        noise=rounded(sqrt(sum(noise**2 for noise in noises) / len(noises))) if noises else None,
        channels=tuple(
            ChannelScore(
                run=share.channel_run, messages=share.messages, score=part.score, count=part.count, share=part.share
            )
            for share, part in parts
        ),
        share=total(part.share for _, part in parts),
    )


def _linked_propositions(parts: list[tuple[ChannelShare, DimensionSummary]]) -> tuple[PropositionSummary, ...]:
    by_id: dict[str, list[tuple[int, PropositionSummary]]] = {}
    for share, part in parts:
        for proposition in part.propositions:
            by_id.setdefault(proposition.id, []).append((share.messages, proposition))
    found = []
    for name, group in sorted(by_id.items()):
        scored = [(n, p.score) for n, p in group if p.score is not None]
        counts = [p.count for _, p in group if p.count is not None]
        found.append(
            PropositionSummary(
                id=name,
                score=rounded(sum(n * score for n, score in scored) / sum(n for n, _ in scored)) if scored else None,
                weight=group[0][1].weight,
                inverted=group[0][1].inverted,
                count=sum(counts) if counts else None,
                share=total(p.share for _, p in group),
                **{k: sum(getattr(p, k) for _, p in group) for k in ("scored", "trivial", "unscored", "pending")},
            )
        )
    return tuple(found)
