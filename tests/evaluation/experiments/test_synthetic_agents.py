"""Agents made for an experiment are in no list of agents; who has their name finds them."""

from __future__ import annotations

import pytest

from agents.models import Agent
from agents.models.conversations import find_agent, find_agents
from evaluation.models import EvaluationSchedule
from evaluation.runs.schedules import agents_of
from tests.api_client import listed, program
from tests.console import read, signed_in, superuser
from tests.factories import MONDAY, make_agent


@pytest.fixture
def made(db: None) -> Agent:
    make_agent("ada")
    return make_agent("e1-001", display_name="Made Up", synthetic=True)


def test_all_agents_and_schedules_of_all_leave_them_out(made: Agent) -> None:
    schedule = EvaluationSchedule.objects.create(name="nightly", next_at=MONDAY)

    assert [agent.slug for agent in find_agents("all")] == ["ada"]
    assert [agent.slug for agent in agents_of(schedule)] == ["ada"]
    assert find_agent("e1-001") == made


@pytest.mark.parametrize(
    "page", ["/admin/", "/admin/agents/agent/", "/admin/agents/agent/?q=made", "/admin/evaluation/"]
)
def test_no_page_of_agents_shows_them(page: str, made: Agent) -> None:
    shown = read(signed_in(superuser("eve")), page)

    assert "Made Up" not in shown


def test_the_api_lists_only_others_and_gives_them_by_name(made: Agent) -> None:
    client = program(superuser("eve"))

    assert listed(client, "/api/agents/", "slug") == ["ada"]
    assert client.get("/api/agents/e1-001/").json()["display_name"] == "Made Up"
