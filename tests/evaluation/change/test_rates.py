"""Rules that need not hold in every message (`of_ten`): only what is missing to what is asked is a change."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import comb
from pathlib import Path

import pytest

from evaluation.change.change import ChangeResult, Sample, change_of, change_of_rate
from evaluation.change.comparison import Comparison, compare
from evaluation.change.measured import dimension_score
from evaluation.change.measurement_files import UnreadableFile, measurements_of_file, observations_json
from evaluation.change.measurements import Measurement
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.summary import summarize
from tests.evaluation.change.measured import measure
from tests.evaluation.change.samples import OFFLINE, measurement, of
from tests.factories import make_agent


def kept(times: int, messages: int) -> list[float]:
    return [9.0] * times + [0.0] * (messages - times)


def rated(scores: list[float], *, of_ten: int | None = 6, first: int = 1, voice: int = 0) -> Measurement:
    """A rule, and with `voice` so many messages of another proposition that score 7 and 8."""
    judged = {"says": of(scores, first=first)}
    if voice:
        judged["voice"] = of([7.0, 8.0] * (voice // 2), first=first)
    made = measurement({"adherence": judged})
    dimension = made.dimensions["adherence"]
    propositions = {**dimension.propositions, "says": replace(dimension.propositions["says"], of_ten=of_ten)}
    score = dimension_score(propositions.values())
    return made.model_copy(
        update={"dimensions": {"adherence": replace(dimension, score=score, propositions=propositions)}}
    )


def compared(before: list[float], now: list[float], *, of_ten: int | None = 6, voice: int = 0) -> Comparison:
    return compare(rated(before, of_ten=of_ten, voice=voice), rated(now, of_ten=of_ten, first=10_001, voice=voice))


def of_rule(comparison: Comparison) -> ChangeResult:
    return next(change for change in comparison.proposition_changes if change.proposition == "says")


@pytest.mark.parametrize(
    ("before", "now", "verdict"),
    [
        ((100, 100), (80, 100), "steady"),  # fewer, and surely as many as are asked
        ((80, 100), (100, 100), "steady"),
        ((80, 100), (30, 100), "drifted"),
        ((30, 100), (80, 100), "improved"),
        ((100, 100), (57, 100), "not enough data"),  # perhaps as many as are asked
        ((10, 10), (6, 10), "not enough data"),  # as many as are asked, of too few messages to be sure
        ((30, 100), (30, 100), "not enough data"),
    ],
)
def test_only_what_is_missing_to_what_is_asked_is_a_change(
    before: tuple[int, int], now: tuple[int, int], verdict: str
) -> None:
    change = of_rule(compared(kept(*before), kept(*now)))

    assert change.verdict == verdict
    assert change.interval is not None
    assert change.interval.low <= (change.points or 0.0) <= change.interval.high


def test_a_rule_that_is_kept_as_often_as_asked_leaves_its_dimension_as_it_is() -> None:
    comparison = compared(kept(100, 100), kept(75, 100), voice=100)
    (dimension,) = comparison.dimensions

    assert dimension.verdict == "steady"
    assert (dimension.baseline, dimension.candidate) == (7.5, 7.5)
    assert comparison.worse == ()
    without = compared(kept(100, 100), kept(75, 100), of_ten=None, voice=100)
    assert of_rule(without).verdict == "drifted", "every message is to keep it"
    assert without.dimensions[0].verdict == "drifted"


def test_a_dimension_of_such_rules_alone_leads_to_them() -> None:
    comparison = compared(kept(80, 100), kept(30, 100))

    assert "see the propositions" in comparison.dimensions[0].reason
    assert [change.name for change in comparison.worse] == ["adherence/says"]


def test_what_never_changes_is_hardly_ever_called_worse_or_better() -> None:
    """Of rules that hold exactly as often as is asked, and of some that fell to that."""
    rng = random.Random(7)
    called = 0
    for was, messages in ((0.6, 20), (0.6, 60), (1.0, 30)) * 60:
        before = [9.0 if rng.random() < was else 0.0 for _ in range(messages)]
        now = [9.0 if rng.random() < 0.6 else 0.0 for _ in range(messages)]
        called += of_rule(compared(before, now)).verdict in ("drifted", "improved")

    assert called / 180 <= 0.05


def test_a_file_says_in_how_many_messages_a_rule_should_hold() -> None:
    written = observations_json(rated(kept(8, 10)))

    assert written["adherence"]["says"]["of_ten"] == 6


@pytest.mark.django_db
@pytest.mark.parametrize(("holds", "score"), [(10, 9.0), (6, 9.0), (3, 4.5), (0, 0.0)])
def test_the_score_of_a_dimension_counts_such_a_rule_by_what_is_asked(holds: int, score: float) -> None:
    run = measure(make_agent(), {"says": [9] * holds + [0] * (10 - holds)})
    EvaluationScore.objects.update(of_ten=6)

    assert summarize(EvaluationRun.objects.get(pk=run.pk)).dimensions["adherence"].score == score


@pytest.mark.parametrize("of_ten", [1, 2, 5, 9])
@pytest.mark.parametrize("messages", [10, 20])
def test_a_rule_that_came_down_to_what_is_asked_is_called_worse_by_chance_as_seldom_as_promised(
    of_ten: int, messages: int
) -> None:
    """Exactly, over all that so many messages can show: what few should hold, few messages often do not show at all."""
    asked = of_ten / 10
    called = held = 0.0
    for times in range(messages + 1):
        chance = comb(messages, times) * asked**times * (1 - asked) ** (messages - times)
        change = of_rule(compared(kept(messages, messages), kept(times, messages), of_ten=of_ten))
        called += chance * (change.verdict == "drifted")
        assert change.interval is not None
        held += chance * (change.interval.high >= -1e-6)

    assert called <= 0.025  # in one direction
    assert held >= 0.975


def test_a_rule_that_could_not_be_compared_gets_no_verdict_from_one_side() -> None:
    situations = of(kept(20, 20), unit="situation")
    now = of(kept(0, 20))
    change = change_of(
        Sample(score=9.0, observations=situations),
        Sample(score=0.0, observations=now),
        dimension="adherence",
        proposition="says",
        margin=0.5,
    )

    rated_change = change_of_rate(change, situations, now, of_ten=6, margin=0.5)

    assert (rated_change.verdict, rated_change.p_value) == ("possibly drifted", None)
    assert "there is no interval" in rated_change.reason


@pytest.mark.parametrize("of_ten", [0, -3, 10])
def test_a_file_that_asks_for_no_message_or_for_all_is_refused(tmp_path: Path, of_ten: int) -> None:
    run = {
        "agent": "ada",
        "dimensions": {"adherence": {"score": 9.0, "propositions": {"says": 9.0}}},
        "observations": {"adherence": {"says": {"of_ten": of_ten, "scores": {"message:1": 9}}}},
    }
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"judge": OFFLINE, "runs": [run]}))

    with pytest.raises(UnreadableFile, match="of_ten"):
        measurements_of_file(path)


def test_a_file_of_before_that_does_not_say_how_often_is_compared_by_what_is_asked_now(tmp_path: Path) -> None:
    before = rated(kept(100, 100), of_ten=None)
    run = {
        "agent": "ada",
        "judge": before.judge,
        "dimensions": {"adherence": {"score": 9.0, "propositions": {"says": 9.0}}},
        "observations": observations_json(before),
    }
    path = tmp_path / "baseline.json"
    path.write_text(json.dumps({"judge": before.judge, "runs": [run]}))

    (read,) = measurements_of_file(path).values()

    assert of_rule(compare(read, rated(kept(80, 100), first=10_001))).verdict == "steady"
