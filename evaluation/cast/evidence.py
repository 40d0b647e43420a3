"""The messages behind a sentence, the tag that tells now from then, and the scores since: each in one or two queries for all cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from django.db.models import F, Max, OuterRef, Q, Subquery, Window
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import RowNumber

from agents.models import Agent, Message
from evaluation.cast.choosing import runs_judged
from evaluation.cast.values import Judged, Move, Quote, Tag
from evaluation.models import EvaluationRun, EvaluationScore

# What says under which circumstances something was said.
BUILD_TAGS = ("build", "version", "release", "model", "prompt")
COURSE = 20  # evaluations of a sparkline


class Told(NamedTuple):
    """A proposition of two runs."""

    then_run: int
    now_run: int
    dimension: str
    proposition: str
    rose: bool

    @classmethod
    def of(cls, move: Move) -> Told:
        return cls(move.then_run, move.now_run, move.dimension, move.proposition, move.delta > 0)


def quotes_of(told: Iterable[Told]) -> dict[Told, tuple[Quote | None, Quote | None]]:
    """The message that scored highest then and the one that scored lowest now; where it rose the reverse. Of equals the newest."""
    wanted = list(told)
    highest = _extremes(
        [*((t.then_run, t) for t in wanted if not t.rose), *((t.now_run, t) for t in wanted if t.rose)], -1
    )
    lowest = _extremes(
        [*((t.now_run, t) for t in wanted if not t.rose), *((t.then_run, t) for t in wanted if t.rose)], 1
    )
    keys = {row["message"] for row in (*highest.values(), *lowest.values())}
    messages = Message.objects.select_related("channel", "agent").in_bulk(keys)

    def quote(rows: Mapping[tuple[int, str, str], dict[str, Any]], run: int, t: Told) -> Quote | None:
        row = rows.get((run, t.dimension, t.proposition))
        message = None if row is None else messages.get(row["message"])
        return (
            None if row is None or message is None else Quote(message=message, score=row["score"], claim=row["claim"])
        )

    return {
        t: (quote(lowest if t.rose else highest, t.then_run, t), quote(highest if t.rose else lowest, t.now_run, t))
        for t in wanted
    }


def _extremes(wanted: Iterable[tuple[int, Told]], sign: int) -> dict[tuple[int, str, str], dict[str, Any]]:
    where = _rows_of((run, told) for run, told in wanted)
    if where is None:
        return {}
    by_score = F("score").asc() if sign > 0 else F("score").desc()
    place = Window(
        RowNumber(),
        partition_by=[F("evaluation_run"), F("dimension"), F("proposition_id")],
        order_by=[by_score, F("message").desc()],
    )
    rows = EvaluationScore.objects.filter(where, status="scored", score__isnull=False, message__isnull=False).order_by()
    first = rows.annotate(place=place).filter(place=1)
    fields = ("evaluation_run", "dimension", "proposition_id", "message", "score", "claim")
    return {(row["evaluation_run"], row["dimension"], row["proposition_id"]): row for row in first.values(*fields)}


def _rows_of(wanted: Iterable[tuple[int, Told]]) -> Q | None:
    where: Q | None = None
    for run, told in wanted:
        one = Q(evaluation_run=run, dimension=told.dimension, proposition_id=told.proposition)
        where = one if where is None else where | one
    return where


def claims_of(told: Iterable[Told]) -> dict[Told, str]:
    """The claims as they were asked now; of one that names the channel, and so has a wording for each, the last in the alphabet."""
    wanted = list(told)
    where = _rows_of((t.now_run, t) for t in wanted)
    if where is None:
        return {}
    rows = EvaluationScore.objects.filter(where).order_by().values("evaluation_run", "dimension", "proposition_id")
    claims = {
        (row["evaluation_run"], row["dimension"], row["proposition_id"]): row["words"]
        for row in rows.annotate(words=Max("claim"))
    }
    return {t: claims.get((t.now_run, t.dimension, t.proposition), "") for t in wanted}


def tags_since(told: Iterable[Told]) -> dict[Told, Tag]:
    """The tag that every judged message carries now and none carried then; where there are several the first of `BUILD_TAGS`."""
    wanted = list(told)
    where = _rows_of((run, t) for t in wanted for run in (t.then_run, t.now_run))
    if where is None:
        return {}
    tagged = {f"tag_{key}": KeyTextTransform(key, "message__tags") for key in BUILD_TAGS}
    rows = EvaluationScore.objects.filter(where, status="scored", message__isnull=False).order_by()
    seen: dict[tuple[int, str, str], list[dict[str, Any]]] = defaultdict(list)
    names = ("evaluation_run", "dimension", "proposition_id", *tagged)
    for row in rows.annotate(**tagged).values(*names).distinct():
        seen[row["evaluation_run"], row["dimension"], row["proposition_id"]].append(row)
    found = {}
    for t in wanted:
        then, now = (seen[run, t.dimension, t.proposition] for run in (t.then_run, t.now_run))
        for key in BUILD_TAGS:
            values = {row[f"tag_{key}"] for row in now}
            before = {row[f"tag_{key}"] for row in then}
            if len(values) == 1 and None not in values and before and not values & before:
                found[t] = (key, str(values.pop()))
                break
    return found


def courses_of(agents: Iterable[Agent], judged: Judged) -> dict[int, list[float | None]]:
    """Overall scores of each agent's newest evaluations of the same dimensions as its last one, the oldest first; in two queries."""
    pks = [agent.pk for agent in agents]
    runs = runs_judged(judged).filter(overall_score__isnull=False)
    oldest = runs.filter(agent=OuterRef("pk")).order_by("-created_at", "-pk").values("created_at")
    first_of = Subquery(oldest[COURSE - 1 : COURSE])
    begins = Agent.objects.filter(pk__in=pks).order_by().annotate(first=first_of).annotate(newest=Subquery(oldest[:1]))
    where: Q | None = None
    first: datetime | None
    for pk, first in begins.filter(newest__isnull=False).values_list("pk", "first"):
        one = Q(agent=pk) if first is None else Q(agent=pk, created_at__gte=first)
        where = one if where is None else where | one
    if where is None:
        return {}
    rows: dict[int, list[EvaluationRun]] = defaultdict(list)
    for run in (
        runs.filter(where).only("agent", "dimensions", "overall_score", "created_at").order_by("created_at", "pk")
    ):
        rows[run.agent_id or 0].append(run)
    return {
        agent: [run.overall_score for run in found if set(run.dimensions) == set(found[-1].dimensions)][-COURSE:]
        for agent, found in rows.items()
    }
