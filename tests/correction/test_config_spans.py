"""Loading a configuration is a span that says what the gate will do (AC-7.3.11)."""

from __future__ import annotations

import pytest
import sentry_sdk

from agents.turn.pipeline import Turn
from correction.config.configure import configure
from correction.config.settings import config_of, resolve_config
from tests.factories import make_agent, make_channel
from tests.tracing import Caught

pytestmark = pytest.mark.django_db


def test_loading_a_configuration_is_one_span_of_a_turn_with_the_mode_it_resolved_to(sentry: Caught) -> None:
    agent = make_agent(system_prompt="You keep the raccoon secret.")
    configure(agent=agent, changes={"gate_fluency_enabled": True})
    turn = Turn(agent=agent, channel=make_channel())

    with sentry_sdk.start_transaction(op="turn", name="a turn"):
        for _ in range(3):
            config_of(turn)
        resolve_config(agent)

    (transaction,) = sentry.of_type("transaction")
    spans = [span for span in transaction["spans"] if span["op"] == "correction.config"]
    assert [span["data"]["gate_mode"] for span in spans] == ["enforce", "enforce"]
    assert "raccoon" not in sentry.text
