"""What the tests of turns share: two agents in an office, no stages, and a model that does what a test says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from tests.agents.turn import stages
from tests.agents.turn.playing import join
from tests.factories import make_agent, make_channel


@pytest.fixture(autouse=True)
def _no_stages(settings: Settings) -> Iterator[None]:
    """Each test names the stages it needs; what they noted does not pass from one test to the next."""
    settings.TURN_PIPELINE = []
    stages.heard.clear()
    yield
    stages.heard.clear()


@pytest.fixture
def office() -> Channel:
    return make_channel("office")


@pytest.fixture
def ada(office: Channel) -> Agent:
    agent = make_agent("ada")
    join(office, agent)
    return agent


@pytest.fixture
def bob(office: Channel) -> Agent:
    agent = make_agent("bob")
    join(office, agent)
    return agent
