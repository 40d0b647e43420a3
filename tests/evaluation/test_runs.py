"""Running evaluations: what is stored, and how a run that goes well ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agents.kit.models import LLMCall
from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationScore
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import entry, prompt_of
from tests.evaluation.measuring import evaluate_agent, evaluate_channel, measured
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


# -- the tables (AC-6.0.1, AC-6.0.8)
@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (
            "evaluation_runs",
            "id agent_id status dimensions window_start window_end sample_size overall_score token_usage created_at "
            "started_at finished_at is_baseline seed judge persona_digest proposition_digest",
        ),
        (
            "evaluation_scores",
            "id evaluation_run_id dimension proposition_id score reasoning context_snippet raw_score flaws status judge",
        ),
    ],
)
def test_the_tables_have_the_columns_of_the_specification_ac_6_0_1(table: str, columns: str) -> None:
    with connection.cursor() as cursor:
        found = {column.name for column in connection.introspection.get_table_description(cursor, table)}

    assert set(columns.split()) <= found


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "scored", "score": 10},
        {"status": "unscored", "score": 5},
        {"status": "trivial", "score": 3},
        {"status": "scored", "score": 3, "raw_score": 11},
    ],
)
def test_the_database_itself_refuses_a_number_that_is_none(ada: Agent, fields: dict[str, Any]) -> None:
    run = EvaluationRun.objects.create(agent=ada, dimensions=["adherence"], judge="x")

    with pytest.raises(IntegrityError), transaction.atomic():
        EvaluationScore.objects.create(
            evaluation_run=run, dimension="adherence", proposition_id="a", claim="x", **fields
        )


def test_a_run_targets_an_agent_or_a_channel_never_both(ada: Agent) -> None:
    for fields in ({}, {"agent": ada, "channel": make_channel("x")}):
        with pytest.raises(IntegrityError), transaction.atomic():
            EvaluationRun.objects.create(dimensions=["adherence"], judge="x", **fields)


# -- a run that goes well
def test_a_run_ends_completed_with_its_numbers(llm_server: LLMServer, ada: Agent) -> None:
    llm_server.always(json={"p1": entry(4), "p2": entry(8)})

    run = measured(ada, seed=3, samples=2).summary.run

    assert (run.status, run.overall_score, run.error) == ("completed", 6.0, "")
    assert (run.sample_size, run.samples, run.seed, run.window, run.judge) == (2, 2, 3, "all", "test-model")
    assert run.token_usage == 2 * 110
    assert run.is_baseline
    assert run.started_at
    assert run.finished_at
    assert (run.lease_owner, run.lease_expires_at, run.attempt) == ("", None, 1)
    assert len(run.persona_digest) == len(run.proposition_digest) == 64
    assert set(LLMCall.objects.values_list("work_id", "agent", "purpose", "dimension")) == {
        (f"evaluation_run:{run.pk}", ada.pk, "evaluation", "adherence")
    }


def test_the_sample_size_of_what_is_judged_at_once_is_how_many_messages_were_judged_ac_6_0_1(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    four = "first_n: 1\nlast_n: 3\npropositions: [{id: all, claim: all}]\n"
    propositions.write("fluency/_default.yaml", four)
    propositions.write("ideas_quantity/_default.yaml", f"target_type: environment\n{four}")
    ada, channel = make_agent("ada"), make_channel("one")
    talk(ada, map(str, range(6)), channel=channel)
    llm_server.respond = lambda body: {"json": {"ideas": []} if "What to list" in prompt_of(body) else entry(7)}

    fluency = evaluate_agent(agent=ada, dimensions=("fluency",)).run
    ideas = evaluate_channel(channel=channel, dimensions=("ideas_quantity",)).run

    assert (fluency.sample_size, ideas.sample_size) == (4, 6), "ideas are looked for in all messages"


def test_queries_grow_by_two_per_call_and_by_none_per_judgement(
    llm_server: LLMServer, propositions: PropositionFolder
) -> None:
    """Each call costs one INSERT into the ledger and one upsert of its scores; rules cost one statement for all."""
    propositions.claims("adherence/_default.yaml", *[f"c{i}" for i in range(5)])
    propositions.claims("adherence/bob.yaml", *[f"r{i}" for i in range(5)], extra="rule: {max_words: 3}")
    few, many = make_agent("ada"), make_agent("bob")
    talk(few, map(str, range(2)), channel=make_channel("one"))
    talk(many, map(str, range(8)), channel=make_channel("two"))

    def queries(agent: Agent) -> int:
        with CaptureQueriesContext(connection) as captured:
            measured(agent, per_call=1)
        return len([query for query in captured if "SAVEPOINT" not in query["sql"]])  # a test is one transaction

    queries(few)  # what is asked once per process: prices
    for_two, for_eight = queries(few), queries(many)

    assert llm_server.calls == (2 + 2 + 8) * 5
    assert for_eight - for_two <= 2 * 6 * 5 + 2


def test_nothing_of_a_run_is_sent_but_what_the_judge_needs(llm_server: LLMServer, ada: Agent) -> None:
    ada.description, ada.sample_lines = "for people only", ["a sample line"]
    ada.save()

    measured(ada)

    sent = json.dumps(llm_server.bodies)
    assert "for people only" not in sent
    assert "a sample line" not in sent
    assert "sk-test-secret" not in sent
