"""Measure simulated speech: specs of simulations, and evaluations that wait until a worker has simulated what they measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from agents.kit.models.lease import LeaseLost
from agents.kit.work.queues import carry_out
from evaluation.budget import why_over_budget
from evaluation.models import SIMULATION, EvaluationRun
from evaluation.propositions.files import PropositionError
from evaluation.runs.planning import MOST_SAMPLES, RunSpec, has_little_speech, plan_later
from evaluation.simulation.conversations import Simulation, actor_of, simulate
from evaluation.simulation.situations import Situation, load_situations
from evaluation.windows import BEFORE, MessageWindow, parse_history, parse_window


def simulation_spec(spec: RunSpec, simulation: Simulation) -> RunSpec:
    """Return the same measurement of a simulation instead of real speech (AC-6.5.2): of everything the agent said in it.

    Window, tags and history of `spec` are about real speech and do not apply. Channel dimensions are skipped: a simulation has one agent.

    Raises:
        ValueError: `spec` is of another agent.
    """
    if spec.agent is None or spec.agent.pk != simulation.agent.pk:
        raise ValueError(f"{spec.target.slug!r} is not in this simulation; allowed: {simulation.agent.slug!r}")
    return replace(
        spec,
        simulated=True,
        actor_model=simulation.actor_model,
        window=MessageWindow(),
        where={SIMULATION: simulation.id},
        history=MessageWindow(BEFORE),
        history_where={},
        samples=min(max(spec.samples, simulation.messages), MOST_SAMPLES),
    )


def simulate_specs(
    specs: Sequence[RunSpec],
    *,
    situations: Sequence[Situation] = (),
    actor_model: str = "",
    progress: Callable[[str, int, int], None] = lambda agent, done, total: None,
) -> tuple[list[RunSpec], list[Simulation]]:
    """Simulate conversations with agents, and return the specs that measure these, and the simulations.

    Args:
        situations: Simulated with every agent, `RunSpec.repeats` times each; each line is judged once. Without any: our own, with the
            agents that have little speech; what exists under the same persona and model is used again.
        actor_model: Default as configured.
        progress: Called with an agent's slug, the number of lines done, and of all lines.

    Returns:
        The specs, those of simulated agents changed to measure the simulation. With our own situations an agent that was silent
        throughout is measured by its own messages, however few. Other agents that said nothing to measure are left out: the same call
        continues with those whose actor failed.
    """
    ours = () if situations else load_situations()
    measured: list[RunSpec] = []
    simulations: list[Simulation] = []
    for spec in specs:
        if spec.agent is None or (ours and not has_little_speech(spec)):
            measured.append(spec)
            continue
        simulation = simulate(
            agent=spec.agent,
            situations=situations or ours,
            actor_model=actor_model,
            repeats=1 if ours else spec.repeats,
            progress=partial(progress, spec.agent.slug),
            reuse=bool(ours),
        )
        simulations.append(simulation)
        if simulation.usable:
            measured.append(simulation_spec(spec if ours else replace(spec, repeats=1), simulation))
        elif ours and simulation.complete:  # silent throughout, or skipped
            measured.append(spec)
    return measured, simulations


LEASE = timedelta(minutes=10)  # longer than a line takes; extended with every line
Status = EvaluationRun.Status


def simulate_for(run: EvaluationRun, *, owner: str) -> None:
    """Simulate its situations (else ours) with the agent of a leased run and plan what to judge; the run is pending afterwards.

    Where the actor failed the run is failed, where the agent's budget is used up paused, each with the reason; an agent that was silent
    throughout is measured by its own messages, however few.
    """
    carry_out(run, partial(_simulated, owner=owner), owner=owner)


def _simulated(run: EvaluationRun, *, owner: str) -> dict[str, Any] | None:
    """Simulate and plan; returns the columns of the run's end, None where it goes on."""

    def renew(done: int, total: int) -> None:
        if not run.extend_lease(owner=owner, lease=LEASE):
            raise LeaseLost

    assert run.agent is not None  # noqa: S101 (only an agent's run is simulated)
    renew(0, 0)
    chosen, spec = [Situation.model_validate(one) for one in run.situations], _spec_of(run)
    try:
        simulation = simulate(
            agent=run.agent,
            situations=chosen or load_situations(),
            actor_model=run.actor_model,
            repeats=run.repeats if chosen else 1,
            progress=renew,
            reuse=not chosen,
        )
        if simulation.failed:
            if why := why_over_budget(run.agent, actor_of(run.agent, run.actor_model)):
                return {"status": Status.PAUSED_BUDGET, "error": why}
            return {"status": Status.FAILED, "error": f"not simulated: {simulation.problem}"[:1000]}
        spec = replace(spec, repeats=1) if chosen else spec
        plan_later(run, simulation_spec(spec, simulation) if simulation.usable else spec, owner=owner)
    except PropositionError as error:
        return {"status": Status.FAILED, "error": str(error)}
    return None


def _spec_of(run: EvaluationRun) -> RunSpec:
    """What a run that waits for its simulation asks for, as a spec of real speech."""
    same = ("agent", "samples", "seed", "per_call", "judge", "is_baseline", "repeats", "hard", "double_check", "method")
    return RunSpec(
        **{name: getattr(run, name) for name in (*same, "additional_context")},
        dimensions=tuple(run.dimensions),
        window=replace(parse_window(run.window), start=run.window_start, end=run.window_end),
        history=replace(parse_history(run.history), start=run.history_start, end=run.history_end),
        position_bins=tuple((first, last) for first, last in run.position_bins),
    )
