"""Loading a configuration is a span that says what the gate will do, caught where Sentry's transport would send it (AC-7.3.11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from agents.turn.pipeline import Turn
from correction.config.configure import configure
from correction.config.resolve import config_of, resolve_config
from tests.factories import make_agent, make_channel

pytestmark = pytest.mark.django_db


class Caught(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.envelopes: list[Envelope] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)

    @property
    def spans(self) -> list[dict[str, Any]]:
        items = [item for envelope in self.envelopes for item in envelope.items if item.type == "transaction"]
        return [span for item in items for span in (item.payload.json or {})["spans"]]


@pytest.fixture
def sentry() -> Iterator[Caught]:
    before, caught = sentry_sdk.get_client(), Caught()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=caught,
        traces_sample_rate=1.0,
        default_integrations=False,  # they patch other libraries for good
        auto_enabling_integrations=False,
    )
    yield caught
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(before if before.is_active() else None)


def test_loading_a_configuration_is_a_span_with_the_mode_it_resolved_to(sentry: Caught) -> None:
    agent = make_agent(system_prompt="You keep the raccoon secret.")
    configure(agent=agent, changes={"gate_fluency_enabled": True})

    with sentry_sdk.start_transaction(op="turn", name="a turn"):
        resolve_config(agent)

    (span,) = sentry.spans
    assert (span["op"], span["data"]["gate_mode"]) == ("correction.config", "enforce")
    assert "raccoon" not in json.dumps(sentry.spans)


def test_a_turn_has_one_such_span_however_many_stages_ask(sentry: Caught) -> None:
    turn = Turn(agent=make_agent(), channel=make_channel())

    with sentry_sdk.start_transaction(op="turn", name="a turn"):
        for _ in range(3):
            config_of(turn)

    assert [span["op"] for span in sentry.spans] == ["correction.config"]
