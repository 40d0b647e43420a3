"""Played speech in the console."""

from __future__ import annotations

import pytest
from django.test import Client
from pytest_django import Settings

from evaluation.capture import capture
from evaluation.models import Baseline
from evaluation.rehearsal import play_spec
from evaluation.run_spec import RunSpec
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.rehearsal.acting import played
from tests.factories import make_agent

pytestmark = pytest.mark.django_db(transaction=True)


def test_numbers_of_played_speech_say_so_and_lead_to_it(
    root: Client, settings: Settings, propositions: PropositionFolder
) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 3}")
    ada = make_agent("ada", sample_lines=["One.", "Two."])
    play = played(ada, repeats=2)
    spec = RunSpec(agent=ada, dimensions=("adherence",), is_baseline=True)
    run = capture([play_spec(spec, play)])[0].summary.run
    baseline = Baseline.objects.get()

    for page in (
        f"/admin/evaluation/evaluationrun/{run.pk}/change/",
        f"/admin/evaluation/baseline/{baseline.pk}/change/",
    ):
        html = root.get(page).content.decode()
        assert ">played</span>" in html
        assert "offline:scripted-1" in html
        assert ">hello</a>" in html
        assert ">quarrel (2)</a>" in html
    for page in ("/admin/evaluation/evaluationrun/", "/admin/evaluation/baseline/"):
        assert ">played</span>" in root.get(page).content.decode()


def test_numbers_of_real_speech_do_not(root: Client, settings: Settings, propositions: PropositionFolder) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    propositions.claims("adherence/_default.yaml", "brief", extra="rule: {max_words: 3}")
    run = capture([RunSpec(agent=make_agent("ada"), dimensions=("adherence",))])[0].summary.run

    html = root.get(f"/admin/evaluation/evaluationrun/{run.pk}/change/").content.decode()

    assert "Overall score" in html
    assert "Played by" not in html
    assert ">played</span>" not in html
