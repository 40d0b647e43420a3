"""Which two measurements of each agent are looked at: its baselines and the newest evidence since, or those of two tags."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from django.db.models import Count, Max, OuterRef, QuerySet, Subquery
from django.utils import timezone
from django.utils.dateformat import format as date_format

from agents.models import Agent
from evaluation.cast.values import Judged, Sides, Tag
from evaluation.models import Baseline, EvaluationRun, Evidence, is_heuristic
from evaluation.runs.newest import Newest, newest_evidence, newest_since_baselines, runs_of

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
        simulated="simulated" in how,
        status=EvaluationRun.Status.COMPLETED,
        agent__isnull=False,
        turn_bins=[],
    )


def sides_of(
    agents: Collection[Agent], judged: Judged, *, then: Tag | None = None, now: Tag | None = None
) -> dict[int, Sides]:
    """The two measurements of each agent, by primary key; in five queries at most.

    Args:
        agents: Whose.
        judged: By whom and how, both sides alike.
        then: The newest evidence from messages of this tag; default the current baselines.
        now: The same for the other side; default the newest evidence from newer messages than those of the first side.
    """
    pks = [agent.pk for agent in agents]
    first = _of_baselines(pks, judged) if then is None else _of_tag(pks, judged, then)
    if now is not None:
        newest = newest_evidence(pks, judged, tag=now)
    elif then is not None:
        newest = _newer(newest_evidence(pks, judged), first)
    else:
        alone = [pk for pk in pks if pk not in first]
        newest = {**newest_since_baselines(list(first), judged), **(newest_evidence(alone, judged) if alone else {})}
    found = {}
    for pk in pks:
        sides = first.get(pk, Sides())
        found[pk] = replace(
            sides,
            then_name=sides.then_name or (tag_name(then) if then else ""),
            now={name: run for name, run in runs_of(newest.get(pk, {})).items() if run.pk != sides.then.get(name)},
            now_name=tag_name(now) if now else "",
        )
    return found


def tag_name(tag: Tag) -> str:
    """``build 41``: a tag as people say it."""
    return f"{tag[0]} {tag[1]}"


def _newer(newest: Mapping[int, Newest], first: Mapping[int, Sides]) -> dict[int, Newest]:
    """What judged newer messages than the first side did; all of an agent that has none."""
    bounds = {pk: sides.then_newest for pk, sides in first.items()}
    return {
        pk: {
            name: one
            for name, one in found.items()
            if (bound := bounds.get(pk)) is None or one.newest_message_at > bound
        }
        for pk, found in newest.items()
    }


def _of_baselines(agents: Collection[int], judged: Judged) -> dict[int, Sides]:
    rows: dict[int, list[Baseline]] = defaultdict(list)
    baselines = Baseline.objects.filter(agent__in=agents, judge=judged.judge, procedure=judged.procedure)
    newest = Evidence.objects.filter(evaluation_run=OuterRef("evaluation_run"), dimension=OuterRef("dimension"))
    with_time = baselines.annotate(newest=Subquery(newest.values("newest_message_at")[:1]))
    for row in with_time.order_by("captured_at", "pk"):
        rows[row.agent_id].append(row)
    return {agent: _one_side(found) for agent, found in rows.items()}


def _one_side(baselines: Iterable[Baseline]) -> Sides:
    rows = list(baselines)
    captured = rows[-1].captured_at
    times = [row.newest for row in rows if row.newest is not None]  # type: ignore[attr-defined]  # annotated
    return Sides(
        then={row.dimension: row.evaluation_run_id for row in rows},
        then_newest=max(times, default=None),
        then_name=f"the baseline of {date_format(timezone.localtime(captured), 'j M Y')}",
        then_personas=frozenset(row.persona_digest for row in rows),
    )


def _of_tag(agents: Collection[int], judged: Judged, tag: Tag) -> dict[int, Sides]:
    return {
        agent: Sides(
            then={name: one.evaluation_run_id for name, one in found.items()},
            then_newest=max(one.newest_message_at for one in found.values()),
            then_name=tag_name(tag),
            then_personas=frozenset(one.evaluation_run.persona_digest for one in found.values()),
        )
        for agent, found in newest_evidence(agents, judged, tag=tag).items()
    }
