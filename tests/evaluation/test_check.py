"""Boolean mode: is this claim true? (AC-6.0.4)"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from agents.kit.models import LLMCall
from evaluation.judge.checks import Check, CheckResult, ask_together, check_proposition
from evaluation.judge.questions import Question
from evaluation.propositions.schema import Cues
from tests.evaluation.judging import CONTEXT, LABEL, answers, claim, entry, prompt_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
SNAPSHOT = Path(__file__).with_name("snapshots") / "check.txt"


@pytest.mark.parametrize("value", [True, False])
def test_a_claim_holds_or_does_not_ac_6_0_4(llm_server: LLMServer, value: bool) -> None:
    llm_server.reply(json=entry(value))

    found = check_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert found.holds is value
    assert (found.reasoning, found.justification, found.confidence) == ("Two words, no more.", "“Not me.”", 0.8)
    assert (found.judge, found.call, found.reason) == ("test-model", LLMCall.objects.get().pk, "")


def test_an_inverted_claim_is_asked_as_it_is_written(llm_server: LLMServer) -> None:
    llm_server.reply(json=entry(True))

    assert check_proposition(proposition=claim(inverted=True), context=CONTEXT, label=LABEL).holds is True


@pytest.mark.parametrize("value", [True, False])
def test_without_evidence_a_claim_does_not_hold(llm_server: LLMServer, value: bool) -> None:
    llm_server.reply(json=entry(value, evidence="absent"))

    assert check_proposition(proposition=claim(), context=CONTEXT, label=LABEL).holds is False


def test_evidence_and_confidence_may_be_missing(llm_server: LLMServer) -> None:
    llm_server.reply(json={k: v for k, v in entry(True).items() if k not in ("evidence", "confidence")})

    found = check_proposition(proposition=claim(), context=CONTEXT, label=LABEL, gate=True)

    assert (found.holds, found.confidence) == (True, None)


@pytest.mark.parametrize("value", [1, "true", None], ids=repr)
def test_a_check_without_truth_value_is_asked_once_more_then_unknown(llm_server: LLMServer, value: Any) -> None:
    llm_server.always(json=entry(value))

    found = check_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    assert found.holds is None
    assert found.reason.startswith("malformed: value")
    assert llm_server.calls == 2


def test_the_prompt_reads_as_its_snapshot(llm_server: LLMServer) -> None:
    check_proposition(proposition=claim(), context=CONTEXT, label=LABEL)

    body = llm_server.bodies[0]
    nonce = body["system"][1]["text"].partition("<<<PERSONA ")[2].partition(">>>")[0]
    found = prompt_of(body).replace(nonce, "0123456789ab") + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        SNAPSHOT.write_text(found, encoding="utf-8")
    assert len(nonce) == 12
    assert found == SNAPSHOT.read_text(encoding="utf-8")
    schema = body["output_config"]["format"]["schema"]
    assert schema["properties"]["value"] == {"type": "boolean"}


@pytest.mark.parametrize(
    ("cues", "holds"),
    [
        (Cues(supports=["not me"]), True),
        (Cues(contradicts=["not me"]), False),
        (Cues(supports=["not"], contradicts=["me"]), False),
        (Cues(supports=["beets"]), None),
        (None, None),
    ],
)
def test_the_offline_judge_goes_by_cues_and_is_silent_without(
    settings: Settings, cues: Cues | None, holds: bool | None
) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"

    found = check_proposition(proposition=claim(cues=cues), context=CONTEXT, label=LABEL)

    assert found.holds is holds
    assert ("needs an LLM judge" in found.reason) == (holds is None)
    assert found.judge == "offline:lexical-1"


def test_checks_and_questions_can_be_asked_together_and_are_answered_in_order(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda text: {"even": True, "odd": False}.get(text.split()[-1], 4))
    check = [Check(proposition=claim(text=f"is {word}"), context=CONTEXT, label=LABEL) for word in ("odd", "even")]
    question = Question(propositions=(claim(text="is dry"),), context=CONTEXT, label=LABEL)

    odd, dry, even = ask_together([check[0], question, check[1]], deadline=10)

    assert isinstance(odd, CheckResult)
    assert isinstance(even, CheckResult)
    assert (odd.holds, even.holds) == (False, True)
    assert isinstance(dry, list)
    assert (dry[0].value, dry[0].status) == (4, "scored")
    assert {odd.call, even.call, dry[0].call} == set(LLMCall.objects.values_list("pk", flat=True))
