"""Replies that are no score, and runs in which nothing was scored."""

from __future__ import annotations

import pytest
from django.test import Client

from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.models import EvaluationScore
from tests.console import page_of, plain, read
from tests.evaluation.judging import answers, entry
from tests.evaluation.measuring import measured
from tests.evaluation.test_judge import NOT_A_SCORE
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- what is no score never becomes one; all of them: `test_judge`
@pytest.mark.parametrize("text", [NOT_A_SCORE[name] for name in ("97", "two objects", "nothing")])
def test_what_is_no_score_is_never_stored_as_one(llm_server: LLMServer, ada: Agent, text: str) -> None:
    llm_server.always(text=text)

    found = measured(ada, per_call=1).summary

    rows = EvaluationScore.objects.all()
    assert {(r.status, r.score, r.raw_score) for r in rows} == {("unscored", None, None)}
    assert all(r.reason.startswith("malformed: ") for r in rows)
    assert (found.overall_score, found.run.overall_score) == (None, None)
    assert not Baseline.objects.exists()


def test_a_judge_that_leaves_evidence_and_confidence_out_is_not_asked_again(
    llm_server: LLMServer, ada: Agent, root: Client
) -> None:
    said = {"reasoning": "Two words.", "justification": "“No.”"}
    llm_server.respond = answers(lambda claim: {**said, "value": 3})

    found = measured(ada, per_call=1)

    row = EvaluationScore.objects.filter(judge="test-model").order_by("pk")[0]
    assert (found.summary.overall_score, llm_server.calls) == (3.0, EvaluationScore.objects.count())
    assert (row.status, row.evidence, row.confidence) == ("scored", "", None)
    page = plain(read(root, page_of(row)))
    assert "Evidence –" in page
    assert "Confidence –" in page


# -- nothing scored
def test_nothing_scored_is_no_score_and_keeps_the_baseline(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.always(json={"p1": entry(4), "p2": entry(8)})
    first = measured(ada).summary.run
    llm_server.always(text="I would say seven.")

    second = measured(ada).summary

    assert (second.run.status, second.overall_score, second.run.overall_score) == ("completed", None, None)
    assert second.run.error.startswith("nothing scored: malformed: ")
    baseline = Baseline.objects.get()
    assert (baseline.evaluation_run, baseline.score) == (first, 6.0)
