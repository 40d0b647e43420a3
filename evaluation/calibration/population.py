"""What there is to label: scored judgements of one judge, and the random draw from them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import Max, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from agents.models import Agent
from evaluation.models import (
    COUNTED,
    RULE_JUDGE,
    Dimension,
    DrawnScore,
    EvaluationRun,
    EvaluationScore,
    LabelSet,
    Method,
    procedure_name,
)

MOST_DRAWN = 10_000
OF_MESSAGES = ("adherence", "consistency")  # judged message by message; the others over a window
_MARKS = ("hard", "double_check", "simulated")


class NothingToDraw(ValueError):
    """There is no scored judgement of the kind asked for."""


def procedure_fields(procedure: str) -> dict[str, Any]:
    """The fields of a run that was judged by `procedure`, e.g. ``plumbline+hard``.

    Raises:
        ValueError: Names what is allowed.
    """
    method, *names = procedure.split("+")
    fields: dict[str, Any] = {"method": method, **{mark: mark.replace("_", "-") in names for mark in _MARKS}}
    if method not in Method.values or procedure_name(**fields) != procedure:
        marks = "".join(f"[+{mark.replace('_', '-')}]" for mark in _MARKS)
        raise ValueError(f"procedure {procedure!r}: allowed: {' or '.join(Method.values)}, then {marks}")
    return fields


def check_dimension(dimension: str) -> str:
    """The dimension, when it is scored 0 to 9.

    Raises:
        ValueError: There is no such dimension, or it is counted.
    """
    allowed = [name for name in Dimension.values if name not in COUNTED]
    if dimension not in allowed:
        why = " is a count, not a score" if dimension in COUNTED else ""
        raise ValueError(f"dimension {dimension!r}{why}; allowed: {', '.join(allowed)}")
    return dimension


def judged(*, judge: str, procedure: str, dimension: str) -> QuerySet[EvaluationScore]:
    """Judgements with a raw score by that judge: no exact rules, nothing trivial or unscored, of repeats the first."""
    fields = {f"evaluation_run__{name}": value for name, value in procedure_fields(procedure).items()}
    scores = EvaluationScore.objects.filter(
        evaluation_run__judge=judge, dimension=dimension, repeat=1, status="scored", raw_score__isnull=False, **fields
    )
    return scores.exclude(judge=RULE_JUDGE).exclude(evidence="absent").order_by("pk")


def population(
    *, judge: str, procedure: str, dimension: str, runs: Sequence[int], until: datetime | None = None
) -> QuerySet[EvaluationScore]:
    """What is drawn from: of each message and claim the newest judgement in these runs, of windows every one."""
    scores = judged(judge=judge, procedure=procedure, dimension=dimension).filter(evaluation_run__in=runs)
    if until is not None:
        scores = scores.filter(Q(judged_at__isnull=True) | Q(judged_at__lte=until))
    if dimension not in OF_MESSAGES:
        return scores
    newest = (
        scores.filter(message__isnull=False)
        .order_by()
        .values("message", "compared_with", "proposition_id", "claim")
        .annotate(newest=Max("pk"))
    )
    return EvaluationScore.objects.filter(pk__in=newest.values("newest")).order_by("pk")


def population_of(label_set: LabelSet) -> QuerySet[EvaluationScore]:
    """What a label set was drawn from, as far as it still exists."""
    return population(
        judge=label_set.judge,
        procedure=label_set.procedure,
        dimension=label_set.dimension,
        runs=label_set.population["runs"],
        until=parse_datetime(label_set.population["until"]),
    )


def draw_label_set(
    *,
    name: str,
    judge: str,
    dimension: str,
    n: int,
    procedure: str = Method.PLUMBLINE.value,
    runs: Sequence[EvaluationRun] | None = None,
    agents: Sequence[Agent] | None = None,
    seed: int = 0,
    user: User | None = None,
) -> LabelSet:
    """Draw judgements at random for people to label, each as likely as any other.

    Args:
        n: How many; all, when there are fewer.
        runs: Only of these evaluations. `agents`: only of these agents, and of the channels they spoke in.

    Raises:
        NothingToDraw: No judgement is of that kind.
        ValueError: A value that is not allowed, or a name that is in use.
    """
    name = name.strip()
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise ValueError(f"name {name[:20]!r}: 1 to 100 characters, none of them a control character")
    if not 1 <= n <= MOST_DRAWN:
        raise ValueError(f"n is {n}; allowed: 1 to {MOST_DRAWN:,}")
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed {seed}: a whole number of at most 63 bits")
    kind = {"judge": judge, "procedure": procedure, "dimension": check_dimension(dimension)}
    chosen, until = _runs(kind, runs, agents), timezone.now()
    ids = list(population(**kind, runs=chosen, until=until).values_list("pk", flat=True))
    if not ids:
        raise NothingToDraw(f"no scored judgement of {dimension} by {judge} ({procedure}){_among(runs, agents)}")
    drawn = random.Random(seed).sample(ids, min(n, len(ids)))  # noqa: S311 (repeatable, not unpredictable)
    filters: dict[str, Any] = {"runs": chosen, "until": until.isoformat()}
    if agents is not None:
        filters["agents"] = sorted(agent.slug for agent in agents)
    try:
        with transaction.atomic():
            label_set = LabelSet.objects.create(
                name=name, **kind, population=filters, population_size=len(ids), seed=seed, created_by=user
            )
            rows = [DrawnScore(label_set=label_set, evaluation_score_id=pk, place=at) for at, pk in enumerate(drawn, 1)]
            DrawnScore.objects.bulk_create(rows, batch_size=500)
    except IntegrityError:
        raise ValueError(f"name {name!r}: there is a label set of that name") from None
    return label_set


def drawn_ids(label_set: LabelSet) -> list[int]:
    """Ids of the judgements of a set in the order they were drawn: any first few of them are a random draw, too."""
    rows = DrawnScore.objects.filter(label_set=label_set).order_by("place")
    return list(rows.values_list("evaluation_score_id", flat=True))


def _runs(kind: dict[str, str], runs: Sequence[EvaluationRun] | None, agents: Sequence[Agent] | None) -> list[int]:
    """Ids of the evaluations drawn from: those with such judgements, narrowed."""
    chosen = EvaluationRun.objects.filter(pk__in=judged(**kind).order_by().values("evaluation_run"))
    if runs is not None:
        chosen = chosen.filter(pk__in=[run.pk for run in runs])
    if agents is not None:
        chosen = chosen.filter(Q(agent__in=agents) | Q(agent_runs__agent__in=agents))
    return sorted(set(chosen.values_list("pk", flat=True)))


def _among(runs: Sequence[EvaluationRun] | None, agents: Sequence[Agent] | None) -> str:
    parts = [] if runs is None else [f"evaluations {', '.join(str(run.pk) for run in runs) or 'none'}"]
    parts += [] if agents is None else [f"agents {', '.join(agent.slug for agent in agents) or 'none'}"]
    return f" in {' and '.join(parts)}" if parts else ""
