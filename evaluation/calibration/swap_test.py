"""The swap test: does a judge score agents' own words higher than the words of others? It needs no labels.

Each agent is measured twice on the same messages amid the same conversations: once with what it said, once with texts of others in their
place. A judge that cannot tell the two apart cannot see a persona that is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from django.utils import timezone
from pydantic import BaseModel, computed_field

from evaluation.calibration.agreement import Figure, SwapShown, swap_verdict
from evaluation.calibration.models import JudgeCalibration
from evaluation.models import BY_MESSAGE, EvaluationRun, EvaluationScore, SwapHalf
from evaluation.runs.planning import RunSpec
from evaluation.runs.summary import rounded
from evaluation.runs.swaps import foils_in
from evaluation.scorers.subjects import spoken_by
from evaluation.statistics.separation import Stratum, area_of

HIGH = 7  # "mostly true": a swapped text that scores this passes for the agent's own
SAMPLES = 10

Pair = tuple[EvaluationRun, EvaluationRun]  # of an agent's own words, and of swapped texts
Text = Mapping[str, tuple[float, float]]  # of each proposition that is scored its weight and mean score
ByText = dict[tuple[int, str], dict[int, Text]]


class ByAgent(BaseModel):
    """How one agent's own words and the texts of others scored: means 0 to 9, and the area under the curve, null without scores.

    The means are, like the area, over pairs of an own and a swapped text, each by the propositions that are scored for both.
    """

    agent: str
    own: float | None
    swapped: float | None
    auc: float | None


class SwapTest(BaseModel):
    """How well a judge's score tells agents' own words from texts of others in one dimension, as it is printed and stored.

    Attributes:
        auc: The chance that an own text scores higher than a swapped one of the same agent: 0.5 is chance, 1 never wrong.
        own_mean, swapped_mean: 0 to 9, over the pairs of texts that are compared.
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
    def verdict(self) -> str:
        """``better than chance``, ``no better than chance so far`` or ``worse than chance``; empty without a figure."""
        return swap_verdict(self.auc.interval)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def own_higher(self) -> int:
        """Of how many agents the mean of the own texts is higher: an evaluation gives a mean, which tells more than one text."""
        return sum(1 for a in self.agents if a.own is not None and a.swapped is not None and a.own > a.swapped)


def said_something(spec: RunSpec) -> bool:
    """Return whether the agent of a spec said something where it looks."""
    return spec.agent is not None and spoken_by(agent=spec.agent, window=spec.window, where=spec.where).exists()


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
    dimensions = {name for own, _ in pairs for name in own.dimensions}
    return {name: _test(name, pairs, scores, against) for name in BY_MESSAGE if name in dimensions}


def _test(
    dimension: str, pairs: Sequence[Pair], scores: ByText, against: Literal["agents", "foils", "agents and foils"]
) -> SwapTest:
    by_run = [tuple(scores[run.pk, dimension] for run in pair) for pair in pairs]
    scored = [tuple([text for text in texts.values() if text] for texts in both) for both in by_run]
    own, swapped = ([text for both in scored for text in both[side]] for side in (0, 1))
    by_agent, strata, totals = [], [], [0.0, 0.0]
    for (run, _), (first, second) in zip(pairs, scored, strict=True):
        compared, *means = _compared(first, second)
        strata.append(compared)
        totals = [total + mean * compared.pairs for total, mean in zip(totals, means, strict=True)]
        shown = [rounded(mean) if compared.pairs else None for mean in means]
        auc = rounded(area_of([compared]).value)
        by_agent.append(ByAgent(agent=run.agent.slug if run.agent else "", own=shown[0], swapped=shown[1], auc=auc))
    area, compared_pairs = area_of(strata), sum(one.pairs for one in strata)
    if area.value is None and (why := _why_unscored(dimension, pairs)):
        area = replace(area, reason=why)
    return SwapTest(
        auc=Figure.of(area),
        own_mean=rounded(totals[0] / compared_pairs) if compared_pairs else None,
        swapped_mean=rounded(totals[1] / compared_pairs) if compared_pairs else None,
        high_share=rounded(sum(_mean(text) >= HIGH for text in swapped) / len(swapped)) if swapped else None,
        own_texts=sum(len(both[0]) for both in by_run),
        own_scored=len(own),
        swapped_texts=sum(len(both[1]) for both in by_run),
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


def _compared(own: Sequence[Text], swapped: Sequence[Text]) -> tuple[Stratum, float, float]:
    """Each own text with each swapped one, by the propositions scored for both; with the mean of either over these pairs.

    A text scored by an exact rule alone has a 9, one that the judge could say more about an 8: over different propositions that is
    nothing that tells one from the other.
    """
    pairs, wins, totals, seen = 0, 0.0, [0.0, 0.0], (set[int](), set[int]())
    for i, first in enumerate(own):
        for j, second in enumerate(swapped):
            both = first.keys() & second.keys()
            if not both:
                continue
            a, b = (round(_mean({name: text[name] for name in both}), 9) for text in (first, second))
            pairs, wins, totals = pairs + 1, wins + (a > b) + (a == b) / 2, [totals[0] + a, totals[1] + b]
            seen[0].add(i)
            seen[1].add(j)
    own_mean, swapped_mean = (total / max(1, pairs) for total in totals)
    return Stratum(len(seen[0]), len(seen[1]), pairs, wins), own_mean, swapped_mean


def _mean(text: Text) -> float:
    """Its score, 0 to 9."""
    return sum(weight * score for weight, score in text.values()) / sum(weight for weight, _ in text.values())


def _scores_by_text(runs: Iterable[EvaluationRun]) -> ByText:
    """By run and dimension of each message the propositions that are scored, those of a weight above 0."""
    judged: dict[tuple[int, str, int], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs], message__isnull=False).order_by()
    fields = ("evaluation_run", "dimension", "message", "proposition_id", "status", "weight", "score")
    for run, dimension, message, proposition, status, weight, score in rows.values_list(*fields).iterator():
        text = judged[run, dimension, message]
        if status == EvaluationScore.Status.SCORED and score is not None and weight:
            text[proposition].append((weight, score))
    by_text: ByText = defaultdict(dict)
    for (run, dimension, message), text in judged.items():
        by_text[run, dimension][message] = {
            name: (rows[0][0], sum(score for _, score in rows) / len(rows)) for name, rows in text.items()
        }
    return by_text


def store_swap_tests(*, judge: str, procedure: str, tests: dict[str, SwapTest], of_all: bool) -> dict[str, SwapShown]:
    """Store swap tests beside the judge's agreement with people, in place of earlier ones.

    Args:
        of_all: Whether all agents were checked; a check of some does not replace one of more of them.

    Returns:
        The earlier ones that stay, by dimension.
    """
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure, dimension__in=tests)
    earlier = {row.dimension: SwapShown.model_validate(row.swap_test) for row in rows if row.swap_test}
    stays = {name: one for name, one in earlier.items() if not of_all and one.agents > len(tests[name].agents)}
    for dimension, test in tests.items():
        if dimension in stays:
            continue
        figures = test.model_dump(include={"high_share", "own_scored", "swapped_scored", "against", "checked_at"})
        figures |= {"auc": test.auc.value, "interval": test.auc.interval, "reason": test.auc.reason}
        by_agent = {one.agent: one.auc for one in test.agents if one.agent and one.auc is not None}
        shown = SwapShown(**figures, agents=len(test.agents), by_agent=by_agent)
        JudgeCalibration.objects.update_or_create(
            judge=judge, procedure=procedure, dimension=dimension, defaults={"swap_test": shown.model_dump(mode="json")}
        )
    return stays
