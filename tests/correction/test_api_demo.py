"""The demo of S-7.3, over the API: all off, gates on for Michael, a draft caught, gates off again, and what it cost."""

from __future__ import annotations

import pytest

from agents.kit.models import ModelPrice
from tests.api_client import program
from tests.console import superuser
from tests.correction.gating import join, judge, send
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

CONFIG = "/api/evaluations/config/michael/"


def test_gates_switched_over_the_api_act_on_the_next_message(llm_server: LLMServer) -> None:
    ModelPrice.objects.create(
        model="test-model", effective_from="2026-01-01", input_usd=10, output_usd=0, cache_write_usd=0, cache_read_usd=0
    )
    respond = judge({"adherence": 2, "consistency": 8})
    llm_server.respond = lambda body: {**respond(body), "usage": {"input_tokens": 1000, "output_tokens": 50}}
    michael = make_agent("michael")
    channel, client = join(michael), program(superuser())
    assert client.get(CONFIG).json()["config"]["gate_mode"] == "off"

    client.patch(
        CONFIG, {"gate_adherence_enabled": True, "gate_consistency_enabled": True, "gate_rules_enabled": False}
    )
    rejected = send(michael, channel, "I refuse to speak.")
    client.patch(CONFIG, {"gate_adherence_enabled": None, "gate_consistency_enabled": None})
    sent = send(michael, channel, "I still refuse to speak.")

    assert (rejected.committed, rejected.outcome, sent.committed, sent.outcome) == (False, "corrected", True, "sent")
    costs = client.get("/api/evaluations/costs/?agent=michael").json()
    assert [(row["mechanism"], row["calls"], row["cost_usd"]) for row in costs["by"]["mechanism"]] == [
        ("gate", 2, 0.02)
    ]
    assert {row["dimension"]: (row["input_tokens"], row["output_tokens"]) for row in costs["by"]["dimension"]} == {
        "adherence": (1000, 50), "consistency": (1000, 50),
    }  # fmt: skip
    (log,) = client.get("/api/evaluations/correction-logs/?agent=michael").json()["results"]
    assert (log["outcome"], [d["passed"] for d in log["dimensions"]]) == ("corrected", [False, True])
