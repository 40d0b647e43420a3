"""A sender's deadline shortens the judging of its draft; it does not switch the judging off."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from agents.models import Agent, Message, Run
from correction.models import AgentEvaluationConfig, CorrectionLog
from tests.api_client import Program, program
from tests.console import in_group, staff
from tests.evaluation.judging import entry
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SEND = "/api/messages/send/"
HI = {"agent": "ada", "channel": "office", "text": "Hooray!"}
BOTH = ("gate_deadline_seconds", "gate_total_deadline_seconds")


@pytest.fixture
def operator() -> Program:
    return program(in_group("Operator"))


def enforced(agent: Agent, settings: Settings, **fields: str) -> None:
    settings.TURN_PIPELINE = ["correction.stages.ActionGate"]
    AgentEvaluationConfig.objects.create(
        agent=agent, gate_mode="enforce", gate_adherence_enabled=True, gate_rules_enabled=False, **fields
    )


def overrides_of(client: Program, deadline: float) -> tuple[float, ...]:
    answer = client.post("/api/agents/ada/turns/", {"channel": "office", "deadline": deadline})
    assert answer.status_code == 202, answer.json()
    return tuple(Run.objects.latest("pk").overrides[name] for name in BOTH)


def test_an_operator_s_deadline_cannot_hurry_a_draft_past_an_enforcing_gate(
    operator: Program, ada: Agent, settings: Settings, llm_server: LLMServer
) -> None:
    enforced(ada, settings)
    llm_server.respond = lambda body: {"json": entry(2, reasoning="It cheers.")}

    hurried = operator.post(SEND, {**HI, "deadline": 0.1})
    judged = operator.post(SEND, {**HI, "deadline": 2})

    assert hurried.status_code == 400
    assert "deadline 0.1: allowed: 2 to 60 seconds" in hurried.json()["errors"]["deadline"][0]
    assert (judged.status_code, judged.json()["committed"], judged.json()["outcome"]) == (200, False, "corrected")
    assert not Message.objects.exists()
    assert CorrectionLog.objects.get().outcome == "corrected"


def test_a_deadline_never_prolongs_what_is_configured(operator: Program, client: Program, ada: Agent) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, gate_deadline_seconds="3", gate_total_deadline_seconds="8")

    assert overrides_of(operator, 60) == overrides_of(client, 60) == (3, 8)
    assert overrides_of(operator, 5.04) == (3, 5)
    assert overrides_of(operator, 2) == (2, 2)


def test_a_deadline_configured_below_two_seconds_may_be_asked_for(operator: Program, ada: Agent) -> None:
    AgentEvaluationConfig.objects.create(agent=ada, gate_deadline_seconds="0.5")

    assert overrides_of(operator, 0.5) == (0.5, 0.5)


def test_whoever_may_override_the_gate_may_hurry_it(client: Program, ada: Agent) -> None:
    assert overrides_of(client, 0.1) == (0.1, 0.1)


@pytest.mark.parametrize("chosen", [{"gate_mode": "off"}, {"stages": []}])
def test_the_right_to_change_personas_alone_overrides_nothing_of_the_gate(
    ada: Agent, settings: Settings, chosen: dict[str, object]
) -> None:
    writer = program(staff("agents.add_message", "agents.change_agent"))

    refused = writer.post(SEND, {**HI, "overrides": chosen})

    assert refused.status_code == 403
    assert "correction.change_agentevaluationconfig" in refused.json()["detail"]
    assert writer.post(SEND, {**HI, "overrides": {"tags": {"build": "41"}}}).status_code == 201
