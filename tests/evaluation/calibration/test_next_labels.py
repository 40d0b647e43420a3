"""“Label these 20 next”: spread over the judge's scores, each judgement as likely as any other, in the console and the terminal."""

from __future__ import annotations

import random
from collections import Counter
from statistics import pvariance

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from evaluation.calibration.labels import NothingToDraw, draw_label_set, drawn_ids
from evaluation.calibration.models import LabelSet
from evaluation.calibration.next_labels import draw_next, spread_over_scores
from evaluation.models import EvaluationScore
from evaluation.statistics.agreement import quadratic_weighted_kappa
from tests.console import page_of, read, signed_in, staff, superuser
from tests.evaluation.calibration.labelled import annotator, drawn, judgements, label_all
from tests.evaluation.judged import LLM

JUDGE = [9] * 60 + [5] * 30 + [1] * 10


def test_each_score_has_its_share_of_the_next() -> None:
    scores = dict(enumerate(JUDGE))
    for seed in range(20):
        chosen = spread_over_scores(scores, 20, random.Random(seed))
        assert len(set(chosen)) == 20
        assert Counter(scores[key] for key in chosen) == {9: 12, 5: 6, 1: 2}


@pytest.mark.parametrize("n", [7, 20])
def test_each_judgement_is_as_likely_as_any_other(n: int) -> None:
    scores = dict(enumerate(JUDGE))
    taken: Counter[int] = Counter()
    first: Counter[int] = Counter()
    for seed in range(4_000):
        chosen = spread_over_scores(scores, n, random.Random(seed))
        taken.update(chosen)
        first[scores[chosen[0]]] += 1

    expected = 4_000 * n / len(scores)
    assert all(abs(taken[key] - expected) < 5 * expected**0.5 for key in scores)
    assert abs(first[1] - 400) < 5 * 400**0.5, "the first one is no random draw"


# Real labels: cells of people and judge (violation seen by both, people alone, judge alone, none) from a published judge
# validation, sierra-research/tau2-bench (MIT, © Sierra Research): the 14 measures with two disagreements or more.
PUBLISHED = (
    *((10, 0, 3, 47), (35, 0, 2, 6), (30, 3, 2, 28), (13, 0, 2, 293), (24, 4, 7, 25), (16, 5, 1, 38), (31, 1, 3, 9)),
    *((27, 3, 1, 29), (30, 2, 7, 23), (14, 2, 4, 40), (18, 0, 2, 205), (32, 4, 3, 27), (22, 1, 1, 35), (23, 2, 0, 9)),
)
TIMES = 10  # each published judgement stands for so many alike
REPLAYS = 400


def spread_of_kappa(pairs: list[tuple[int, int]], draws: list[list[int]]) -> float:
    """The variance of kappa over these draws of judgements, where it is defined."""
    kappas = []
    for draw in draws:
        judge = [float(pairs[key][0]) for key in draw]
        people = [float(pairs[key][1]) for key in draw]
        kappa = quadratic_weighted_kappa(judge, people, resamples=1).value
        if kappa is not None:
            kappas.append(kappa)
    return pvariance(kappas)


@pytest.mark.slow
def test_published_labels_need_fewer_spread_than_at_random() -> None:
    ratios = []
    for both, people_alone, judge_alone, neither in PUBLISHED:
        pairs = [(1, 1)] * both + [(0, 1)] * people_alone + [(1, 0)] * judge_alone + [(0, 0)] * neither
        pairs *= TIMES
        judge = {key: pair[0] for key, pair in enumerate(pairs)}
        rng = random.Random(1)
        at_random = [rng.sample(range(len(pairs)), 40) for _ in range(REPLAYS)]
        spread = [list(spread_over_scores(judge, 40, rng)) for _ in range(REPLAYS)]
        ratios.append(spread_of_kappa(pairs, spread) / spread_of_kappa(pairs, at_random))

    middle = sorted(ratios)[len(ratios) // 2]
    assert middle < 1, ratios
    assert max(ratios) < 1.3, ratios


# -- growing a set
@pytest.fixture
def label_set(db: None) -> LabelSet:
    judgements(JUDGE)
    return draw_label_set(name="first", judge=LLM, dimension="adherence", n=30)


def test_a_set_grows_by_what_is_not_in_it(label_set: LabelSet) -> None:
    before = drawn_ids(label_set)

    assert draw_next(label_set=label_set) == 20
    after = drawn_ids(label_set)
    assert after[:30] == before
    assert len(set(after)) == 50
    assert draw_next(label_set=label_set, n=500) == 50
    with pytest.raises(NothingToDraw):
        draw_next(label_set=label_set)
    assert len(set(drawn_ids(label_set))) == 100


def test_the_command_adds_to_a_set(label_set: LabelSet, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("calibrate_judge", "--label-set", "first", "--next", "20")

    assert "20 judgements added" in capsys.readouterr().out
    assert label_set.drawn.count() == 50
    with pytest.raises(CommandError, match="--next N goes with --label-set"):
        call_command("calibrate_judge", "--next", "20")


def press_next(client: Client, label_set: LabelSet) -> int:
    return client.post(f"/admin/calibration/labelset/{label_set.pk}/next/").status_code


def test_the_button_adds_20_once_everything_is_labelled(label_set: LabelSet) -> None:
    client = signed_in(superuser("root"))
    button = "these 20 next"
    assert button not in read(client, page_of(label_set))
    assert (press_next(client, label_set), label_set.drawn.count()) == (302, 30)

    label_all(drawn(label_set), [score.raw_score for score in drawn(label_set)], annotator="root")
    assert button in read(client, page_of(label_set))
    assert (press_next(client, label_set), label_set.drawn.count()) == (302, 50)
    assert button not in read(client, page_of(label_set))
    assert "30 of 50" in read(client, f"/admin/calibration/labelset/{label_set.pk}/label/")


@pytest.mark.parametrize("permissions", [["calibration.add_scorelabel"], ["calibration.add_labelset"]])
def test_only_who_may_draw_and_label_adds_more(label_set: LabelSet, permissions: list[str]) -> None:
    client = signed_in(staff(*permissions, "calibration.view_labelset", username="ann"))
    label_all(drawn(label_set), [5] * 30, annotator="ann")

    assert "these 20 next" not in read(client, page_of(label_set))
    assert (press_next(client, label_set), label_set.drawn.count()) == (403, 30)


def test_what_was_judged_later_is_not_drawn(label_set: LabelSet) -> None:
    judgements([3] * 40)

    assert draw_next(label_set=label_set, n=500) == 70
    assert EvaluationScore.objects.count() == 140


def test_an_annotator_who_had_finished_labels_on(label_set: LabelSet) -> None:
    label_all(drawn(label_set), [5] * 30, annotator="ann")
    draw_next(label_set=label_set)

    assert "30 of 50" in read(annotator(), f"/admin/calibration/labelset/{label_set.pk}/label/")
