"""Choose two measurements and compare them: of two tags (measured now unless they were), of two runs, of the newest and a baseline."""

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
    JudgeAndProcedure,
    baseline_and_candidate,
    get_baseline,
    newest_evidence,
    newest_if_asked_adherence,
    newest_of_ways,
    newest_since_baselines,
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
from evaluation.runs.execute import Captured, capture
from evaluation.runs.failures import refusal
from evaluation.runs.numbers import RunSummary
from evaluation.runs.reuse import reusable
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import summarize
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
        """Note a target that cannot be compared inside of this context with the reason, so that the others go on."""
        try:
            yield
        except NotComparable as error:
            self.refused[target] = str(error)

    def adjusted(self) -> Compared:
        """Return it with verdicts that allow for all comparisons at once."""
        self.comparisons = adjusted(self.comparisons)
        return self

    @property
    def undecidable(self) -> dict[str, str]:
        """Return the targets of which no score and no hits were compared, with the reason."""
        reasons = dict(self.refused)
        for comparison in self.comparisons:
            has_scores = any(change.delta is not None for change in comparison.dimensions)
            has_hits = any(finding.proposition for finding in comparison.shown)
            if has_scores or has_hits:
                continue
            of_dimensions = [f"{change.dimension}: {change.reason}" for change in comparison.dimensions]
            reasons[comparison.target] = "; ".join(dict.fromkeys(of_dimensions)) or "nothing was measured in both"
        return reasons


# -- what manage.py compare is asked for
def compare_tags(
    specs: Sequence[RunSpec],
    baseline_tags: Mapping[str, str],
    candidate_tags: Mapping[str, str],
    *,
    margin: float,
    prepared: Callable[[Sequence[EvaluationRun]], None] = lambda runs: None,
    progress: Callable[[EvaluationRun, int], None] = lambda run, done: None,
) -> Compared:
    """Measure messages with tags, where that was not measured before, and compare those of the baseline with those of the candidate.

    Args:
        specs: What to measure of each target; the tags are added to theirs.
        margin: Half-width of "no change", in points.
        prepared: Called with evaluations as they are made, before anything is asked; progress: as judgements are made.

    Raises:
        UnreadableFile: The judge refuses to be asked: its key, model or address is wrong.
        PropositionError: Proposition files cannot be used.
    """
    specs_before = [replace(spec, where={**spec.where, **baseline_tags}) for spec in specs]
    specs_now = [replace(spec, where={**spec.where, **candidate_tags}) for spec in specs]
    summaries = _measured_or_known([*specs_before, *specs_now], prepared=prepared, progress=progress)
    refused = refusal(summary.run for summary in summaries)
    if refused:
        raise UnreadableFile(refused)
    baseline_name = _tags_as_text(baseline_tags)
    candidate_name = _tags_as_text(candidate_tags)
    summaries_before = summaries[: len(specs)]
    summaries_now = summaries[len(specs) :]
    result = Compared()
    for spec, before, now in zip(specs, summaries_before, summaries_now, strict=True):
        target = spec.target.slug if spec.agent else f"#{spec.target.slug}"
        with result.refusing(target):
            result.comparisons.append(
                _compare_tagged(before, now, names=(baseline_name, candidate_name), margin=margin)
            )
    return result.adjusted()


def _tags_as_text(tags: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in tags.items())


def _compare_tagged(before: RunSummary, now: RunSummary, *, names: tuple[str, str], margin: float) -> Comparison:
    """Compare two evaluations, each called by its tags.

    Raises:
        NotComparable: In one nothing was scored or searched; says why.
    """
    empty = []
    for name, summary in zip(names, (before, now), strict=True):
        # Searched for cues: the share of hits compares without a score.
        if not summary.comparable and not summary.searched:
            empty.append(f"{name}: {summary.run.error}")
    if empty:
        raise NotComparable("; ".join(empty))
    baseline = measurement_of(before.run, name=names[0])
    candidate = measurement_of(now.run, name=names[1])
    return with_note_on_undated(compare(baseline, candidate, margin=margin))


def _measured_or_known(
    specs: Sequence[RunSpec],
    *,
    prepared: Callable[[Sequence[EvaluationRun]], None],
    progress: Callable[[EvaluationRun, int], None],
) -> list[RunSummary]:
    """Return a summary of each, in this order: of an evaluation that judged just this before, else of one that is made now."""
    reusable_runs = [reusable(spec) for spec in specs]
    missing = [spec for spec, run in zip(specs, reusable_runs, strict=True) if run is None]
    captured: Iterator[Captured] = iter(())
    if missing:
        # A person looks at two builds, however old: what comes out is on the screen, and no alert.
        captured = iter(capture(missing, prepared=prepared, progress=progress, alerts=False))
    return [next(captured).summary if run is None else summarize(run) for run in reusable_runs]


def with_note_on_undated(comparison: Comparison) -> Comparison:
    """Return the comparison with a note on how many messages of its evaluations have no time."""
    runs = {*comparison.baseline.runs.values(), *comparison.candidate.runs.values()}
    messages = Message.objects.filter(evaluation_scores__evaluation_run__in=runs).order_by()
    counts = messages.aggregate(
        all=Count("pk", distinct=True), undated=Count("pk", distinct=True, filter=Q(sent_at__isnull=True))
    )
    if not counts["undated"]:
        return comparison
    note = f"undated: {counts['undated']:,} of {counts['all']:,} messages have no time, only an order"
    return comparison.model_copy(update={"notes": (*comparison.notes, note)})


def compare_runs(
    first: EvaluationRun, second: EvaluationRun, *, margin: float, dimensions: Sequence[str] = ()
) -> Compared:
    """Compare two runs of one target, the first being the baseline; in all dimensions, or in those named."""
    before = measurement_of(first, dimensions=dimensions or None)
    now = measurement_of(second, dimensions=dimensions or None)
    return Compared([with_note_on_undated(compare(before, now, margin=margin))])


def compare_to_baseline(run: EvaluationRun, *, margin: float = MARGIN) -> Comparison | None:
    """Compare a completed run with its agent's current baselines of the same judge and procedure (AC-6.5.4), as `compare` does.

    None where there is no baseline but the run itself, or the target is a channel.

    Raises:
        NotComparable: The run is not completed, or the two do not compare.
    """
    measured = baseline_and_candidate(dict.fromkeys(run.dimensions, run))
    if measured is None:
        return None
    before, now = measured
    return compare(before, now, margin=margin)


def against_baselines(runs: Mapping[str, EvaluationRun], *, margin: float) -> Comparison | None:
    """Compare an agent's evaluations, by dimension, with its current baselines; None where nothing can be compared."""
    measured = baseline_and_candidate(runs)
    if measured is None:
        return None
    before, now = measured
    return with_note_on_undated(compare(before, now, margin=margin))


def compare_with_baselines(
    agents: Sequence[Agent], *, judge: str, margin: float, dimensions: Sequence[str] = ()
) -> Compared:
    """Compare the newest evidence of each agent by this judge with the agent's current baselines.

    Agents without a baseline by this judge, or without anything newer, are in `refused`. Verdicts allow for all comparisons at once.
    """
    baselines: dict[int, list[Baseline]] = defaultdict(list)
    for row in Baseline.objects.filter(agent__in=[agent.pk for agent in agents]):
        baselines[row.agent_id].append(row)
    procedures: set[str] = set()
    for rows in baselines.values():
        procedures |= {row.procedure for row in rows if row.judge == judge}
    ways = [JudgeAndProcedure(judge=judge, procedure=procedure) for procedure in sorted(procedures)]
    newest = newest_of_ways(list(baselines), ways, dimensions=dimensions)
    result = Compared()
    for agent in agents:
        with result.refusing(agent.slug):
            comparison = _with_own_baselines(
                agent, baselines[agent.pk], newest.get(agent.pk), judge=judge, margin=margin
            )
            result.comparisons.append(comparison)
    return result.adjusted()


def _with_own_baselines(
    agent: Agent,
    baselines: Sequence[Baseline],
    runs: Mapping[str, EvaluationRun] | None,
    *,
    judge: str,
    margin: float,
) -> Comparison:
    """Compare an agent's evaluations, by dimension, with its baselines.

    Args:
        baselines: All of the agent, also by other judges.
        runs: None where nothing was evaluated since.

    Raises:
        NotComparable: There is no baseline by this judge, or nothing to compare with it.
    """
    own = [row for row in baselines if row.judge == judge]
    if not own:
        others = ", ".join(sorted({row.judge for row in baselines}))
        advice = f"there are baselines by {others}" if others else f"manage.py capture_baseline --agents {agent.slug}"
        raise NotComparable(f"no baseline by {judge}; {advice}")
    if not runs:
        raise NotComparable(f"no evaluation by {judge} {nothing_newer(own)}")
    comparison = against_baselines(runs, margin=margin)
    if comparison is None:  # the baselines were captured again meanwhile
        newest_run = list(runs.values())[-1]
        raise NotComparable(f"no baseline that evaluation {newest_run.pk} can be compared with")
    return comparison


def compare_with_file(
    path: Path, agents: Sequence[Agent] | None, *, margin: float, dimensions: Sequence[str] = ()
) -> Compared:
    """Compare what a file says of each agent with the agent's evaluation that judged the newest message in the same way (judge, procedure).

    An agent that was only judged otherwise, is not in the file or was never evaluated is in `refused`. `wrong_file` is set for the
    first of these, and where the file holds none of the agents.

    Args:
        path: As `measurements_of_file` reads it.
        agents: Whom; None: those in the file.
        margin: Half-width of "no change", in points.
        dimensions: Only these; empty: all.

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
            if before.judge != now.judge or before.procedure != now.procedure:
                result.wrong_file = True  # and `compare` refuses it, with the reason
            result.comparisons.append(with_note_on_undated(compare(before, now, margin=margin)))
    if not agents:
        result.refused[str(path)] = f"names no agent there is; it has: {names}"
    return result.adjusted()


def _newest_like(agent: Agent, baseline: Measurement, dimensions: Sequence[str]) -> dict[str, EvaluationRun]:
    """Return by dimension the evaluation with the newest evidence that was judged like the baseline.

    Without any it is the newest evaluation judged otherwise, so that the error of `compare` says how.

    Args:
        dimensions: Only these; empty: all.

    Raises:
        NotComparable: The agent was never evaluated, or not in these dimensions.
    """
    judged = JudgeAndProcedure(judge=baseline.judge, procedure=baseline.procedure)
    newest = newest_evidence([agent.pk], judged).get(agent.pk, {})
    runs = {name: run for name, run in runs_of(newest).items() if not dimensions or name in dimensions}
    if runs:
        return runs
    completed = EvaluationRun.objects.filter(agent=agent, status=EvaluationRun.Status.COMPLETED)
    other = completed.select_related("agent").order_by("-pk").first()
    if other is None:
        raise NotComparable(f"no evaluation of {agent} yet; measure it first")
    runs = {name: other for name in other.dimensions if not dimensions or name in dimensions}
    if not runs:
        raise NotComparable(f"no evaluation of {', '.join(dimensions)} yet; measure it first")
    return runs


# -- what was measured already, for the console
Asked = EvaluationRun | Tag | None  # None: the baseline, or the newest evidence


def ways_of(agent: Agent) -> list[JudgeAndProcedure]:
    """Return how an agent was judged: models before heuristics, real speech before simulated, the newest first."""
    rows = Evidence.objects.filter(agent=agent).order_by().values("judge", "procedure")
    newest_first = rows.annotate(at=Max("newest_message_at")).order_by("-at", "judge", "procedure")
    ways = [JudgeAndProcedure(judge=row["judge"], procedure=row["procedure"]) for row in newest_first]
    return sorted(ways, key=lambda judged: (is_heuristic(judged.judge), "simulated" in judged.procedure.split("+")))


def chosen_measurements(
    agent: Agent | None, baseline: Asked, candidate: Asked, *, ways: Sequence[JudgeAndProcedure]
) -> tuple[Measurement | None, Measurement | None]:
    """Return two measurements of an agent, judged in the first way in which there are both; None for one that there is in no way.

    Where each was judged in a way of its own they are returned as they are: `compare` then says why they do not compare.

    Args:
        agent: Whose; None where two evaluations are asked for.
        baseline, candidate: An evaluation, or a tag of messages; None for the agent's baselines, and for the newest evidence (since
            them, where `baseline` is None, too).
        ways: To look in, the preferred one first.
    """
    for side in (baseline, candidate):
        if isinstance(side, EvaluationRun):  # it was judged in one way: the other is looked for in the same
            ways = [JudgeAndProcedure(judge=side.judge, procedure=side.procedure)]
            break
    before: Measurement | None = None
    now: Measurement | None = None
    for judged in ways:
        now_in_way = _measured_as(agent, candidate, judged, since_baselines=baseline is None)
        if baseline is None and agent is not None:
            before_in_way = _measured_baselines(agent, judged, now_in_way)
        else:
            before_in_way = _measured_as(agent, baseline, judged)
        if before_in_way is not None and now_in_way is not None:
            return before_in_way, now_in_way
        before = before or before_in_way
        now = now or now_in_way
    return before, now


def _measured_baselines(agent: Agent, judged: JudgeAndProcedure, candidate: Measurement | None) -> Measurement | None:
    """Return the agent's current baselines, with adherence also where too little of it was scored for one; None without any."""
    rows = get_baseline(agent=agent, judge=judged.judge, procedure=judged.procedure)
    if not rows:
        return None
    measured = measurement_of_baselines(rows.values(), candidate)
    if ADHERENCE in rows:
        return measured
    unscored = newest_if_asked_adherence(row.evaluation_run for row in rows.values())
    if unscored is None:
        return measured
    return measured.extended_by(measurement_of(unscored, dimensions=[ADHERENCE]))


def _measured_as(
    agent: Agent | None, side: Asked, judged: JudgeAndProcedure, *, since_baselines: bool = False
) -> Measurement | None:
    """Return the evaluation asked for, or the newest evidence of an agent in this way; None where there is none.

    Args:
        side: An evaluation; a tag that the messages have; None for any messages.
        since_baselines: Whether, without a tag, only evidence that is newer than the baselines counts.
    """
    if isinstance(side, EvaluationRun):
        return measurement_of(side)
    if agent is None:
        return None
    runs = _newest_runs(agent, judged, tag=side, since_baselines=since_baselines)
    if ADHERENCE not in runs:
        unscored = _without_adherence(agent, judged, side, runs)
        if unscored is not None:
            runs = {ADHERENCE: unscored, **runs}  # first: `measurement_of_runs` takes the last for the newest
    return measurement_of_runs(runs) if runs else None


def _newest_runs(
    agent: Agent, judged: JudgeAndProcedure, *, tag: Tag | None, since_baselines: bool
) -> dict[str, EvaluationRun]:
    """Return the evaluations of the newest evidence, by dimension."""
    if tag is None and since_baselines:
        return runs_of(newest_since_baselines([agent.pk], judged).get(agent.pk, {}))
    return runs_of(newest_evidence([agent.pk], judged, tag=tag).get(agent.pk, {}))


def _without_adherence(
    agent: Agent, judged: JudgeAndProcedure, tag: Tag | None, runs: Mapping[str, EvaluationRun]
) -> EvaluationRun | None:
    """Return the evaluation that asked for adherence and scored nothing of it; None where there is none. By hits it compares all the same.

    It is the newest of `runs`; where that did not ask for it, messages of a tag were judged by the offline judge, which alone finds
    hits: then the newest evaluation of these messages that did.

    Args:
        runs: The evaluations of the other dimensions.
    """
    newest = newest_if_asked_adherence(runs.values())
    if newest is not None or tag is None or not is_heuristic(judged.judge):
        return newest
    name, value = tag
    completed = EvaluationRun.objects.filter(
        agent=agent, status=EvaluationRun.Status.COMPLETED, judge=judged.judge, swap_test=""
    )
    tag_value = Cast(KeyTextTransform(name, "where"), TextField())  # else compared with JSON
    tagged = completed.annotate(tag_value=tag_value).filter(tag_value=value)
    run: EvaluationRun
    for run in tagged.select_related("agent").order_by("-pk"):
        if run.procedure == judged.procedure and ADHERENCE in run.dimensions:
            return run
    return None
