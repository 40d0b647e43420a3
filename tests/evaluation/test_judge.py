"""The proposition engine against a server on loopback, through the real SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.kit.models import LLMCall
from evaluation.judge.asking import score_proposition
from tests.evaluation.judging import CONTEXT, LABEL, claim, entry
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- one claim (AC-6.0.4)
def test_a_claim_gets_a_whole_number_with_reasoning_and_confidence_ac_6_0_4(llm_server: LLMServer) -> None:
    llm_server.reply(json=entry(7), model="judge-2026-11")

    verdict = score_proposition(proposition=claim(recommendations="Say less."), context=CONTEXT, label=LABEL)

    assert (verdict.status, verdict.value, verdict.raw_value, verdict.confidence) == ("scored", 7, 7, 0.8)
    assert verdict.reasoning == "Two words, no more."
    assert verdict.justification == "“Not me.”"
    assert verdict.recommendations == "Say less."
    assert (verdict.judge, verdict.served_model) == ("test-model", "judge-2026-11")
    call = LLMCall.objects.get()
    assert (verdict.call, call.work_id, call.status) == (call.pk, "evaluation_run:0", "ok")


GOOD = json.dumps(entry(3))
NOT_A_SCORE = {  # values that are none: `test_verdicts`
    "97": json.dumps(entry(97)),
    "two objects": f"{GOOD}\n{json.dumps(entry(9))}",
    "the key twice": GOOD.replace('"value": 3', '"value": 3, "value": 9'),
    "prose": "I would say 7 out of 9.",
    "nothing": "",
}


@pytest.mark.parametrize("text", NOT_A_SCORE.values(), ids=NOT_A_SCORE)
def test_asked_again_a_judge_may_still_give_its_score(llm_server: LLMServer, text: str) -> None:
    llm_server.reply(text=text)
    llm_server.reply(json=entry(4))

    verdict = score_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert verdict.value == 4
    assert [turn["role"] for turn in llm_server.bodies[1]["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ({"status": 429}, "rate_limited: HTTP 429"),
        ({"status": 401}, "rejected: HTTP 401"),
        ({"text": "I will not.", "stop_reason": "refusal"}, "refused: "),
        ({"json": entry(9), "stop_reason": "max_tokens"}, "truncated: "),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_call_that_fails_is_a_reason_never_a_number(
    llm_server: LLMServer, reply: dict[str, Any], reason: str
) -> None:
    llm_server.always(**reply)

    verdict = score_proposition(proposition=claim(), context=CONTEXT, label=LABEL, deadline=4)

    assert (verdict.status, verdict.value, verdict.raw_value, verdict.confidence) == ("unscored", None, None, None)
    assert verdict.reason.startswith(reason)
    assert verdict.call == LLMCall.objects.latest("pk").pk


def test_characters_that_no_database_takes_are_replaced(llm_server: LLMServer) -> None:
    llm_server.reply(text=json.dumps(entry(5, reasoning="a\x00b\ud800c")), model="m\x00" + "x" * 300)

    verdict = score_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert verdict.reasoning == "a\ufffdb\ufffdc"
    assert "\x00" not in verdict.served_model
    assert len(verdict.served_model) <= 200
