"""An experiment is asked for in the same words at every door: what cannot be played is refused alike, and help texts are the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from evaluation.experiments.admin import StartingForm
from evaluation.experiments.models import Experiment
from evaluation.experiments.request import ExperimentRequest
from tests.api_client import program
from tests.console import signed_in, superuser
from tests.doors import (
    assert_same_help,
    help_of_command,
    help_of_form,
    options_of,
    refused_by_command,
    refused_by_page,
    refused_by_route,
)
from tests.evaluation.experiments.test_api import SCENARIO

pytestmark = pytest.mark.django_db
PAGE, ROUTE, SHIPPED = "/admin/experiments/experiment/add/", "/api/experiments/", "gate-on-off"
CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"scale": 0.0}, ("0.0", "allowed: greater than 0")),
    ({"scale": 1.5}, ("1.5", "allowed: less than or equal to 1")),
    ({"scale": "all"}, ("'all'", "allowed: a valid number")),
    ({"seed": -1}, ("-1", "allowed: greater than or equal to 0")),
    ({"seed": 2**63}, (str(2**63), "allowed: less than")),
    ({"judge": "offline:nothing"}, ("'offline:nothing'", "no such offline model; allowed: ")),
    ({"actor_model": "offline:nothing"}, ("'offline:nothing'", "no such offline model; allowed: ")),
]


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"


@pytest.mark.parametrize(("given", "parts"), CASES)
def test_what_cannot_be_played_is_refused_at_every_door_in_the_same_words(
    given: dict[str, Any], parts: tuple[str, ...]
) -> None:
    user, body = superuser(), {"shipped": SHIPPED, **given}

    by_command = refused_by_command(
        ExperimentRequest, "experiment", "run", SHIPPED, *options_of(ExperimentRequest, given)
    )

    [(field, sentence)] = by_command.items()
    assert {field} == set(given)
    assert [part for part in parts if part not in sentence] == []
    assert refused_by_page(ExperimentRequest, signed_in(user), PAGE, body) == by_command
    assert refused_by_route(ExperimentRequest, program(user), ROUTE, body) == by_command
    assert not Experiment.objects.exists()


@pytest.mark.parametrize("body", [{}, {"scenario": SCENARIO, "shipped": SHIPPED}])
def test_a_route_takes_a_scenario_or_the_name_of_one(body: dict[str, Any]) -> None:
    said = refused_by_route(ExperimentRequest, program(superuser()), ROUTE, body)

    assert said == {"scenario": "exactly one of scenario and shipped is needed"}


def test_a_scenario_that_is_typed_takes_the_place_of_the_chosen_one() -> None:
    client = signed_in(superuser())
    given = {"shipped": SHIPPED, "scenario": json.dumps(SCENARIO), "scale": "1"}

    shown = client.post(PAGE, given)
    client.post(PAGE, {**given, "seen": shown.context["seen"]})

    assert Experiment.objects.get().name == SCENARIO["name"]


@pytest.mark.parametrize(
    ("broken", "parts"),
    [
        ({"environments": -1}, ("environments", "(got -1)")),
        ({"arms": [{"name": "plain"}, {"name": "plain"}]}, ("arms[1].name", "named twice; allowed: once")),
    ],
)
def test_what_is_wrong_with_a_scenario_is_named_on_the_page_and_nothing_is_written(
    broken: dict[str, Any], parts: tuple[str, ...]
) -> None:
    given = {"scenario": json.dumps({**SCENARIO, **broken}), "scale": "1"}

    said = refused_by_page(ExperimentRequest, signed_in(superuser()), PAGE, given)

    assert set(said) == {"scenario"}
    assert [part for part in parts if part not in said["scenario"]] == []
    assert not Experiment.objects.exists()


def test_help_texts_are_the_same_at_every_door() -> None:
    assert_same_help(ExperimentRequest, help_of_command("experiment", "run"), help_of_form(StartingForm))
