"""The shipped scenarios swarm-on-off and debate-or-vote, played by a model behind a loopback server to a finished report."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.models import Swarm
from evaluation.experiments.play import ExperimentRefused, start_experiment
from evaluation.experiments.report import ExperimentReport, groups
from evaluation.experiments.scenario import read_scenario, shipped
from tests.agents.swarm.speaking import READING
from tests.evaluation.experiments.test_planted import respond
from tests.evaluation.experiments.test_play import scenario
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
    call_command("experiment", "run", name, "--json")
    return ExperimentReport.model_validate_json(capsys.readouterr().out)


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
    headings = [heading for _, heading, rows in groups(shown) if rows]
    assert "Cost" in headings
    assert len(headings) > 1


def test_a_swarm_belongs_to_the_people_made_for_the_experiment_alone() -> None:
    real = make_agent("ada")

    start_experiment(read_scenario(shipped()["swarm-on-off"]))

    swarm = Swarm.objects.get(name="personality")
    assert swarm.agents.count() == swarm.agents.filter(synthetic=True).count() == 8
    assert not real.swarms.exists()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"population": None, "cast": ["ada", "bob", "eve", "joe"]}, "none of the agents has a swarm"),
        ({}, "none of the agents has a swarm"),
        ({"population": {"size": 4, "about": "x", "swarms": ["magic"]}}, "swarm 'magic' is unknown"),
    ],
)
def test_an_arm_with_a_swarm_that_nobody_has_is_refused_before_anything_is_paid(
    changes: dict[str, Any], named: str
) -> None:
    for slug in ("ada", "bob", "eve", "joe"):
        make_agent(slug)
    arms = [{"name": "plain"}, {"name": "swarm", "treatment": ["calibration"]}]

    with pytest.raises(ExperimentRefused, match=named):
        start_experiment(scenario(arms=arms, **changes))


def test_swarms_that_are_switched_off_leave_the_report_void(settings: Settings) -> None:
    settings.TURN_SWARM_ENABLED = False

    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", "swarm-on-off", "--scale", "0.25", "--json")

    assert error.value.returncode == 3
