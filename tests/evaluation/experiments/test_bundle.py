"""A bundle holds the report, all that was said and the judge's answers; one that was not judged is refused."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from evaluation.experiments.play import judge_here, play, start_experiment
from evaluation.experiments.report import report
from tests.evaluation.experiments.test_planted import respond
from tests.evaluation.experiments.test_play import scenario
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_a_bundle_holds_report_messages_and_answers(settings: Settings, llm_server: LLMServer, tmp_path: Path) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "judge-model", 1
    settings.LLM_STORE_PAYLOADS = "judge"
    llm_server.respond = respond
    experiment = start_experiment(scenario(dimensions=[{"id": "adherence"}]))
    path = tmp_path / "out.zip"

    with pytest.raises(CommandError, match="allowed: one that was judged"):
        call_command("experiment", "bundle", str(experiment.pk), str(path))
    assert not list(tmp_path.iterdir())

    judge_here(play(experiment))
    call_command("experiment", "bundle", str(experiment.pk), str(path))

    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("experiment.json"))
        messages = [json.loads(line) for line in archive.read("messages.jsonl").decode().splitlines()]
        answers = archive.read("answers.jsonl").decode().splitlines()
    experiment.refresh_from_db()
    assert content["report"] == report(experiment).model_dump(mode="json")
    assert {one["channel__slug"] for one in messages} == {one["channel"] for one in content["environments"]}
    assert {one["agent__slug"] for one in messages} - {None} == set(content["agents"])
    assert answers
