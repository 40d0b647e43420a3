"""The span of a call as Sentry would receive it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from agents.kit.llm import complete, complete_many
from tests.agents.kit.llm.asking import judge_request, text_request
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

SECRET = "Did Ada stay in character?"


class Captured(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []
        self.sent = ""

    def capture_envelope(self, envelope: Envelope) -> None:
        self.sent += envelope.serialize().decode("utf-8", "replace")
        for item in envelope.items:
            if item.type == "transaction" and item.payload.json is not None:
                self.events.append(item.payload.json)


@pytest.fixture
def captured() -> Iterator[Captured]:
    transport = Captured()
    before = sentry_sdk.get_global_scope().client
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1", transport=transport, traces_sample_rate=1.0, default_integrations=False
    )
    yield transport
    sentry_sdk.get_global_scope().set_client(before)


def test_a_call_is_a_span_with_its_model_status_and_tokens(llm_server: LLMServer, captured: Captured) -> None:
    llm_server.reply(json={"score": 7, "reason": "calm"}, latency=0.05, model="served")

    with sentry_sdk.start_transaction(name="evaluate"):
        complete(judge_request())

    (span,) = captured.events[0]["spans"]
    assert (span["op"], span["description"], span["status"]) == ("llm.call", "llm.judge", "ok")
    assert (
        span["data"].items()
        >= {
            "llm.model": "test-model",
            "llm.served_model": "served",
            "llm.status": "ok",
            "llm.input_tokens": 100,
            "llm.output_tokens": 10,
            "llm.dimension": "adherence",
        }.items()
    )
    start, end = (datetime.fromisoformat(span[name].rstrip("Z")) for name in ("start_timestamp", "timestamp"))
    assert 0.05 <= (end - start).total_seconds() < 1


def test_each_of_many_calls_and_each_reask_has_its_span(llm_server: LLMServer, captured: Captured) -> None:
    llm_server.reply(text="seven")

    with sentry_sdk.start_transaction(name="evaluate"):
        list(complete_many([judge_request(reask=True), text_request()], deadline=5))

    spans = captured.events[0]["spans"]
    assert sorted((span["description"], span["data"]["llm.status"]) for span in spans) in (
        [("llm.actor", "ok"), ("llm.judge", "malformed"), ("llm.judge", "ok")],
        [("llm.actor", "ok"), ("llm.judge", "ok")],  # the actor's call was the first to arrive
    )


def test_no_text_of_prompt_or_answer_is_sent(llm_server: LLMServer, captured: Captured) -> None:
    llm_server.reply(json={"score": 7, "reason": "a telling reason"})

    with sentry_sdk.start_transaction(name="evaluate"):
        complete(judge_request())

    assert captured.events
    for private in (SECRET, "You judge", "a telling reason", "sk-test-secret"):
        assert private not in captured.sent
