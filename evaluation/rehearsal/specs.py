"""From a play to what is measured of it."""

from __future__ import annotations

from dataclasses import replace

from evaluation.rehearsal.values import Play
from evaluation.run_spec import MOST_SAMPLES, PLAY, RunSpec
from evaluation.windows import BEFORE, MessageWindow


def play_spec(spec: RunSpec, play: Play, *, against: Play | None = None) -> RunSpec:
    """The same measurement, of what was played instead of real speech (AC-6.5.2); everything that was played is measured.

    Window and tags of `spec` speak of real speech and do not apply. Channel dimensions are skipped, with a
    reason: an agent is played alone.

    Args:
        spec: What is asked for, of the play's agent.
        play: What was played.
        against: An earlier play of the agent that self-consistency compares it with, the same lines of the same situations with each other;
            without one self-consistency is not evaluable.

    Raises:
        ValueError: `spec` or `against` speaks of somebody else.
    """
    for agent in (spec.agent, against.agent if against else play.agent):
        if agent is None or agent.pk != play.agent.pk:
            raise ValueError(
                f"{agent.slug if agent else spec.target.slug!r} was not played; allowed: {play.agent.slug!r}"
            )
    return replace(
        spec,
        played=True,
        actor_model=play.actor_model,
        window=MessageWindow(),
        where={PLAY: play.id},
        history=MessageWindow() if against else MessageWindow(BEFORE),
        history_where={PLAY: against.id} if against else {},
        samples=min(max(spec.samples, play.messages), MOST_SAMPLES),
    )
