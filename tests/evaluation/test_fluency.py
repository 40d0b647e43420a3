"""Fluency (S-6.3): judged over the window, the persona withheld, n-gram statistics as evidence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.models import Agent
from evaluation.models import EvaluationScore
from evaluation.runs.execute import capture
from evaluation.runs.numbers import DimensionSummary
from evaluation.runs.spec import RunSpec
from tests.evaluation.judging import answers, claims_of, entry, prompt_of
from tests.factories import make_agent, make_channel, speaking, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

PERSONA = "You are Ada, keeper of the stamp drawer, and you say so."
VARIED = [
    "The geese are fed and the barn is locked.",
    "Nobody signs for parcels on my watch.",
    "Paper cuts are a matter of discipline.",
    "Quarter closes tomorrow, bring your figures.",
    "I have seen owls do better accounting.",
    "Lunch is at noon, not one minute later.",
]
COPIED = [f"Just closed another deal, best salesman in the branch, client number {n}." for n in range(6)]


def fluency(agent: Agent, **fields: Any) -> DimensionSummary:
    (found,) = capture([RunSpec(agent=agent, dimensions=("fluency",), **fields)])
    return found.summary.dimensions["fluency"]


def test_the_window_is_judged_once_with_messages_and_statistics_ac_6_3_3_ac_6_3_4(llm_server: LLMServer) -> None:
    llm_server.always(json={f"p{n}": entry(n + 1) for n in range(1, 5)})
    ada = make_agent("ada", system_prompt=PERSONA)
    talk(ada, COPIED, channel=make_channel("one"))
    talk(ada, VARIED, channel=make_channel("two"))

    found = fluency(ada)

    (body,) = llm_server.bodies
    prompt = prompt_of(body)
    assert all(f"Ada acts: {text}" in prompt for text in COPIED + VARIED)
    assert '"messages": 12' in prompt
    assert '"trigram_repetition": 0.' in prompt
    assert '"fivegram_repetition": 0.' in prompt
    assert "best salesman in" in prompt[prompt.index("<<<STATISTICS") :]
    assert len(claims_of(body)) == 4
    assert found.scored == 4
    assert found.score == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_the_persona_is_not_sent_ac_6_3_5(llm_server: LLMServer) -> None:
    ada = make_agent("ada", system_prompt=PERSONA)
    talk(ada, VARIED)

    fluency(ada)

    assert "stamp drawer" not in json.dumps(llm_server.bodies)
    assert len(llm_server.bodies[0]["system"]) == 1


def test_the_score_is_stored_with_the_judges_reasoning_ac_6_3_6(llm_server: LLMServer) -> None:
    llm_server.respond = answers(lambda claim: entry(6, reasoning="varied enough"))
    ada = speaking("ada", VARIED)

    fluency(ada)

    rows = EvaluationScore.objects.all()
    assert {(row.score, row.reasoning, row.message_id) for row in rows} == {(6, "varied enough", None)}
    assert {row.context_snippet for row in rows} == {" / ".join(VARIED[-3:])}
    assert all("Ada" in row.claim for row in rows)
