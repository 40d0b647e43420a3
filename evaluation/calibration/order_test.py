"""The order test: do scores depend on what else is asked in the same call? It needs no labels.

Up to ten propositions share a call. The same messages are judged three times: as usual, with the propositions of each message in another
order, and each proposition in a call of its own. What the judge gives the same text and proposition should be the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from evaluation.calibration.agreement import Figure, OrderShown
from evaluation.calibration.models import JudgeCalibration
from evaluation.calibration.stored import identity_of
from evaluation.models import BY_MESSAGE, RULE_JUDGE, EvaluationRun, EvaluationScore, Method, SwapHalf
from evaluation.runs.spec import RunSpec
from evaluation.statistics.bootstrap import Observation, bootstrap_difference

LEAST_CONVERSATIONS = 5  # for an interval over conversations; with fewer it is over messages

Item = tuple[int | None, int | None, str, int]  # message, earlier message, proposition, repeat


@dataclass(frozen=True, slots=True)
class _Scored:
    """The score of an item, and the conversation of its message."""

    score: int
    conversation: int


def order_specs(spec: RunSpec) -> tuple[RunSpec, ...]:
    """Return the three measurements of an agent's order test: as usual, shuffled, and each proposition alone.

    Raises:
        ValueError: A dimension that is not judged message by message, or a method that asks each proposition alone anyway.
    """
    if spec.method == Method.TINYTROUPE:
        raise ValueError("an order test needs a method that asks several propositions in a call; allowed: plumbline")
    usual = replace(spec, swap_test=SwapHalf.OWN.value)
    shuffled = replace(spec, swap_test=SwapHalf.SHUFFLED.value)
    alone = replace(spec, swap_test=SwapHalf.ALONE.value, per_call=1)
    return usual, shuffled, alone


def order_tests(agents: Sequence[Sequence[EvaluationRun]]) -> dict[str, OrderShown]:
    """Return the order test of each dimension from completed evaluations by one judge and procedure.

    Dimensions that were not measured, or are not judged message by message, are left out.

    Args:
        agents: Of each agent its three evaluations, in any order.
    """
    runs = [run for of_agent in agents for run in of_agent]
    measured = {name for run in runs for name in run.dimensions}
    tests: dict[str, OrderShown] = {}
    for dimension in BY_MESSAGE:
        if dimension not in measured:
            continue
        usual = _scores(runs, SwapHalf.OWN, dimension)
        shuffled = _scores(runs, SwapHalf.SHUFFLED, dimension)
        alone = _scores(runs, SwapHalf.ALONE, dimension)
        tests[dimension] = OrderShown(
            shuffled=_difference(usual, shuffled),
            alone=_difference(usual, alone),
            pairs=len(usual.keys() & shuffled.keys() & alone.keys()),
            checked_at=timezone.now().isoformat(timespec="seconds"),
            identity=identity_of(runs[0], dimension),
        )
    return tests


def _scores(runs: Sequence[EvaluationRun], part: SwapHalf, dimension: str) -> dict[Item, _Scored]:
    """Return the judge's scores in one part of the test; what an exact rule scored is left out, for no order changes it."""
    of_part = [run.pk for run in runs if run.swap_test == part]
    rows = EvaluationScore.objects.filter(
        evaluation_run__in=of_part, dimension=dimension, status="scored", score__isnull=False, message__isnull=False
    ).exclude(judge=RULE_JUDGE)
    columns = ("message", "compared_with", "proposition_id", "repeat", "score", "message__channel")
    scores: dict[Item, _Scored] = {}
    for message, earlier, proposition, repeat, score, conversation in rows.order_by("pk").values_list(*columns):
        scores[message, earlier, proposition, repeat] = _Scored(score, conversation)
    return scores


def _difference(usual: Mapping[Item, _Scored], other: Mapping[Item, _Scored]) -> Figure:
    """Return the mean difference of the items scored both ways, in points, with an interval that takes conversations as a whole.

    With fewer than `LEAST_CONVERSATIONS` it takes messages as a whole: the propositions of a message share a call.
    """
    both = sorted(usual.keys() & other.keys(), key=str)
    by_conversation = len({usual[item].conversation for item in both}) >= LEAST_CONVERSATIONS
    before: list[Observation] = []
    now: list[Observation] = []
    for item in both:
        message = item[0]
        cluster = usual[item].conversation if by_conversation else message
        before.append(Observation(usual[item].score, cluster=cluster))
        now.append(Observation(other[item].score, cluster=cluster))
    # `unseen` is for what is drawn from many outcomes; these are repeats of the same judgement.
    return Figure.of(bootstrap_difference(before, now, paired=True, unseen=False))


def store_order_tests(*, judge: str, procedure: str, tests: Mapping[str, OrderShown]) -> None:
    """Store order tests in the judge's rows, in place of earlier ones."""
    for dimension, test in tests.items():
        JudgeCalibration.objects.update_or_create(
            judge=judge,
            procedure=procedure,
            dimension=dimension,
            defaults={"order_test": test.model_dump(mode="json")},
        )
