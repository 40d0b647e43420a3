"""What is compared: messages of two tags (measured now unless they were), two runs, or the newest against a baseline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.db.models import Count, Max, Q, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from agents.builds import Tag
from agents.models import Agent, Message
from evaluation.change.comparison import Comparison, adjusted, compare
from evaluation.change.evidence import (
    ADHERENCE,
    Judged,
    baseline_and_candidate,
    get_baseline,
    newest_evidence,
    newest_of_ways,
    newest_since_baselines,
    newest_without_adherence,
    nothing_newer,
    runs_of,
)
from evaluation.change.measurement_files import UnreadableFile, measurements_of_file
from evaluation.change.measurements import (
    Measurement,
    NotComparable,
    measurement_of,
    measurement_of_baselines,
    measurement_of_runs,
)
from evaluation.change.models import Baseline, Evidence
from evaluation.models import EvaluationRun, is_heuristic
from evaluation.runs.execute import capture
from evaluation.runs.planning import RunSpec
from evaluation.runs.reuse import reusable
from evaluation.runs.summary import refusal, summarize
from evaluation.statistics.difference import MARGIN


@dataclass(slots=True)
class Compared:
    """What was compared, and what could not be, by target with the reason.

    Attributes:
        wrong_file: Whether a baseline file is of another judge or procedure, or of nobody who is compared.
    """

    comparisons: list[Comparison] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    wrong_file: bool = False

    @contextmanager
    def refusing(self, target: str) -> Iterator[None]:
        """Inside, a target that cannot be compared is noted with the reason, and the others go on."""
        try:
            yield
        except NotComparable as error:
            self.refused[target] = str(error)

    def adjusted(self) -> Compared:
        """All of them looked at together."""
        self.comparisons = adjusted(self.comparisons)
        return self

    @property
    def undecidable(self) -> dict[str, str]:
        """Targets of which no score and no hits were compared, with the reason."""
        empty = {
            c.target: "; ".join(dict.fromkeys(f"{d.dimension}: {d.reason}" for d in c.dimensions))
            or "nothing was measured in both"
            for c in self.comparisons
            if all(d.delta is None for d in c.dimensions) and not any(one.proposition for one in c.shown)
        }
        return {**self.refused, **empty}


def of_tags(
    specs: Sequence[RunSpec],
    a: Mapping[str, str],
    b: Mapping[str, str],
    *,
    margin: float,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> Compared:
    """Measure messages with the tags `a` (baseline) and those with `b`, where that was not measured before, and compare them.

    Args:
        specs: What to measure of each target; the tags are added to theirs.
        prepared, progress: As `capture` has them.

    Raises:
        UnreadableFile: The judge refuses to be asked: its key, model or address is wrong.
        PropositionError: Proposition files cannot be used.
    """
    names = [",".join(f"{key}={value}" for key, value in tags.items()) for tags in (a, b)]
    tagged = [replace(spec, where={**spec.where, **tags}) for tags in (a, b) for spec in specs]
    known = [reusable(spec) for spec in tagged]
    missing = [spec for spec, run in zip(tagged, known, strict=True) if run is None]
    # Somebody looks at two builds, however old: what comes out is on the screen, and no alert.
    made = iter(capture(missing, prepared=prepared, progress=progress, alerts=False) if missing else [])
    measured = [summarize(run) if run is not None else next(made).summary for run in known]
    if wrong := refusal(summary.run for summary in measured):
        raise UnreadableFile(wrong)
    result = Compared()
    for spec, *both in zip(specs, measured[: len(specs)], measured[len(specs) :], strict=True):
        with result.refusing(spec.target.slug if spec.agent else f"#{spec.target.slug}"):
            sides = list(zip(names, both, strict=True))
            if empty := [f"{name}: {s.run.error}" for name, s in sides if not (s.comparable or s.searched)]:
                raise NotComparable("; ".join(empty))
            baseline, candidate = (measurement_of(s.run, name=n) for n, s in zip(names, both, strict=True))
            result.comparisons.append(with_undated(compare(baseline, candidate, margin=margin)))
    return result.adjusted()


def with_undated(comparison: Comparison) -> Comparison:
    """Return the comparison with a note on how many messages of its evaluations have no time."""
    runs = {*comparison.baseline.runs.values(), *comparison.candidate.runs.values()}
    judged = Message.objects.filter(evaluation_scores__evaluation_run__in=runs).order_by()
    counts = judged.aggregate(
        all=Count("pk", distinct=True), undated=Count("pk", distinct=True, filter=Q(sent_at__isnull=True))
    )
    if not counts["undated"]:
        return comparison
    note = f"undated: {counts['undated']:,} of {counts['all']:,} messages have no time, only an order"
    return comparison.model_copy(update={"notes": (*comparison.notes, note)})


def of_runs(first: EvaluationRun, second: EvaluationRun, *, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """Two runs of one target, the first being the baseline; in all dimensions, or in those named."""
    both = (measurement_of(run, dimensions=dimensions or None) for run in (first, second))
    return Compared([with_undated(compare(*both, margin=margin))])


def compare_to_baseline(run: EvaluationRun, *, margin: float = MARGIN) -> Comparison | None:
    """Compare a completed run with its agent's current baselines of the same judge and procedure (AC-6.5.4), as `compare` does.

    None where there is no baseline but the run itself, or the target is a channel.
    """
    measured = baseline_and_candidate(dict.fromkeys(run.dimensions, run))
    return compare(*measured, margin=margin) if measured is not None else None


def against_baselines(runs: Mapping[str, EvaluationRun], *, margin: float) -> Comparison | None:
    """Compare an agent's evaluations, by dimension, with its current baselines; None where nothing can be compared."""
    measured = baseline_and_candidate(runs)
    return with_undated(compare(*measured, margin=margin)) if measured is not None else None


def with_baselines(agents: Sequence[Agent], *, judge: str, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The newest evidence of each agent by this judge against the agent's current baselines."""
    result = Compared()
    baselines: dict[int, list[Baseline]] = defaultdict(list)
    for row in Baseline.objects.filter(agent__in=[agent.pk for agent in agents]):
        baselines[row.agent_id].append(row)
    procedures = sorted({row.procedure for rows in baselines.values() for row in rows if row.judge == judge})
    ways = [Judged(judge=judge, procedure=name) for name in procedures]
    newest = newest_of_ways(list(baselines), ways, dimensions=dimensions)
    for agent in agents:
        own = [row for row in baselines[agent.pk] if row.judge == judge]
        runs = newest.get(agent.pk)
        with result.refusing(agent.slug):
            if not own:
                others = ", ".join(sorted({b.judge for b in baselines[agent.pk]}))
                capture_one = f"manage.py capture_baseline --agents {agent.slug}"
                known = f"there are baselines by {others}" if others else capture_one
                raise NotComparable(f"no baseline by {judge}; {known}")
            if not runs:
                raise NotComparable(f"no evaluation by {judge} {nothing_newer(own)}")
            compared = against_baselines(runs, margin=margin)
            if compared is None:  # the baselines were captured again meanwhile
                raise NotComparable(f"no baseline that evaluation {[*runs.values()][-1].pk} can be compared with")
            result.comparisons.append(compared)
    return result.adjusted()


def with_file(path: Path, agents: Sequence[Agent] | None, *, margin: float, dimensions: Sequence[str] = ()) -> Compared:
    """The evaluation of each agent with the newest judged message against what a file says of it.

    Args:
        path: As `measurements_of_file` reads it.
        agents: Whom; default those in the file.

    Raises:
        UnreadableFile: The file is none.
    """
    baselines = measurements_of_file(path)
    names = ", ".join(baselines) or "none"
    if agents is None:
        agents = list(Agent.objects.filter(slug__in=list(baselines)).order_by("slug"))
    result = Compared(wrong_file=not any(agent.slug in baselines for agent in agents))
    for agent in agents:
        with result.refusing(agent.slug):
            if agent.slug not in baselines:
                raise NotComparable(f"{path} holds no completed run of it; it has: {names}")
            before = baselines[agent.slug]
            now = measurement_of_runs(_newest_like(agent, before, dimensions))
            if (before.judge, before.procedure) != (now.judge, now.procedure):
                result.wrong_file = True
            result.comparisons.append(with_undated(compare(before, now, margin=margin)))
    if not agents:
        result.refused[str(path)] = f"names no agent there is; it has: {names}"
    return result.adjusted()


def _newest_like(agent: Agent, baseline: Measurement, dimensions: Sequence[str]) -> dict[str, EvaluationRun]:
    """Return by dimension the newest evidence judged like the baseline.

    Without any it is another evaluation, so that the error says how that was judged instead.
    """
    judged = Judged(judge=baseline.judge, procedure=baseline.procedure)
    newest = newest_evidence([agent.pk], judged).get(agent.pk, {})
    runs = {name: run for name, run in runs_of(newest).items() if not dimensions or name in dimensions}
    if not runs:
        completed = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED)
        other = completed.select_related("agent").order_by("-pk").first()
        if other is None:
            raise NotComparable(f"no evaluation of {agent.slug} yet; measure it first")
        runs = {name: other for name in other.dimensions if not dimensions or name in dimensions}
    if not runs:
        raise NotComparable(f"no evaluation of {', '.join(dimensions)} yet; measure it first")
    return runs


# -- what was measured already, for the console
Asked = EvaluationRun | Tag | None  # None: the baseline, or the newest evidence


def ways_of(agent: Agent) -> list[Judged]:
    """Return how an agent was judged: models before heuristics, real speech before simulated, the newest first."""
    rows = Evidence.objects.filter(agent=agent).order_by().values("judge", "procedure")
    newest = rows.annotate(at=Max("newest_message_at")).order_by("-at", "judge", "procedure")
    ways = [Judged(judge=row["judge"], procedure=row["procedure"]) for row in newest]
    return sorted(ways, key=lambda way: (is_heuristic(way.judge), "simulated" in way.procedure.split("+")))


def chosen_measurements(
    agent: Agent | None, baseline: Asked, candidate: Asked, *, ways: Sequence[Judged]
) -> tuple[Measurement | None, Measurement | None]:
    """Return two measurements of an agent, judged in the first way in which there are both; None for one there is not.

    Where each was judged in a way of its own they are returned as they are: `compare` then says why they do not compare.

    Args:
        agent: Whose; None where two evaluations are asked for.
        baseline, candidate: An evaluation, or a tag of messages; None for the agent's baselines, and for the newest evidence (since
            them, where `baseline` is None, too).
        ways: To look in, the preferred one first.
    """
    if run := next((one for one in (baseline, candidate) if isinstance(one, EvaluationRun)), None):
        ways = [Judged(judge=run.judge, procedure=run.procedure)]
    before: Measurement | None = None
    now: Measurement | None = None
    for way in ways:
        second = _measured(agent, candidate, way, since_baselines=baseline is None)
        if baseline is not None or agent is None:
            first = _measured(agent, baseline, way)
        else:
            rows = get_baseline(agent=agent, judge=way.judge, procedure=way.procedure)
            first = _measured_baselines(rows, second) if rows else None
        if first is not None and second is not None:
            return first, second
        before, now = before or first, now or second
    return before, now


def _measured_baselines(rows: Mapping[str, Baseline], candidate: Measurement | None) -> Measurement:
    measured = measurement_of_baselines(rows.values(), candidate)
    if ADHERENCE in rows:
        return measured
    unscored = newest_without_adherence(row.evaluation_run for row in rows.values())
    return measured.extended_by(measurement_of(unscored, dimensions=[ADHERENCE])) if unscored else measured


def _measured(agent: Agent | None, asked: Asked, way: Judged, *, since_baselines: bool = False) -> Measurement | None:
    if isinstance(asked, EvaluationRun):
        return measurement_of(asked)
    if agent is None:
        return None
    is_since = asked is None and since_baselines
    newest = newest_since_baselines([agent.pk], way) if is_since else newest_evidence([agent.pk], way, tag=asked)
    runs = runs_of(newest.get(agent.pk, {}))
    if ADHERENCE not in runs and (unscored := _without_adherence(agent, way, asked, runs)) is not None:
        runs = {ADHERENCE: unscored, **runs}
    return measurement_of_runs(runs) if runs else None


def _without_adherence(
    agent: Agent, way: Judged, tag: Tag | None, runs: Mapping[str, EvaluationRun]
) -> EvaluationRun | None:
    """The newest evaluation that asked for adherence and scored nothing of it: by hits it compares all the same."""
    newest = newest_without_adherence(runs.values())
    if newest is not None or tag is None or not is_heuristic(way.judge):
        return newest
    rows = EvaluationRun.objects.filter(
        agent=agent, status=EvaluationRun.Status.COMPLETED, judge=way.judge, swap_test=""
    )
    rows = rows.annotate(tagged=Cast(KeyTextTransform(tag[0], "where"), TextField())).filter(tagged=tag[1])
    same = (run for run in rows.select_related("agent").order_by("-pk") if run.procedure == way.procedure)
    return next((run for run in same if ADHERENCE in run.dimensions), None)
