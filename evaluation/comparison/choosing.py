"""Which two measurements are compared: of two tags, of two runs, or the newest against a baseline or a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from agents.models import Agent
from agents.persona_changes import changes_between
from evaluation.comparison.compare import (
    UnreadableSides,
    adjusted,
    compare,
    compare_to_baseline,
    side_of_run,
    sides_of_file,
)
from evaluation.comparison.detection import Detection
from evaluation.comparison.measuring import Watch, enough_samples, measure, with_samples
from evaluation.comparison.values import Comparison, NotComparable, Side
from evaluation.failures import refusal
from evaluation.models import Baseline, EvaluationRun
from evaluation.run_spec import RunSpec
from evaluation.summary import RunSummary


@dataclass(slots=True)
class Compared:
    """What was compared, and what could not be, by target with the reason.

    Attributes:
        detections: What the comparisons can find, where that was asked.
        topped_up: Samples per agent that the pilot showed to be needed.
    """

    comparisons: list[Comparison] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    detections: list[Detection] = field(default_factory=list)
    topped_up: dict[str, int] = field(default_factory=dict)

    @property
    def undecidable(self) -> dict[str, str]:
        """Targets without a single difference, with the reason."""
        empty = {
            c.current.target: "; ".join(dict.fromkeys(f"{d.dimension}: {d.reason}" for d in c.dimensions))
            or "nothing was measured on both sides"
            for c in self.comparisons
            if all(d.delta is None for d in c.dimensions)
        }
        return {**self.refused, **empty}


def of_tags(
    specs: Sequence[RunSpec],
    a: Mapping[str, str],
    b: Mapping[str, str],
    *,
    margin: float,
    detect: float | None = None,
    watch: Watch | None = None,
) -> Compared:
    """Measure what carries the tags `a` and what carries `b`, and compare them.

    Args:
        specs: What to measure of each target; the tags are added to theirs.
        a, b: Tags of the messages before and now.
        margin: As in `compare`.
        detect: A change in points: where the sample is too small to find it and more was said, a larger one is measured.
        watch: Told how it goes.

    Raises:
        UnreadableSides: The judge refuses to be asked: its key, model or address is wrong.
    """
    sides = [[_tagged(spec, tags) for spec in specs] for tags in (a, b)]
    names = [_named(tags) for tags in (a, b)]
    both = [*sides[0], *sides[1]]
    measured = measure(both, watch)
    if wrong := refusal(summary.run for summary in measured):
        raise UnreadableSides(wrong)
    found = _of_summaries(measured, names, margin)
    if detect is not None:
        more = enough_samples(both, found.comparisons, detect)
        larger = with_samples(both, more)
        if larger:
            again = _of_summaries(measure(larger, watch), names, margin)
            newer = {c.current.target: c for c in again.comparisons}
            kept = [newer.get(c.current.target, c) for c in found.comparisons]
            found = Compared(adjusted(kept), {**found.refused, **again.refused}, topped_up=more)
    return found


def _tagged(spec: RunSpec, tags: Mapping[str, str]) -> RunSpec:
    return replace(spec, where={**spec.where, **tags})


def _named(tags: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in tags.items())


def _of_summaries(summaries: Sequence[RunSummary], names: Sequence[str], margin: float) -> Compared:
    half = len(summaries) // 2
    found = Compared()
    for before, now in zip(summaries[:half], summaries[half:], strict=True):
        target = now.run.agent.slug if now.run.agent else f"#{now.run.channel.slug}" if now.run.channel else ""
        empty = [f"{name}: {s.run.error}" for name, s in zip(names, (before, now), strict=True) if not s.measured]
        try:
            if empty:
                raise NotComparable("; ".join(empty))
            sides = (side_of_run(s.run, name=name) for name, s in zip(names, (before, now), strict=True))
            found.comparisons.append(compare(*sides, margin=margin, changes=changes_between))
        except NotComparable as error:
            found.refused[target] = str(error)
    found.comparisons = adjusted(found.comparisons)
    return found


def of_runs(first: EvaluationRun, second: EvaluationRun, *, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """Two runs of one target, the first being the baseline; in all dimensions, or in those named.

    Raises:
        NotComparable: They do not compare; says why.
    """
    sides = (side_of_run(run, dimensions=dimensions or None) for run in (first, second))
    return Compared([compare(*sides, margin=margin, changes=changes_between)])


def with_baselines(agents: Iterable[Agent], *, judge: str, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The newest evaluation of each agent by this judge against the agent's current baselines."""
    found = Compared()
    for agent in agents:
        try:
            found.comparisons.append(_with_baseline(agent, judge, margin, dimensions))
        except NotComparable as error:
            found.refused[agent.slug] = str(error)
    found.comparisons = adjusted(found.comparisons)
    return found


def _with_baseline(agent: Agent, judge: str, margin: float, dimensions: Sequence[str]) -> Comparison:
    baselines = list(Baseline.objects.filter(agent=agent))
    if not any(b.judge == judge for b in baselines):
        others = ", ".join(sorted({b.judge for b in baselines}))
        known = f"there are baselines by {others}" if others else f"manage.py capture_baseline --agents {agent.slug}"
        raise NotComparable(f"no baseline by {judge}; {known}")
    run = newest_run(agent, judge=judge)
    if run is None:
        how = ", ".join(sorted({b.procedure for b in baselines if b.judge == judge}))
        raise NotComparable(
            f"no evaluation by {judge} since the baseline was captured that was judged like it ({how}); measure the agent first"
        )
    found = compare_to_baseline(run, margin=margin, dimensions=dimensions)
    if found is None:
        raise NotComparable(
            f"evaluation {run.pk} was judged as {run.procedure} in {', '.join(run.dimensions)}; no baseline was captured like that"
        )
    return found


def newest_run(agent: Agent, *, judge: str, procedure: str | None = None) -> EvaluationRun | None:
    """The newest completed evaluation of an agent by this judge that is newer than the baselines it can be compared with.

    Args:
        agent: Of whom.
        judge: By whom.
        procedure: Only one judged like that; default any there is a baseline of. Samples drawn evenly by turn are something else.
    """
    baselines = Baseline.objects.filter(agent=agent, judge=judge)
    captured: dict[str, list[int]] = {}
    for how, pk in baselines.values_list("procedure", "evaluation_run"):
        captured.setdefault(how, []).append(pk)
    runs = EvaluationRun.objects.select_related("agent").filter(
        agent=agent, judge=judge, status=EvaluationRun.Status.COMPLETED
    )
    run: EvaluationRun
    for run in runs.exclude(pk__in=[pk for of_one in captured.values() for pk in of_one]).order_by("-pk")[:50]:
        fits = procedure in (None, run.procedure) and run.procedure in captured and not run.turn_bins
        if fits and run.pk > min(captured[run.procedure]):
            return run
    return None


def with_file(path: Path, agents: Sequence[Agent] | None, *, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The newest evaluation of each agent against what a file says of it.

    Args:
        path: As `sides_of_file` reads it.
        agents: Whom; default those in the file.
        margin: As in `compare`.
        dimensions: Only these; default all.

    Raises:
        UnreadableSides: The file is none.
    """
    sides = sides_of_file(path)
    if agents is None:
        agents = list(Agent.objects.filter(slug__in=list(sides)).order_by("slug"))
    found = Compared()
    for agent in agents:
        try:
            if agent.slug not in sides:
                raise NotComparable(f"{path} holds no completed run of it; it has: {', '.join(sides) or 'none'}")
            found.comparisons.append(_with_side(agent, sides[agent.slug], margin, dimensions))
        except NotComparable as error:
            found.refused[agent.slug] = str(error)
    if not agents:
        found.refused[str(path)] = f"names no agent there is; it has: {', '.join(sides) or 'none'}"
    found.comparisons = adjusted(found.comparisons)
    return found


def _with_side(agent: Agent, side: Side, margin: float, dimensions: Sequence[str]) -> Comparison:
    runs = EvaluationRun.objects.select_related("agent").filter(agent=agent, status=EvaluationRun.Status.COMPLETED)
    by_it = runs.filter(judge=side.judge).order_by("-pk")[:50]
    like_it = [r for r in by_it if r.procedure == side.procedure and not r.turn_bins]
    run = like_it[0] if like_it else runs.order_by("-pk").first()
    if run is None:
        raise NotComparable(f"no evaluation of {agent.slug} yet; measure it first")
    current = side_of_run(run, dimensions=dimensions or None)
    return compare(side, current, margin=margin, changes=changes_between)
