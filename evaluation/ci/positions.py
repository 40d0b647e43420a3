"""Fading within long conversations, as part of a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.change.position import Bin, PositionProfile, position_profile
from evaluation.ci.findings import Fading
from evaluation.ci.gather import AgentResult
from evaluation.ci.limits import Limits


def profiles_of(results: Sequence[AgentResult], bins: Sequence[Bin], limits: Limits) -> dict[str, PositionProfile]:
    """By agent its scores by position, of those whose run is complete."""
    return {
        result.agent: position_profile(result.run, bins, margin=limits.margin)
        for result in results
        if result.run.status == result.run.Status.COMPLETED
    }


def fading_in(profiles: Sequence[PositionProfile], limits: Limits) -> Iterator[Fading]:
    """Falls between the first and the last stretch, inside the same conversations, that are sure and large enough to matter."""
    for profile in profiles:
        for found in profile.dimensions:
            change = found.within
            delta, interval = change.delta.value, change.delta.interval
            if delta is None or interval is None or change.decision.verdict != "drifted":
                continue
            if delta <= -limits.regression_delta:
                yield Fading(
                    agent=profile.agent,
                    dimension=found.dimension,
                    first=change.first,
                    last=change.last,
                    delta=round(delta, 4),
                    interval=(round(interval.low, 4), round(interval.high, 4)),
                )
