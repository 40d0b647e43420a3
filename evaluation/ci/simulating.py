"""Simulating a team's own situations before they are measured, as part of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from evaluation.change.comparison import Comparison
from evaluation.change.measurements import Measurement
from evaluation.ci.findings import Unjudged
from evaluation.ci.limits import Limits
from evaluation.estimate import Estimate
from evaluation.run_spec import RunSpec
from evaluation.simulation import (
    Simulation,
    SimulationEstimate,
    estimate_simulation,
    load_situations,
    simulate,
    simulation_spec,
)


def simulate_agents(
    specs: Sequence[RunSpec],
    *,
    situations: Path,
    actor_model: str = "",
    progress: Callable[[str, int, int], None] = lambda agent, done, total: None,
) -> tuple[list[RunSpec], list[Simulation]]:
    """Simulation every agent through a file's situations; what an interrupted simulation said is not said again.

    Args:
        specs: What is to be measured of each agent; `RunSpec.repeats` is how often each situation; each line is then judged once.
        situations: The file.
        actor_model: Who simulations the agents; default as configured.
        progress: Called with an agent's slug, how many lines are simulated, and of how many.

    Returns:
        The specs of what was simulated, without those agents that said nothing to measure; and the simulations.

    Raises:
        YamlProblems: The file cannot be used.
    """
    found = load_situations(situations)
    simulated: list[RunSpec] = []
    simulations: list[Simulation] = []
    for spec in specs:
        if spec.agent is None:
            continue
        told = partial(progress, spec.agent.slug)
        simulations.append(
            simulate(agent=spec.agent, situations=found, actor_model=actor_model, repeats=spec.repeats, progress=told)
        )
        if simulations[-1].usable:
            simulated.append(simulation_spec(replace(spec, repeats=1), simulations[-1]))
    return simulated, simulations


def estimate_simulations(
    specs: Sequence[RunSpec], *, situations: Path, actor_model: str = ""
) -> tuple[list[SimulationEstimate], list[Estimate]]:
    """What the same would need of the actor and of the judge; nobody is asked.

    Raises:
        YamlProblems: The file cannot be used.
    """
    found = load_situations(situations)
    pairs = [
        estimate_simulation(replace(spec, repeats=1), situations=found, actor_model=actor_model, repeats=spec.repeats)
        for spec in specs
        if spec.agent is not None
    ]
    return [acting for acting, _ in pairs], [judging for _, judging in pairs]


def unsimulated(simulations: Sequence[Simulation], limits: Limits) -> Iterator[Unjudged]:
    """Simulations of which too much is missing to say anything."""
    for found in simulations:
        share = len(found.unfinished) / len(found.conversations) if found.conversations else 1.0
        if not found.usable or share > limits.max_unscored:
            yield Unjudged(agent=found.agent.slug, dimension="", why=f"simulation: {found.problem}", share=share)


def other_situations(comparison: Comparison) -> str:
    """Why two simulations do not compare: they have no situation in common; empty when they have, or when that is not known."""
    before, now = (_situations(one) for one in (comparison.baseline, comparison.candidate))
    if before and now and not before & now:
        return f"{comparison.baseline.name} was simulated through other situations ({', '.join(sorted(before)[:5])} …)"
    return ""


def _situations(measurement: Measurement) -> set[str]:
    clusters = {str(o.cluster) for by in measurement.observations.values() for rows in by.values() for o in rows}
    prefix = "situation:"  # with one situation alone, each time it was simulated has a number
    return {c.removeprefix(prefix).partition("/")[0] for c in clusters if c.startswith(prefix)}
