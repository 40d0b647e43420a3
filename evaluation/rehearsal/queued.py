"""Captures that wait in the queue for their agent to be played: a worker plays it, then what it said is judged like anything else.

The row of the evaluation is the work: it is claimed for the play, which goes on where it stopped if the worker dies, and handed back
with what there is to judge.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sentry_sdk

from agents.outages import is_outage
from evaluation.budget import why_over_budget
from evaluation.models import EvaluationRun
from evaluation.planning import plan_later
from evaluation.propositions.files import PropositionError
from evaluation.rehearsal.playing import play
from evaluation.rehearsal.situations import load_situations
from evaluation.rehearsal.specs import play_spec
from evaluation.rehearsal.stage import actor_of
from evaluation.rehearsal.values import Play
from evaluation.run_spec import PLAY, RunSpec
from evaluation.windows import parse_history, parse_window

LEASE = timedelta(minutes=10)  # longer than a line takes; extended with every line
Status = EvaluationRun.Status


class _ClaimLost(Exception):
    """Cancelled meanwhile, or taken by another worker."""


def awaits_play(run: EvaluationRun) -> bool:
    """Whether its agent is still to be played."""
    return run.played and run.agent_id is not None and PLAY not in run.where


def play_for(run: EvaluationRun, *, owner: str, resumable: tuple[str, ...] = ()) -> bool:
    """Play the run's agent through our situations and plan what to judge; the run is pending afterwards.

    Where the actor failed the run is failed, where the agent's budget is used up paused, each with the reason; an agent that kept silent
    throughout is measured by its own speech, however little.

    Returns:
        Whether it was claimed here.
    """
    held = run.is_held_by(owner) and run.extend_lease(owner=owner, lease=LEASE)
    if not held and not run.claim(owner=owner, lease=LEASE, resumable=resumable):
        return False
    try:
        _end(run, _play(run, owner), owner)
    except _ClaimLost:
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
    except BaseException:  # told to stop: handed back at once
        run.finish(owner=owner, status=Status.PENDING)
        raise
    return True


def spec_of_run(run: EvaluationRun) -> RunSpec:
    """What a run that waits for its play was asked to be, of real speech."""
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


def _play(run: EvaluationRun, owner: str) -> Play:
    def keep(done: int, total: int) -> None:
        if not run.extend_lease(owner=owner, lease=LEASE):
            raise _ClaimLost

    assert run.agent is not None  # noqa: S101 (it has no play without one)
    return play(agent=run.agent, situations=load_situations(), progress=keep, reuse=True)


def _end(run: EvaluationRun, found: Play, owner: str) -> None:
    spec = spec_of_run(run)
    if found.usable:
        plan_later(run, play_spec(spec, found), owner=owner)
    elif found.complete:  # it was silent throughout, as the scripted actor is without sample lines
        plan_later(run, spec, owner=owner)
    elif why := why_over_budget(run.agent, actor_of(found.agent)):
        run.finish(owner=owner, status=Status.PAUSED_BUDGET, error=why)
    else:
        run.finish(owner=owner, status=Status.FAILED, error=f"not played: {found.problem}"[:1000])
