"""Judge and gate over the second protocol: what the layers above a call see is the same. The calls: `tests/agents/kit/llm`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agents.kit.models import LLMCall
from evaluation.judge.asking import score_proposition
from tests.correction.gating import gated, logs, send
from tests.evaluation.judging import CONTEXT, LABEL, claim, entry
from tests.evaluation.test_judge import NOT_A_SCORE
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def test_a_claim_gets_its_score_and_the_judge_its_name(chat_server: LLMServer) -> None:
    chat_server.reply(json=entry(7), model="judge-2026-11")

    verdict = score_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert (verdict.status, verdict.value, verdict.confidence) == ("scored", 7, 0.8)
    assert (verdict.judge, verdict.served_model) == ("openai:test-model", "judge-2026-11")
    assert chat_server.paths == ["/v1/chat/completions"]
    assert chat_server.bodies[0]["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize("text", NOT_A_SCORE.values(), ids=NOT_A_SCORE)
def test_a_reply_that_is_no_score_is_asked_again_then_unscored(chat_server: LLMServer, text: str) -> None:
    chat_server.always(text=text)

    verdict = score_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert (verdict.status, verdict.value) == ("unscored", None)
    assert verdict.reason.startswith("malformed: ")
    assert [call.status for call in LLMCall.objects.all()] == ["malformed", "malformed"]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429},
        {"status": 529},
        {"text": "seven, I would say"},
        {"stop_reason": "refusal"},
        {"json": entry(2), "stop_reason": "max_tokens"},
        {"drop": True},
    ],
    ids=str,
)
def test_a_judge_that_fails_is_asked_once_and_lets_pass(chat_server: LLMServer, fault: dict[str, Any]) -> None:
    agent, channel = gated("consistency")
    chat_server.always(**fault)

    result = send(agent, channel, "I filed it.")

    assert (result.committed, result.outcome, chat_server.calls) == (True, "error_passed", 1)
    (row,) = logs()[0].dimension_results.all()
    assert (row.status, row.score, row.passed) == ("error", None, True)


def test_a_draft_with_a_low_score_is_sent_back(chat_server: LLMServer) -> None:
    agent, channel = gated("consistency")
    chat_server.always(json=entry(2))

    result = send(agent, channel, "I filed it.")

    assert (result.committed, result.outcome) == (False, "corrected")
    assert "Self-consistency: 2 of 9" in result.feedback


@pytest.mark.slow
def test_a_judge_that_hangs_costs_one_deadline_and_lets_pass(chat_server: LLMServer) -> None:
    agent, channel = gated("consistency", gate_deadline_seconds=Decimal("3"))
    chat_server.always(hang=True)

    result = send(agent, channel, "I filed it.")

    assert (result.committed, result.outcome) == (True, "timeout_passed")
    assert chat_server.wait_until(lambda: chat_server.client_gone == 1)
