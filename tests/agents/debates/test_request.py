"""A debate is refused with the same words, and explained with the same help, at every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.debates.request import DebateRequest
from agents.models import Agent
from tests.agents.debates.refusals import CASES, GOOD, written
from tests.api_client import program
from tests.console import signed_in, superuser
from tests.doors import CommandDoor, Door, PageDoor, RouteDoor

pytestmark = pytest.mark.django_db


@pytest.fixture
def doors(people: list[Agent], tmp_path: Path) -> list[Door]:
    user = superuser()
    return [
        CommandDoor("debate", DebateRequest, tmp_path),
        PageDoor(signed_in(user), "/admin/debates/debate/add/", {}),
        RouteDoor(program(user), "/api/debates/", {}),
    ]


@pytest.mark.parametrize(("changes", "field", "parts"), CASES)
def test_what_makes_no_debate_is_refused(
    people: list[Agent], changes: dict[str, Any], field: str, parts: tuple[str, ...]
) -> None:
    before = written()
    route = RouteDoor(program(superuser()), "/api/debates/", {})

    named, sentence = route.refusal({**GOOD, **changes})

    assert (named, [part for part in parts if part not in sentence]) == (field, []), sentence
    assert written() == before


def test_every_door_gives_the_same_reason(doors: list[Door]) -> None:
    answers = [door.refusal({**GOOD, "agents": ["ada", "dora"]}) for door in doors]

    for named, sentence in answers:
        assert named == "agents"
        assert "allowed: active agents" in sentence


def test_the_help_of_a_field_is_the_same_at_every_door(doors: list[Door]) -> None:
    command, page, route = (door.helps() for door in doors)

    assert set(DebateRequest.model_fields) <= set(command)
    assert {name: command[name] for name in route if name != "topic"} == {
        n: text for n, text in route.items() if n != "topic"
    }
    assert {name: route[name] for name in page} == page
