"""A pair of an experiment: an environment of a treatment beside the one of the same number in the control, and what differs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Count, F, Max, Min, Sum

from evaluation.dimensions import COUNTED as COUNTED_BY_JUDGE
from evaluation.experiments.measuring import evaluations
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.report import COUNTED, scores_of, shown_difference
from evaluation.experiments.scenario import Scenario
from evaluation.models import EvaluationScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two environments with the same agents, one of the control and one of a treatment."""

    control: ExperimentEnvironment
    treatment: ExperimentEnvironment


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPair:
    """A measure of both environments of a pair; None where there is no value.

    Attributes:
        better: Which way is a gain: higher, lower, or neither (empty).
    """

    label: str
    unit: str
    control: float | None
    treatment: float | None
    better: str

    @property
    def difference(self) -> float | None:
        """Return how much more the treatment has, as both values are shown."""
        return shown_difference(self.control, self.treatment)

    @property
    def is_same(self) -> bool:
        """Return whether both have the same value, as it is shown."""
        return self.difference == 0


def find_pair(experiment: Experiment, *, arm: str, repeat: int, number: int) -> Pair | None:
    """Return the pair of a treatment's environment and its like in the control; None where one of them is not there."""
    control = control_of(experiment)
    if arm not in treatments_of(experiment):
        return None
    environments = experiment.environments.filter(arm__in=(control, arm), repeat=repeat, number=number)
    by_arm = {environment.arm: environment for environment in environments.select_related("channel")}
    if len(by_arm) < 2:
        return None
    return Pair(control=by_arm[control], treatment=by_arm[arm])


def neighbours(experiment: Experiment, *, arm: str, repeat: int, number: int) -> tuple[int | None, int | None]:
    """Return the numbers of the pairs before and after one, of those of which both conversations are there; None where there is none."""
    environments = experiment.environments.filter(arm__in=(control_of(experiment), arm), repeat=repeat)
    both = environments.order_by().values("number").annotate(arms=Count("pk")).filter(arms=2)
    return (
        both.filter(number__lt=number).aggregate(before=Max("number"))["before"],
        both.filter(number__gt=number).aggregate(after=Min("number"))["after"],
    )


def control_of(experiment: Experiment) -> str:
    """Return the name of the arm that others are compared with: the first."""
    return str(experiment.scenario["arms"][0]["name"])


def treatments_of(experiment: Experiment) -> list[str]:
    """Return the names of the other arms."""
    return [str(arm["name"]) for arm in experiment.scenario["arms"][1:]]


def measured_pair(experiment: Experiment, pair: Pair) -> list[MeasuredPair]:
    """Return the scores of a pair by the experiment's judge, means over its agents, then what is counted without a judge."""
    scenario = Scenario.model_validate(experiment.scenario)
    runs = evaluations(experiment).filter(
        judge=experiment.judge, environment_link__environment__in=(pair.control, pair.treatment)
    )
    scores = scores_of(list(runs.select_related("environment_link__environment").order_by("pk")), scenario)
    measured = []
    for dimension in (measured_dimension.id for measured_dimension in scenario.dimensions):
        values = [
            _mean(scores[str(dimension), environment.arm][environment.number])
            for environment in (pair.control, pair.treatment)
        ]
        unit = "ideas" if dimension in COUNTED_BY_JUDGE else "score, 0 to 9"
        measured.append(
            MeasuredPair(label=dimension.label, unit=unit, control=values[0], treatment=values[1], better="higher")
        )
    for measure in COUNTED:
        control, treatment = (environment.figures.get(measure.id) for environment in (pair.control, pair.treatment))
        if control is None and treatment is None:
            continue
        measured.append(
            MeasuredPair(
                label=measure.label, unit=measure.unit, control=control, treatment=treatment, better=measure.better
            )
        )
    return measured


def _mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None


def message_scores(experiment: Experiment, pair: Pair, messages: Collection[int]) -> dict[int, dict[str, float]]:
    """Return by message (primary key) its score in each dimension by the experiment's judge: the weighted mean of its propositions."""
    scored = EvaluationScore.objects.filter(
        message__in=messages,
        score__isnull=False,
        status=EvaluationScore.Status.SCORED,
        evaluation_run__judge=experiment.judge,
        evaluation_run__environment_link__environment__in=(pair.control, pair.treatment),
    )
    means = scored.order_by("message_id", "dimension").values("message_id", "dimension")
    by_message: dict[int, dict[str, float]] = {}
    for row in means.annotate(mean=Sum(F("score") * F("weight")) / Sum("weight")):
        by_message.setdefault(row["message_id"], {})[row["dimension"]] = row["mean"]
    return by_message
