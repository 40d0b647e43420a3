"""What a turn's overrides say to the turn itself: stages, model, tags, scene, lines."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, Message
from agents.turn.pipeline import Overrides, pipeline
from agents.turn.scripted import next_line
from agents.turn.send_message import send_message
from tests.agents.turn.playing import join, plays, take_turn
from tests.factories import make_agent, make_channel
from tests.llm_server import LLMServer


class Noting:
    name = "noting"


class Needed:
    name = "needed"
    required = True


@pytest.fixture
def ada(db: None) -> Agent:
    return make_agent("ada")


@pytest.fixture
def office(ada: Agent) -> Channel:
    office = make_channel("office")
    join(office, ada)
    return office


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({}, ["noting", "needed"]),
        ({"stages": []}, ["needed"]),
        ({"stages": ["noting"]}, ["noting", "needed"]),
        ({"stages": "noting"}, ["noting", "needed"]),
        ({"stages": [7]}, ["noting", "needed"]),
    ],
)
def test_only_the_stages_named_take_part_and_those_that_are_required(
    overrides: dict[str, Any], names: list[str], settings: Settings
) -> None:
    settings.TURN_PIPELINE = [f"{__name__}.Noting", f"{__name__}.Needed"]

    assert [stage.name for stage in pipeline(overrides).stages] == names


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        "x",
        [],
        {"model": 1},
        True,
    ],
)
def test_values_that_are_none_are_passed_over(wrong: Any) -> None:
    given = Overrides.of(dict.fromkeys(Overrides.model_fields, wrong))

    assert given.tags == {}
    assert given.scene in (None, 7)
    assert given.until in (None, 7)
    assert given.model in ("", "x")
    assert given.lines in (None, [])
    assert given.stages in (None, [])
    assert given.apart is (wrong is True)


def test_another_model_takes_the_turn_and_what_it_says_is_tagged(
    llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    plays(llm_server, ("send_message", {"channel": "office", "text": "Hm."}), "done")

    take_turn(ada, office, overrides={"model": "another-model", "tags": {"build": "42"}})

    assert {body["model"] for body in llm_server.bodies} == {"another-model"}
    assert Message.objects.get().tags == {"build": "42"}


def test_tags_of_a_send_stand_beside_those_of_the_turn_and_win(ada: Agent, office: Channel) -> None:
    said = send_message(
        agent=ada, channel=office, text="Hm.", overrides={"tags": {"a": "1", "b": "1"}}, tags={"b": "2"}
    )

    assert said.message is not None
    assert said.message.tags == {"a": "1", "b": "2"}


def test_scene_after_scene_the_script_is_gone_through() -> None:
    lines = [str(n) for n in range(5)]

    assert sorted(next_line(lines, agent="ada", said=(), rejected=(), scene=n) or "" for n in range(5)) == lines
