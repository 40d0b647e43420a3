"""Double check (AC-6.0.11, AC-6.0.17): the judge is asked whether it is sure; both values are kept."""

from __future__ import annotations

from typing import Any

import pytest

from agents.kit.models import LLMCall
from evaluation.judge.asking import ask_all
from evaluation.judge.questions import Question
from evaluation.models import EvaluationScore
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import CONTEXT, LABEL, answers, claim, entry
from tests.evaluation.measuring import evaluate_agent
from tests.factories import speaking
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


def is_second(body: dict[str, Any]) -> bool:
    return "Are you sure?" in body["messages"][-1]["content"][-1]["text"]


def judge(first: Any, second: Any) -> Any:
    """A server that says one thing and, asked again, another."""

    def respond(body: dict[str, Any]) -> dict[str, Any]:
        said = second if is_second(body) else first
        asked = {**body, "messages": body["messages"][:1]}
        return said if isinstance(said, dict) and "status" in said else answers(lambda _: said)(asked)

    return respond


@pytest.fixture
def one_message(propositions: PropositionFolder) -> Any:
    propositions.claims("adherence/_default.yaml", "voice")
    agent = speaking("ada", ["No."])
    return agent


def test_a_double_check_counts_the_second_value_ac_6_0_11(llm_server: LLMServer, one_message: Any) -> None:
    llm_server.respond = judge(8, entry(5, reasoning="on second thoughts"))

    found = evaluate_agent(agent=one_message, dimensions=("adherence",), double_check=True)

    row = EvaluationScore.objects.get()
    assert (row.score, row.first_score, row.reasoning) == (5, 8, "on second thoughts")
    assert (found.overall_score, found.calls, found.run.procedure) == (5.0, 2, "plumbline+double-check")
    first, second = llm_server.bodies
    assert not is_second(first)
    texts = [turn["content"][-1]["text"] for turn in second["messages"]]
    assert [turn["role"] for turn in second["messages"]] == ["user", "assistant", "user"]
    assert '"value": 8' in texts[1]
    assert "Please revise your evaluation to make it as correct as possible" in texts[2]
    assert row.call_id == LLMCall.objects.latest("pk").pk


@pytest.mark.parametrize(
    ("second", "reason"), [({"status": 500}, "unavailable"), ({"json": {"value": "lots"}, "status": 200}, "malformed")]
)
def test_when_the_second_answer_is_none_the_first_one_stands(
    llm_server: LLMServer, one_message: Any, second: dict[str, Any], reason: str
) -> None:
    llm_server.respond = judge(6, second)

    evaluate_agent(agent=one_message, dimensions=("adherence",), double_check=True)

    row = EvaluationScore.objects.get()
    assert (row.status, row.score, row.first_score) == ("scored", 6, 6)
    assert row.reason.startswith(f"the double check failed: {reason}")


def test_a_question_without_first_answer_is_not_double_checked(llm_server: LLMServer, one_message: Any) -> None:
    llm_server.respond = judge({"status": 400}, 9)

    evaluate_agent(agent=one_message, dimensions=("adherence",), double_check=True)

    assert EvaluationScore.objects.get().status == "unscored"
    assert not any(map(is_second, llm_server.bodies))


def test_flips_and_penalties_apply_to_both_values(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "flat", extra="inverted: true")
    propositions.claims("adherence/ada.yaml", "strict", extra="hard: true")
    ada = speaking("ada", ["No."])
    llm_server.respond = judge(entry(8, flaws=[]), entry(5, flaws=["one"]))

    evaluate_agent(agent=ada, dimensions=("adherence",), double_check=True)

    found = {row.proposition_id: (row.first_score, row.score, row.raw_score) for row in EvaluationScore.objects.all()}
    assert found == {"flat": (1, 4, 5), "strict": (8, 4, 5)}


def test_an_entry_that_was_not_valid_is_asked_alone_and_checked(llm_server: LLMServer) -> None:
    def respond(body: dict[str, Any]) -> dict[str, Any]:
        asked = {**body, "messages": body["messages"][:1]}
        alone = answers(lambda c: 3 if is_second(body) else 6)(asked)
        return alone if "p2" not in alone["json"] else {"json": {**alone["json"], "p2": {"value": "none"}}}

    llm_server.respond = respond
    question = Question(propositions=(claim("a"), claim("b")), context=CONTEXT, label=LABEL, double_check=True)

    found = {
        i: v
        for answered in ask_all([question], deadline=20)
        for i, v in zip(answered.positions, answered.verdicts, strict=True)
    }

    assert [(found[i].value, found[i].first_value) for i in (0, 1)] == [(3, 6), (3, 6)]
