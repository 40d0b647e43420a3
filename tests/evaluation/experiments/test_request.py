"""An experiment is asked for in the same words at every door: what cannot be played is refused alike, and help texts are the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils.html import conditional_escape
from pytest_django import Settings

from evaluation.experiments.models import Experiment
from evaluation.experiments.request import ExperimentRequest, scenario_cards
from tests.api_client import program
from tests.console import confirm, read, signed_in, staff, superuser
from tests.doors import CommandDoor, Door, PageDoor, RouteDoor
from tests.evaluation.experiments.test_api import SCENARIO
from tests.factories import make_agent

pytestmark = pytest.mark.django_db
PAGE, ROUTE, SHIPPED = "/admin/experiments/experiment/add/", "/api/experiments/", "gate-on-off"
CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"scale": 0.0}, ("0.0", "allowed: greater than 0")),
    ({"scale": "all"}, ("'all'", "allowed: a valid number")),
    ({"seed": -1}, ("-1", "allowed: greater than or equal to 0")),
    ({"judge": "offline:nothing"}, ("'offline:nothing'", "no such offline model; allowed: ")),
    ({"actor_model": "offline:nothing"}, ("'offline:nothing'", "no such offline model; allowed: ")),
]


@pytest.fixture(autouse=True)
def _offline(settings: Settings) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "offline:scripted-1", "offline:lexical-1"


@pytest.fixture
def doors(tmp_path: Path) -> list[Door]:
    user, usual = superuser(), {"shipped": SHIPPED}
    return [
        CommandDoor("experiment", ExperimentRequest, tmp_path, ["run", SHIPPED]),
        PageDoor(signed_in(user), PAGE, usual),
        RouteDoor(program(user), ROUTE, usual),
    ]


@pytest.mark.parametrize(("asked", "parts"), CASES)
def test_what_cannot_be_played_is_refused_at_every_door_by_field(
    doors: list[Door], asked: dict[str, Any], parts: tuple[str, ...]
) -> None:
    for door in doors:
        field, sentence = door.refusal(asked)
        assert ({field}, [part for part in parts if part not in sentence]) == (set(asked), []), sentence

    assert not Experiment.objects.exists()


@pytest.mark.parametrize("body", [{}, {"scenario": SCENARIO, "shipped": SHIPPED}])
def test_a_route_takes_a_scenario_or_the_name_of_one(body: dict[str, Any]) -> None:
    said = RouteDoor(program(superuser()), ROUTE, {}).refusal(body)

    assert said == ("scenario", "exactly one of scenario and shipped is needed")


def test_a_scenario_that_is_typed_takes_the_place_of_the_chosen_one() -> None:
    confirm(signed_in(superuser()), PAGE, shipped=SHIPPED, scenario=json.dumps(SCENARIO), scale="1")

    assert Experiment.objects.get().name == SCENARIO["name"]


@pytest.mark.parametrize(
    ("broken", "parts"),
    [
        ({"environments": -1}, ("environments", "(got -1)")),
        ({"arms": [{"name": "plain"}, {"name": "plain"}]}, ("arms[1].name", "named twice; allowed: once")),
    ],
)
def test_problems_of_a_scenario_are_named_on_the_page(broken: dict[str, Any], parts: tuple[str, ...]) -> None:
    field, sentence = PageDoor(signed_in(superuser()), PAGE, {}).refusal(
        {"scenario": json.dumps({**SCENARIO, **broken})}
    )

    assert (field, [part for part in parts if part not in sentence]) == ("scenario", [])
    assert not Experiment.objects.exists()


def test_the_help_of_a_field_is_the_same_at_every_door(doors: list[Door]) -> None:
    command, page, route = (door.helps() for door in doors)

    assert set(route) == set(ExperimentRequest.model_fields)
    assert {name: route[name] for name in command if name in route} == {n: t for n, t in command.items() if n in route}
    assert {name: route[name] for name in page if name in route} == {n: t for n, t in page.items() if n in route}
    assert set(page) - set(route) == {"file"}


def test_agents_that_are_picked_play_instead_of_the_cast() -> None:
    for slug in ("ada", "bob", "cleo"):
        make_agent(slug)

    confirm(signed_in(superuser()), PAGE, shipped=SHIPPED, agents=["cleo", "ada", "bob"], scale="1")

    experiment = Experiment.objects.get()
    assert experiment.scenario["cast"] == ["cleo", "ada", "bob"]
    assert experiment.environments.filter(arm="with-gate").count() == 3


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({"agents": ["ada"]}, ("ada", "allowed: at least 2")),
        ({"agents": ["ada", "nobody"]}, ("'nobody'", "ada")),
        ({"agents": ["ada", "bob"], "shipped": "swarm-on-off"}, ("swarm-on-off", "allowed: none, or")),
    ],
)
def test_agents_that_cannot_play_it_are_refused_by_name(asked: dict[str, Any], parts: tuple[str, ...]) -> None:
    user = superuser()
    make_agent("ada")
    make_agent("bob")
    for door in (
        PageDoor(signed_in(user), PAGE, {"shipped": SHIPPED}),
        RouteDoor(program(user), ROUTE, {"shipped": SHIPPED}),
    ):
        field, sentence = door.refusal(asked)
        assert (field, [part for part in parts if part not in sentence]) == ("agents", []), sentence


def test_each_scenario_says_what_it_asks_whom_it_takes_and_what_it_costs() -> None:
    html = read(signed_in(superuser()), PAGE)

    for card in scenario_cards():
        assert f'name="shipped" value="{card.value}"' in html
        assert all(conditional_escape(text) in html for text in (card.title, card.about, card.when, card.cost))


def test_only_those_who_may_view_agents_are_asked_to_pick_some() -> None:
    without = read(signed_in(staff("experiments.add_experiment")), PAGE)
    picks = read(signed_in(staff("experiments.add_experiment", "agents.view_agent", username="picks")), PAGE)

    assert 'name="agents"' not in without
    assert 'name="agents"' in picks
