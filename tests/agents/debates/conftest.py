"""Five agents: three that can debate, one that is inactive, and one that is busy elsewhere."""

from __future__ import annotations

import pytest

from agents.models import Agent, Run
from tests.factories import make_agent, make_channel


@pytest.fixture
def people() -> list[Agent]:
    """ada, bob and cleo."""
    make_agent("dora", is_active=False)
    Run.objects.create(agent=make_agent("eve"), channel=make_channel("desk"), status="running")
    return [make_agent(name, sample_lines=[f"{name} says so.", "Hm."]) for name in ("ada", "bob", "cleo")]
