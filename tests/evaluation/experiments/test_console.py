"""The list of experiments and the page of one in the console."""

from __future__ import annotations

import re

import pytest
from pytest_django import Settings

from evaluation.experiments.measuring import judge_here
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from evaluation.experiments.starting import start_experiment
from tests.console import list_of, page_of, plain, read, signed_in, superuser
from tests.evaluation.experiments.playing import scenario

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"


def finished(size: int) -> Experiment:
    made = scenario(population={"size": size, "about": "people of one street"}, environments=size // 2)
    experiment = play(start_experiment(made))
    judge_here(experiment)
    experiment.refresh_from_db()
    report(experiment)
    experiment.refresh_from_db()
    return experiment


def test_the_page_shows_the_report_and_links_to_the_conversations() -> None:
    experiment = finished(4)

    html = read(signed_in(superuser()), page_of(experiment))

    shown = plain(html)
    assert "no claim rests on them" in shown
    for words in ("Silence", "Length", "plain (control)", "gated"):
        assert words in shown
    for slug in {slug for one in report(experiment).most_for for slug in (*one.treatment, *one.control)}:
        assert slug in shown


def test_the_outcome_comes_before_the_statistics_with_gains_left_and_harms_right() -> None:
    experiment = finished(4)
    kept = report(experiment)
    gain, harm = (
        row.model_copy(
            update={"d": d, "d_interval": (d - 0.5, d + 0.5), "delta": d, "better": "higher", "verdict": verdict}
        )
        for row, d, verdict in zip(kept.rows, (1.0, -1.0), ("gain", "harm"), strict=False)
    )
    Experiment.objects.update(report=kept.model_copy(update={"rows": [gain, harm], "void": []}).model_dump(mode="json"))
    html = read(signed_in(superuser()), page_of(experiment))

    outcome = html[html.index("data-outcome") : html.index('id="statistics"')]
    assert outcome.index("gain in") < outcome.index("harm in") < outcome.index("pl-intervals")
    places = dict(re.findall(r'data-tone="(good|bad)".*?pl-intervals-value" x1="([\d.]+)"', outcome, flags=re.S))
    assert float(places["good"]) < 100 < float(places["bad"])


def test_nothing_is_said_of_the_effect_of_a_void_experiment() -> None:
    experiment = finished(4)
    void = report(experiment).model_copy(update={"void": ["gated was not treated"]})
    Experiment.objects.update(report=void.model_dump(mode="json"))
    html = read(signed_in(superuser()), page_of(experiment))

    assert "gated was not treated" in plain(html)
    assert "data-outcome" not in html
    assert "pl-intervals" not in html


def test_a_paused_one_says_why_and_goes_on_at_a_button() -> None:
    experiment, client = start_experiment(scenario()), signed_in(superuser())
    experiment.environments.update(status=ExperimentEnvironment.Status.PAUSED_BUDGET, error="ada: 3 of 2 dollars")
    Experiment.objects.update(paused="ada: 3 of 2 dollars")

    assert "paused" in plain(read(client, list_of(Experiment)))
    assert "ada: 3 of 2 dollars" in plain(read(client, page_of(experiment)))
    assert client.post(page_of(experiment, "resume")).status_code == 302

    assert set(experiment.environments.values_list("status", flat=True)) == {"pending"}
    experiment.refresh_from_db()
    assert experiment.state == "playing"
