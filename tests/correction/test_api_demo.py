"""The demo of S-7.3, over the API: all off, gates on for Michael, a draft caught, gates off again, and what it cost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agents.models import ModelPrice
from correction.api import urls
from tests.api_client import program
from tests.console import superuser
from tests.correction.gating import join, judge, send
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

CONFIG = "/api/evaluations/config/michael/"
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "correction.md"


def test_gates_switched_over_the_api_act_on_the_next_message_and_their_cost_is_shown(llm_server: LLMServer) -> None:
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


def test_the_document_lists_every_route_and_no_other() -> None:
    patterns: list[Any] = [*urls.urlpatterns[:-1], *urls.router.urls]
    built = {
        re.sub(r"<\w+:(\w+)>", r"{\1}", path.removeprefix("evaluations/")).replace("{pk}", "{id}")
        for path in (str(entry.pattern) for entry in patterns)
        if path.startswith("evaluations/")
    }

    written = set(re.findall(r"^\| `([a-z{}/-]+/)` \|", DOCUMENT.read_text(encoding="utf-8"), flags=re.MULTILINE))

    assert written == built
