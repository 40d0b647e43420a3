"""Playing a team's own situations before they are measured, as part of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from evaluation.change.comparison import Comparison
from evaluation.change.measurements import Side
from evaluation.estimate import Estimate
from evaluation.harness.findings import Unjudged
from evaluation.harness.limits import Limits
from evaluation.rehearsal import Play, PlayEstimate, estimate_play, load_situations, play, play_spec
from evaluation.run_spec import RunSpec


def rehearse(
    specs: Sequence[RunSpec],
    *,
    situations: Path,
    actor_model: str = "",
    progress: Callable[[str, int, int], None] = lambda agent, done, total: None,
) -> tuple[list[RunSpec], list[Play]]:
    """Play every agent through a file's situations; what an interrupted play said is not said again.

    Args:
        specs: What is to be measured of each agent; `RunSpec.repeats` is how often each situation is played, each line is then judged once.
        situations: The file.
        actor_model: Who plays the agents; default as configured.
        progress: Called with an agent's slug, how many lines are played, and of how many.

    Returns:
        The specs of what was played, without those agents that said nothing to measure; and the plays.

    Raises:
        YamlProblems: The file cannot be used.
    """
    found = load_situations(situations)
    played: list[RunSpec] = []
    plays: list[Play] = []
    for spec in specs:
        if spec.agent is None:
            continue
        told = partial(progress, spec.agent.slug)
        plays.append(
            play(agent=spec.agent, situations=found, actor_model=actor_model, repeats=spec.repeats, progress=told)
        )
        if plays[-1].usable:
            played.append(play_spec(replace(spec, repeats=1), plays[-1]))
    return played, plays


def estimate_rehearsal(
    specs: Sequence[RunSpec], *, situations: Path, actor_model: str = ""
) -> tuple[list[PlayEstimate], list[Estimate]]:
    """What the same would need of the actor and of the judge; nobody is asked.

    Raises:
        YamlProblems: The file cannot be used.
    """
    found = load_situations(situations)
    pairs = [
        estimate_play(replace(spec, repeats=1), situations=found, actor_model=actor_model, repeats=spec.repeats)
        for spec in specs
        if spec.agent is not None
    ]
    return [acting for acting, _ in pairs], [judging for _, judging in pairs]


def unplayed(plays: Sequence[Play], limits: Limits) -> Iterator[Unjudged]:
    """Plays of which too much is missing to say anything."""
    for found in plays:
        share = len(found.not_played) / len(found.conversations) if found.conversations else 1.0
        if not found.usable or share > limits.max_unscored:
            yield Unjudged(agent=found.agent.slug, dimension="", why=f"rehearsal: {found.problem}", share=share)


def other_situations(comparison: Comparison) -> str:
    """Why two plays do not compare: they have no situation in common; empty when they have, or when that is not known."""
    before, now = (_situations(side) for side in (comparison.baseline, comparison.current))
    if before and now and not before & now:
        return f"{comparison.baseline.name} was played through other situations ({', '.join(sorted(before)[:5])} …)"
    return ""


def _situations(side: Side) -> set[str]:
    clusters = {str(o.cluster) for by in side.observations.values() for rows in by.values() for o in rows}
    prefix = "situation:"  # with one situation alone, each time it was played has a number
    return {c.removeprefix(prefix).partition("/")[0] for c in clusters if c.startswith(prefix)}
