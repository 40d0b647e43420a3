"""The swap test: does a judge score agents' own words higher than the words of others? It needs no labels.

Each agent is measured twice on the same messages amid the same conversations: once with what it said, once with texts of others in their
place. A judge that cannot tell the two apart cannot see a persona that is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from django.utils import timezone
from pydantic import BaseModel, computed_field

from evaluation.calibration.agreement import Figure, SwapShown
from evaluation.models import BY_MESSAGE, EvaluationRun, EvaluationScore, JudgeCalibration, SwapHalf
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import rounded
from evaluation.runs.swaps import foils_in
from evaluation.statistics.separation import area_under_curve

HIGH = 7  # "mostly true": a swapped text that scores this passes for the agent's own
SAMPLES = 10

Pair = tuple[EvaluationRun, EvaluationRun]  # of an agent's own words, and of swapped texts
ByText = dict[tuple[int, str], dict[int, float | None]]


class ByAgent(BaseModel):
    """How one agent's own words and the texts of others scored: means 0 to 9, and the area under the curve, null without scores."""

    agent: str
    own: float | None
    swapped: float | None
    auc: float | None


class SwapTest(BaseModel):
    """How well a judge's score tells agents' own words from texts of others in one dimension, as it is printed and stored.

    Attributes:
        auc: The chance that an own text scores higher than a swapped one of the same agent: 0.5 is chance, 1 never wrong.
        own_mean, swapped_mean: 0 to 9, over the texts scored.
        high_share: Share of the swapped texts scored 7 or more, 0 to 1.
        own_texts, swapped_texts: How many were asked about; `own_scored` and `swapped_scored` of them have a score.
        against: Whose texts were swapped in.
    """

    auc: Figure
    own_mean: float | None
    swapped_mean: float | None
    high_share: float | None
    own_texts: int
    own_scored: int
    swapped_texts: int
    swapped_scored: int
    against: Literal["agents", "foils", "agents and foils"]
    agents: list[ByAgent]
    checked_at: str

    @computed_field  # type: ignore[prop-decorator]
    @property
    def own_higher(self) -> int:
        """Of how many agents the mean of the own texts is higher: an evaluation gives a mean, which tells more than one text."""
        return sum(1 for a in self.agents if a.own is not None and a.swapped is not None and a.own > a.swapped)


def swap_specs(spec: RunSpec) -> tuple[RunSpec, RunSpec]:
    """The two measurements of an agent's swap test: of its own words, and of texts of others in their place.

    Raises:
        ValueError: A dimension that is not judged message by message: there is no text to swap.
    """
    return replace(spec, swap_test=SwapHalf.OWN.value), replace(spec, swap_test=SwapHalf.SWAPPED.value)


def swap_tests(pairs: Sequence[Pair]) -> dict[str, SwapTest]:
    """The swap test of each dimension from completed evaluations of some agents, all by one judge and procedure."""
    scores = _scores_by_text([run for pair in pairs for run in pair])
    foils = {foils_in(swapped) for _, swapped in pairs if swapped.swaps}
    against: Literal["agents", "foils", "agents and foils"] = (
        "agents and foils" if len(foils) > 1 else "foils" if True in foils else "agents"
    )
    asked = {name for own, _ in pairs for name in own.dimensions}
    return {name: _test(name, pairs, scores, against) for name in BY_MESSAGE if name in asked}


def _test(
    dimension: str, pairs: Sequence[Pair], scores: ByText, against: Literal["agents", "foils", "agents and foils"]
) -> SwapTest:
    asked = [tuple(scores[run.pk, dimension] for run in pair) for pair in pairs]
    scored = [tuple([s for s in texts.values() if s is not None] for texts in both) for both in asked]
    own, swapped = ([score for both in scored for score in both[side]] for side in (0, 1))
    by_agent = []
    for (run, _), (first, second) in zip(pairs, scored, strict=True):
        auc = rounded(area_under_curve([(first, second)]).value)
        by_agent.append(
            ByAgent(agent=run.agent.slug if run.agent else "", own=_mean(first), swapped=_mean(second), auc=auc)
        )
    area = area_under_curve([(first, second) for first, second in scored])
    if area.value is None and (why := _why_unscored(dimension, pairs)):
        area = replace(area, reason=why)
    return SwapTest(
        auc=Figure.of(area),
        own_mean=_mean(own),
        swapped_mean=_mean(swapped),
        high_share=_mean([float(score >= HIGH) for score in swapped]),
        own_texts=sum(len(both[0]) for both in asked),
        own_scored=len(own),
        swapped_texts=sum(len(both[1]) for both in asked),
        swapped_scored=len(swapped),
        against=against,
        agents=by_agent,
        checked_at=timezone.now().isoformat(timespec="seconds"),
    )


def _why_unscored(dimension: str, pairs: Sequence[Pair]) -> str:
    runs = [run.pk for pair in pairs for run in pair]
    never_asked = {"status": "unscored", "judge": "", "cause": ""}
    unscored = EvaluationScore.objects.filter(evaluation_run__in=runs, dimension=dimension, **never_asked)
    return unscored.order_by("pk").values_list("reason", flat=True).first() or ""


def _mean(values: Sequence[float]) -> float | None:
    return rounded(sum(values) / len(values)) if values else None


def _scores_by_text(runs: Iterable[EvaluationRun]) -> ByText:
    """By run and dimension the score of each message: the weighted mean of its propositions; None without one."""
    sums: dict[tuple[int, str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs], message__isnull=False).order_by()
    fields = ("evaluation_run", "dimension", "message", "status", "weight", "score")
    for run, dimension, message, status, weight, score in rows.values_list(*fields).iterator():
        cell = sums[run, dimension, message]
        if status == EvaluationScore.Status.SCORED and score is not None:
            cell[0] += weight * score
            cell[1] += weight
    by_text: ByText = defaultdict(dict)
    for (run, dimension, message), (points, weights) in sums.items():
        by_text[run, dimension][message] = points / weights if weights else None
    return by_text


def store_swap_tests(*, judge: str, procedure: str, tests: dict[str, SwapTest]) -> None:
    """Store swap tests beside the judge's agreement with people, in place of earlier ones."""
    for dimension, test in tests.items():
        figures = test.model_dump(include={"high_share", "own_scored", "swapped_scored", "against", "checked_at"})
        figures |= {"auc": test.auc.value, "interval": test.auc.interval, "reason": test.auc.reason}
        shown = SwapShown(**figures, agents=len(test.agents))
        JudgeCalibration.objects.update_or_create(
            judge=judge, procedure=procedure, dimension=dimension, defaults={"swap_test": shown.model_dump(mode="json")}
        )
