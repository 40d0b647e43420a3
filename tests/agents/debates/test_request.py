"""A debate is asked for in the same words at every door: what cannot be played is refused alike, and help texts are the same."""

from __future__ import annotations

from typing import Any

import pytest

from agents.debates.admin import StartForm
from agents.debates.request import DebateRequest
from agents.models import Agent
from tests.agents.debates.refusals import CASES, GOOD, written
from tests.api_client import program
from tests.console import signed_in, superuser
from tests.doors import (
    Refusals,
    assert_same_help,
    help_of_command,
    help_of_form,
    options_of,
    refused_by_command,
    refused_by_page,
    refused_by_route,
)

pytestmark = pytest.mark.django_db
PAGE, ROUTE = "/admin/debates/debate/add/", "/api/debates/"


def refusals(given: dict[str, Any]) -> dict[str, Refusals]:
    """What each door says of a debate; the page has not all fields."""
    user = superuser()
    topic, options = given["topic"], options_of(DebateRequest, {k: v for k, v in given.items() if k != "topic"})
    said = {
        "command": refused_by_command(DebateRequest, "debate", topic, *options),
        "route": refused_by_route(DebateRequest, program(user), ROUTE, given),
    }
    if set(given) <= set(StartForm.base_fields):
        said["page"] = refused_by_page(DebateRequest, signed_in(user), PAGE, given)
    return said


@pytest.mark.parametrize(("changes", "field", "parts"), CASES)
def test_what_makes_no_debate_is_refused_at_every_door_in_the_same_words(
    people: list[Agent], changes: dict[str, Any], field: str, parts: tuple[str, ...]
) -> None:
    before = written()

    command, *others = refusals({**GOOD, **changes}).values()

    assert list(command) == [field]
    assert [part for part in parts if part not in command[field]] == []
    assert [other for other in others if other != command] == []
    assert written() == before


def test_help_texts_are_the_same_at_every_door() -> None:
    assert_same_help(
        DebateRequest, help_of_command("debate") | {"topic": help_of_form(StartForm)["topic"]}, help_of_form(StartForm)
    )
