"""The baselines an agent is compared with, and the evaluations that say how it is now: which they are, and both measured.

The newest evidence is, per judge, procedure and dimension, the evaluation with the newest judged message that scored something: one
that scored nothing, or judged old messages again, does not hide what newer messages showed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone

from agents.builds import Tag
from agents.kit.text.wording import day_text, time_text
from agents.models import Agent, Message
from agents.personas.persona import changes_since, current_digest
from evaluation.change.judge_changes import accepted_moments, judged_at
from evaluation.change.measurements import Measurement, measurement_of, measurement_of_baselines, measurement_of_runs
from evaluation.change.models import Baseline, Evidence
from evaluation.dimensions import BY_ONE_MESSAGE
from evaluation.models import CHANNEL_DIMENSIONS, Dimension, EvaluationRun, EvaluationScore, Method, is_heuristic
from evaluation.runs.failures import CALL_FAILED
from evaluation.runs.numbers import RunSummary, window_statistics
from evaluation.runs.shares import COVERABLE
from evaluation.runs.spec import RunSpec


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
    now = timezone.now()
    statistics = window_statistics(run.figures)  # they compare, also where the dimension has no score
    with transaction.atomic():
        # Of two runs that end at once each must see what the other promoted.
        Agent.objects.select_for_update(no_key=True).get(pk=run.agent.pk)
        current = get_baseline(agent=run.agent, judge=run.judge, procedure=run.procedure)
        promoted = []
        for name, dimension in summary.dimensions.items():
            if only is not None and name not in only:
                continue
            if not dimension.measured and name not in statistics:
                continue
            if name in current and current[name].evaluation_run_id > run.pk:
                continue
            baseline = Baseline(
                agent=run.agent,
                judge=run.judge,
                procedure=run.procedure,
                dimension=name,
                evaluation_run=run,
                score=dimension.score if dimension.count is None else None,
                count=dimension.count,
                persona_digest=run.persona_digest,
                captured_at=now,
            )
            promoted.append(baseline)
        baselines = Baseline.objects.bulk_create(
            promoted,
            update_conflicts=True,
            unique_fields=["agent", "judge", "procedure", "dimension"],
            update_fields=["evaluation_run", "score", "count", "persona_digest", "captured_at"],
        )
        _unmark_replaced(run)
        return baselines


def _unmark_replaced(run: EvaluationRun) -> None:
    """Take the mark `is_baseline` from the agent's other evaluations that no baseline rests on any more."""
    marked = EvaluationRun.objects.filter(agent=run.agent, is_baseline=True, status=EvaluationRun.Status.COMPLETED)
    replaced = marked.filter(baselines__isnull=True).exclude(pk=run.pk)
    unfinished = EvaluationRun.objects.exclude(status__in=EvaluationRun.FINAL)
    # The dimensions of channels are promoted when the runs of the channels end.
    replaced.exclude(channel_runs__in=unfinished).update(is_baseline=False)


def get_baseline(*, agent: Agent, judge: str, procedure: str = Method.PLUMBLINE.value) -> dict[str, Baseline]:
    """Return the current baselines of an agent under one judge and procedure (`EvaluationRun.procedure`), by dimension."""
    baselines = Baseline.objects.filter(agent=agent, judge=judge, procedure=procedure)
    return {b.dimension: b for b in baselines.select_related("evaluation_run")}


def dropped_tags(specs: Iterable[RunSpec]) -> dict[str, str]:
    """Return by slug the tags that choose the messages of an agent's baseline and that its new one would not ask for: ``build=40``."""
    dropped: dict[str, str] = {}
    for spec in specs:
        if spec.agent is None:
            continue
        current = get_baseline(agent=spec.agent, judge=spec.judge_model, procedure=spec.procedure)
        tags = set()
        for name in spec.dimensions:
            if name in current:
                where = current[name].evaluation_run.where
                tags |= {f"{key}={value}" for key, value in where.items() if key not in spec.where}
        if tags:
            dropped[spec.agent.slug] = ", ".join(sorted(tags))
    return dropped


def stale_reasons(baselines: Iterable[Baseline]) -> dict[int, str]:
    """Return why baselines are stale, by primary key; those that are not are left out.

    The persona changed since one was captured: it describes another one. Or the judge changed after it was judged, and its new answers were
    accepted: scores from now are not comparable with it.
    """
    rows = list(baselines)
    reasons = _persona_reasons(rows)
    for pk, reason in _judge_reasons(rows).items():
        reasons[pk] = "; ".join(filter(None, (reasons.get(pk), reason)))
    return reasons


def _persona_reasons(baselines: Sequence[Baseline]) -> dict[int, str]:
    """Return by baseline of an earlier persona which versions came since, what made them and what they changed."""
    stale = [baseline for baseline in baselines if baseline.persona_digest != current_digest(baseline.agent)]
    if not stale:
        return {}
    changes = changes_since((baseline.agent_id, baseline.persona_digest) for baseline in stale)
    reasons = {}
    for baseline in stale:
        versions = changes.get((baseline.agent_id, baseline.persona_digest), ())
        versions_text = "; ".join(str(version) for version in versions)
        reasons[baseline.pk] = (
            versions_text or "the persona changed since it was captured; no version tells what changed"
        )
    return reasons


def _judge_reasons(baselines: Sequence[Baseline]) -> dict[int, str]:
    """Return by baseline that was judged before the new answers of its judge were accepted when that was; two queries at most."""
    accepted = accepted_moments()
    affected = [baseline for baseline in baselines if (baseline.judge, baseline.procedure) in accepted]
    if not affected:
        return {}
    columns = EvaluationRun.objects.only("finished_at", "created_at")
    runs = columns.in_bulk({baseline.evaluation_run_id for baseline in affected})
    reasons = {}
    for baseline in affected:
        accepted_at = accepted[baseline.judge, baseline.procedure]
        if judged_at(runs[baseline.evaluation_run_id]) < accepted_at:
            day = day_text(accepted_at)
            reasons[baseline.pk] = f"the judge changed; its new answers were accepted on {day}"
    return reasons


Newest = Mapping[str, Evidence]  # by dimension
MOST_JUDGES = 50
ADHERENCE = Dimension.ADHERENCE.value
NEWEST_FIRST = ("-newest_message_at", "-evaluation_run_id")  # without the id it would be joined for its own order


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAndProcedure:
    """How something was judged: scores by different judges or procedures never stand in one line."""

    judge: str
    procedure: str

    def __str__(self) -> str:
        return f"{self.judge} {self.procedure}"


def judged_ways(baselines: QuerySet[Baseline] | None = None) -> list[JudgeAndProcedure]:
    """Return the judges and procedures there are baselines of, the one that most agents have first; models before heuristics.

    Args:
        baselines: Only of these; None: of all.
    """
    if baselines is None:
        baselines = Baseline.objects.all()
    by_way = baselines.order_by().values("judge", "procedure")
    rows = by_way.annotate(agents=Count("agent", distinct=True), at=Max("captured_at")).order_by("-agents", "-at")
    ways = [JudgeAndProcedure(judge=row["judge"], procedure=row["procedure"]) for row in rows[:MOST_JUDGES]]
    return sorted(ways, key=lambda judged: is_heuristic(judged.judge))


def judged_last(agents: Collection[Agent]) -> JudgeAndProcedure | None:
    """Return by whom and how these agents were judged last, simulations aside; None where nothing was scored."""
    evidence = Evidence.objects.filter(agent__in=agents, evaluation_run__simulated=False).order_by("-evaluation_run_id")
    last = evidence.values("judge", "procedure").first()
    return JudgeAndProcedure(**last) if last is not None else None


def note_evidence(run: EvaluationRun, messages: QuerySet[Message]) -> None:
    """Store in which dimensions a completed evaluation of an agent scored something (or has a statistic), and up to which message.

    Adherence also where the judge looked and could score nothing: that an agent is not to be recognised any more is a finding.
    It may be called again: dimensions of channels can be scored after the agent's own, and what is stored stays as it is. Evaluations
    sampled by position, or made to test the judge, are no evidence.

    Args:
        messages: The agent's messages in its window: all of them are judged by what looks at the window as a whole.
    """
    if run.agent_id is None or run.position_bins or run.swap_test:
        return
    newest_by_dimension = _newest_scored(run)
    newest: datetime | None = None
    if None in newest_by_dimension.values():  # a dimension judged over the window: it saw all that was spoken
        newest = messages.order_by().aggregate(at=Max("said_at"))["at"]
    rows = []
    for dimension, newest_scored in newest_by_dimension.items():
        row = Evidence(
            evaluation_run=run,
            dimension=dimension,
            agent_id=run.agent_id,
            judge=run.judge,
            procedure=run.procedure,
            newest_message_at=newest_scored or newest or run.created_at,
        )
        rows.append(row)
    Evidence.objects.bulk_create(rows, ignore_conflicts=True)


def _newest_scored(run: EvaluationRun) -> dict[str, datetime | None]:
    """Return by dimension in which something was scored, or searched for cues, when the newest of these messages was said.

    None where a window was judged as a whole.
    """
    own = EvaluationScore.objects.filter(evaluation_run=run).order_by()
    # Searched: judged by a judge that could have scored it, and no call failed; what was scored then takes its place.
    searched = own.filter(COVERABLE, ~CALL_FAILED, dimension__in=BY_ONE_MESSAGE)
    newest_by_dimension: dict[str, datetime | None] = {}
    for rows in (searched, own.filter(status=EvaluationScore.Status.SCORED)):
        newest_by_dimension |= dict(rows.values_list("dimension").annotate(at=Max("message__said_at")))
    of_channels = EvaluationScore.objects.filter(
        status=EvaluationScore.Status.SCORED,
        evaluation_run__agent_shares__agent_run=run,
        evaluation_run__status=run.Status.COMPLETED,
    )
    # A statistic of the window and scores of channels are of all that was said, whatever single messages were scored.
    over_windows = {*window_statistics(run.figures), *of_channels.order_by().values_list("dimension", flat=True)}
    return newest_by_dimension | dict.fromkeys(over_windows)


def store_completed(run: EvaluationRun, summary: RunSummary, *, messages: QuerySet[Message], linked: bool) -> None:
    """Store what a completed evaluation of an agent is evidence of, and make it the baseline where it was asked to be.

    Args:
        messages: See `note_evidence`.
        linked: Whether only the dimensions of channels have new numbers: then they alone become the baseline.
    """
    note_evidence(run, messages)
    if run.is_baseline:
        promote(run, summary, only=CHANNEL_DIMENSIONS if linked else None)


def newest_evidence(agents: Collection[int], judged: JudgeAndProcedure, *, tag: Tag | None = None) -> dict[int, Newest]:
    """Return of each agent and dimension the evidence with the newest judged message; of equals that of the newest evaluation.

    Args:
        agents: Primary keys.
        tag: Only evaluations of the messages with this tag.
    """
    rows = Evidence.objects.filter(agent=OuterRef("pk"), judge=judged.judge, procedure=judged.procedure)
    if tag is not None:
        name, value = tag
        tag_value = Cast(KeyTextTransform(name, "evaluation_run__where"), TextField())  # else compared with JSON
        rows = rows.annotate(tag_value=tag_value).filter(tag_value=value)
    newest_by_dimension = {}
    for dimension in Dimension.values:
        newest = rows.filter(dimension=dimension).order_by(*NEWEST_FIRST)
        newest_by_dimension[f"newest_{dimension}"] = Subquery(newest.values("pk")[:1])
    rows_of_agents = Agent.objects.filter(pk__in=agents).order_by().annotate(**newest_by_dimension)
    keys: set[int | None] = set()
    for keys_of_agent in rows_of_agents.values_list(*newest_by_dimension):
        keys.update(keys_of_agent)
    return _by_agent(keys)


def newest_since_baselines(agents: Collection[int], judged: JudgeAndProcedure) -> dict[int, Newest]:
    """Return the newest evidence of each agent and dimension that has a baseline; only what judged a newer message than the baseline.

    An evaluation that was made before the baseline counts, too, if it was of the same persona. Agents without any are left out.

    Args:
        agents: Primary keys.
    """
    baselines = Baseline.objects.filter(agent__in=agents, judge=judged.judge, procedure=judged.procedure)
    newest = Subquery(_newer_than_baseline().order_by(*NEWEST_FIRST).values("pk")[:1])
    return _by_agent(baselines.order_by().values_list(newest, flat=True))


def compared_evaluations(
    agents: Collection[int] | None = None, judged: JudgeAndProcedure | None = None
) -> dict[tuple[int, JudgeAndProcedure], set[tuple[str, int, int]]]:
    """Return what is compared now, of these agents (default: all) by this judge (default: any), in one query.

    Returns:
        By agent and judge, for each dimension that has a baseline and newer evidence: the dimension, the evaluation of its baseline, and
        the newest evaluation.
    """
    baselines = Baseline.objects.all()
    if agents is not None:
        baselines = baselines.filter(agent__in=agents)
    if judged is not None:
        baselines = baselines.filter(judge=judged.judge, procedure=judged.procedure)
    newest = _newer_than_baseline().order_by(*NEWEST_FIRST).values("evaluation_run")[:1]
    rows = baselines.order_by().annotate(newest_run=Subquery(newest)).filter(newest_run__isnull=False)
    compared: dict[tuple[int, JudgeAndProcedure], set[tuple[str, int, int]]] = defaultdict(set)
    columns = ("agent", "judge", "procedure", "dimension", "evaluation_run", "newest_run")
    for agent, judge, procedure, dimension, baseline_run, newest_run in rows.values_list(*columns):
        compared[agent, JudgeAndProcedure(judge=judge, procedure=procedure)].add((dimension, baseline_run, newest_run))
    return dict(compared)


def _newer_than_baseline() -> QuerySet[Evidence]:
    """Return the evidence that is newer than a baseline, for a subquery of baselines (whose columns `OuterRef` names).

    Newer: it judged a message that was said after the newest one behind the baseline, and was made after the baseline's evaluation or
    of the same persona.
    """
    own_evidence = Evidence.objects.filter(
        evaluation_run=OuterRef(OuterRef("evaluation_run")), dimension=OuterRef(OuterRef("dimension"))
    )
    made_since = Q(evaluation_run__gt=OuterRef("evaluation_run"))
    of_same_persona = Q(evaluation_run__persona_digest=OuterRef("persona_digest"))
    return Evidence.objects.filter(
        made_since | of_same_persona,
        agent=OuterRef("agent"),
        judge=OuterRef("judge"),
        procedure=OuterRef("procedure"),
        dimension=OuterRef("dimension"),
        newest_message_at__gt=Subquery(own_evidence.values("newest_message_at")[:1]),
    )


def runs_of(newest: Newest) -> dict[str, EvaluationRun]:
    """Return the evaluations by dimension, that with the newest judged message last."""
    by_time = sorted(newest.items(), key=lambda item: _age(item[1]))
    return {name: evidence.evaluation_run for name, evidence in by_time}


def newest_of_ways(
    agents: Collection[int], ways: Iterable[JudgeAndProcedure], *, dimensions: Collection[str] = ()
) -> dict[int, dict[str, EvaluationRun]]:
    """Return of each agent the evaluations newer than its baselines, by dimension, the newest last.

    All are judged in one way, that which judged the newest message. Agents without any are left out.

    Args:
        agents: Primary keys.
        ways: Judges with their procedures to look in; their scores are never mixed.
        dimensions: Only these; empty: all.
    """
    newest_by_agent: dict[int, Newest] = {}
    for judged in ways:
        for pk, newest in newest_since_baselines(agents, judged).items():
            by_dimension = {name: evidence for name, evidence in newest.items() if not dimensions or name in dimensions}
            if not by_dimension:
                continue
            if pk not in newest_by_agent or _newest_age(by_dimension) > _newest_age(newest_by_agent[pk]):
                newest_by_agent[pk] = by_dimension
    return {pk: runs_of(newest) for pk, newest in newest_by_agent.items()}


def newest_if_asked_adherence(runs: Iterable[EvaluationRun]) -> EvaluationRun | None:
    """Return the newest of these evaluations if it asked for adherence, too; else None.

    They are the evaluations behind the scores of other dimensions: of adherence hits compare, also without a score.
    """
    newest = max(runs, key=lambda run: run.pk, default=None)
    if newest is None or ADHERENCE not in newest.dimensions:
        return None
    return newest


def baseline_and_candidate(runs: Mapping[str, EvaluationRun]) -> tuple[Measurement, Measurement] | None:
    """Measure the current baselines and these evaluations, for `compare`; None where nothing can be compared.

    Only dimensions with a baseline that rests on another evaluation are measured; adherence also without a score.

    Args:
        runs: By dimension, of one agent, judge and procedure, the newest last; at least one.

    Raises:
        NotComparable: An evaluation is not completed.
    """
    last = list(runs.values())[-1]
    if last.agent is None:
        return None
    baselines = get_baseline(agent=last.agent, judge=last.judge, procedure=last.procedure)
    compared = []
    for dimension, run in runs.items():
        baseline = baselines.get(dimension)
        if baseline is not None and baseline.evaluation_run_id != run.pk:
            compared.append(baseline)
    if not compared:
        return None
    now = measurement_of_runs({baseline.dimension: runs[baseline.dimension] for baseline in compared})
    before = measurement_of_baselines(compared, now)
    # Asked for, but scored too little for a baseline, or now: hits in its messages may compare all the same.
    if ADHERENCE in last.dimensions and not (ADHERENCE in runs and ADHERENCE in baselines):
        return _with_unscored_adherence(before, now, baselines, compared, last)
    return before, now


def _with_unscored_adherence(
    before: Measurement,
    now: Measurement,
    baselines: Mapping[str, Baseline],
    compared: Iterable[Baseline],
    last: EvaluationRun,
) -> tuple[Measurement, Measurement]:
    """Return both measurements with adherence, of which too little was scored for a baseline, or nothing now: a finding, too.

    They come back as they are where it was not asked for before, nothing was scored in either, or what was scored is not new. Adherence
    alone: consistency takes earlier messages, which a first baseline often lacks.

    Args:
        baselines: All current ones of the agent, by dimension.
        compared: Those of them that are in `before`.
        last: The newest evaluation that is compared.
    """
    if ADHERENCE in baselines:
        run_before: EvaluationRun | None = baselines[ADHERENCE].evaluation_run
    else:
        run_before = newest_if_asked_adherence(baseline.evaluation_run for baseline in compared)
    if run_before is None or run_before.pk == last.pk:
        return before, now
    adherence_before = measurement_of(run_before, dimensions=[ADHERENCE])
    adherence_now = measurement_of(last, dimensions=[ADHERENCE])
    scored_before = bool(adherence_before.dimensions[ADHERENCE].sample.observations)
    scored_now = bool(adherence_now.dimensions[ADHERENCE].sample.observations)
    if not scored_before and not scored_now:
        return before, now
    if ADHERENCE in baselines and scored_now:  # of messages that the baseline knows, else it would be newer evidence
        return before, now
    return before.extended_by(adherence_before), now.extended_by(adherence_now)


MEASURE_NEWER = "evaluate newer messages, or capture a baseline of older ones (--window, --where)"


def nothing_newer(baselines: Collection[Baseline]) -> str:
    """Return which evaluations could be compared with an agent's baselines, where there is none, and what to do.

    It goes on after “no evaluation of ada ”: “judged like the baseline (plumbline) scored a message newer than …; evaluate newer …”.
    """
    procedures = ", ".join(sorted({baseline.procedure for baseline in baselines}))
    runs = [baseline.evaluation_run_id for baseline in baselines]
    at = Evidence.objects.filter(evaluation_run__in=runs).aggregate(at=Max("newest_message_at"))["at"]
    when = f" ({time_text(at, zone=True)})" if at is not None else ""
    return f"judged like the baseline ({procedures}) scored a message newer than the baseline's newest{when}; {MEASURE_NEWER}"


def _age(evidence: Evidence) -> tuple[datetime, int]:
    """Return by what evidence is ordered: the newest judged message, then the evaluation."""
    return evidence.newest_message_at, evidence.evaluation_run_id


def _newest_age(newest: Newest) -> tuple[datetime, int]:
    return max(_age(evidence) for evidence in newest.values())


def _by_agent(keys: Iterable[int | None]) -> dict[int, Newest]:
    """Return the evidence with these primary keys by agent and dimension; an agent has one of a dimension at most."""
    pairs = {key for key in keys if key is not None}
    by_agent: dict[int, dict[str, Evidence]] = defaultdict(dict)
    for row in Evidence.objects.filter(pk__in=pairs).select_related("evaluation_run__agent").order_by("pk"):
        by_agent[row.agent_id][row.dimension] = row
    return dict(by_agent)
