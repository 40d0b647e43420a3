"""Traces and logs of steering: which intervention, whether it fired, never a text (AC-7.1.15, AC-7.2.10)."""

from __future__ import annotations

import logging

import pytest
import sentry_sdk

from agents.models import Agent, Channel
from tests.correction.steering import AGREEMENT, chatter, configure, prepared
from tests.evaluation.judging import answers
from tests.factories import make_agent, say
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(office: Channel) -> Agent:
    agent = make_agent("ada")
    for number in range(3):
        say(office, agent, f"I agree, the raccoon plan is a great idea {number}.")
    chatter(office, AGREEMENT)
    configure(
        agent,
        anti_convergence_enabled=True,
        variety_intervention_enabled=True,
        variety_message_threshold=1,
        repetition_suppression_enabled=True,
    )
    return agent


def traced(agent: Agent, channel: Channel, sentry: Caught) -> dict[str, object]:
    with sentry_sdk.start_transaction(op="test", name="turn"):
        prepared(agent, channel)
    found: dict[str, object] = sentry.of_type("transaction")[0]
    return found


def test_evaluation_and_injection_have_spans_ac_7_1_15(
    sentry: Caught, llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    """One for the whole, one per intervention, one per call, one for the nudge; AC-7.2.10: one for the repetition check."""
    llm_server.respond = answers(lambda text: 8 if "merely agree" in text else True)

    found = tree(traced(ada, office, sentry))

    assert found["correction.interventions", "test"] == 1
    assert found["correction.intervention", "correction.interventions"] == 2
    assert found["llm.call", "correction.interventions"] == 2
    assert found["correction.nudge", "correction.interventions"] == 1
    assert found["correction.repetition", "test"] == 1


def test_spans_say_what_fired_and_hold_no_text(
    sentry: Caught, llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    llm_server.respond = answers(lambda text: 8 if "merely agree" in text else True)

    spans = traced(ada, office, sentry)["spans"]

    assert isinstance(spans, list)
    each = {span["description"]: span["data"] for span in spans if span["op"] == "correction.intervention"}
    assert {name: data["fired"] for name, data in each.items()} == {"anti_convergence": True, "variety": True}
    repetition = next(span["data"] for span in spans if span["op"] == "correction.repetition")
    assert (repetition["messages"], repetition["triggered"]) == (3, True)
    assert not [secret for secret in ("raccoon", "picnic", "merely agree", "new ideas") if secret in sentry.text]


def test_what_fired_is_logged_with_agent_and_channel_but_without_texts(
    caplog: pytest.LogCaptureFixture, llm_server: LLMServer, ada: Agent, office: Channel
) -> None:
    llm_server.respond = answers(lambda text: 8 if "merely agree" in text else True)
    caplog.set_level(logging.INFO, logger="correction")

    prepared(ada, office)

    assert "intervention anti_convergence fired for agent ada in channel office (run None)" in caplog.messages
    assert any(line.startswith("agent ada repeats itself (run None): overlap") for line in caplog.messages)
    assert "raccoon" not in caplog.text


def test_without_sentry_all_goes_on(llm_server: LLMServer, ada: Agent, office: Channel) -> None:
    assert not sentry_sdk.get_client().is_active()
    llm_server.respond = answers(lambda text: 8 if "merely agree" in text else True)

    assert prepared(ada, office).sections
