"""The span of a call as Sentry would receive it."""

from __future__ import annotations

from datetime import datetime

import pytest
import sentry_sdk

from agents.kit.llm import complete, complete_many
from tests.agents.kit.llm.asking import judge_request, text_request
from tests.agents.kit.llm.conftest import Wire
from tests.llm_server import LLMServer
from tests.tracing import Caught

pytestmark = pytest.mark.django_db


def test_a_call_is_a_span_with_model_status_tokens_and_no_text(
    llm_server: LLMServer, wire: Wire, sentry: Caught
) -> None:
    llm_server.reply(json={"score": 7, "reason": "a telling reason"}, latency=0.05, model="served")

    with sentry_sdk.start_transaction(name="evaluate"):
        complete(judge_request())

    (span,) = sentry.of_type("transaction")[0]["spans"]
    assert (span["op"], span["description"], span["status"]) == ("llm.call", "llm.judge", "ok")
    expected = {
        "llm.model": wire.model("test-model"),
        "llm.served_model": "served",
        "llm.status": "ok",
        "llm.input_tokens": 100,
        "llm.output_tokens": 10,
        "llm.dimension": "adherence",
    }
    assert {name: span["data"].get(name) for name in expected} == expected
    start, end = (datetime.fromisoformat(span[name].rstrip("Z")) for name in ("start_timestamp", "timestamp"))
    assert 0.05 <= (end - start).total_seconds() < 1
    for private in ("Did Ada stay in character?", "You judge", "a telling reason", "sk-test-secret"):
        assert private not in sentry.text


def test_each_of_many_calls_and_each_reask_has_its_span(llm_server: LLMServer, sentry: Caught) -> None:
    llm_server.reply(text="seven")

    with sentry_sdk.start_transaction(name="evaluate"):
        list(complete_many([judge_request(reask=True), text_request()], deadline=5))

    spans = sentry.of_type("transaction")[0]["spans"]
    assert sorted((span["description"], span["data"]["llm.status"]) for span in spans) in (
        [("llm.actor", "ok"), ("llm.judge", "malformed"), ("llm.judge", "ok")],
        [("llm.actor", "ok"), ("llm.judge", "ok")],  # the actor's call was the first to arrive
    )
