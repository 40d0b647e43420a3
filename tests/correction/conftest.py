"""What the tests of interventions share: an office where everybody agrees, and an agent in it."""

from __future__ import annotations

import pytest

from agents.models import Agent, Channel
from tests.correction.interventions.steering import chatter
from tests.factories import make_agent, make_channel


@pytest.fixture
def office(db: None) -> Channel:
    return make_channel("office")


@pytest.fixture
def ada(office: Channel) -> Agent:
    """She has said nothing; four guests have agreed with each other."""
    agent = make_agent("ada")
    chatter(office)
    return agent
