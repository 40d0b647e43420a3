"""Further judges score what was said in an experiment, and the report says how far they agree."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from evaluation.experiments.measuring import evaluations, judge_here
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import play
from evaluation.experiments.report import report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import respond, scenario
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def experiment(settings: Settings, llm_server: LLMServer) -> Experiment:
    """Played and judged: the second arm keeps to its own words, and stumbles."""
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "judge-model", 1
    llm_server.respond = several_judges
    made = start_experiment(
        scenario(
            population={"size": 16, "about": "people of one street"},
            environments=8,
            arms=[{"name": "north"}, {"name": "south", "overrides": {"model": "other-model"}}],
            dimensions=[{"id": "adherence"}, {"id": "fluency"}],
        )
    )
    judge_here(play(made))
    made.refresh_from_db()
    report(made)
    return made


def several_judges(body: dict[str, Any]) -> dict[str, Any]:
    """`twin` scores as the judge does; `contrary` the other way round."""
    answer = respond(body | {"model": "judge-model"} if body["model"] in ("twin", "contrary") else body)
    if body["model"] == "contrary":
        return {"json": turned(answer["json"])}
    return answer


def turned(answer: Any) -> Any:
    if isinstance(answer, list):
        return [turned(one) for one in answer]
    if isinstance(answer, dict):
        return {name: 9 - one if name == "value" else turned(one) for name, one in answer.items()}
    return answer


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    call_command("experiment", "report", *arguments)
    return capsys.readouterr().out


@pytest.mark.slow
def test_further_judges_get_reports_of_their_own_and_their_agreement(
    experiment: Experiment, settings: Settings, llm_server: LLMServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report(experiment)
    shown = json.loads(output(capsys, str(experiment.pk), "--judges", "twin,contrary", "--json"))

    assert [one["judge"] for one in shown["reports"]] == ["judge-model", "twin", "contrary"]
    verdicts = [
        {row["measure"]: row["verdict"] for row in one["rows"] if row["unit"] == "agents"} for one in shown["reports"]
    ]
    assert verdicts[0] == verdicts[1] == {"adherence": "gain", "fluency": "harm"}
    assert verdicts[2] == {"adherence": "harm", "fluency": "gain"}
    kappas = {
        (one["dimension"], one["second"]): one["kappa"] for one in shown["agreement"] if one["first"] == "judge-model"
    }
    assert kappas["adherence", "twin"]["value"] == 1
    assert kappas["adherence", "contrary"]["value"] < 0
    assert kappas["fluency", "twin"]["n"] >= 32
    assert len(shown["agreement"]) == 2 * 3

    experiment.refresh_from_db()
    assert report(experiment) == before
    calls, made = llm_server.calls, evaluations(experiment).count()
    page = output(capsys, str(experiment.pk), "--judges", "twin, twin, judge-model", "--format", "markdown")
    rows = list(csv.DictReader(io.StringIO(output(capsys, str(experiment.pk), "--judges", "twin", "--format", "csv"))))
    assert "Judge twin" in page
    assert "judge-model and twin" in page
    assert {row["judge"] for row in rows} == {"judge-model", "twin"}
    assert "Spearman" in output(capsys, str(experiment.pk), "--judges", "twin")
    assert (llm_server.calls, evaluations(experiment).count()) == (calls, made), "what it scored is not asked again"
    settings.ANTHROPIC_API_KEY = settings.ANTHROPIC_BASE_URL = settings.JUDGE_BASE_URL = ""
    for judges in ("twin,,contrary", "claude-x"):
        with pytest.raises(CommandError) as error:
            call_command("experiment", "report", str(experiment.pk), "--judges", judges)
        assert error.value.returncode == 3, judges


def test_one_that_is_still_played_cannot_be_judged_again(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"
    unplayed = start_experiment(scenario())

    with pytest.raises(CommandError, match="playing") as error:
        call_command("experiment", "report", str(unplayed.pk), "--judges", "offline:lexical-1")

    assert error.value.returncode == 3
    assert not evaluations(unplayed).exists()
