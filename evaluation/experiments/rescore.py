"""Have further judges score what was said in an experiment, and say how far they agree with its own judge and with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from django.db import transaction
from pydantic import BaseModel, ConfigDict

from agents.kit.commands import Cell
from evaluation.calibration.agreement import Figure
from evaluation.experiments.measuring import evaluations, judge_here, link, specs
from evaluation.experiments.models import Experiment
from evaluation.experiments.problems import ExperimentRefused
from evaluation.experiments.report import ExperimentReport, report
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.control import queue_run
from evaluation.statistics.agreement import quadratic_weighted_kappa, spearman

AGREEMENT_HEADS = ["Dimension", "Judges", ">Pairs", ">κ", "95 % interval", ">Spearman", "95 % interval "]


class JudgesAgree(BaseModel):
    """How far two judges agree on a dimension, over judgements of the same proposition about the same speech."""

    model_config = ConfigDict(frozen=True)

    dimension: str
    first: str
    second: str
    kappa: Figure
    spearman: Figure


class Rescored(BaseModel):
    """The report by the experiment's judge, then those by further ones, and the agreement of each two."""

    model_config = ConfigDict(frozen=True)

    reports: list[ExperimentReport]
    agreement: list[JudgesAgree]


def queue_judges(experiment: Experiment, judges: Sequence[str]) -> int:
    """Queue the evaluations by further judges that are not there yet; returns how many.

    Raises:
        ExperimentRefused: It is not played to its end.
    """
    if experiment.measured_at is None:
        raise ExperimentRefused(
            [f"experiment {experiment.pk} is {experiment.state}; allowed: one that was played to its end"]
        )
    queued, there = 0, {_key(run) for run in evaluations(experiment).filter(judge__in=judges)}
    for judge in judges:
        for environment, spec in specs(experiment):
            asked = replace(spec, judge=judge)
            if _key(asked) in there:
                continue
            with transaction.atomic():  # each in one of its own: others write meanwhile, and the next call goes on
                run, _ = queue_run(asked)
                link(environment, [run])
            queued += 1
    return queued


def rescore(
    experiment: Experiment,
    judges: Sequence[str],
    *,
    progress: Callable[[EvaluationRun, int], None] = lambda run, n: None,
) -> Rescored:
    """Have further judges score what was said, here; what they have scored before is not asked again.

    Raises:
        ExperimentRefused: It is not played to its end.
    """
    others = [judge for judge in dict.fromkeys(judges) if judge != experiment.judge]
    queue_judges(experiment, others)
    if others:
        judge_here(experiment, judges=others, progress=progress)
    every = [experiment.judge, *others]
    reports = [report(experiment), *(report(experiment, judge=judge) for judge in others)]
    scores = {judge: _scores(experiment, judge) for judge in every}
    return Rescored(reports=reports, agreement=list(_agreement(scores)))


def _key(one: Any) -> tuple[Any, ...]:
    """What an evaluation, or the order for one, measures."""
    agent, channel = (getattr(getattr(one, name), "pk", None) for name in ("agent", "channel"))
    return one.judge, agent, channel, tuple(sorted(one.where.items())), one.hard


def _scores(experiment: Experiment, judge: str) -> dict[tuple[Any, ...], float]:
    """Each judgement that was scored, by what was judged; the mean where it was judged several times."""
    of_judge = EvaluationScore.objects.filter(
        evaluation_run__in=evaluations(experiment).filter(judge=judge, status=EvaluationRun.Status.COMPLETED),
        status=EvaluationScore.Status.SCORED,
        raw_score__isnull=False,
    ).order_by("pk")
    many: dict[tuple[Any, ...], list[float]] = {}
    judged = (
        "dimension",
        "evaluation_run__agent",
        "evaluation_run__channel",
        "proposition_id",
        "message",
        "compared_with",
    )
    for *what, where, raw in of_judge.values_list(*judged, "evaluation_run__where", "raw_score"):
        many.setdefault((*what, *sorted(where.items())), []).append(raw)
    return {key: sum(values) / len(values) for key, values in many.items()}


def _agreement(scores: dict[str, dict[tuple[Any, ...], float]]) -> Iterator[JudgesAgree]:
    dimensions = dict.fromkeys(key[0] for one in scores.values() for key in one)
    for dimension in dimensions:
        for first, second in combinations(scores, 2):
            both = [key for key in scores[first] if key[0] == dimension and key in scores[second]]
            pairs = [scores[first][key] for key in both], [scores[second][key] for key in both]
            yield JudgesAgree(
                dimension=dimension,
                first=first,
                second=second,
                kappa=Figure.of(quadratic_weighted_kappa(*pairs)),
                spearman=Figure.of(spearman(*pairs)),
            )


def agreement_cells(shown: Rescored) -> list[list[Cell]]:
    """Rows of the table of agreement."""
    return [
        [
            one.dimension,
            f"{one.first} and {one.second}",
            one.kappa.n,
            one.kappa.text,
            one.kappa.interval_text,
            one.spearman.text,
            one.spearman.interval_text,
        ]
        for one in shown.agreement
    ]
