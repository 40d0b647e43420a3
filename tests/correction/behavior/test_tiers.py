"""Asking the tiers through the real SDK: early exit, and replies that are none."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from agents.llm import Reply
from agents.models import LLMCall
from correction.behavior.tiers import Found, Tier, ask, found_without_model, next_tier, own_words
from tests.correction.behavior.asking import CONCISE, NO, SHORTER, YES, judge, subject, tier_of
from tests.llm_server import LLMServer
from tests.tracing import Caught, tree

pytestmark = pytest.mark.django_db
FOUND: Found = {"gate": YES, "extract": SHORTER}


def asked(tier: Tier = "gate", text: str = "Be more concise") -> Reply:
    return ask(tier, words=own_words(text), subject=subject(), found=FOUND, work_id="behavior_request:7")


@pytest.mark.parametrize(
    ("found", "next_one"),
    [
        ({}, "gate"),
        ({"gate": None, "extract": None}, "gate"),
        ({"gate": NO}, None),
        ({"gate": YES}, "extract"),
        ({"gate": YES, "extract": {**SHORTER, "behavior_name": ""}}, None),
        ({"gate": YES, "extract": SHORTER}, "map"),
        ({"gate": YES, "extract": SHORTER, "map": {}}, None),
        ({"gate": YES, "extract": SHORTER, "map": CONCISE}, None),
    ],
)
def test_the_answers_so_far_say_what_is_to_be_asked_next(found: dict[str, Any], next_one: str | None) -> None:
    assert next_tier(found) == next_one


@pytest.mark.parametrize("text", ["🎉🎉", "?!", "> Be more concise"])
def test_what_has_no_words_of_its_own_needs_no_model(text: str) -> None:
    found = found_without_model(own_words(text))

    assert found["gate"]["has_request"] is False
    assert next_tier(found) is None


@pytest.mark.parametrize(("tier", "answer"), [("gate", YES), ("extract", SHORTER), ("map", CONCISE)])
def test_each_tier_answers_with_a_plain_object(llm_server: LLMServer, tier: Tier, answer: dict[str, Any]) -> None:
    llm_server.respond = judge()

    reply = asked(tier)

    assert (reply.ok, reply.value) == (True, answer)
    assert tier_of(llm_server.bodies[0]) == tier


def test_a_call_is_in_the_ledger_under_its_mechanism_and_tier(llm_server: LLMServer) -> None:
    llm_server.respond = judge()
    for tier in ("gate", "extract", "map"):
        asked(tier)

    rows = LLMCall.objects.order_by("pk").values_list("purpose", "mechanism", "dimension", "work_id", "role")
    assert list(rows) == [
        ("behavior", "behavior", tier, "behavior_request:7", "judge") for tier in ("gate", "extract", "map")
    ]


@pytest.mark.parametrize(
    "text", ["Sure! Yes, it does.", '{"has_request": "yes"}', '{"a": 1} {"b": 2}', '{"has_request": NaN}']
)
def test_an_answer_that_is_none_is_asked_again_once_with_an_example(llm_server: LLMServer, text: str) -> None:
    llm_server.reply(text=text)
    llm_server.respond = judge()

    reply = asked()

    assert (reply.ok, reply.value, llm_server.calls) == (True, YES, 2)
    assert [turn["role"] for turn in llm_server.bodies[1]["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    "text",
    ['Here you are:\n```json\n{"has_request": true, "confidence": "high", "reason": "It asks for something."}\n```',
     'I think {"has_request": true, "confidence": "HIGH", "reason": "It asks\\nfor something.", "extra": 1} fits.'],
)  # fmt: skip
def test_an_object_in_prose_or_a_fence_is_read(llm_server: LLMServer, text: str) -> None:
    llm_server.always(text=text)

    assert asked().value == YES
    assert llm_server.calls == 1


@pytest.mark.parametrize(
    ("scripted", "status"),
    [
        ({"stop_reason": "refusal"}, "refused"),
        ({"stop_reason": "max_tokens", "text": '{"has_request": true'}, "truncated"),
        ({"text": "no"}, "malformed"),
        ({"status": 429}, "rate_limited"),
        ({"status": 529}, "unavailable"),
        ({"status": 400}, "rejected"),
        ({"drop": True}, "unavailable"),
        ({"hang": True}, "timeout"),
        ({"trickle": True}, "timeout"),
    ],
    ids=str,
)
def test_a_failure_is_a_value_and_in_the_ledger(
    llm_server: LLMServer, settings: Settings, scripted: dict[str, Any], status: str
) -> None:
    settings.LLM_EVALUATION_RETRIES, settings.LLM_EVALUATION_DEADLINE = 0, 1.0
    llm_server.always(**scripted)

    reply = asked()

    assert (reply.status, reply.value) == (status, None)
    assert list(LLMCall.objects.values_list("pk", "status"))[:1] == [(reply.call_id, status)]


def test_an_overloaded_server_is_tried_again(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_EVALUATION_RETRIES = 2
    llm_server.reply(status=529, headers={"retry-after": "0"})
    llm_server.reply(status=500, headers={"retry-after": "0"})
    llm_server.respond = judge()

    reply = asked()

    assert (reply.ok, reply.attempts, llm_server.calls) == (True, 3, 3)


def test_each_call_has_a_span_that_holds_no_text(llm_server: LLMServer, sentry: Caught) -> None:
    import sentry_sdk

    llm_server.respond = judge()
    with sentry_sdk.start_transaction(op="correction.work", name="behavior requests"):
        asked(text="Be kind, secretly")

    (transaction,) = sentry.of_type("transaction")
    assert tree(transaction) == {
        ("correction.behavior", "correction.work"): 1,
        ("llm.call", "correction.behavior"): 1,
    }
    assert "secretly" not in sentry.text
