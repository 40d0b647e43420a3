"""The figures end to end: published worked examples, what is left out, and prediction-powered means of planted data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.db import connection

from evaluation.calibration.agreement import Figure, JudgeAgreement, compute_agreement
from evaluation.calibration.labels import draw_label_set, save_label, withdraw_label
from evaluation.calibration.models import JudgeCalibration, LabelSet, ScoreLabel
from evaluation.calibration.passport import passport_lines, passport_of, passport_text, passports_of
from evaluation.calibration.stored import calibration_of, refresh, work_one
from evaluation.change.models import Baseline
from evaluation.commands import outcome_table
from evaluation.runs.execute import run_json
from evaluation.runs.summary import summarize
from evaluation.statistics.agreement import krippendorff_alpha, quadratic_weighted_kappa
from tests.console import list_of, page_of, queries, read, signed_in, superuser, tab_of
from tests.evaluation.calibration.labelled import KEY, drawn, judgements, label_all
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, cells, make_baseline, make_run
from tests.evaluation.measuring import measured
from tests.evaluation.statistics.test_agreement import FOUR_OBSERVERS
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def figures(**fields: object) -> JudgeAgreement:
    return compute_agreement(judge=LLM, dimension="adherence", **fields)  # type: ignore[arg-type]


# -- worked examples


def test_alpha_among_people_is_krippendorffs_own_example() -> None:
    scores = judgements([5] * 12)
    for number, observer in enumerate(FOUR_OBSERVERS):
        given = [(score, value) for score, value in zip(scores, observer, strict=True) if value is not None]
        label_all([score for score, _ in given], [value for _, value in given], f"observer {number}")
    row = figures()

    assert row.people_alpha.value == pytest.approx(0.849, abs=5e-4)
    assert (row.people_alpha.n, row.annotators) == (11, 4)


def test_judge_and_people_are_two_raters_of_alpha() -> None:
    judge, people = FOUR_OBSERVERS[0], FOUR_OBSERVERS[1]
    both = [(a, b) for a, b in zip(judge, people, strict=True) if a is not None and b is not None]
    label_all(judgements([int(a) for a, _ in both]), [int(b) for _, b in both])
    row = figures()

    assert row.alpha == Figure.of(krippendorff_alpha(both))
    assert row.alpha.value != row.kappa.value
    assert ("Krippendorff's alpha, judge and people", "as two raters", row.alpha) in row.rows()


# -- what is compared
def test_labels_are_about_the_claim_bias_about_what_is_better() -> None:
    scores = judgements([8, 8, 2, 2], inverted=[True, True, False, False])
    label_all(scores, [6, 6, 2, 2])
    row = figures()

    # as written the judge gives anti-patterns 2 more than people; that makes its scores 2 lower there, 1 on average
    assert row.bias.value == pytest.approx(-1)
    assert row.kappa.value == pytest.approx(quadratic_weighted_kappa([8, 8, 2, 2], [6, 6, 2, 2]).value, abs=1e-4)


def test_several_annotators_stand_as_their_mean() -> None:
    scores = judgements([0, 3, 6, 9])
    label_all(scores, [1, 3, 5, 9], "ann")
    label_all(scores, [0, 4, 7, 9], "ben")

    expected = quadratic_weighted_kappa([0, 3, 6, 9], [0.5, 3.5, 6, 9])
    assert figures().kappa.value == pytest.approx(expected.value, abs=1e-4)
    assert (figures().labels, figures().items, figures().annotators) == (8, 4, 2)


def test_cannot_tell_and_labels_that_are_not_blind_are_in_no_figure() -> None:
    scores = judgements([0, 3, 6, 9])
    user = superuser("ann")
    label_all(scores, [1, 3, 5, None], "ann", user=user)
    save_label(score=scores[0], annotator="ann", value=0, user=user)
    row = figures()

    assert (row.labels, row.cannot_tell, row.not_blind) == (2, 1, 1)
    assert row.kappa.value == pytest.approx(quadratic_weighted_kappa([3, 6], [3, 5]).value, abs=1e-4)


def test_a_label_taken_back_and_given_again_is_not_blind() -> None:
    (score,) = judgements([7])
    user = superuser("ann")
    save_label(score=score, annotator="ann", value=2, user=user)
    withdraw_label(score=score, annotator="ann")
    assert figures().labels == figures().not_blind == 0

    label = save_label(score=score, annotator="ann", value=7, user=user)
    assert (label.value, label.blind, label.withdrawn) == (7, False, False)
    assert ScoreLabel.objects.count() == 1


@pytest.mark.parametrize("value", [-1, 10, True, 4.0, "4"])
def test_a_label_is_a_whole_number_from_0_to_9(value: object) -> None:
    (score,) = judgements([7])
    with pytest.raises(ValueError, match="allowed: whole numbers 0 to 9"):
        save_label(score=score, annotator="ann", value=value)  # type: ignore[arg-type]


def test_labels_of_a_set_can_be_looked_at_alone() -> None:
    scores = judgements([0, 3, 6, 9] * 5)
    label_set = draw_label_set(name="first", judge=LLM, dimension="adherence", n=8)
    label_all(scores, [score.raw_score for score in scores])

    assert (figures().labels, figures(label_set=label_set).labels) == (20, 8)


# -- prediction-powered means
def biased(rng: np.random.Generator, size: int) -> tuple[list[int], list[int]]:
    """What people would give, and a judge that is lenient by about one and a half points and noisy."""
    truth = np.clip(np.round(rng.normal(4, 1.8, size)), 0, 9).astype(int)
    judge = np.clip(np.round(truth + 1.5 + rng.normal(0, 0.8, size)), 0, 9).astype(int)
    return truth.tolist(), judge.tolist()


def powered_set(truth: list[int], judge: list[int], *, n: int, seed: int = 0, inverted: bool = False) -> LabelSet:
    flips = [inverted and number % 2 == 0 for number in range(len(truth))]
    scores = judgements([9 - j if f else j for j, f in zip(judge, flips, strict=True)], inverted=flips)
    would_give = {s.pk: 9 - t if f else t for s, t, f in zip(scores, truth, flips, strict=True)}
    label_set = draw_label_set(name=f"set {seed}", judge=LLM, dimension="adherence", n=n, seed=seed)
    label_all(drawn(label_set), [would_give[score.pk] for score in drawn(label_set)])
    return label_set


@pytest.mark.parametrize("inverted", [False, True])
def test_a_biased_judge_is_corrected_and_the_interval_covers_the_truth(inverted: bool) -> None:
    truth, judge = biased(np.random.default_rng(3), 400)
    label_set = powered_set(truth, judge, n=80, inverted=inverted)
    (result,) = figures(label_set=label_set).prediction_powered
    true_mean = float(np.mean(truth))

    assert (result.population, result.drawn, result.labelled) == (400, 80, 80)
    assert np.mean(judge) - true_mean > 1.2
    assert result.mean.value == pytest.approx(true_mean, abs=0.4)
    assert result.mean.interval is not None
    assert result.mean.interval[0] <= true_mean <= result.mean.interval[1]


def test_fewer_than_50_labels_give_no_prediction_powered_mean() -> None:
    truth, judge = biased(np.random.default_rng(3), 100)
    label_set = powered_set(truth, judge, n=80)
    for score in drawn(label_set)[49:]:
        withdraw_label(score=score, annotator="ann")
    row = figures()

    assert row.prediction_powered[0].mean.value is None
    assert row.prediction_powered[0].labelled == 49
    assert "a random draw with 50 labels or more (now 49) has a prediction-powered mean" in row.needed


# -- The figures beside the scores: kept, marked stale, computed by the worker, in every place a judge's
JUDGE = [0, 3, 6, 9, 2, 5, 8, 1, 4, 7] * 4
PEOPLE = [1, 3, 5, 9, 2, 6, 8, 0, 4, 6] * 4


def calibrated() -> JudgeCalibration:
    label_all(judgements(JUDGE), PEOPLE)
    refresh(KEY)
    return calibration_of(KEY.judge, KEY.procedure)["adherence"]


def test_figures_are_kept_and_read_in_one_query(django_assert_num_queries: pytest.FixtureRequest) -> None:
    result = calibrated()
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert calibration_of(LLM, "plumbline") == {"adherence": result}

    agreement = passport_of(KEY, result).row("agreement")
    assert agreement is not None
    assert agreement.text.startswith("κ 0.97 [0.8")
    assert "], 40 labels" in agreement.text
    assert (result.labels, result.items, result.annotators, result.is_stale) == (40, 40, 1, False)


def test_a_label_makes_the_figures_stale_until_the_worker_computed_them() -> None:
    before = calibrated()
    score = ScoreLabel.objects.select_related("evaluation_score__evaluation_run").earliest("pk").evaluation_score
    save_label(score=score, annotator="ben", value=9)
    stale = calibration_of(LLM, "plumbline")["adherence"]
    assert (stale.is_stale, stale.kappa, stale.labels) == (True, before.kappa, 40)
    assert passport_of(KEY, stale).stale

    assert work_one(owner="test")
    result = calibration_of(LLM, "plumbline")["adherence"]
    assert (result.is_stale, result.labels, result.annotators) == (False, 41, 2)
    assert not work_one(owner="test")


def test_labels_that_change_while_figures_are_computed_leave_them_stale() -> None:
    calibrated()
    label = ScoreLabel.objects.select_related("evaluation_score__evaluation_run").latest("pk")
    changed: list[str] = []

    def meanwhile(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """A label is given just before the figures are written."""
        if sql.startswith('UPDATE "judge_calibrations"') and not changed:
            changed.append(sql)
            save_label(score=label.evaluation_score, annotator="cy", value=3)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        refresh(KEY)

    assert changed
    assert JudgeCalibration.objects.get().is_stale


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"kappa": 0.616, "kappa_low": 0.484, "kappa_high": 0.741, "labels": 80, "items": 80},
            "κ 0.62 [0.48, 0.74], 80 labels",
        ),
        (
            {"kappa": -0.04, "kappa_low": -0.26, "kappa_high": 0.16, "labels": 72, "items": 72},
            "κ −0.04 [−0.26, 0.16], 72 labels",
        ),
        ({"kappa": 0.0, "labels": 25, "items": 25}, "κ 0.00, 25 labels"),
        ({"kappa": None, "labels": 25, "items": 25}, "κ undefined, 25 labels"),
        ({"kappa": None, "labels": 0, "items": 0}, "no human labels yet"),
        ({"kappa": 0.9, "labels": 12, "items": 12}, "12 of 20 labelled judgements needed"),
    ],
)
def test_a_figure_is_one_line(result: dict[str, float | None], expected: str) -> None:
    assert expected in passport_text(passport_of(KEY, JudgeCalibration(**KEY._asdict(), **result)))


# -- beside every score
def test_the_page_of_an_evaluation_has_the_figure_of_its_judge() -> None:
    root = signed_in(superuser())
    label_all(judgements(JUDGE), PEOPLE)
    run = make_run(make_agent("bob"), dimensions=["adherence"])
    judgements([5], run=run)
    assert "0 of 20" not in read(root, page_of(run))
    refresh(KEY)

    assert "κ 0.97 [0.8" in read(root, page_of(run))
    other = make_run(make_agent("eve"), judge="other", dimensions=["adherence"])
    judgements([5], run=other)
    assert "no human labels yet" in read(root, page_of(other))


def test_baselines_have_the_figure_of_their_judge_in_constant_queries() -> None:
    calibrated()
    root = signed_in(superuser())
    agents = [make_agent(f"agent-{n}") for n in range(4)]
    make_baseline(agents[0], make_run(agents[0]))
    few = len(queries(root, list_of(Baseline)))
    for agent in agents[1:]:
        make_baseline(agent, make_run(agent))

    assert len(queries(root, list_of(Baseline))) == few
    shown = cells(read(root, list_of(Baseline)), "passport_mark")
    assert len(shown) == 4
    assert all("κ 0.97 [0.8" in cell for cell in shown)
    assert "κ 0.97 [0.8" in read(root, tab_of(agents[0], "history"))
    assert "κ 0.97 [0.8" in read(root, page_of(Baseline.objects.earliest("pk")))


def test_the_table_and_json_of_a_capture_have_it(
    llm_server: LLMServer, propositions: PropositionFolder, tmp_path: Path
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    talk(ada, [f"line {n}" for n in range(25)])
    result = measured(ada, samples=25)
    not_yet = (tmp_path / "not-yet.txt").open("w+")
    outcome_table("test-model", [result], not_yet, notes=passport_lines(passports_of([result.summary.run])))
    assert run_json(result.summary)["dimensions"]["adherence"]["passport"]["labels"] == 0

    label_set = draw_label_set(name="first", judge="test-model", dimension="adherence", n=25)
    label_all(drawn(label_set), [n % 10 for n in range(25)])
    while work_one(owner="test"):
        pass
    outcome = run_json(summarize(result.summary.run))["dimensions"]["adherence"]["passport"]
    now = (tmp_path / "now.txt").open("w+")
    outcome_table("test-model", [result], now, notes=passport_lines(passports_of([result.summary.run])))
    not_yet.seek(0)
    now.seek(0)

    assert (outcome["labels"], outcome["items"]) == (25, 25)
    assert "adherence not shown: no human labels yet" in " ".join(not_yet.read().split())
    assert "adherence not shown: κ 0.00, 25 labels" in " ".join(now.read().split())
