"""What the tests of the API's ground floor share: somebody who may do everything, an office with two agents, and no stages."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel
from tests.agents.turn.playing import join
from tests.api_client import Program, program
from tests.console import superuser
from tests.factories import make_agent, make_channel


@pytest.fixture(autouse=True)
def _no_stages(settings: Settings) -> None:
    settings.TURN_PIPELINE = []


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def office() -> Channel:
    return make_channel("office")


@pytest.fixture
def ada(office: Channel) -> Agent:
    agent = make_agent("ada", display_name="Ada Byron", title="clerk")
    join(office, agent)
    return agent


@pytest.fixture
def bob(office: Channel) -> Agent:
    agent = make_agent("bob")
    join(office, agent)
    return agent
