"""Scenarios that cannot be used: every problem is named with its line, and nothing is written."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel
from evaluation.experiments.models import Experiment
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

GOOD = """
name: small
cast: [ada, bob, eve, joe]
environments: 2
agents: 2
steps:
  - says: What should the street buy together?
arms:
  - {name: plain, overrides: {stages: []}}
  - {name: gated, overrides: {gate_mode: enforce}}
dimensions: [{id: adherence}]
"""
MANY = """
name: Not A Slug
population:
  size: 10
  about: people
  quotas:
    - {property: age, values: {young: 3, old: 4}}
    - {property: age, values: {young: 50, old: 50}}
environments: -2
agents: 2
steps: -1
order: backwards
facilitator: "A\\0B"
start_from: nowhere@7
arms:
  - {name: plain, overrides: {gate_mode: sometimes, no_such_setting: 1}}
  - {name: plain, treatment: [magic]}
  - {name: third, overrides: {stages: [spell], gate_threshold: .inf}, colour: red}
  - {name: fourth, debate: {mode: shouting}}
dimensions:
  - {id: adherence}
  - {id: charm}
  - {id: adherence}
seed: 99999999999999999999999999
"""


@pytest.fixture(autouse=True)
def _cast(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:heuristic-1"
    for slug in ("ada", "bob", "eve", "joe"):
        make_agent(slug)


def refused(path: Path, text: str, *arguments: str) -> str:
    """What the command says of a file, having written nothing."""
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    before = Agent.objects.count(), Channel.objects.count()
    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", str(path), *arguments)
    assert error.value.returncode in (2, 3)
    assert not Experiment.objects.exists()
    assert not LLMCall.objects.exists()
    assert (Agent.objects.count(), Channel.objects.count()) == before
    return str(error.value)


def test_every_problem_of_a_file_is_named_with_its_line_and_field(tmp_path: Path) -> None:
    said = refused(tmp_path / "many.yaml", MANY)
    assert refused(tmp_path / "many.yaml", MANY, "--dry-run") == said

    places = [line.removeprefix(f"{tmp_path}/many.yaml:").split(": ")[:2] for line in said.splitlines()[1:-1]]
    assert {(int(line), field) for line, field in places} == {
        (1, "name"),
        (6, "population.quotas[0].values"),
        (7, "population.quotas[1].property"),
        (8, "environments"),
        (10, "steps"),
        (11, "order"),
        (12, "facilitator"),
        (13, "start_from"),
        (15, "arms[0].overrides.gate_mode"),
        (15, "arms[0].overrides.no_such_setting"),
        (16, "arms[1].name"),
        (16, "arms[1].treatment[0]"),
        (17, "arms[2].overrides.gate_threshold"),
        (17, "arms[2].colour"),
        (18, "arms[3].debate"),
        (18, "arms[3].debate.mode"),
        (21, "dimensions[1].id"),
        (22, "dimensions[2].id"),
        (23, "seed"),
    }


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("joe]", "ada]", "2: cast[3]: agent 'ada' is named twice"),
        ("agents: 2", "agents: 3", "3: environments: environments × agents = 6; allowed: at most 4"),
        ("name: plain", "name: gated", "9: arms[1].name: arm 'gated' is named twice"),
        ("{stages: []}", "{stages: gate}", "8: arms[0].overrides.stages:"),
        ("{stages: []}", "{model: 7}", "8: arms[0].overrides.model: 7"),
        ("{stages: []}", "{tags: {}}", "8: arms[0].overrides: tags: set by the experiment"),
        ("gate_mode: enforce", "gate_max_retries: 0x" + "f" * 90, "9: arms[1].overrides.gate_max_retries:"),
        ("gate_mode: enforce", "gate_max_retries: 0x" + "f" * 5_000, "9: not valid YAML: a number of 5,002 digits"),
        ("name: small", "name: small\npopulation: {size: 4, about: x}", "3: cast: exactly one of population and cast"),
        ("{gate_mode: enforce}", "&a {b: *a}", "not valid YAML: aliases are not allowed"),
        ("{gate_mode: enforce}", "[" * 3_000 + "]" * 3_000, "nested too deeply"),
        ("{gate_mode: enforce}", "{x: " + "[" * 40 + "]" * 40 + "}", "nested too deeply; allowed: 20 levels"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(tmp_path: Path, old: str, new: str, named: str) -> None:
    assert old in GOOD
    assert named in refused(tmp_path / "one.yaml", GOOD.replace(old, new, 1))


def test_what_is_neither_a_file_nor_a_shipped_scenario_is_refused_with_those_there_are() -> None:
    with pytest.raises(CommandError, match=r"no shipped scenario 'gate-on'; shipped scenarios: .*gate-on-off"):
        call_command("experiment", "run", "gate-on")


def test_a_large_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    assert "allowed: 2,000,000" in refused(tmp_path / "large.yaml", GOOD + "about: |\n" + "  words\n" * 1_300_000)


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path: Path) -> None:
    levels = [f"x{n + 1}: &x{n + 1} {{<<: [{', '.join([f'*x{n}'] * 9)}]}}" for n in range(12)]
    said = refused(tmp_path / "bomb.yaml", "\n".join([GOOD.strip(), "x0: &x0 {a: 1}", *levels]))

    assert "aliases are not allowed" in said


def test_where_there_are_no_agents_that_is_said_once(tmp_path: Path) -> None:
    Agent.objects.all().delete()

    assert refused(tmp_path / "one.yaml", GOOD).count("there are no agents yet") == 1


def test_an_action_without_json_refuses_the_option() -> None:
    with pytest.raises(CommandError, match="--json: list has none"):
        call_command("experiment", "--json", "list")
