"""The baselines an agent is compared with, and the evaluations that say how it is now: which they are, and both measured.

The newest evidence is, per judge, procedure and dimension, the evaluation with the newest judged message that scored something: one
that scored nothing, or judged old messages again, does not hide what newer messages showed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from agents.builds import Tag
from agents.models import Agent, Message
from agents.personas.persona import changes_since, current_digest
from evaluation.change.measurements import Measurement, measurement_of, measurement_of_baselines, measurement_of_runs
from evaluation.change.models import Baseline, Evidence
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun, EvaluationScore, Method, is_heuristic
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import CALL_FAILED, COVERABLE, RunSummary, window_statistics


def promote(run: EvaluationRun, summary: RunSummary, *, only: Collection[str] | None = None) -> list[Baseline]:
    """Make a completed run the baseline of the dimensions it has a number or a statistic for; the others keep the baseline they have.

    Under each judge and procedure (hard, double check, method) there is a baseline of its own: they do not compare. A run that was
    asked for before the one a baseline rests on, and ended after it, does not replace it. Evaluations that no baseline rests on any
    more lose the mark `is_baseline`.

    Args:
        run: A completed run of an agent, with its numbers in `summary`.
        only: The dimensions to promote; default all.

    Raises:
        ValueError: The run targets a channel.
    """
    if run.agent is None:
        raise ValueError(f"evaluation run {run.pk} targets a channel; baselines are of agents")
    now, statistics = timezone.now(), window_statistics(run.figures)
    with transaction.atomic():
        # Of two runs that end at once each must see what the other promoted.
        Agent.objects.select_for_update(no_key=True).get(pk=run.agent.pk)
        there = get_baseline(agent=run.agent, judge=run.judge, procedure=run.procedure)
        same = {
            "agent": run.agent,
            "judge": run.judge,
            "procedure": run.procedure,
            "persona_digest": run.persona_digest,
        }
        promoted = [
            Baseline(
                **same,
                dimension=name,
                evaluation_run=run,
                score=dimension.score if dimension.count is None else None,
                count=dimension.count,
                captured_at=now,
            )
            for name, dimension in summary.dimensions.items()
            if (dimension.measured or name in statistics)
            and (only is None or name in only)
            and (name not in there or there[name].evaluation_run_id <= run.pk)
        ]
        baselines = Baseline.objects.bulk_create(
            promoted,
            update_conflicts=True,
            unique_fields=["agent", "judge", "procedure", "dimension"],
            update_fields=["evaluation_run", "score", "count", "persona_digest", "captured_at"],
        )
        marked = EvaluationRun.objects.filter(agent=run.agent, is_baseline=True, status=EvaluationRun.Status.COMPLETED)
        replaced = marked.filter(baselines__isnull=True).exclude(pk=run.pk)
        awaited = EvaluationRun.objects.exclude(status__in=EvaluationRun.FINAL)  # their dimensions are promoted later
        replaced.exclude(channel_runs__in=awaited).update(is_baseline=False)
        return baselines


def get_baseline(*, agent: Agent, judge: str, procedure: str = Method.PLUMBLINE.value) -> dict[str, Baseline]:
    """The current baselines of an agent under one judge and procedure (`EvaluationRun.procedure`), by dimension."""
    baselines = Baseline.objects.filter(agent=agent, judge=judge, procedure=procedure)
    return {b.dimension: b for b in baselines.select_related("evaluation_run")}


def dropped_tags(specs: Iterable[RunSpec]) -> dict[str, str]:
    """By slug the tags that choose the messages of an agent's baseline and that its new one would no longer ask for: ``build=40``."""
    dropped: dict[str, str] = {}
    for spec in specs:
        if spec.agent is None:
            continue
        current = get_baseline(agent=spec.agent, judge=spec.judge_model, procedure=spec.procedure)
        tags = {
            f"{key}={value}"
            for name in spec.dimensions
            if name in current
            for key, value in current[name].evaluation_run.where.items()
            if key not in spec.where
        }
        if tags:
            dropped[spec.agent.slug] = ", ".join(sorted(tags))
    return dropped


def is_stale(baseline: Baseline) -> bool:
    """Whether the persona changed since the baseline was captured: it then describes another one."""
    return baseline.persona_digest != current_digest(baseline.agent)


def stale_reasons(baselines: Iterable[Baseline]) -> dict[int, str]:
    """Which versions of the persona came since, and what made them, of the baselines that are stale, by primary key."""
    stale = [baseline for baseline in baselines if is_stale(baseline)]
    changes = changes_since((b.agent_id, b.persona_digest) for b in stale) if stale else {}
    unknown = "the persona changed since it was captured; no version tells what changed"
    return {b.pk: "; ".join(map(str, changes.get((b.agent_id, b.persona_digest), ()))) or unknown for b in stale}


Newest = Mapping[str, Evidence]  # by dimension
MOST_JUDGES = 50
ADHERENCE = Dimension.ADHERENCE.value
_FIRST = ("-newest_message_at", "-evaluation_run_id")  # without the id it would be joined for its own order


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How something was judged: scores by different judges or procedures never stand in one line."""

    judge: str
    procedure: str

    def __str__(self) -> str:
        return f"{self.judge} {self.procedure}"


def judged_ways() -> list[Judged]:
    """The judges and procedures there are baselines of, the one that most agents have first; models before heuristics."""
    by_way = Baseline.objects.order_by().values("judge", "procedure")
    rows = by_way.annotate(agents=Count("agent", distinct=True), at=Max("captured_at")).order_by("-agents", "-at")
    ways = [Judged(judge=row["judge"], procedure=row["procedure"]) for row in rows[:MOST_JUDGES]]
    return sorted(ways, key=lambda judged: is_heuristic(judged.judge))


def note_evidence(run: EvaluationRun, spoken: QuerySet[Message]) -> None:
    """Store in which dimensions a completed evaluation of an agent scored something (or has a statistic), and up to which message.

    Adherence also where the judge looked and could score nothing: that an agent is not to be recognised any more is a finding.
    It does the same however often it is called: dimensions of channels can be scored after the agent's own. Evaluations sampled by
    position, or made to test the judge, are no evidence.

    Args:
        spoken: The agent's messages in its window: all of them are judged by what looks at the window as a whole.
    """
    if run.agent_id is None or run.position_bins or run.swap_test:
        return
    rows = EvaluationScore.objects.filter(status=EvaluationScore.Status.SCORED).order_by().values_list("dimension")
    searched = EvaluationScore.objects.filter(COVERABLE, ~CALL_FAILED, dimension__in=BY_ONE_MESSAGE).order_by()
    newest_by_dimension = {
        **dict(searched.filter(evaluation_run=run).values_list("dimension").annotate(at=Max("message__said_at"))),
        **dict(rows.filter(evaluation_run=run).annotate(at=Max("message__said_at"))),
    }
    of_channels = rows.filter(evaluation_run__agent_shares__agent_run=run, evaluation_run__status=run.Status.COMPLETED)
    newest_by_dimension |= dict.fromkeys(window_statistics(run.figures))
    newest_by_dimension |= dict.fromkeys(of_channels.values_list("dimension", flat=True).distinct())
    newest: datetime | None = None
    if None in newest_by_dimension.values():
        newest = spoken.order_by().aggregate(at=Max("said_at"))["at"]
    same = {"evaluation_run": run, "agent_id": run.agent_id, "judge": run.judge, "procedure": run.procedure}
    rows_of_run = [
        Evidence(**same, dimension=dimension, newest_message_at=at or newest or run.created_at)
        for dimension, at in newest_by_dimension.items()
    ]
    Evidence.objects.bulk_create(rows_of_run, ignore_conflicts=True)


def store_completed(run: EvaluationRun, summary: RunSummary, *, spoken: QuerySet[Message], linked: bool) -> None:
    """Store what a completed evaluation of an agent is evidence of, and make it the baseline where it was asked to be.

    Args:
        spoken: See `note_evidence`.
        linked: Whether only the dimensions of channels have new numbers.
    """
    note_evidence(run, spoken)
    if run.is_baseline:
        promote(run, summary, only=CHANNEL_DIMENSIONS if linked else None)


def newest_evidence(agents: Collection[int], judged: Judged, *, tag: Tag | None = None) -> dict[int, Newest]:
    """Of each agent and dimension the evidence with the newest judged message; of equals that of the newest evaluation.

    Args:
        agents: Primary keys.
        tag: Only evaluations of the messages with this tag.
    """
    rows = Evidence.objects.filter(agent=OuterRef("pk"), judge=judged.judge, procedure=judged.procedure)
    if tag is not None:
        asked_for = Cast(KeyTextTransform(tag[0], "evaluation_run__where"), TextField())  # else compared with JSON
        rows = rows.annotate(asked_for=asked_for).filter(asked_for=tag[1])
    first = {
        f"newest_{name}": Subquery(rows.filter(dimension=name).order_by(*_FIRST).values("pk")[:1])
        for name in Dimension.values
    }
    rows_of_agents = Agent.objects.filter(pk__in=agents).order_by().annotate(**first).values_list(*first)
    return _by_agent(key for keys in rows_of_agents for key in keys)


def newest_since_baselines(agents: Collection[int], judged: Judged) -> dict[int, Newest]:
    """The same of each dimension that has a baseline, where the newest judged message is newer than the baseline's newest.

    An evaluation that was made before the baseline counts, too, if it was of the same persona.
    """
    baselines = Baseline.objects.filter(agent__in=agents, judge=judged.judge, procedure=judged.procedure)
    first = Subquery(_newest_since().order_by(*_FIRST).values("pk")[:1])
    return _by_agent(baselines.order_by().values_list(first, flat=True))


def compared_evaluations(
    agents: Collection[int] | None = None, judged: Judged | None = None
) -> dict[tuple[int, Judged], set[tuple[str, int, int]]]:
    """What is compared now, of these agents (default: all) by this judge (default: any), in one query.

    Returns:
        By agent and judge, for each dimension that has a baseline and newer evidence: the dimension, the evaluation of its baseline, and
        the newest evaluation.
    """
    baselines = Baseline.objects.all()
    if agents is not None:
        baselines = baselines.filter(agent__in=agents)
    if judged is not None:
        baselines = baselines.filter(judge=judged.judge, procedure=judged.procedure)
    newest = _newest_since().order_by(*_FIRST).values("evaluation_run")[:1]
    rows = baselines.order_by().annotate(newest_run=Subquery(newest)).filter(newest_run__isnull=False)
    compared: dict[tuple[int, Judged], set[tuple[str, int, int]]] = defaultdict(set)
    for row in rows.values_list("agent", "judge", "procedure", "dimension", "evaluation_run", "newest_run"):
        agent, judge, procedure, *evaluations = row
        compared[agent, Judged(judge=judge, procedure=procedure)].add(tuple(evaluations))
    return dict(compared)


def _newest_since() -> QuerySet[Evidence]:
    """The evidence that is newer than a baseline, in a subquery of baselines."""
    bound = Evidence.objects.filter(
        evaluation_run=OuterRef(OuterRef("evaluation_run")), dimension=OuterRef(OuterRef("dimension"))
    )
    same_persona = Q(evaluation_run__gt=OuterRef("evaluation_run")) | Q(
        evaluation_run__persona_digest=OuterRef("persona_digest")
    )
    return Evidence.objects.filter(
        same_persona,
        agent=OuterRef("agent"),
        judge=OuterRef("judge"),
        procedure=OuterRef("procedure"),
        dimension=OuterRef("dimension"),
        newest_message_at__gt=Subquery(bound.values("newest_message_at")[:1]),
    )


def runs_of(newest: Newest) -> dict[str, EvaluationRun]:
    """The evaluations by dimension, that with the newest judged message last."""
    by_time = sorted(newest.items(), key=lambda item: _age(item[1]))
    return {name: one.evaluation_run for name, one in by_time}


def newest_of_ways(
    agents: Collection[int], ways: Iterable[Judged], *, dimensions: Collection[str] = ()
) -> dict[int, dict[str, EvaluationRun]]:
    """Of each agent `newest_since_baselines` in the way that judged the newest message, as `runs_of` has it; only these dimensions."""
    by_agent: dict[int, list[Newest]] = defaultdict(list)
    for judged in ways:
        for pk, newest in newest_since_baselines(agents, judged).items():
            if asked := {name: one for name, one in newest.items() if not dimensions or name in dimensions}:
                by_agent[pk].append(asked)
    return {pk: runs_of(max(of, key=lambda newest: max(map(_age, newest.values())))) for pk, of in by_agent.items()}


def newest_without_adherence(runs: Iterable[EvaluationRun]) -> EvaluationRun | None:
    """Return the newest of the evaluations behind other scores if it asked for adherence, too: hits compare without a score."""
    newest = max(runs, key=lambda run: run.pk, default=None)
    return newest if newest is not None and ADHERENCE in newest.dimensions else None


def baseline_and_candidate(runs: Mapping[str, EvaluationRun]) -> tuple[Measurement, Measurement] | None:
    """Measure the current baselines and these evaluations, for `compare`; None where nothing can be compared.

    Args:
        runs: By dimension, of one agent, judge and procedure, the newest last.
    """
    last = list(runs.values())[-1]
    if last.agent is None:
        return None
    baselines = get_baseline(agent=last.agent, judge=last.judge, procedure=last.procedure)
    wanted = {d: run for d, run in runs.items() if d in baselines}
    rows = [baselines[d] for d, run in wanted.items() if baselines[d].evaluation_run_id != run.pk]
    if not rows:
        return None
    candidate = measurement_of_runs({b.dimension: wanted[b.dimension] for b in rows})
    baseline = measurement_of_baselines(rows, candidate)
    if ADHERENCE in wanted or ADHERENCE not in last.dimensions:
        return baseline, candidate
    run_before = newest_without_adherence(row.evaluation_run for row in rows)
    if ADHERENCE in baselines:
        run_before = baselines[ADHERENCE].evaluation_run
    if run_before is None or run_before.pk == last.pk:
        return baseline, candidate
    # Of adherence too little was scored for a baseline, or nothing now: that is a finding, too. Not where there is nothing to say: nothing
    # was scored in either, or what was scored now is of messages that the baseline knows. Adherence alone: consistency takes earlier
    # messages, which a first baseline often lacks.
    before, now = (measurement_of(run, dimensions=[ADHERENCE]) for run in (run_before, last))
    scored_before, scored_now = (bool(m.dimensions[ADHERENCE].sample.observations) for m in (before, now))
    if not (scored_before or scored_now) or (ADHERENCE in baselines and scored_now):
        return baseline, candidate
    return baseline.extended_by(before), candidate.extended_by(now)


MEASURE_NEWER = "evaluate newer messages, or capture a baseline of older ones (--window, --where)"


def nothing_newer(baselines: Collection[Baseline]) -> str:
    """Which evaluations could be compared with an agent's baselines, where there is none, and what to do."""
    how = ", ".join(sorted({b.procedure for b in baselines}))
    runs = [b.evaluation_run_id for b in baselines]
    at = Evidence.objects.filter(evaluation_run__in=runs).aggregate(at=Max("newest_message_at"))["at"]
    said = f" ({timezone.localtime(at):%Y-%m-%d %H:%M})" if at is not None else ""
    return f"judged like the baseline ({how}) scored a message newer than the baseline's newest{said}; {MEASURE_NEWER}"


def _age(one: Evidence) -> tuple[datetime, int]:
    return one.newest_message_at, one.evaluation_run_id


def _by_agent(keys: Iterable[int | None]) -> dict[int, Newest]:
    chosen = {key for key in keys if key is not None}
    by_agent: dict[int, dict[str, Evidence]] = defaultdict(dict)
    for row in Evidence.objects.filter(pk__in=chosen).select_related("evaluation_run__agent").order_by("pk"):
        by_agent[row.agent_id][row.dimension] = row
    return dict(by_agent)
