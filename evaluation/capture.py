"""Capturing baselines of several agents: the service behind the command, the demo and the admin action."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sentry_sdk
from django.db.models import Q

from agents.models import Agent
from evaluation.models import Baseline, EvaluationRun, EvaluationScore
from evaluation.planning import RunSpec, make_plan, prepare_run
from evaluation.runs import execute
from evaluation.summary import RunSummary, empty_dimension, summarize


@dataclass(frozen=True, slots=True)
class Captured:
    """The outcome for one agent.

    Attributes:
        summary: Its run in numbers.
        resumed: Whether the run was taken up again.
        held_elsewhere: Whether another process holds it.
        before: Overall score of the baseline that was current before, by the same judge; None when there was none.
    """

    summary: RunSummary
    resumed: bool
    held_elsewhere: bool
    before: float | None = None


class UnknownAgents(ValueError):
    """Names that are no agent's slug; says which agents there are."""


def choose_agents(names: str) -> list[Agent]:
    """The agents for ``--agents``: ``all`` (every active one) or slugs separated by commas; display names are understood too.

    Raises:
        UnknownAgents: A name fits no agent.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise UnknownAgents("no agent named; write slugs separated by commas, or all")
    if [name.lower() for name in wanted] == ["all"]:
        return list(Agent.objects.filter(is_active=True).order_by("slug"))
    found: list[Agent] = []
    missing = []
    for name in wanted:
        agent = Agent.objects.filter(Q(slug=name) | Q(slug__iexact=name) | Q(display_name__iexact=name)).first()
        if agent is None:
            missing.append(name)
        elif agent not in found:
            found.append(agent)
    if missing:
        known = (
            ", ".join(Agent.objects.order_by("slug").values_list("slug", flat=True)[:40])
            or "none; import or seed some first"
        )
        raise UnknownAgents(f"no agent {', '.join(map(repr, missing))}; agents: {known}")
    return found


def pending_count(run: EvaluationRun) -> int:
    """Judgements of a run that are still to be made."""
    return EvaluationScore.objects.filter(evaluation_run=run, status=EvaluationScore.Status.PENDING).count()


def capture(
    specs: Sequence[RunSpec],
    *,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> list[Captured]:
    """Capture a baseline per spec, taking up what an earlier attempt left unfinished (AC-6.5.7).

    Args:
        specs: One per agent.
        prepared: Called once with the runs, when what is to be judged is known.
        progress: Called as judgements are made.
    """
    with sentry_sdk.start_transaction(op="evaluation.baseline", name="capture baselines") as trace:
        trace.set_data("agents", [spec.agent.slug for spec in specs])
        before = {spec.agent.pk: overall_before(spec) for spec in specs}
        made = [prepare_run(spec) for spec in specs]
        prepared([run for run, _ in made])
        held = {run.pk for run in execute([run for run, _ in made], progress=progress, hand_back=False)}
        results = []
        for run, resumed in made:
            ended = EvaluationRun.objects.select_related("agent").filter(pk=run.pk).first()
            if ended is not None:  # else it was deleted meanwhile
                results.append(Captured(summarize(ended), resumed, run.pk not in held, before[ended.agent_id]))
    return results


def overall_before(spec: RunSpec) -> float | None:
    """The overall score of the newest run that is a current baseline of this agent by this judge."""
    current = Baseline.objects.filter(agent=spec.agent, judge=spec.judge_model).order_by("-captured_at")
    score: float | None = current.values_list("evaluation_run__overall_score", flat=True).first()
    return score


def existing(specs: Sequence[RunSpec]) -> list[Captured] | None:
    """The current baselines, when each of these specs was captured and nothing it depends on changed since; else None."""
    found = []
    for spec in specs:
        run = EvaluationRun.objects.filter(
            spec_digest=make_plan(spec).spec_digest, status=EvaluationRun.Status.COMPLETED
        ).first()
        if run is None or not run.baselines.exists():
            return None
        found.append(Captured(summarize(run), resumed=False, held_elsewhere=False))
    return found


def as_json(judge: str, results: Sequence[Captured]) -> dict[str, Any]:
    """The object ``--json`` prints.

    Scores are 0 to 9 or null. `cost_usd` is the sum over the priced calls in US dollars, null when none has a price;
    `unpriced_calls` says how many it leaves out.
    """
    return {"judge": judge, "runs": [_run_json(result) for result in results]}


def _run_json(result: Captured) -> dict[str, Any]:
    summary = result.summary
    return {
        "agent": summary.run.agent.slug if summary.run.agent else None,
        "evaluation_run": summary.run.pk,
        "status": summary.run.status,
        "error": summary.run.error,
        "overall_score": summary.overall_score,
        "dimensions": {
            name: {
                "score": d.score,
                "scored": d.scored,
                "trivial": d.trivial,
                "unscored": d.unscored,
                "propositions": {p.id: p.score for p in d.propositions},
            }
            for name in summary.run.dimensions
            if (d := summary.dimensions.get(name, empty_dimension(name)))
        },
        "calls": summary.calls,
        "tokens": summary.tokens,
        "cost_usd": None if summary.cost_usd is None else float(summary.cost_usd),
        "unpriced_calls": summary.unpriced_calls,
    }
