"""The figures beside the scores: kept, marked stale, computed by the worker, in every place a judge's scores are shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from agents.work.queues import work_queues
from evaluation.calibration import calibration_json, calibration_of, draw_label_set, save_label
from evaluation.calibration.stored import refresh, work_one
from evaluation.calibration.values import Agreement
from evaluation.models import Baseline, JudgeCalibration, ScoreLabel
from evaluation.runs.as_json import numbers_json
from evaluation.runs.summary import summarize
from evaluation.runs.terminal import outcome_table
from tests.console import list_of, page_of, queries, read, signed_in, superuser
from tests.evaluation.calibration.labelled import KEY, drawn, judgements, label_all
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judged import LLM, cells, make_baseline, make_run
from tests.evaluation.measuring import measured
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
JUDGE = [0, 3, 6, 9, 2, 5, 8, 1, 4, 7] * 4
PEOPLE = [1, 3, 5, 9, 2, 6, 8, 0, 4, 6] * 4


def calibrated() -> Agreement:
    label_all(judgements(JUDGE), PEOPLE)
    refresh(KEY)
    return calibration_of(KEY.judge, KEY.procedure)["adherence"]


def test_figures_are_kept_and_read_in_one_query(django_assert_num_queries: pytest.FixtureRequest) -> None:
    found = calibrated()
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert calibration_of(LLM, "plumbline") == {"adherence": found}

    assert str(found).startswith("κ 0.97 [0.9")
    assert str(found).endswith("], 40 labels")
    assert (found.labels, found.items, found.annotators, found.stale) == (40, 40, 1, False)


def test_figures_of_another_judge_or_procedure_are_others() -> None:
    calibrated()

    assert calibration_of("other", "plumbline") == {}
    assert calibration_of(LLM, "plumbline+hard") == {}


def test_a_label_makes_the_figures_stale_until_the_worker_computed_them() -> None:
    before = calibrated()
    score = ScoreLabel.objects.select_related("evaluation_score__evaluation_run").earliest("pk").evaluation_score
    save_label(score=score, annotator="ben", value=9)
    stale = calibration_of(LLM, "plumbline")["adherence"]
    assert (stale.stale, stale.kappa, stale.labels) == (True, before.kappa, 40)
    assert "labels changed since" in str(stale)

    assert work_one(owner="test")
    found = calibration_of(LLM, "plumbline")["adherence"]
    assert (found.stale, found.labels, found.annotators) == (False, 41, 2)
    assert not work_one(owner="test")


def test_the_worker_knows_the_queue() -> None:
    assert work_one in work_queues().values()


def test_labels_that_change_while_figures_are_computed_leave_them_stale() -> None:
    calibrated()
    label = ScoreLabel.objects.select_related("evaluation_score__evaluation_run").latest("pk")
    changed: list[str] = []

    def meanwhile(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """Somebody labels just before the figures are written."""
        if sql.startswith('UPDATE "judge_calibrations"') and not changed:
            changed.append(sql)
            save_label(score=label.evaluation_score, annotator="cy", value=3)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        refresh(KEY)

    assert changed
    assert JudgeCalibration.objects.get().is_stale


def test_few_labels_are_no_figure() -> None:
    label_all(judgements(JUDGE[:12]), PEOPLE[:12])
    refresh(KEY)
    found = calibration_of(LLM, "plumbline")["adherence"]

    assert str(found) == "12 of 20 labels needed"
    assert not found.enough


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ({"kappa": 0.616, "low": 0.484, "high": 0.741, "labels": 80, "items": 80}, "κ 0.62 [0.48, 0.74], 80 labels"),
        (
            {"kappa": -0.04, "low": -0.26, "high": 0.16, "labels": 72, "items": 72},
            "κ −0.04 [−0.26, 0.16], 72 labels: no better than chance so far",
        ),
        ({"kappa": 0.0, "labels": 25, "items": 25}, "κ 0.00, 25 labels: no better than chance so far"),
        ({"kappa": 1.0, "labels": 25, "items": 25}, "κ 1.00, 25 labels"),
        ({"kappa": None, "labels": 25, "items": 25}, "κ undefined, 25 labels"),
        ({"kappa": None, "labels": 0, "items": 0}, "not calibrated"),
        ({"kappa": 0.5, "labels": 1, "items": 1, "stale": True}, "1 of 20 labels needed (labels changed since)"),
    ],
)
def test_a_figure_is_one_line(found: dict[str, float | None], told: str) -> None:
    given = {"low": None, "high": None, "annotators": 1, "dimension": "adherence", **found}
    assert str(Agreement(**given)) == told  # type: ignore[arg-type]


def test_json_of_what_is_not_calibrated_is_null() -> None:
    assert calibration_json(None) is None
    found = calibration_json(calibrated())
    assert found is not None
    assert (found["labels"], found["enough"], found["stale"]) == (40, True, False)
    assert found["interval"][0] < found["kappa"] <= found["interval"][1]


# -- beside every score
def test_the_page_of_an_evaluation_has_the_figure_of_its_judge() -> None:
    root = signed_in(superuser())
    label_all(judgements(JUDGE), PEOPLE)
    run = make_run(make_agent("bob"), dimensions=["adherence"])
    judgements([5], run=run)
    assert "0 of 20" not in read(root, page_of(run))
    refresh(KEY)

    assert "κ 0.97 [0.9" in read(root, page_of(run))
    other = make_run(make_agent("eve"), judge="other", dimensions=["adherence"])
    judgements([5], run=other)
    assert "not calibrated" in read(root, page_of(other))


def test_baselines_have_the_figure_of_their_judge_in_a_constant_number_of_queries() -> None:
    calibrated()
    root = signed_in(superuser())
    agents = [make_agent(f"agent-{n}") for n in range(4)]
    make_baseline(agents[0], make_run(agents[0]))
    few = len(queries(root, list_of(Baseline)))
    for agent in agents[1:]:
        make_baseline(agent, make_run(agent))

    assert len(queries(root, list_of(Baseline))) == few
    shown = cells(read(root, list_of(Baseline)), "agreement_mark")
    assert len(shown) == 4
    assert all(cell.startswith("κ 0.97 [0.9") for cell in shown)
    assert "κ 0.97 [0.9" in read(root, page_of(agents[0]))
    assert "κ 0.97 [0.9" in read(root, page_of(Baseline.objects.earliest("pk")))


def test_the_table_and_json_of_a_capture_have_it(
    llm_server: LLMServer, propositions: PropositionFolder, tmp_path: Path
) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    ada = make_agent("ada")
    talk(ada, [f"line {n}" for n in range(25)])
    result = measured(ada, samples=25)
    not_yet = (tmp_path / "not-yet.txt").open("w+")
    outcome_table("test-model", [result], not_yet)
    assert numbers_json(result.summary)["dimensions"]["adherence"]["calibration"] is None

    label_set = draw_label_set(name="first", judge="test-model", dimension="adherence", n=25)
    label_all(drawn(label_set), [n % 10 for n in range(25)])
    while work_one(owner="test"):
        pass
    found = numbers_json(summarize(result.summary.run))["dimensions"]["adherence"]["calibration"]
    now = (tmp_path / "now.txt").open("w+")
    outcome_table("test-model", [result], now)
    not_yet.seek(0)
    now.seek(0)

    assert (found["labels"], found["items"]) == (25, 25)
    assert "test-model is not calibrated" in not_yet.read()
    assert "Agreement of test-model with people: adherence κ 0.00, 25 labels" in " ".join(now.read().split())
