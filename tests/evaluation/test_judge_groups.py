"""Several claims in one call: groups of ten, bad entries, and what is tried a second time (AC-6.0.4, AC-6.0.6)."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from evaluation.judge.asking import ask_all, score_propositions
from evaluation.judge.questions import Question
from tests.evaluation.judging import CONTEXT, LABEL, answers, claim, claims_of, entry, prompt_of
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- several claims (AC-6.0.4, AC-6.0.6)
def numbered(count: int, **fields: Any) -> list[Any]:
    return [claim(f"c{i}", f"claim {i}", **fields) for i in range(count)]


def by_number(text: str) -> int:
    return int(text.rpartition(" ")[2]) % 10


def test_claims_are_grouped_by_ten_and_answered_in_order_ac_6_0_4(llm_server: LLMServer) -> None:
    llm_server.respond = answers(by_number)

    verdicts = score_propositions(propositions=numbered(23), context=CONTEXT, label=LABEL)

    assert [v.value for v in verdicts] == [i % 10 for i in range(23)]
    assert sorted(len(claims_of(body)) for body in llm_server.bodies) == [3, 10, 10]


def test_claims_with_different_windows_or_personas_go_into_different_calls(llm_server: LLMServer) -> None:
    llm_server.respond = answers(by_number)
    mixed = [
        claim("a", "claim 1"),
        claim("b", "claim 2", include_personas=False),
        claim("c", "claim 3"),
        claim("d", "claim 4", first_n=1),
        claim("e", "claim 5", include_personas=False),
    ]

    verdicts = score_propositions(propositions=mixed, context=CONTEXT, label=LABEL)

    assert [v.value for v in verdicts] == [1, 2, 3, 4, 5]
    by_claims = {tuple(claims_of(body).values()): body for body in llm_server.bodies}
    assert set(by_claims) == {("claim 1", "claim 3"), ("claim 2", "claim 5"), ("claim 4",)}
    assert "dry and careful clerk" in prompt_of(by_claims["claim 1", "claim 3"])
    assert "dry and careful clerk" not in prompt_of(by_claims["claim 2", "claim 5"])


def test_one_bad_entry_costs_neither_its_neighbours_nor_itself(llm_server: LLMServer) -> None:
    llm_server.reply(json={"p1": entry(1), "p2": entry(97), "p3": entry(3)})
    llm_server.reply(json=entry(2))

    verdicts = score_propositions(propositions=numbered(3), context=CONTEXT, label=LABEL)

    assert [v.value for v in verdicts] == [1, 2, 3]
    assert llm_server.calls == 2
    assert claims_of(llm_server.bodies[1]) == {"p1": "claim 1"}


def test_an_entry_that_stays_bad_is_unscored_after_few_calls(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda text: 97 if text == "claim 1" else 5)

    verdicts = score_propositions(propositions=numbered(3), context=CONTEXT, label=LABEL)

    assert [v.value for v in verdicts] == [5, None, 5]
    assert verdicts[1].reason.startswith("malformed: ")
    assert llm_server.calls == 3, "the group, the entry alone, and alone with a worked example"


def test_neighbours_of_a_bad_entry_come_before_its_second_try(llm_server: LLMServer) -> None:
    """What was answered can be stored at once: nothing is lost when the process ends before the second answer."""
    llm_server.reply(json={"p1": entry(1), "p2": entry("7")})
    llm_server.always(json=entry(2))
    question = Question(propositions=tuple(numbered(2)), context=CONTEXT, label=LABEL)

    found = ask_all([question], deadline=5)

    first = next(found)
    assert (first.positions, [v.value for v in first.verdicts]) == ((0,), [1])
    assert llm_server.calls == 1
    second = next(found)
    assert (second.question, second.positions, [v.value for v in second.verdicts]) == (question, (1,), [2])


@pytest.mark.parametrize("failure", [{"status": 429}, {"stop_reason": "max_tokens"}], ids=str)
def test_what_fails_in_passing_is_tried_once_more_after_everything_else(
    llm_server: LLMServer, settings: Settings, failure: dict[str, Any]
) -> None:
    settings.LLM_MAX_CONCURRENCY = 1
    llm_server.reply(**failure)
    llm_server.respond = answers(by_number)

    verdicts = score_propositions(propositions=numbered(23), context=CONTEXT, label=LABEL)

    assert [v.value for v in verdicts] == [i % 10 for i in range(23)]
    assert [len(claims_of(body)) for body in llm_server.bodies] == [10, 10, 3, 10]
    assert llm_server.bodies[3]["max_tokens"] == 2 * llm_server.bodies[0]["max_tokens"]


def test_a_judge_that_is_down_is_not_asked_everything_twice(llm_server: LLMServer, settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY = 1
    llm_server.always(status=503)

    verdicts = score_propositions(propositions=numbered(200), context=CONTEXT, label=LABEL)

    assert {v.status for v in verdicts} == {"unscored"}
    assert llm_server.calls == 20 + 6
