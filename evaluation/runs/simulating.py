"""Measure simulated speech: specs of simulations, and evaluations that wait until a worker has simulated what they measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from agents.kit.models.lease import LeaseLost
from agents.kit.work.queues import carry_out
from evaluation.budget import why_over_budget
from evaluation.models import SIMULATION, EvaluationRun
from evaluation.propositions.files import PropositionError
from evaluation.runs.planning import has_little_speech, plan_later
from evaluation.runs.spec import MOST_SAMPLES, RunSpec
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


class SimulatedSpecs(NamedTuple):
    """Specs of what is measured after simulating, and the simulations that were made for them."""

    specs: list[RunSpec]
    simulations: list[Simulation]


def simulate_specs(
    specs: Sequence[RunSpec],
    *,
    situations: Sequence[Situation] = (),
    actor_model: str = "",
    progress: Callable[[str, int, int], None] = lambda agent, done, total: None,
) -> SimulatedSpecs:
    """Simulate conversations with agents.

    Args:
        situations: Simulated with every agent, `RunSpec.repeats` times each; each line is judged once. Without any: our own, with the
            agents that have little speech; what exists under the same persona and model is used again.
        actor_model: Default as configured.
        progress: Called with an agent's slug, the number of lines done, and of all lines.

    Returns:
        The simulations, and the specs, those of simulated agents changed to measure the simulation. With our own situations an agent
        that was silent throughout is measured by its own messages, however few. Other agents that said nothing to measure are left
        out: the same call continues with those whose actor failed.
    """
    with_own_situations = not situations
    if with_own_situations:
        situations = load_situations()
    measured: list[RunSpec] = []
    simulations: list[Simulation] = []
    for spec in specs:
        if spec.agent is None or (with_own_situations and not has_little_speech(spec)):
            measured.append(spec)
            continue
        simulation = simulate(
            agent=spec.agent,
            situations=situations,
            actor_model=actor_model,
            repeats=1 if with_own_situations else spec.repeats,
            progress=partial(progress, spec.agent.slug),
            reuse=with_own_situations,
        )
        simulations.append(simulation)
        if simulation.usable:
            # The repeats of a team's situations were simulated: each line is judged once.
            spec_to_judge = spec if with_own_situations else replace(spec, repeats=1)
            measured.append(simulation_spec(spec_to_judge, simulation))
        elif with_own_situations and simulation.complete:  # silent throughout, or skipped
            measured.append(spec)
    return SimulatedSpecs(measured, simulations)


LEASE = timedelta(minutes=10)  # longer than a line takes; extended with every line
Status = EvaluationRun.Status


def simulate_for(run: EvaluationRun, *, owner: str) -> None:
    """Simulate its situations (else ours) with the agent of a leased run and plan what to judge; the run is pending afterwards.

    Where the actor failed the run is failed, where the agent's budget is used up paused, each with the reason; an agent that was silent
    throughout is measured by its own messages, however few.
    """
    carry_out(run, partial(_simulate_and_plan, owner=owner), owner=owner)


def _simulate_and_plan(run: EvaluationRun, *, owner: str) -> dict[str, Any] | None:
    """Simulate what a run measures and plan what to judge; return the columns of the run's end, None where it is to be judged now.

    It ends where the actor failed (paused where the agent's budget is why) and where proposition files cannot be used. An agent that said
    nothing in the simulation is measured by its own messages.

    Raises:
        LeaseLost: The run was cancelled, or another worker has it.
    """

    def renew(done: int, total: int) -> None:
        if not run.extend_lease(owner=owner, lease=LEASE):
            raise LeaseLost

    assert run.agent is not None  # noqa: S101 (only an agent's run is simulated)
    renew(0, 0)
    chosen = [Situation.model_validate(situation) for situation in run.situations]
    spec = _spec_of(run)
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
            over_budget = why_over_budget(run.agent, actor_of(run.agent, run.actor_model))
            if over_budget:
                return {"status": Status.PAUSED_BUDGET, "error": over_budget}
            return {"status": Status.FAILED, "error": f"not simulated: {simulation.problem}"[:1000]}
        if chosen:  # their repeats were simulated: each line is judged once
            spec = replace(spec, repeats=1)
        if simulation.usable:
            spec = simulation_spec(spec, simulation)
        plan_later(run, spec, owner=owner)
    except PropositionError as error:
        return {"status": Status.FAILED, "error": str(error)}
    return None


def _spec_of(run: EvaluationRun) -> RunSpec:
    """Return what a run that waits for its simulation asks for, as a spec of real speech.

    Tags are not among it: who asks for messages with tags asks for no simulation.
    """
    same = ("agent", "samples", "seed", "per_call", "judge", "is_baseline", "repeats", "hard", "double_check", "method")
    return RunSpec(
        **{name: getattr(run, name) for name in (*same, "few_shot", "additional_context")},
        dimensions=tuple(run.dimensions),
        window=replace(parse_window(run.window), start=run.window_start, end=run.window_end),
        history=replace(parse_history(run.history), start=run.history_start, end=run.history_end),
        position_bins=tuple((first, last) for first, last in run.position_bins),
    )
