"""A bundle judged by replay on another database ends in the same rows; a hostile one is refused and writes nothing."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel
from evaluation.experiments.bundle import read_bundle, write_bundle
from evaluation.experiments.models import Experiment
from evaluation.experiments.play import ExperimentRefused, judge_here, play, start_experiment
from evaluation.experiments.report import ExperimentReport, report
from evaluation.models import EvaluationRun
from tests.evaluation.experiments.test_planted import respond
from tests.evaluation.experiments.test_play import scenario
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

ARMS = [{"name": "north"}, {"name": "south", "overrides": {"model": "other-model"}}]
POPULATION = {"size": 16, "about": "people of one street"}
CAST = [f"agent-{number}" for number in range(16)]


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL, settings.WORKER_THREADS = "plain-model", "judge-model", 1
    settings.LLM_STORE_PAYLOADS = "judge"
    llm_server.respond = respond


def judged(**fields: Any) -> tuple[Experiment, ExperimentReport]:
    made = start_experiment(
        scenario(
            environments=8,
            arms=ARMS,
            dimensions=[{"id": "adherence"}, {"id": "fluency"}, {"id": "convergence"}],
            **fields,
        )
    )
    judge_here(play(made))
    made.refresh_from_db()
    return made, report(made)


def empty_database() -> None:
    """Everything goes; keys go on, so that nothing has the key it had."""
    for model in (Experiment, EvaluationRun, LLMCall, Channel, Agent):
        model._base_manager.all().delete()


@pytest.mark.parametrize(
    "fields", [{"population": POPULATION}, {"population": None, "cast": CAST}], ids=["made", "cast"]
)
def test_judged_by_replay_on_an_empty_database_it_ends_in_the_same_rows(
    fields: dict[str, Any],
    tmp_path: Path,
    llm_server: LLMServer,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for slug in fields.get("cast", ()):
        make_agent(slug, system_prompt=f"You are {slug}.")
    experiment, before = judged(**fields)
    assert write_bundle(experiment, tmp_path / "out.zip") > 0
    empty_database()
    settings.ANTHROPIC_API_KEY = settings.ANTHROPIC_BASE_URL = settings.JUDGE_BASE_URL = settings.ACTOR_BASE_URL = ""
    calls = llm_server.calls

    capsys.readouterr()
    call_command("experiment", "run", str(tmp_path / "out.zip"), "--json")
    after = ExperimentReport.model_validate_json(capsys.readouterr().out)

    assert llm_server.calls == calls
    assert after.rows == before.rows
    assert [arm.model_copy(update={"usd": None}) for arm in after.arms] == [
        arm.model_copy(update={"usd": None}) for arm in before.arms
    ]
    assert (after.void, after.unfinished, after.published) == ([], "", before.published)
    assert Agent.objects.listed().count() == 0


def test_agents_of_this_name_and_another_persona_are_not_taken_for_those_of_the_bundle(tmp_path: Path) -> None:
    for slug in CAST:
        make_agent(slug)
    experiment, _ = judged(population=None, cast=CAST)
    write_bundle(experiment, tmp_path / "out.zip")
    Agent.objects.filter(slug=CAST[3]).update(system_prompt="You are somebody else.")

    with pytest.raises(ExperimentRefused, match=CAST[3]):
        read_bundle(tmp_path / "out.zip")

    assert Experiment.objects.count() == 1


def test_without_stored_answers_there_is_no_bundle(settings: Settings, tmp_path: Path) -> None:
    settings.LLM_STORE_PAYLOADS = "none"
    experiment, _ = judged(population=POPULATION)

    with pytest.raises(CommandError, match="LLM_STORE_PAYLOADS") as error:
        call_command("experiment", "bundle", str(experiment.pk), str(tmp_path / "out.zip"))

    assert error.value.returncode == 3
    assert not list(tmp_path.iterdir())


# -- hostile ones
def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    with zipfile.ZipFile(path) as archive:
        content = json.loads(archive.read("experiment.json"))
    change(content)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("experiment.json", json.dumps(content))
        archive.writestr("answers.jsonl", "")


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "scenario": lambda content: content["scenario"].update(environments=-1),
    "extra field": lambda content: content.update(surprise=1),
    "agent missing": lambda content: content["agents"].pop(),
    "agent twice": lambda content: content["agents"].append(content["agents"][0]),
    "slug": lambda content: content["agents"][0].update(slug="../../etc/passwd"),
    "trait": lambda content: content["agents"][0].update(traits=[{"name": "x", "evil": 1}]),
    "NUL in a text": lambda content: content["environments"][0]["messages"][0].update(text="a\0b"),
    "position twice": lambda content: content["environments"][0]["messages"].append(
        content["environments"][0]["messages"][0]
    ),
    "huge position": lambda content: content["environments"][0]["messages"][0].update(position=10**30),
    "no such arm": lambda content: content["environments"][0].update(arm="west"),
    "environment twice": lambda content: content["environments"].append(content["environments"][0]),
    "still to be played": lambda content: content["environments"][0].update(status="pending"),
    "no number": lambda content: content["environments"][0]["figures"].update(length=float("nan")),
    "date": lambda content: content["environments"][0]["messages"][0].update(sent_at="tomorrow"),
    "long name": lambda content: content["agents"][0].update(display_name="x" * 10_000),
    "deep": lambda content: content["environments"][0]["messages"][0].update(payload=json.loads("[" * 400 + "]" * 400)),
}


@pytest.fixture
def bundle(settings: Settings, tmp_path: Path) -> Path:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"
    experiment = start_experiment(scenario())
    judge_here(play(experiment))
    experiment.refresh_from_db()
    write_bundle(experiment, tmp_path / "out.zip")
    return tmp_path / "out.zip"


def refused(path: Path) -> str:
    before = Experiment.objects.count(), Agent.objects.count(), Channel.objects.count()
    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", str(path))
    assert error.value.returncode == 3
    assert (Experiment.objects.count(), Agent.objects.count(), Channel.objects.count()) == before
    return str(error.value)


def test_wrong_content_is_refused_and_writes_nothing(bundle: Path) -> None:
    original = bundle.read_bytes()
    said = {}
    for name, change in HOSTILE.items():
        bundle.write_bytes(original)
        changed(bundle, change)
        said[name] = refused(bundle)

    assert "out.zip" in min(said.values(), key=len)
    assert "west" in said["no such arm"]
    assert all(len(text) < 10_000 for text in said.values())


def test_a_zip_bomb_a_path_and_what_is_no_json_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("experiment.json", "w", force_zip64=True) as part,
    ):
        for _ in range(201):
            part.write(b" " * 1_000_000)
    assert path.stat().st_size < 1_000_000
    assert "allowed: 200,000,000" in refused(path)

    for name in ("../../evil.py", "/etc/passwd", "more.txt"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("experiment.json", "{}")
            archive.writestr(name, "x")
        assert "is not of a bundle" in refused(path)

    for content in (b"no json", b"[]", b"\xff\xfe", b"[" * 100_000, b"{}"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("experiment.json", content)
        assert "bad.zip" in refused(path)

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("answers.jsonl", "")
    assert "experiment.json" in refused(path)


def test_a_damaged_zip_is_refused(bundle: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[60:90] = bytes(30)
    bundle.write_bytes(bytes(content))

    assert "out.zip" in refused(bundle)
