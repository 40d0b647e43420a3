"""The swap test: does a judge score agents' own words higher than the words of others? It needs no labels.

Each agent is measured twice on the same messages amid the same conversations: once with what it said, once with texts of others in their
place. A judge that cannot tell the two apart cannot see a persona that is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from django.utils import timezone
from pydantic import BaseModel, computed_field

from evaluation.calibration.agreement import Figure, SwapShown, swap_verdict
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.stored import identity_of
from evaluation.judge.identity import JudgeIdentity
from evaluation.models import BY_MESSAGE, EvaluationRun, EvaluationScore, SwapHalf
from evaluation.runs.numbers import rounded
from evaluation.runs.spec import RunSpec
from evaluation.runs.swaps import foils_in
from evaluation.scorers.selection import messages_of_agent
from evaluation.statistics.separation import Stratum, area_of

HIGH = 7  # "mostly true": a swapped text that scores this passes for the agent's own
SAMPLES = 10
Against = Literal["agents", "foils", "agents and foils"]

# The two evaluations of an agent: of its own words, and of swapped texts in their place.
Pair = tuple[EvaluationRun, EvaluationRun]


@dataclass(frozen=True, slots=True)
class _PropositionScore:
    """The score of a text by one proposition: the proposition's weight, and the mean of its repeats."""

    weight: float
    score: float


TextScores = Mapping[str, _PropositionScore]  # of one text, by proposition; empty where none was scored
ScoresByMessage = dict[int, TextScores]


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
        identity: Who judged; null where the judge answered nothing.
    """

    auc: Figure
    own_mean: float | None
    swapped_mean: float | None
    high_share: float | None
    own_texts: int
    own_scored: int
    swapped_texts: int
    swapped_scored: int
    against: Against
    agents: list[ByAgent]
    checked_at: str
    identity: JudgeIdentity | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def verdict(self) -> str:
        """``better than chance``, ``no better than chance so far`` or ``worse than chance``; empty without a figure."""
        return swap_verdict(self.auc.interval)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def own_higher(self) -> int:
        """Of how many agents the mean of the own texts is higher: an evaluation gives a mean, which tells more than one text."""
        higher = 0
        for by_agent in self.agents:
            if by_agent.own is not None and by_agent.swapped is not None and by_agent.own > by_agent.swapped:
                higher += 1
        return higher

    @property
    def agents_compared(self) -> int:
        """Return the number of agents both of whose means are known."""
        return sum(by_agent.own is not None and by_agent.swapped is not None for by_agent in self.agents)


def said_something(spec: RunSpec) -> bool:
    """Return whether the agent of a spec said something where it looks."""
    return spec.agent is not None and messages_of_agent(agent=spec.agent, window=spec.window, where=spec.where).exists()


def swap_specs(spec: RunSpec) -> tuple[RunSpec, RunSpec]:
    """Return the two measurements of an agent's swap test: of its own words, and of texts of others in their place.

    Raises:
        ValueError: A dimension that is not judged message by message: there is no text to swap.
    """
    return replace(spec, swap_test=SwapHalf.OWN.value), replace(spec, swap_test=SwapHalf.SWAPPED.value)


def swap_tests(pairs: Sequence[Pair]) -> dict[str, SwapTest]:
    """Return the swap test of each dimension from completed evaluations of some agents, all by one judge and procedure.

    Dimensions that were not measured, or are not judged message by message, are left out.
    """
    scores = _scores_by_text([run for pair in pairs for run in pair])
    measured = {name for own, _ in pairs for name in own.dimensions}
    tests = {}
    for dimension in BY_MESSAGE:
        if dimension in measured:
            halves = [
                _Halves(own_run, scores[own_run.pk, dimension], scores[swapped_run.pk, dimension])
                for own_run, swapped_run in pairs
            ]
            tests[dimension] = _swap_test(dimension, pairs, halves)
    return tests


@dataclass(frozen=True, slots=True)
class _Halves:
    """The texts of an agent in one dimension: its own, and those of others in their place."""

    own_run: EvaluationRun
    own: ScoresByMessage
    swapped: ScoresByMessage

    @property
    def scored_own(self) -> list[TextScores]:
        return [text for text in self.own.values() if text]

    @property
    def scored_swapped(self) -> list[TextScores]:
        return [text for text in self.swapped.values() if text]


def _swap_test(dimension: str, pairs: Sequence[Pair], halves: Sequence[_Halves]) -> SwapTest:
    """Return the swap test in one dimension: texts are compared within each agent, and the results put together.

    Means are None where no two texts are compared, `high_share` where no swapped text has a score.

    Args:
        pairs: The two evaluations of each agent.
        halves: Their scores, in the same order.
    """
    comparisons = [_compare(both.scored_own, both.scored_swapped) for both in halves]
    compared_pairs = sum(comparison.pairs for comparison in comparisons)
    area = area_of([comparison.stratum for comparison in comparisons])
    if area.value is None:  # where the judge was never asked, that is why there are too few scores
        why = _why_unscored(dimension, pairs)
        if why:
            area = replace(area, reason=why)
    swapped = [text for both in halves for text in both.scored_swapped]
    test = SwapTest(
        auc=Figure.of(area),
        own_mean=None,
        swapped_mean=None,
        high_share=None,
        own_texts=sum(len(both.own) for both in halves),
        own_scored=sum(len(both.scored_own) for both in halves),
        swapped_texts=sum(len(both.swapped) for both in halves),
        swapped_scored=len(swapped),
        against=_against(pairs),
        agents=[_by_agent(both, comparison) for both, comparison in zip(halves, comparisons, strict=True)],
        checked_at=timezone.now().isoformat(timespec="seconds"),
        identity=identity_of(pairs[0][0], dimension),
    )
    if compared_pairs:
        test.own_mean = rounded(sum(comparison.own_sum for comparison in comparisons) / compared_pairs)
        test.swapped_mean = rounded(sum(comparison.swapped_sum for comparison in comparisons) / compared_pairs)
    if swapped:
        test.high_share = rounded(sum(_text_score(text) >= HIGH for text in swapped) / len(swapped))
    return test


def _against(pairs: Sequence[Pair]) -> Against:
    """Return whose texts were swapped in."""
    has_foils = {foils_in(swapped) for _, swapped in pairs if swapped.swaps}
    if has_foils == {True, False}:
        return "agents and foils"
    return "foils" if True in has_foils else "agents"


def _by_agent(halves: _Halves, comparison: _Comparison) -> ByAgent:
    """Return means and area of one agent; None where no own text can be compared with a swapped one, or too few have a score."""
    agent = halves.own_run.agent
    by_agent = ByAgent(
        agent=agent.slug if agent else "",
        own=None,
        swapped=None,
        auc=rounded(area_of([comparison.stratum]).value),
    )
    if comparison.pairs:
        by_agent.own = rounded(comparison.own_sum / comparison.pairs)
        by_agent.swapped = rounded(comparison.swapped_sum / comparison.pairs)
    return by_agent


def _why_unscored(dimension: str, pairs: Sequence[Pair]) -> str:
    """Return why the judge was not asked about a text of these evaluations, the first such reason; empty where it was asked about all.

    A judgement that was never asked has neither a judge nor a cause.
    """
    runs = [run.pk for pair in pairs for run in pair]
    never_asked = EvaluationScore.objects.filter(
        evaluation_run__in=runs, dimension=dimension, status="unscored", judge="", cause=""
    )
    return never_asked.order_by("pk").values_list("reason", flat=True).first() or ""


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Own texts compared with swapped ones: the pairs, and the sum of the scores of either side over the pairs."""

    stratum: Stratum
    own_sum: float
    swapped_sum: float

    @property
    def pairs(self) -> int:
        return self.stratum.pairs


def _compare(own: Sequence[TextScores], swapped: Sequence[TextScores]) -> _Comparison:
    """Compare each own text with each swapped one, by the propositions scored for both.

    A text scored by an exact rule alone has a 9, one that the judge could say more about an 8: over different propositions that is
    nothing that tells one from the other.
    """
    pairs = 0
    wins = own_sum = swapped_sum = 0.0
    own_compared: set[int] = set()
    swapped_compared: set[int] = set()
    for own_number, own_text in enumerate(own):
        for swapped_number, swapped_text in enumerate(swapped):
            both = own_text.keys() & swapped_text.keys()
            if not both:
                continue
            # Rounded, so that equal means of floats are a tie.
            own_score = round(_text_score({name: own_text[name] for name in both}), 9)
            swapped_score = round(_text_score({name: swapped_text[name] for name in both}), 9)
            pairs += 1
            own_sum += own_score
            swapped_sum += swapped_score
            if own_score > swapped_score:
                wins += 1
            elif own_score == swapped_score:
                wins += 0.5
            own_compared.add(own_number)
            swapped_compared.add(swapped_number)
    return _Comparison(Stratum(len(own_compared), len(swapped_compared), pairs, wins), own_sum, swapped_sum)


def _text_score(text: TextScores) -> float:
    """Return the score of a text, 0 to 9: the weighted mean of its propositions."""
    total = sum(scored.weight * scored.score for scored in text.values())
    return total / sum(scored.weight for scored in text.values())


def _scores_by_text(runs: Iterable[EvaluationRun]) -> dict[tuple[int, str], ScoresByMessage]:
    """Return by run and dimension the scores of each message, of propositions with a weight above 0; repeats have their mean.

    A message of which nothing was scored is there with nothing in it: it was asked about.
    """
    judged: dict[tuple[int, str], dict[int, dict[str, list[_PropositionScore]]]] = defaultdict(dict)
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs], message__isnull=False).order_by()
    columns = ("evaluation_run", "dimension", "message", "proposition_id", "status", "weight", "score")
    for run, dimension, message, proposition, status, weight, score in rows.values_list(*columns).iterator():
        repeats = judged[run, dimension].setdefault(message, {})
        if status == EvaluationScore.Status.SCORED and score is not None and weight:
            repeats.setdefault(proposition, []).append(_PropositionScore(weight, score))
    by_text: dict[tuple[int, str], ScoresByMessage] = defaultdict(dict)
    for key, messages in judged.items():
        for message, propositions in messages.items():
            by_text[key][message] = {name: _mean_of(repeats) for name, repeats in propositions.items()}
    return by_text


def _mean_of(repeats: Sequence[_PropositionScore]) -> _PropositionScore:
    return _PropositionScore(repeats[0].weight, sum(repeat.score for repeat in repeats) / len(repeats))


def store_swap_tests(*, judge: str, procedure: str, tests: dict[str, SwapTest], of_all: bool) -> dict[str, SwapShown]:
    """Store swap tests beside the judge's agreement with people, in place of earlier ones.

    Args:
        of_all: Whether all agents were checked; else an earlier check of more agents than these stays.

    Returns:
        The earlier ones that stay, by dimension.
    """
    rows = JudgeCalibration.objects.filter(judge=judge, procedure=procedure, dimension__in=tests)
    stays: dict[str, SwapShown] = {}
    for row in rows:
        if row.swap_test and not of_all:
            earlier = SwapShown.model_validate(row.swap_test)
            if earlier.agents > len(tests[row.dimension].agents):
                stays[row.dimension] = earlier
    for dimension, test in tests.items():
        if dimension not in stays:
            JudgeCalibration.objects.update_or_create(
                judge=judge,
                procedure=procedure,
                dimension=dimension,
                defaults={"swap_test": _stored_form(test).model_dump(mode="json")},
            )
    return stays


def _stored_form(test: SwapTest) -> SwapShown:
    """Return a swap test as it is stored and shown; of each agent only its area, where there is one."""
    by_agent = {}
    for of_agent in test.agents:
        if of_agent.agent and of_agent.auc is not None:
            by_agent[of_agent.agent] = of_agent.auc
    return SwapShown(
        auc=test.auc.value,
        interval=test.auc.interval,
        reason=test.auc.reason,
        high_share=test.high_share,
        own_scored=test.own_scored,
        swapped_scored=test.swapped_scored,
        agents=len(test.agents),
        against=test.against,
        checked_at=test.checked_at,
        by_agent=by_agent,
        identity=test.identity,
    )
