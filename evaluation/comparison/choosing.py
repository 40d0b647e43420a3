"""Which two measurements are compared: of two tags, of two runs, or the newest against a baseline or a file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.db.models import Max
from django.utils import timezone

from agents.models import Agent
from agents.persona import changes_between
from evaluation.cast.values import Judged
from evaluation.comparison.compare import (
    UnreadableSides,
    adjusted,
    compare,
    compare_runs,
    side_of_run,
    side_of_runs,
    sides_of_file,
)
from evaluation.comparison.detection import Detection
from evaluation.comparison.measuring import Watch, enough_samples, measure, with_samples
from evaluation.comparison.values import Comparison, NotComparable, Side
from evaluation.models import Baseline, EvaluationRun, Evidence
from evaluation.runs.newest import Newest, newest_evidence, newest_of, newest_since_baselines, runs_of
from evaluation.runs.spec import RunSpec
from evaluation.runs.store import refusal
from evaluation.runs.summary import RunSummary


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


def with_baselines(agents: Sequence[Agent], *, judge: str, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The newest evidence of each agent by this judge against the agent's current baselines."""
    found = Compared()
    baselines: dict[int, list[Baseline]] = defaultdict(list)
    for row in Baseline.objects.filter(agent__in=[agent.pk for agent in agents]):
        baselines[row.agent_id].append(row)
    by_judge = {row.procedure for rows in baselines.values() for row in rows if row.judge == judge}
    newest = [newest_since_baselines(list(baselines), Judged(judge=judge, procedure=name)) for name in sorted(by_judge)]
    for agent in agents:
        try:
            own = [of_agents[agent.pk] for of_agents in newest if agent.pk in of_agents]
            found.comparisons.append(_with_baseline(agent, baselines[agent.pk], own, judge, margin, dimensions))
        except NotComparable as error:
            found.refused[agent.slug] = str(error)
    found.comparisons = adjusted(found.comparisons)
    return found


def _with_baseline(
    agent: Agent,
    baselines: Sequence[Baseline],
    newest: Sequence[Newest],
    judge: str,
    margin: float,
    dimensions: Sequence[str],
) -> Comparison:
    own = [row for row in baselines if row.judge == judge]
    if not own:
        others = ", ".join(sorted({b.judge for b in baselines}))
        known = f"there are baselines by {others}" if others else f"manage.py capture_baseline --agents {agent.slug}"
        raise NotComparable(f"no baseline by {judge}; {known}")
    asked = [{name: one for name, one in found.items() if not dimensions or name in dimensions} for found in newest]
    first = newest_of(one for found in asked for one in found.values())
    if first is None:
        raise NotComparable(f"no evaluation by {judge} {nothing_newer(own)}")
    chosen = next(found for found in asked if first in found.values())
    compared = compare_runs(runs_of(chosen), margin=margin)
    if compared is None:  # the baselines were captured anew meanwhile
        raise NotComparable(f"no baseline that evaluation {first.evaluation_run_id} can be compared with")
    return compared


def nothing_newer(baselines: Collection[Baseline]) -> str:
    """Which evaluations could be compared with an agent's baselines, where there is none, and what to do."""
    how = ", ".join(sorted({b.procedure for b in baselines}))
    runs = [b.evaluation_run_id for b in baselines]
    at = Evidence.objects.filter(evaluation_run__in=runs).aggregate(at=Max("newest_message_at"))["at"]
    said = f" ({timezone.localtime(at):%Y-%m-%d %H:%M})" if at is not None else ""
    return (
        f"judged like the baseline ({how}) scored a message newer than the baseline's newest{said}; evaluate newer messages, or "
        "capture a baseline of older ones (--window, --where)"
    )


def with_file(path: Path, agents: Sequence[Agent] | None, *, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The evaluation of each agent with the newest judged message against what a file says of it.

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
    newest = newest_evidence([agent.pk], Judged(judge=side.judge, procedure=side.procedure)).get(agent.pk, {})
    runs = {name: run for name, run in runs_of(newest).items() if not dimensions or name in dimensions}
    if not runs:  # then it is said by whom and how it was judged instead
        completed = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED)
        other = completed.select_related("agent").order_by("-pk").first()
        if other is None:
            raise NotComparable(f"no evaluation of {agent.slug} yet; measure it first")
        runs = {name: other for name in other.dimensions if not dimensions or name in dimensions}
    current = side_of_runs(runs)
    return compare(side, current, margin=margin, changes=changes_between)
