"""Traces of turns: caught by a transport where Sentry's would send them; never the text of a message or a persona."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent, Channel, owner_name
from agents.turn.orchestrator import start_turn, work_one
from tests.agents.turn.playing import plays
from tests.factories import say
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db
SECRETS = ("the raccoon is in the annex", "dry and careful clerk", "what Zed wrote", "sk-test-secret")


def test_a_turn_is_one_transaction_with_its_steps(
    sentry: Caught, ada: Agent, office: Channel, llm_server: LLMServer
) -> None:
    say(office, "Zed", "what Zed wrote")
    plays(llm_server, ("send_message", {"channel": "office", "text": "the raccoon is in the annex"}), "done")
    run = start_turn(agent=ada, channel=office)

    assert work_one(owner=owner_name())

    (transaction,) = sentry.of_type("transaction")
    assert tree(transaction) == {
        ("agents.turn", "agents.work"): 1,
        ("agents.turn.tool", "agents.turn"): 1,
        ("agents.send_message", "agents.turn.tool"): 1,
        ("llm.call", "agents.turn"): 2,
    }
    data = next(span["data"] for span in transaction["spans"] if span["op"] == "agents.turn")
    assert (data["run"], data["agent"], data["stop_reason"]) == (run.pk, ada.pk, "end_turn")
    assert not any(secret in sentry.text for secret in SECRETS)


def test_a_stage_that_fails_is_reported_once(
    sentry: Caught, ada: Agent, office: Channel, llm_server: LLMServer, settings: Settings
) -> None:
    settings.TURN_PIPELINE = ["tests.agents.turn.stages.Broken"]
    plays(llm_server, ("do_nothing", {"reason": "tired"}))
    start_turn(agent=ada, channel=office)

    work_one(owner=owner_name())

    values = [event["exception"]["values"][-1]["value"] for event in sentry.of_type("event")]
    assert values == ["prepare is broken", "finish is broken"]
