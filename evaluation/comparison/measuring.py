"""Measuring what is to be compared: what was measured before is not asked again, a pilot says how many messages it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.models import Message
from evaluation.comparison.detection import detections
from evaluation.comparison.values import Comparison
from evaluation.models import EvaluationRun
from evaluation.runs.capture import capture
from evaluation.runs.planning import make_plan
from evaluation.runs.spec import MOST_SAMPLES, RunSpec
from evaluation.runs.store import failed_call
from evaluation.runs.summary import RunSummary, summarize
from evaluation.scorers.windows import spoken_by

PER_MESSAGE = "adherence"  # the dimension whose precision more samples raise


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how the judging goes: called with runs as they are made, and as judgements are."""

    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None


def measure(specs: Sequence[RunSpec], watch: Watch | None = None) -> list[RunSummary]:
    """Measure each, in one go; a completed run of the same spec serves as long as nothing was said since.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    watch = watch or Watch()
    known = [reusable(spec) for spec in specs]
    asked = [spec for spec, run in zip(specs, known, strict=True) if run is None]
    made = iter(capture(asked, prepared=watch.prepared, progress=watch.progress) if asked else [])
    return [summarize(run) if run is not None else next(made).summary for run in known]


def reusable(spec: RunSpec) -> EvaluationRun | None:
    """The newest completed run that judged just this; None when there is none, a call of it failed, or more was said since.

    A window that moves with the clock (``7d``) is measured anew.
    """
    if spec.window.start is not None or spec.history.start is not None:
        return None
    run: EvaluationRun | None = (
        EvaluationRun.objects.select_related("agent", "channel")
        .filter(spec_digest=make_plan(spec).spec_digest)
        .order_by("-pk")
        .first()
    )
    if run is None or run.status != EvaluationRun.Status.COMPLETED or failed_call(run):
        return None
    if any(linked.status != EvaluationRun.Status.COMPLETED or failed_call(linked) for linked in run.channel_runs.all()):
        return None
    return None if _said_since(spec, run) else run


def _said_since(spec: RunSpec, run: EvaluationRun) -> bool:
    """Whether anybody said anything there after the run was planned."""
    messages = Message.objects.filter(created_at__gt=run.created_at)
    if spec.channel is not None:
        return messages.filter(channel=spec.channel).exists()
    mine = Message.objects.filter(agent=spec.agent, synthetic=spec.simulated).order_by().values("channel")
    return messages.filter(channel__in=mine, synthetic=spec.simulated).exists()


def enough_samples(specs: Sequence[RunSpec], comparisons: Sequence[Comparison], change: float) -> dict[str, int]:
    """How many messages to sample per agent for a change of this size, by a pilot: where that is more, and more were said.

    Args:
        specs: Those of the pilot, both sides of each agent.
        comparisons: What the pilot gave.
        change: In points.

    Returns:
        By agent's slug; agents for whom the pilot is enough, or who said no more, are left out.
    """
    wanted = {
        row.target: MOST_SAMPLES if row.needed is None else row.needed
        for row in detections(comparisons, change)
        if row.dimension == PER_MESSAGE
    }
    found = {}
    for spec in specs:
        needed = wanted.get(spec.target.slug, 0)
        if spec.agent is not None and needed > spec.samples and said(spec) > spec.samples:
            found[spec.agent.slug] = min(needed, MOST_SAMPLES)
    return found


def said(spec: RunSpec) -> int:
    """How many messages there are to sample from."""
    if spec.agent is None:
        return 0
    return spoken_by(agent=spec.agent, window=spec.window, where=spec.where, simulated=spec.simulated).count()


def with_samples(specs: Sequence[RunSpec], samples: Mapping[str, int]) -> list[RunSpec]:
    """The specs of the agents named, with that many samples."""
    return [replace(spec, samples=samples[spec.target.slug]) for spec in specs if spec.target.slug in samples]
