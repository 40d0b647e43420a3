"""Figures of conversations that were kept by chance: each counts for as many as it stands for, and conversations are drawn whole."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.models import Agent, Channel, Message
from evaluation.change.change import WORDS_ALONE, ChangeResult, Sample, change_of, fell_sharply, mean_of
from evaluation.change.history import RollingMean, histories
from evaluation.change.measurement_files import measurements_of_file, observations_json
from evaluation.change.measurements import measurement_of
from evaluation.change.position import position_profile
from evaluation.change.series import standard_error
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from evaluation.runs.summary import summarize
from evaluation.statistics.bootstrap import Interval, Observation, bootstrap_difference, bootstrap_mean
from evaluation.statistics.difference import decide, difference_p, error_of, weighted_mean
from evaluation.statistics.prediction_powered import prediction_powered_mean
from tests.evaluation.judged import make_run, make_score
from tests.factories import make_agent, make_channel, talk

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 1, tzinfo=UTC)
RARE, COMMON = (
    (2, 3, 2),
    (8, 9, 8, 9, 8, 9),
)  # scores: of a conversation that stands for ten, and of one that stands for itself


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def kept(ada: Agent, slug: str, number: int, probability: float) -> list[Message]:
    channel = make_channel(slug)
    Channel.objects.filter(pk=channel.pk).update(inclusion_probability=probability)
    channel.refresh_from_db()
    return talk(ada, [f"{slug} {n}" for n in range(number)], channel=channel)


def judged(ada: Agent, *, repeats: int = 1) -> EvaluationRun:
    """An evaluation of two conversations, of which one was kept with a chance of 0.1."""
    run = make_run(ada, repeats=repeats)
    for slug, scores, probability in (("rare", RARE, 0.1), ("common", COMMON, 1.0)):
        for message, score in zip(kept(ada, slug, len(scores), probability), scores, strict=True):
            for repeat in range(1, repeats + 1):
                make_score(run, score, message=message, inclusion_weight=1 / probability, repeat=repeat)
    return run


TRUE_MEAN = (10 * sum(RARE) + sum(COMMON)) / (10 * len(RARE) + len(COMMON))


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_score_counts_each_conversation_as_it_was_likely_to_be_kept(ada: Agent, repeats: int) -> None:
    summary = summarize(judged(ada, repeats=repeats)).dimensions["adherence"]
    assert summary.score == round(TRUE_MEAN, 4)
    assert summary.propositions[0].score == round(TRUE_MEAN, 4)
    assert summary.scored == repeats * 9  # a number of judgements stays one


def test_a_measurement_draws_whole_conversations(ada: Agent) -> None:
    run = judged(ada)
    observations = measurement_of(run).dimensions["adherence"].propositions["dry"].observations
    assert len({observation.cluster for observation in observations}) == 2
    assert len({observation.item for observation in observations}) == 9
    assert mean_of(observations) == round(TRUE_MEAN, 4)
    assert standard_error(run, "adherence") == pytest.approx(error_of(observations))


def test_a_file_holds_the_weights_and_conversations(ada: Agent, tmp_path: Path) -> None:
    run = judged(ada)
    measured = measurement_of(run)
    document = {
        "agent": "ada",
        "judge": "m",
        "dimensions": {"adherence": {"score": round(TRUE_MEAN, 4), "propositions": {"dry": round(TRUE_MEAN, 4)}}},
        "observations": observations_json(measured),
    }
    path = tmp_path / "b.json"
    path.write_text(json.dumps({"judge": "m", "runs": [document]}))

    read = measurements_of_file(path)["ada"].dimensions["adherence"]

    expected = measured.dimensions["adherence"]
    assert sorted(read.propositions["dry"].observations) == sorted(expected.propositions["dry"].observations)
    assert (read.messages, read.unscored) == (expected.messages, expected.unscored) == (9, 0)


def test_a_planned_evaluation_stores_the_weights(ada: Agent) -> None:
    kept(ada, "rare", 3, 0.25)
    kept(ada, "common", 3, 1.0)
    run = prepare_run(RunSpec(agent=ada, dimensions=("adherence",))).run
    weights = EvaluationScore.objects.filter(evaluation_run=run).values_list(
        "message__channel__slug", "inclusion_weight"
    )
    assert set(weights) == {("rare", 4.0), ("common", 1.0)}


def test_rolling_means_count_the_weights(ada: Agent) -> None:
    run = judged(ada)
    (history,) = histories(agents=[ada.pk], tags={}, dimensions=["adherence"])
    assert history.rolling_means[-1].mean == pytest.approx(TRUE_MEAN)
    assert history.rolling_means[-1].interval is not None
    assert run.pk == history.points[0].run


@pytest.mark.parametrize("weights", [(10.0, 10.0), (10.0, 8.0)])
def test_a_rolling_mean_s_interval_draws_the_conversations_that_were_kept(weights: tuple[float, float]) -> None:
    inside = 0
    for seed in range(200):
        rng = random.Random(seed)
        scores: list[float] = []
        channels: list[int | None] = []
        for channel in range(3):
            middle = rng.gauss(5, 1.5)
            scores += [min(9.0, max(0.0, round(rng.gauss(middle, 0.5)))) for _ in range(4)]
            channels += [channel] * 4
        rolled = RollingMean(
            at=NOW,
            scores=tuple(scores[2:]),
            weights=(weights[0],) * 5 + (weights[1],) * 5,
            channels=tuple(channels[2:]),
            starts=False,
        )
        interval = rolled.interval
        assert interval is not None
        inside += interval.low <= 5 <= interval.high
    assert inside / 200 >= 0.92, inside


def test_a_rolling_mean_of_one_kept_conversation_has_no_interval() -> None:
    one = RollingMean(at=NOW, scores=(4.0, 5.0), weights=(20.0, 20.0), channels=(1, 1), starts=False)
    assert one.interval is None
    assert replace(one, weights=(1.0, 1.0)).interval is not None  # all are kept: messages are drawn


def test_scores_by_position_count_the_weights(ada: Agent) -> None:
    profile = position_profile(judged(ada), [(1, 100)])
    assert profile.dimensions["adherence"].bins[0].score == pytest.approx(TRUE_MEAN)


def conversations(number: int, mean: float, *, weights: Sequence[float] = (1.0,), seed: int = 0) -> list[Observation]:
    """Conversations of five messages whose scores lie near each other."""
    rng = random.Random(seed)
    observations = []
    for n in range(number):
        middle = rng.gauss(mean, 1.5)
        for _ in range(5):
            score = round(min(9.0, max(0.0, rng.gauss(middle, 0.5))))
            observations.append(Observation(float(score), weights[n % len(weights)], f"conversation:{seed}-{n}"))
    return observations


def changed(before: Sequence[Observation], now: Sequence[Observation]) -> tuple[object, ...]:
    samples = [Sample(score=mean_of(sample), observations=sample) for sample in (before, now)]
    change = change_of(*samples, dimension="adherence", margin=0.5)
    return change.verdict, change.unit, change.baseline, change.candidate, change.interval


def test_a_change_is_of_the_weighted_means_over_conversations() -> None:
    before = conversations(30, 7.0, weights=(1.0, 20.0), seed=1)
    now = conversations(30, 4.0, weights=(1.0, 20.0), seed=2)
    verdict, unit, baseline, candidate, interval = changed(before, now)
    assert (verdict, unit) == ("drifted", "conversations")
    assert (baseline, candidate) == (mean_of(before), mean_of(now))
    assert interval is not None


def test_messages_of_a_baseline_compare_with_sampled_conversations() -> None:
    before = [o._replace(cluster=f"message:{n}") for n, o in enumerate(conversations(20, 7.0, seed=1))]
    verdict, _, _, _, interval = changed(before, conversations(30, 4.0, weights=(1.0, 2.0), seed=2))
    assert (verdict, interval is not None) == ("drifted", True)


def with_items(sample: Sequence[Observation], first: int = 0) -> list[Observation]:
    return [observation._replace(item=f"message:{first + n}") for n, observation in enumerate(sample)]


def compared(before: Sequence[Observation], now: Sequence[Observation], **options: Any) -> ChangeResult:
    samples = [Sample(score=mean_of(sample), observations=sample) for sample in (before, now)]
    return change_of(*samples, margin=0.5, **{"dimension": "adherence", **options})


def test_an_offline_statistic_of_kept_conversations_does_not_pass_as_scores() -> None:
    before = with_items(conversations(30, 6.0, weights=(4.0,), seed=1))
    now = with_items(conversations(30, 5.3, weights=(4.0,), seed=2), first=1000)
    of_conversations = compared(before, now, dimension="fluency", heuristic=True)
    of_messages = [[o._replace(cluster=o.item, item=None, weight=1.0) for o in sample] for sample in (before, now)]
    assert compared(*of_messages, dimension="fluency", heuristic=True).of_words
    assert of_conversations.of_words
    assert WORDS_ALONE in of_conversations.interval_note
    assert compared(before, now).verdict == "drifted"
    assert of_conversations.verdict == "possibly drifted"  # the interval is not beyond the margin
    assert not compared(before, now).of_words


def days_of(number: int, mean: float, seed: int) -> list[Observation]:
    """A day of which all conversations were kept, and one of which five were, each for 60."""
    rng = random.Random(seed)
    observations = []
    for n in range(number):
        score = round(min(9.0, max(0.0, rng.gauss(mean, 1.5))))
        weight = 60.0 if n < 5 else 1.0
        observations.append(Observation(float(score), weight, f"conversation:{seed}-{n}"))
    return observations


def test_what_a_comparison_can_detect_goes_by_how_unequally_conversations_count() -> None:
    change = compared(days_of(305, 6.0, 1), days_of(305, 6.0, 2))
    assert (change.n, change.baseline_n) == (305, 305)
    assert 15 < change.effective_n < 25
    assert change.interval is not None
    assert change.smallest_detectable is not None
    assert change.smallest_detectable > (change.interval.high - change.interval.low) / 2
    equal = compared(*([o._replace(weight=60.0) for o in days_of(305, 6.0, seed)] for seed in (1, 2)))
    assert equal.effective_n == equal.effective_baseline_n == 305


def test_a_fixed_baseline_of_unequal_weights_takes_more_conversations_to_decide() -> None:
    interval = Interval(-1.2, 0.4)
    equal = decide(-0.4, interval, 0.5, n=50, baseline_n=200)
    unequal = decide(-0.4, interval, 0.5, n=50, baseline_n=200, baseline_effective=0.1)
    both = decide(-0.4, interval, 0.5, n=50, baseline_n=200, effective=0.5, baseline_effective=0.5)
    assert equal.n_more is not None
    assert unequal.n_more is None  # the baseline alone makes it too wide
    assert both.n_more == equal.n_more


def test_a_few_conversations_that_stand_for_most_are_no_sharp_fall() -> None:
    fall = compared(days_of(305, 8.0, 1), days_of(305, 3.0, 2)).model_copy(update={"interval": Interval(-7.0, -3.5)})
    assert fell_sharply(fall)
    few = {"n": 100, "effective": 0.06}
    assert not fell_sharply(fall.model_copy(update=few))


def test_the_same_messages_of_kept_conversations_are_noticed() -> None:
    before = with_items(conversations(12, 7.0, weights=(1.0, 4.0), seed=1))
    again = [observation._replace(value=max(0.0, observation.value - 1)) for observation in before]
    others_of_the_same = with_items(again, first=1000)
    half = before[: len(before) // 2] + with_items(conversations(6, 7.0, weights=(1.0, 4.0), seed=3), first=1000)
    alone = [observation._replace(cluster=observation.item, item=None) for observation in before]
    assert "both judge the same messages" in compared(before, again).interval_note
    assert compared(before, others_of_the_same).interval_note == ""
    assert "messages that are in both: 30" in compared(before, half).interval_note
    assert "messages that are in both: 30" in compared(alone, half).interval_note


@pytest.mark.parametrize("weight", [1.0, 4.0, 0.5])
def test_equal_weights_change_nothing(weight: float) -> None:
    before, now = conversations(12, 7.0, seed=1), conversations(12, 5.0, seed=2)
    heavier = [[o._replace(weight=weight) for o in sample] for sample in (before, now)]
    assert changed(*heavier) == changed(before, now)
    assert bootstrap_mean(heavier[0]) == bootstrap_mean(before)
    values = [o.value for o in before]
    labels, rest = values[:60], [o.value for o in now]
    plain = prediction_powered_mean(labels, labels[::-1], rest)
    equal = [weight] * 60
    assert prediction_powered_mean(labels, labels[::-1], rest, weights=equal, rest_weights=equal) == plain


@pytest.mark.parametrize("weight", [1 / 0.3, 1 / 0.07, 200 / 900, 10.0])
def test_equal_weights_give_the_same_figures_to_the_last_bit(weight: float) -> None:
    rng = random.Random(3)
    values = [float(rng.randint(0, 9)) for _ in range(60)]
    plain = [Observation(value, 1.0, f"conversation:{n // 5}") for n, value in enumerate(values)]
    heavier = [observation._replace(weight=weight) for observation in plain]
    assert bootstrap_mean(heavier, resamples=200) == bootstrap_mean(plain, resamples=200)
    assert error_of(heavier) == error_of(plain)
    assert weighted_mean(values, [weight] * 60) == sum(values) / 60


def test_figures_of_equal_weights_are_those_computed_before_weights_could_differ() -> None:
    """Also where conversations are unequally long."""
    before = [o for n, o in enumerate(conversations(12, 7.0, seed=1)) if n % 7]
    now = [o for n, o in enumerate(conversations(14, 5.0, seed=2)) if n % 7]
    of_mean = bootstrap_mean(before).interval
    of_difference = bootstrap_difference(before, now).interval
    assert of_mean is not None
    assert of_difference is not None
    assert (of_mean.low, of_mean.high) == pytest.approx((6.040816326530612, 7.86379628901504), rel=1e-12)
    assert (of_difference.low, of_difference.high) == pytest.approx((-4.292896877339336, -1.504857977610324), rel=1e-12)
    assert difference_p(before, now) == pytest.approx(0.00018485832418014685, rel=1e-12)


@pytest.mark.parametrize("days", [((300, 300), (300, 5)), ((300, 300), (300, 20)), ((300, 20), (300, 20))])
def test_few_conversations_that_stand_for_many_leave_the_mean_uncertain(days: Sequence[tuple[int, int]]) -> None:
    """A rule that is broken in 3 %: the few that were kept of the second day mostly show it unbroken."""
    inside = 0
    for seed in range(60):
        rng = random.Random(seed)
        population = []
        kept_scores = []
        for day, (opened, quota) in enumerate(days):
            for number in range(opened):
                score = 0.0 if rng.random() < 0.03 else 9.0
                population.append(score)
                if rng.random() < quota / opened:
                    kept_scores.append(Observation(score, opened / quota, (day, number)))
        truth = sum(population) / len(population)
        interval = bootstrap_mean(kept_scores, resamples=200).interval
        assert interval is not None
        inside += interval.low <= truth <= interval.high
    assert inside / 60 >= 0.93, inside


def test_people_s_mean_counts_the_weights() -> None:
    rng = random.Random(5)
    inside = 0
    for _ in range(300):
        population = [(min(9, max(0, round(rng.gauss(4, 1.5)))), 0.1) for _ in range(4000)]
        population += [(min(9, max(0, round(rng.gauss(8, 1)))), 1.0) for _ in range(300)]
        truth = sum(score for score, _ in population) / len(population)
        sample = [(score, 1 / chance) for score, chance in population if rng.random() < chance]
        rng.shuffle(sample)
        judge = [min(9.0, max(0.0, score + rng.choice((-1, 0, 0, 1, 1)))) for score, _ in sample]
        estimate = prediction_powered_mean(
            [float(score) for score, _ in sample[:150]],
            judge[:150],
            judge[150:],
            weights=[weight for _, weight in sample[:150]],
            rest_weights=[weight for _, weight in sample[150:]],
        )
        assert estimate.interval is not None
        inside += estimate.interval.low <= truth <= estimate.interval.high
    assert 0.92 <= inside / 300 <= 0.99, inside


def test_people_s_mean_draws_the_conversations_that_were_kept() -> None:
    inside = 0
    for seed in range(80):
        rng = random.Random(seed)
        population = []
        sample = []
        for conversation in range(2000):
            middle = rng.gauss(6, 1.5)
            scores = [min(9, max(0, round(rng.gauss(middle, 1)))) for _ in range(rng.choice([5, 10, 20]))]
            population += scores
            chance = 0.05 if conversation % 2 else 0.02
            if rng.random() < chance:
                sample += [(float(score), 1 / chance, conversation) for score in scores]
        truth = sum(population) / len(population)
        rng.shuffle(sample)
        judge = [min(9.0, max(0.0, score + rng.choice((-1, 0, 0, 0, 1)))) for score, _, _ in sample]
        interval = prediction_powered_mean(
            [score for score, _, _ in sample[:150]],
            judge[:150],
            judge[150:],
            weights=[weight for _, weight, _ in sample[:150]],
            rest_weights=[weight for _, weight, _ in sample[150:]],
            clusters=[conversation for _, _, conversation in sample[:150]],
            rest_clusters=[conversation for _, _, conversation in sample[150:]],
        ).interval
        assert interval is not None
        inside += interval.low <= truth <= interval.high
    assert inside / 80 >= 0.9, inside


Day = tuple[int, int, float]  # conversations that were opened, those kept on average, and the mean score of the day


@pytest.mark.slow
@pytest.mark.parametrize(
    ("days", "least"),
    [
        pytest.param([(400, 20, 6.5)] * 7, 0.93, id="a quota on like days"),
        pytest.param([(400, 400, 6.5), (400, 5, 6.5)], 0.93, id="all, then few"),
        pytest.param([(900, 900, 7.0)] + [(900, 20, 6.0)] * 4, 0.93, id="all, then a quota on worse days"),
        # Three of a day of 300 say little of it, and in 5 % none is kept: docs/reference/sampling.md states the 90 %.
        pytest.param(
            [(300, 300, 7), (300, 150, 6.5), (300, 15, 6), (300, 3, 5.5), (300, 60, 6)], 0.88, id="five rates"
        ),
    ],
)
def test_the_interval_holds_the_mean_of_all_days_whatever_their_rates(days: Sequence[Day], least: float) -> None:
    inside = 0
    for seed in range(200):
        rng = random.Random(seed)
        population = []
        kept_scores = []
        for day, (opened, quota, mean) in enumerate(days):
            for number in range(opened):
                middle = rng.gauss(mean, 1.5)
                scores = [
                    round(min(9.0, max(0.0, rng.gauss(middle, 1)))) for _ in range(rng.choice([1, 2, 3, 5, 10, 30]))
                ]
                population += scores
                if rng.random() < quota / opened:
                    kept_scores += [Observation(float(score), opened / quota, (day, number)) for score in scores]
        truth = sum(population) / len(population)
        interval = bootstrap_mean(kept_scores, resamples=1_000).interval
        assert interval is not None
        inside += interval.low <= truth <= interval.high
    assert inside / 200 >= least, inside
