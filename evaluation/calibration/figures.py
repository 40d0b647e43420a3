"""The figures: a judge's raw scores beside people's labels, and the mean people would have given (prediction-powered)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from evaluation.calibration.population import judged, population_of
from evaluation.calibration.values import Calibration, PoweredMean
from evaluation.judge.verdicts import MAX_SCORE
from evaluation.models import LabelSet, Method, ScoreLabel
from evaluation.statistics.agreement import RESAMPLES, krippendorff_alpha, quadratic_weighted_kappa, spearman
from evaluation.statistics.bootstrap import Observation, bootstrap_mean
from evaluation.statistics.estimates import Estimate
from evaluation.statistics.prediction_powered import prediction_powered_mean


@dataclass(frozen=True, slots=True)
class Labelled:
    """A judgement with its blind labels: the judge's raw score, whether the claim is an anti-pattern, values by annotator."""

    raw: int
    inverted: bool
    values: Mapping[str, int]

    @property
    def people(self) -> float:
        """What people say: the mean of their labels."""
        return sum(self.values.values()) / len(self.values)

    def better(self, value: float) -> float:
        """A value on the scale where higher is better."""
        return MAX_SCORE - value if self.inverted else value


def calibration(
    *,
    judge: str,
    dimension: str,
    procedure: str = Method.PLUMBLINE.value,
    label_set: LabelSet | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Calibration:
    """How well a judge agrees with people in one dimension.

    Args:
        judge, procedure, dimension: Whose scores.
        label_set: Only labels of this draw; default all labels there are.
        resamples, seed: Of the bootstrap, over judgements.

    Raises:
        ValueError: A procedure or number that is not allowed.
    """
    scores = judged(judge=judge, procedure=procedure, dimension=dimension)
    found = ScoreLabel.objects.filter(evaluation_score__in=scores, withdrawn=False)
    sets = LabelSet.objects.filter(judge=judge, procedure=procedure, dimension=dimension).order_by("name")
    if label_set is not None:
        found = found.filter(evaluation_score__label_sets=label_set)
        sets = sets.filter(pk=label_set.pk)
    items, tally = _items(found)
    rows = [items[pk] for pk in sorted(items)]
    raw, people = [float(row.raw) for row in rows], [row.people for row in rows]
    names = sorted({name for row in rows for name in row.values})
    return Calibration(
        judge=judge,
        procedure=procedure,
        dimension=dimension,
        labels=tally["labels"],
        items=len(rows),
        annotators=len(names),
        cannot_tell=tally["cannot_tell"],
        not_blind=tally["not_blind"],
        kappa=quadratic_weighted_kappa(raw, people, resamples=resamples, seed=seed),
        spearman=spearman(raw, people, resamples=resamples, seed=seed),
        alpha=krippendorff_alpha(list(zip(raw, people, strict=True)), resamples=resamples, seed=seed),
        people_alpha=krippendorff_alpha(
            [[row.values.get(name) for name in names] for row in rows], resamples=resamples, seed=seed
        ),
        bias=_bias(rows, resamples=resamples, seed=seed),
        powered=tuple(_powered(drawn, items) for drawn in sets),
        digest=_digest(items),
    )


def _items(labels: QuerySet[ScoreLabel]) -> tuple[dict[int, Labelled], Counter[str]]:
    """Labelled judgements by id, and how many labels are in the figures and how many are not."""
    values: dict[int, dict[str, int]] = {}
    about: dict[int, tuple[int, bool]] = {}
    tally: Counter[str] = Counter()
    fields = ("evaluation_score", "annotator", "value", "blind")
    judged_as = ("evaluation_score__raw_score", "evaluation_score__inverted")
    rows = labels.values_list(*fields, *judged_as)
    for pk, annotator, value, blind, raw, inverted in rows.order_by("evaluation_score", "annotator"):
        if not blind or value is None:
            tally["not_blind" if not blind else "cannot_tell"] += 1
            continue
        tally["labels"] += 1
        values.setdefault(pk, {})[annotator] = value
        about[pk] = (raw, inverted)
    return {pk: Labelled(*about[pk], given) for pk, given in values.items()}, tally


def _bias(rows: Sequence[Labelled], *, resamples: int, seed: int) -> Estimate:
    """Judge minus people where higher is better; each judgement counts once."""
    observations = [Observation(row.better(row.raw) - row.better(row.people)) for row in rows]
    return bootstrap_mean(observations, resamples=resamples, seed=seed, resolution=1)


def _powered(label_set: LabelSet, items: Mapping[int, Labelled]) -> PoweredMean:
    """The prediction-powered mean over everything a label set was drawn from (Angelopoulos et al. 2023, and PPI++)."""
    drawn = set(label_set.scores.order_by().values_list("pk", flat=True))
    labelled = {pk: items[pk] for pk in sorted(drawn & set(items))}
    everything = population_of(label_set).values_list("pk", "raw_score", "inverted").iterator()
    rest = [
        float(MAX_SCORE - raw if inverted else raw)
        for pk, raw, inverted in everything
        if pk not in labelled and raw is not None
    ]
    rows = list(labelled.values())
    result = prediction_powered_mean(
        [row.better(row.people) for row in rows], [row.better(row.raw) for row in rows], rest
    )
    return PoweredMean(
        label_set=label_set.name,
        population=len(rest) + len(rows),
        drawn=len(drawn),
        labelled=len(rows),
        result=result,
    )


def _digest(items: Mapping[int, Labelled]) -> str:
    rows = [[pk, row.raw, row.inverted, sorted(row.values.items())] for pk, row in sorted(items.items())]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest() if rows else ""


def confusion(label_set: LabelSet, *, annotators: Sequence[str] | None = None) -> list[list[int]]:
    """How often people gave which value (rows, 0 to 9) to what the judge gave which raw score (columns); each label counts once."""
    table = [[0] * (MAX_SCORE + 1) for _ in range(MAX_SCORE + 1)]
    labels = ScoreLabel.objects.filter(
        evaluation_score__label_sets=label_set,
        blind=True,
        value__isnull=False,
        evaluation_score__raw_score__isnull=False,
    )
    if annotators is not None:
        labels = labels.filter(annotator__in=annotators)
    for value, raw in labels.order_by().values_list("value", "evaluation_score__raw_score"):
        if value is not None and raw is not None:
            table[value][raw] += 1
    return table
