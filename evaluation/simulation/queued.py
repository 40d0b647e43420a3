"""Simulations for evaluations that wait in the queue: a worker simulates, then the answers are judged like any other messages.

The row of the evaluation is the work: a worker leases it for the simulation, which a second worker resumes if the first one dies, and hands
it back with what there is to judge.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sentry_sdk

from agents.work.lease import LeaseLost
from agents.work.outages import is_outage
from evaluation.models import EvaluationRun
from evaluation.propositions.files import PropositionError
from evaluation.runs.budget import why_over_budget
from evaluation.runs.planning import plan_later
from evaluation.runs.spec import SIMULATION, RunSpec
from evaluation.scorers.windows import parse_history, parse_window
from evaluation.simulation.conversations import actor_of, simulate, simulation_spec
from evaluation.simulation.situations import load_situations

LEASE = timedelta(minutes=10)  # longer than a line takes; extended with every line
Status = EvaluationRun.Status


def awaits_simulation(run: EvaluationRun) -> bool:
    """Whether the simulation that it measures is still to be made."""
    return run.simulated and run.agent_id is not None and SIMULATION not in run.where


def simulate_for(run: EvaluationRun, *, owner: str) -> None:
    """Simulate our situations with the agent of a leased run and plan what to judge; the run is pending afterwards.

    Where the actor failed the run is failed, where the agent's budget is used up paused, each with the reason; an agent that was silent
    throughout is measured by its own messages, however few.
    """

    def renew(done: int, total: int) -> None:
        if not run.extend_lease(owner=owner, lease=LEASE):
            raise LeaseLost

    assert run.agent is not None  # noqa: S101 (only an agent's run is simulated)
    try:
        renew(0, 0)
        simulation = simulate(agent=run.agent, situations=load_situations(), progress=renew, reuse=True)
        spec = _spec_of(run)
        if simulation.usable:
            plan_later(run, simulation_spec(spec, simulation), owner=owner)
        elif simulation.complete:  # silent throughout, as the scripted actor is without sample lines
            plan_later(run, spec, owner=owner)
        elif why := why_over_budget(run.agent, actor_of(run.agent)):
            run.finish(owner=owner, status=Status.PAUSED_BUDGET, error=why)
        else:
            run.finish(owner=owner, status=Status.FAILED, error=f"not simulated: {simulation.problem}"[:1000])
    except LeaseLost:
        pass
    except PropositionError as error:
        run.finish(owner=owner, status=Status.FAILED, error=str(error))
    except Exception as error:
        if is_outage(error):
            run.finish(owner=owner, status=Status.PENDING)
        else:
            sentry_sdk.capture_exception(error)
            run.finish(owner=owner, status=Status.ERRORED, error=f"{type(error).__name__}: {error}"[:1000])
        raise
    except BaseException:  # a worker that stops gives it back at once
        run.finish(owner=owner, status=Status.PENDING)
        raise


def _spec_of(run: EvaluationRun) -> RunSpec:
    """What a run that waits for its simulation asks for, as a spec of real speech."""
    return RunSpec(
        agent=run.agent,
        dimensions=tuple(run.dimensions),
        window=replace(parse_window(run.window), start=run.window_start, end=run.window_end),
        samples=run.samples,
        seed=run.seed,
        per_call=run.per_call,
        judge=run.judge,
        is_baseline=run.is_baseline,
        history=replace(parse_history(run.history), start=run.history_start, end=run.history_end),
        repeats=run.repeats,
        hard=run.hard,
        double_check=run.double_check,
        method=run.method,
        additional_context=run.additional_context,
        position_bins=tuple((first, last) for first, last in run.position_bins),
    )
