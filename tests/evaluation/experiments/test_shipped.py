"""The shipped scenarios: large enough for a verdict, and two of them played by a model behind a loopback server to a finished report."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.swarm.models import Swarm
from evaluation.experiments.problems import ExperimentRefused
from evaluation.experiments.report import ExperimentReport, groups
from evaluation.experiments.scenario import read_scenario, shipped
from evaluation.experiments.starting import start_experiment
from evaluation.statistics.arms import pairs_needed
from tests.agents.swarm.speaking import READING
from tests.evaluation.experiments.playing import respond, scenario
from tests.factories import make_agent
from tests.llm_server import LLMServer, example_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "claude-haiku-5-5", "judge-model"
    settings.WORKER_THREADS = 1
    llm_server.respond = also_calibrates


def also_calibrates(body: dict[str, Any]) -> dict[str, Any]:
    """As in the test of planted effects; a swarm's calls, and debates, are answered with what their schema asks for."""
    schema = body.get("output_config", {}).get("format", {}).get("schema", {})
    fields = schema.get("properties", {})
    if "risk" in fields:
        return {"json": READING}
    if body["model"] != "judge-model" and "tools" not in body and "persona" not in fields:
        return {"json": {"text": "I polished this for you."}}
    names = {tool["name"]: tool["input_schema"] for tool in body.get("tools", [])}
    if "tool_result" not in json.dumps(body["messages"]) and "send_message" in names:
        answer = example_of(names["send_message"])
        if set(answer) - {"channel", "text"}:  # of a debate
            said = (
                respond(body)["tool_calls"][0][1]
                if "talk-" in json.dumps(body["messages"])
                else {"text": "Yes, to me."}
            )
            return {"tool_calls": [("send_message", answer | said | {"channel": channel_of(body)})]}
    return respond(body)


def channel_of(body: dict[str, Any]) -> str:
    match = re.search(r"message \d+ in ([\w-]+)|\b(debate-[\w-]+)", json.dumps(body["messages"]))
    assert match is not None
    return match[1] or match[2]


def played(name: str, capsys: pytest.CaptureFixture[str]) -> ExperimentReport:
    call_command("experiment", "run", name, "--json", "--scale", "0.3")
    return ExperimentReport.model_validate_json(capsys.readouterr().out)


@pytest.mark.parametrize("name", shipped())
def test_each_plays_enough_conversations_to_find_a_difference_of_one_standard_deviation(name: str) -> None:
    plan = read_scenario(shipped()[name])

    needed = pairs_needed(1.0, plan.comparisons)

    assert needed is not None
    assert plan.environments >= needed


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"pairs": 2, "comparisons": 2, "pairs_for_a_verdict": 7, "pairs_needed": 13, "detectable_d": None}),
        (
            {"environments": 7, "population": {"size": 14, "about": "a street"}},
            {"detectable_d": pytest.approx(1.85, abs=0.01)},
        ),
        ({"repeats": 3}, {"pairs": 2, "repeats": 3, "conversations": 12}),
    ],
    ids=["too few", "enough for a large difference", "repeats"],
)
def test_a_dry_run_says_what_the_experiment_could_show(
    changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    path, out = tmp_path / "mine.yaml", StringIO()
    path.write_text(scenario(**changes).model_dump_json())

    call_command("experiment", "run", str(path), "--dry-run", "--json", stdout=out)

    estimate = json.loads(out.getvalue())
    assert {name: estimate[name] for name in expected} == expected


def test_the_start_of_a_run_says_when_no_verdict_is_possible(settings: Settings, tmp_path: Path) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"
    path, out = tmp_path / "mine.yaml", StringIO()
    path.write_text(scenario().model_dump_json())

    call_command("experiment", "run", str(path), stdout=out)

    before_it_starts, _, _ = out.getvalue().partition("Ctrl-C")
    assert before_it_starts.count("No verdict") == 2, "too few conversations, and an offline judge"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["swarm-on-off", "debate-or-vote"])
def test_it_ends_in_a_report_with_gains_harms_and_costs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for slug in read_scenario(shipped()[name]).cast:
        make_agent(slug, system_prompt=f"You are {slug}.")

    shown = played(name, capsys)

    assert (shown.void, shown.unfinished, shown.heuristic) == ([], "", False)
    assert shown.arms[1].treated
    assert {row.measure for row in shown.rows} >= {"adherence", "fluency", "length", "usd", "seconds", "tokens"}
    for row in shown.rows:
        assert row.treatment.mean is not None, row.measure
        assert row.control.mean is not None, row.measure
        assert row.treatment.missing == row.control.missing == 0
    headings = [group.heading for group in groups(shown) if group.rows]
    assert "Cost" in headings
    assert len(headings) > 1


def test_a_swarm_belongs_to_the_people_made_for_the_experiment_alone() -> None:
    real = make_agent("ada")

    start_experiment(read_scenario(shipped()["swarm-on-off"]))

    swarm = Swarm.objects.get(name="personality")
    assert swarm.agents.count() == swarm.agents.filter(synthetic=True).count() == 13
    assert not real.swarms.exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"population": None, "cast": ["ada", "bob", "eve", "joe"]}, "none of the agents has a swarm"),
        ({"population": {"size": 4, "about": "x", "swarms": ["magic"]}}, "swarm 'magic' is unknown"),
    ],
)
def test_an_arm_with_a_swarm_that_nobody_has_is_refused(changes: dict[str, Any], named: str) -> None:
    for slug in ("ada", "bob", "eve", "joe"):
        make_agent(slug)
    arms = [{"name": "plain"}, {"name": "swarm", "treatment": ["calibration"]}]

    with pytest.raises(ExperimentRefused, match=named):
        start_experiment(scenario(arms=arms, **changes))


def test_swarms_that_are_switched_off_leave_the_report_void(settings: Settings) -> None:
    settings.TURN_SWARM_ENABLED = False

    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", "swarm-on-off", "--scale", "0.25", "--json")

    assert error.value.returncode == 2
