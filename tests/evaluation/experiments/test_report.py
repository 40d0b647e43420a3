"""What the report of an experiment says."""

from __future__ import annotations

from io import StringIO

import pytest
from pytest_django import Settings

from agents.kit.commands import console_on
from evaluation.experiments.measuring import judge_here
from evaluation.experiments.play import play
from evaluation.experiments.printed import as_markdown, outcome_lines, show
from evaluation.experiments.report import ExperimentReport, report, rounded
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"


def reported(**changes: object) -> ExperimentReport:
    experiment = play(start_experiment(scenario(**changes)))
    judge_here(experiment)
    experiment.refresh_from_db()
    return report(experiment)


def test_a_figure_is_rounded_as_in_papers_and_has_the_one_minus_sign() -> None:
    assert [rounded(value) for value in (2.675, -0.315, -0.001, None)] == ["2.68", "−0.32", "0.00", "–"]


def test_an_offline_judge_makes_no_claim_but_counts_stand() -> None:
    shown = reported()

    assert shown.unfinished == ""
    assert shown.heuristic
    by_measure = {row.measure: row for row in shown.rows}
    assert by_measure["fluency"].p is None
    assert by_measure["fluency"].verdict == "heuristic"
    assert {"silence", "repetition", "length", "seconds"} <= by_measure.keys()


def test_the_outcome_names_as_many_measures_without_a_verdict_as_it_compared() -> None:
    shown = reported()

    [outcome] = outcome_lines(shown)

    named = outcome.partition("no verdict on ")[2].partition(" (")[0].split(", ")
    assert named == [row.label.lower() for row in shown.rows if row.verdict == "not enough data"]
    assert "no test of" in outcome


def test_every_form_of_the_report_says_how_far_to_trust_the_judge() -> None:
    shown = reported()

    out = StringIO()
    show(shown, console_on(out))
    for form in (" ".join(out.getvalue().split()), as_markdown(shown), str(shown.model_dump()["passports"])):
        assert "no human labels yet" in form


def test_figures_of_a_page_of_markdown_are_read_as_they_are() -> None:
    shown = reported()
    probabilities = {"naive_p": 0.012, "p_adjusted": 0.0001}

    page = as_markdown(shown.model_copy(update={"rows": [row.model_copy(update=probabilities) for row in shown.rows]}))

    assert "| .012 | <.001 |" in page


def test_a_counted_measure_has_its_unit_and_the_figures_are_explained() -> None:
    shown = reported()

    out = StringIO()
    show(shown, console_on(out))
    for form in (" ".join(out.getvalue().split()), as_markdown(shown)):
        assert "(words a message)" in form
        assert "mean (standard deviation)" in form


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_word_of_the_report_is_broken_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = reported()

    out = StringIO()
    show(shown, console_on(out))

    assert max(map(len, out.getvalue().splitlines())) <= width
    printed = set(out.getvalue().replace(",", " ").replace(":", " ").split())
    for row in shown.rows:
        assert {*row.label.split(), *row.verdict.split()} <= printed
