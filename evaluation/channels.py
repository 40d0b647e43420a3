"""The channels that stand for an agent in the dimensions measured of whole conversations (convergence, ideas quantity)."""

from __future__ import annotations

from django.db.models import Count

from agents.models import Channel
from evaluation.models import CHANNEL_DIMENSIONS
from evaluation.run_spec import RunSpec
from evaluation.windows import spoken_by

MOST_CHANNELS = 20  # per agent: those in which it said most


def channel_specs(spec: RunSpec) -> list[tuple[RunSpec, int]]:
    """For an agent's evaluation: those of its channels, with the number of its messages there, most first.

    The same window, tags and procedure; ``last:N`` are then the channel's last N messages. Empty when no channel dimension is asked
    for, when the target is a channel itself, or when speech was simulated, which an agent does alone.
    """
    dimensions = tuple(d for d in spec.dimensions if d in CHANNEL_DIMENSIONS)
    if spec.agent is None or not dimensions or spec.simulated:
        return []
    spoken = spoken_by(agent=spec.agent, window=spec.window, where=spec.where)
    counted = spoken.order_by().values_list("channel").annotate(n=Count("pk")).order_by("-n", "channel")
    shares = dict(counted[:MOST_CHANNELS])
    channels = Channel.objects.in_bulk(list(shares))
    return [(_of(spec, channels[pk], dimensions), n) for pk, n in shares.items()]


def _of(spec: RunSpec, channel: Channel, dimensions: tuple[str, ...]) -> RunSpec:
    return RunSpec(
        channel=channel,
        dimensions=dimensions,
        window=spec.window,
        where=spec.where,
        seed=spec.seed,
        per_call=spec.per_call,
        judge=spec.judge,
        is_baseline=spec.is_baseline,
        repeats=spec.repeats,
        hard=spec.hard,
        double_check=spec.double_check,
        method=spec.method,
        additional_context=spec.additional_context,
        schedule=spec.schedule,
        batch=spec.batch,
    )
