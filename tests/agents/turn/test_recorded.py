"""A turn's exchange is rebuilt from its rows as it was."""

from __future__ import annotations

import pytest

from agents.kit.models import owner_name
from agents.models import Agent, Channel
from agents.turn.orchestrator import LeasedTurn, lease, start_turn
from agents.turn.prompt import build_prompt, new_turn

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "temperature",
    [
        None,
        0.0,
    ],
)
def test_a_resumed_turn_asks_with_the_same_temperature(ada: Agent, office: Channel, temperature: float | None) -> None:
    run, owner = start_turn(agent=ada, channel=office), owner_name()
    run.acquire(owner=owner, lease=lease())
    turn = new_turn(agent=ada, channel=office, run=run)
    turn.temperature = temperature
    LeasedTurn(run, owner, turn).begin(build_prompt(turn), None)

    resumed = LeasedTurn(run, owner, new_turn(agent=ada, channel=office, run=run))
    resumed.load()

    assert resumed.turn.temperature == temperature
    assert resumed.system == build_prompt(turn).system
