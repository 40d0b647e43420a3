"""Agents with too little speech to measure are played through our situations instead (AC-6.5.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from evaluation.rehearsal.playing import play
from evaluation.rehearsal.situations import load_situations
from evaluation.rehearsal.specs import play_spec
from evaluation.rehearsal.values import Play
from evaluation.run_spec import RunSpec
from evaluation.windows import MessageWindow, spoken_by

ENOUGH = 10  # messages: with fewer, an agent is played


def has_little_speech(spec: RunSpec) -> bool:
    """Whether the agent said fewer than 10 things in all its life. Who asks for tagged speech asks for real speech, however little."""
    if spec.agent is None or spec.where or spec.history_where or spec.played:
        return False
    return len(spoken_by(agent=spec.agent, window=MessageWindow())[:ENOUGH]) < ENOUGH


def play_where_little(
    specs: Sequence[RunSpec], *, progress: Callable[[str, int, int], None] = lambda agent, done, total: None
) -> tuple[list[RunSpec], list[Play]]:
    """Play the agents with little speech; what was played before under the same persona and model is not played again.

    Args:
        specs: What is to be measured.
        progress: Called with an agent's slug, how many lines are played, and of how many.

    Returns:
        The specs, those of played agents speaking of the play; of an agent that kept silent its own speech is measured, however little.
        Without those whose actor failed: the same call goes on with them. And the plays.
    """
    situations = load_situations()
    measured: list[RunSpec] = []
    plays: list[Play] = []
    for spec in specs:
        if spec.agent is None or not has_little_speech(spec):
            measured.append(spec)
            continue
        found = play(agent=spec.agent, situations=situations, progress=partial(progress, spec.agent.slug), reuse=True)
        plays.append(found)
        if found.usable:
            measured.append(play_spec(spec, found))
        elif found.complete:  # it was silent throughout, as the scripted actor is without sample lines
            measured.append(spec)
    return measured, plays
