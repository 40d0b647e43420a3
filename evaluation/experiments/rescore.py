"""Have further judges score what was said in an experiment, and say how far they agree with its own judge and with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

from django.db import transaction
from pydantic import BaseModel, ConfigDict

from agents.kit.commands import Cell
from evaluation.calibration.agreement import Figure
from evaluation.experiments.measuring import Progress, evaluations, judge_here, link, no_progress, specs
from evaluation.experiments.models import Experiment
from evaluation.experiments.problems import ExperimentRefused
from evaluation.experiments.report import ExperimentReport, report
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.control import queue_run
from evaluation.runs.spec import RunSpec
from evaluation.statistics.agreement import quadratic_weighted_kappa, spearman

AGREEMENT_HEADS = ["Dimension", "Judges", ">Pairs", ">κ", "95 % interval", ">Spearman", "95 % interval "]


class JudgesAgree(BaseModel):
    """The agreement of two judges on a dimension, over judgements of the same proposition about the same speech."""

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


@dataclass(frozen=True, slots=True)
class _EvaluationKey:
    """Whom and where an evaluation measures, and by which judge: the same for the order of it (`RunSpec`) and for the evaluation itself."""

    judge: str
    agent: int | None
    channel: int | None
    where: tuple[tuple[str, str], ...]
    hard: bool

    @classmethod
    def of(cls, evaluation: EvaluationRun | RunSpec) -> _EvaluationKey:
        return cls(
            judge=evaluation.judge,
            agent=evaluation.agent.pk if evaluation.agent else None,
            channel=evaluation.channel.pk if evaluation.channel else None,
            where=tuple(sorted(evaluation.where.items())),
            hard=evaluation.hard,
        )


def queue_judges(experiment: Experiment, judges: Sequence[str]) -> int:
    """Queue the evaluations by further judges that are not there yet, in any status; return how many.

    Raises:
        ExperimentRefused: It is not played to its end.
    """
    if experiment.measured_at is None:
        raise ExperimentRefused(
            [f"experiment {experiment.pk} is {experiment.state}; allowed: one that was played to its end"]
        )
    stored = evaluations(experiment).filter(judge__in=judges).select_related("agent", "channel")
    stored_keys = {_EvaluationKey.of(run) for run in stored}
    queued = 0
    for judge in judges:
        for environment, own_spec in specs(experiment):
            spec = replace(own_spec, judge=judge)
            if _EvaluationKey.of(spec) in stored_keys:
                continue
            with transaction.atomic():  # each in one of its own: others write meanwhile, and the next call goes on
                run, _ = queue_run(spec)
                link(environment, [run])
            queued += 1
    return queued


def rescore(experiment: Experiment, judges: Sequence[str], *, progress: Progress = no_progress) -> Rescored:
    """Have further judges score what was said, here, and compare them; what they have scored before is not asked again.

    The experiment's own judge and repeated names among `judges` are passed over.

    Raises:
        ExperimentRefused: It is not played to its end.
    """
    others = [judge for judge in dict.fromkeys(judges) if judge != experiment.judge]
    queue_judges(experiment, others)
    if others:
        judge_here(experiment, judges=others, progress=progress)
    reports = [report(experiment), *(report(experiment, judge=judge) for judge in others)]
    scores = {judge: _scores_by(experiment, judge) for judge in (experiment.judge, *others)}
    return Rescored(reports=reports, agreement=list(_agreement(scores)))


class _JudgedItem(NamedTuple):
    """A proposition about some speech, which two judges may both have scored."""

    dimension: str
    agent: int | None
    channel: int | None
    proposition: str
    message: int | None
    compared_with: int | None
    where: tuple[tuple[str, str], ...]


def _scores_by(experiment: Experiment, judge: str) -> dict[_JudgedItem, float]:
    """Return the scores that a judge gave in completed evaluations; the mean where the same was judged several times."""
    completed = evaluations(experiment).filter(judge=judge, status=EvaluationRun.Status.COMPLETED)
    judgements = EvaluationScore.objects.filter(
        evaluation_run__in=completed, status=EvaluationScore.Status.SCORED, raw_score__isnull=False
    )
    columns = (
        "dimension",
        "evaluation_run__agent",
        "evaluation_run__channel",
        "proposition_id",
        "message",
        "compared_with",
        "evaluation_run__where",
        "raw_score",
    )
    scores: dict[_JudgedItem, list[float]] = {}
    rows = judgements.order_by("pk").values_list(*columns)
    for dimension, agent, channel, proposition, message, compared_with, where, raw_score in rows:
        item = _JudgedItem(
            dimension=dimension,
            agent=agent,
            channel=channel,
            proposition=proposition,
            message=message,
            compared_with=compared_with,
            where=tuple(sorted(where.items())),
        )
        scores.setdefault(item, []).append(raw_score)
    return {item: sum(values) / len(values) for item, values in scores.items()}


def _agreement(scores: Mapping[str, Mapping[_JudgedItem, float]]) -> Iterator[JudgesAgree]:
    """Yield how far each two judges agree on each dimension, over what both scored; also where that is nothing.

    Args:
        scores: Of each item that was judged, by judge.
    """
    dimensions = dict.fromkeys(item.dimension for by_item in scores.values() for item in by_item)
    for dimension in dimensions:
        for first, second in combinations(scores, 2):
            both = [item for item in scores[first] if item.dimension == dimension and item in scores[second]]
            first_scores = [scores[first][item] for item in both]
            second_scores = [scores[second][item] for item in both]
            yield JudgesAgree(
                dimension=dimension,
                first=first,
                second=second,
                kappa=Figure.of(quadratic_weighted_kappa(first_scores, second_scores)),
                spearman=Figure.of(spearman(first_scores, second_scores)),
            )


def agreement_cells(rescored: Rescored) -> list[list[Cell]]:
    """Return the rows of the table of agreement."""
    return [
        [
            agreement.dimension,
            f"{agreement.first} and {agreement.second}",
            agreement.kappa.n,
            agreement.kappa.text,
            agreement.kappa.interval_text,
            agreement.spearman.text,
            agreement.spearman.interval_text,
        ]
        for agreement in rescored.agreement
    ]
