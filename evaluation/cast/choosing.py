"""Which two measurements of each agent are looked at: its baselines and what was measured since, or those of two tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from django.db.models import Count, F, Max, OuterRef, QuerySet, Subquery, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.utils import timezone
from django.utils.dateformat import format as date_format

from agents.models import Agent
from evaluation.cast.values import Judged, Sides, Tag
from evaluation.models import Baseline, EvaluationRun, is_heuristic

MOST_JUDGES = 50
NEWEST = 20_000  # baselines that are asked by whom they were judged


def judged_ways() -> list[Judged]:
    """The judges and procedures there are baselines of, the one that most agents have first; models before heuristics."""
    every = Baseline.objects.order_by("-pk")
    newest = every.filter(pk__gt=Subquery(every.values("pk")[:1]) - NEWEST)
    rows = newest.order_by().values("judge", "procedure").annotate(
        agents=Count("agent", distinct=True), newest=Max("captured_at")
    )  # fmt: skip
    ordered = rows.order_by("-agents", "-newest")[:MOST_JUDGES]
    found = [Judged(judge=row["judge"], procedure=row["procedure"]) for row in ordered]
    return sorted(found, key=lambda judged: is_heuristic(judged.judge))


def runs_judged(judged: Judged) -> QuerySet[EvaluationRun]:
    """Completed evaluations of agents, judged in this way over the whole window; samples drawn evenly by turn are something else."""
    method, *how = judged.procedure.split("+")
    return EvaluationRun.objects.filter(
        judge=judged.judge,
        method=method,
        hard="hard" in how,
        double_check="double-check" in how,
        played="played" in how,
        status=EvaluationRun.Status.COMPLETED,
        agent__isnull=False,
        turn_bins=[],
    )


def sides_of(
    agents: Collection[Agent], judged: Judged, *, then: Tag | None = None, now: Tag | None = None
) -> dict[int, Sides]:
    """The two measurements of each agent, by primary key; in four queries at most.

    Args:
        agents: Whose.
        judged: By whom and how, both sides alike.
        then: The newest evaluation of the messages of this tag; default the current baselines.
        now: The same for the other side; default the newest evaluation since the baselines that is no baseline itself.
    """
    pks = [agent.pk for agent in agents]
    first = _of_baselines(pks, judged) if then is None else _of_tag(pks, judged, then)
    newest = _newest(pks, runs_judged(judged).filter(is_baseline=False) if now is None else _tagged(judged, now))
    found = {}
    for pk in pks:
        sides = first.get(pk, Sides())
        run = newest.get(pk)
        if run is not None and then is None and now is None:
            earlier = {dimension: before for dimension, before in sides.then.items() if before < run.pk}
            run = run if earlier or not sides.then else None  # captured anew since: nothing was measured after it
            kept = earlier if run is not None else sides.then
        else:
            kept = dict(sides.then)
        found[pk] = Sides(
            then=kept,
            then_at=sides.then_at,
            then_name=sides.then_name or (tag_name(then) if then else ""),
            then_personas=sides.then_personas,
            now=None if run is not None and run.pk in kept.values() else run,
            now_name=tag_name(now) if now else "",
        )
    return found


def tag_name(tag: Tag) -> str:
    """``build 41``: a tag as people say it."""
    return f"{tag[0]} {tag[1]}"


def _of_baselines(agents: Collection[int], judged: Judged) -> dict[int, Sides]:
    rows: dict[int, list[Baseline]] = defaultdict(list)
    baselines = Baseline.objects.filter(agent__in=agents, judge=judged.judge, procedure=judged.procedure)
    for row in baselines.order_by("captured_at", "pk"):
        rows[row.agent_id].append(row)
    return {agent: _one_side(found) for agent, found in rows.items()}


def _one_side(baselines: Iterable[Baseline]) -> Sides:
    rows = list(baselines)
    newest = rows[-1].captured_at
    return Sides(
        then={row.dimension: row.evaluation_run_id for row in rows},
        then_at=newest,
        then_name=f"the baseline of {date_format(timezone.localtime(newest), 'j M Y')}",
        then_personas=frozenset(row.persona_digest for row in rows),
    )


def _of_tag(agents: Collection[int], judged: Judged, tag: Tag) -> dict[int, Sides]:
    return {
        agent: Sides(
            then=dict.fromkeys(run.own_dimensions, run.pk),
            then_at=run.finished_at or run.created_at,
            then_name=tag_name(tag),
            then_personas=frozenset([run.persona_digest]),
        )
        for agent, run in _newest(agents, _tagged(judged, tag)).items()
    }


def _tagged(judged: Judged, tag: Tag) -> QuerySet[EvaluationRun]:
    asked_for = Cast(KeyTextTransform(tag[0], "where"), TextField())  # else its text is compared with JSON
    return runs_judged(judged).annotate(asked_for=asked_for).filter(asked_for=tag[1])


def _newest(agents: Collection[int], runs: QuerySet[EvaluationRun]) -> dict[int, EvaluationRun]:
    """Of each agent the newest of these runs: one look into an index per agent."""
    one = runs.filter(agent=OuterRef("pk")).order_by("-created_at", "-pk").values("pk")[:1]
    keys = Agent.objects.filter(pk__in=agents).order_by().annotate(newest=Subquery(one)).filter(newest__isnull=False)
    of_agent = dict(keys.values_list("pk", F("newest")))
    rows = EvaluationRun.objects.in_bulk(of_agent.values())
    return {agent: rows[run] for agent, run in of_agent.items() if run in rows}
