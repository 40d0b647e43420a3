"""The ledger over the API: filtered, priced or said to be unpriced, with payloads only for those who may see them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agents.kit.models import LLMCall, LLMPayload
from agents.models import Agent
from tests.api_client import Program, program
from tests.console import staff, superuser
from tests.factories import make_agent

pytestmark = pytest.mark.django_db

CALLS = "/api/llm-calls/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada")


def call(agent: Agent | None = None, **fields: Any) -> LLMCall:
    defaults = {"role": "judge", "purpose": "gate", "provider": "anthropic", "model": "m", "status": "ok"}
    return LLMCall.objects.create(agent=agent, **{**defaults, **fields})


def test_a_cost_is_exact_and_an_unknown_one_is_null_not_nothing(client: Program, ada: Agent) -> None:
    call(ada, cost_usd=Decimal("0.00012"), input_tokens=120)
    call(cost_usd=None)

    unpriced, priced = client.get(CALLS).json()["results"]

    assert (priced["cost_usd"], priced["agent"], priced["input_tokens"]) == ("0.00012000", "ada", 120)
    assert (unpriced["cost_usd"], unpriced["agent"], unpriced["input_tokens"]) == (None, None, None)
    assert "payload" not in priced


def test_payloads_are_for_those_who_may_view_them(client: Program, ada: Agent) -> None:
    row = call(ada)
    LLMPayload.objects.create(call=row, request={"system": "secret persona"}, reply="7", tool_calls=[{"name": "x"}])
    bare = call(ada)

    shown = client.get(f"{CALLS}{row.pk}/").json()
    hidden = program(staff("kit.view_llmcall")).get(f"{CALLS}{row.pk}/").json()

    assert shown["payload"] == {"request": {"system": "secret persona"}, "reply": "7", "tool_calls": [{"name": "x"}]}
    assert (hidden["payload"], hidden["payload_stored"], hidden["purpose"]) == (None, True, "gate")
    assert (client.get(f"{CALLS}{bare.pk}/").json()["payload_stored"], client.get(f"{CALLS}{bare.pk + 1}/").status_code) == (
        False, 404,
    )  # fmt: skip
