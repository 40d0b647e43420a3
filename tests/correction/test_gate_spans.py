"""What Sentry sees of the gate (AC-7.0.16): one span for the check, one per dimension with how it went, never a text."""

from __future__ import annotations

import pytest
import sentry_sdk

from tests.correction.gating import DIMENSIONS, gated, judge, send
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db
SECRETS = ("raccoon in the annex", "dry and careful clerk", "was looked at", "persona specification")


def test_a_check_is_a_span_with_one_per_dimension(sentry: Caught, llm_server: LLMServer) -> None:
    agent, channel = gated(*DIMENSIONS)
    llm_server.respond = judge({"adherence": 8, "consistency": 2, "fluency": {"status": 529}})
    with sentry_sdk.start_transaction(op="test", name="test"):
        send(agent, channel, "the raccoon in the annex")
    (transaction,) = sentry.of_type("transaction")
    got = tree(transaction)
    assert got["correction.gate", "agents.send_message"] == 1
    assert got["correction.gate.dimension", "correction.gate"] == 3
    assert got["llm.call", "correction.gate"] == 3
    spans = {
        s["data"]["gate.dimension"]: s["data"] for s in transaction["spans"] if s["op"] == "correction.gate.dimension"
    }
    assert {d: (data["gate.status"], data["gate.passed"], data.get("gate.score")) for d, data in spans.items()} == {
        "adherence": ("scored", True, 8.0),
        "consistency": ("scored", False, 2.0),
        "fluency": ("error", True, None),
    }
    assert not any(secret in sentry.text for secret in SECRETS)
