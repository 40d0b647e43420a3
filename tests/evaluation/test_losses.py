"""What is lost in the middle costs nothing else: a deleted run, an interruption at the last moment, an unforeseen error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from evaluation.change import evidence
from evaluation.change.models import Baseline, Change
from evaluation.change.stored import refresh_changes
from evaluation.models import EvaluationRun
from evaluation.runs.execute import capture, execute
from evaluation.runs.judging import open_evaluation
from evaluation.runs.planning import prepare_run
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers
from tests.evaluation.measuring import measured, spec
from tests.factories import MONDAY, make_agent, make_channel, speaking, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _claims(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")


@pytest.mark.django_db(transaction=True)
def test_a_run_deleted_while_it_is_judged_does_not_harm_the_others(llm_server: LLMServer) -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    talk(ada, ["one", "two"], channel=make_channel("a"))
    talk(bob, ["three", "four"], channel=make_channel("b"))
    llm_server.respond = answers(lambda claim: 5)

    def delete_ada(run: EvaluationRun, done: int) -> None:
        EvaluationRun.objects.filter(agent=ada).delete()

    results = capture([spec(ada), spec(bob)], progress=delete_ada)

    assert [(r.summary.run.agent, r.summary.run.status) for r in results] == [(bob, "completed")]


def test_an_interruption_before_the_baseline_is_stored_leaves_it_resumable(
    llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = speaking("ada", ["one"])
    llm_server.respond = answers(lambda claim: 5)
    promote = evidence.promote

    def interrupted(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("evaluation.change.evidence.promote", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(ada)
    asked = llm_server.calls
    monkeypatch.setattr("evaluation.change.evidence.promote", promote)

    again = measured(ada)

    assert again.resumed
    assert llm_server.calls == asked
    assert Baseline.objects.get().evaluation_run == again.summary.run


def test_an_unforeseen_error_ends_one_run_and_requeues_the_others(
    llm_server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    talk(ada, ["one"], channel=make_channel("a"))
    talk(bob, ["two"], channel=make_channel("b"))
    planned = [prepare_run(spec(agent))[0] for agent in (ada, bob)]

    def second_fails(run: EvaluationRun, **given: Any) -> Any:
        if run.agent == bob:
            raise RuntimeError("disk full")
        return open_evaluation(run, **given)

    monkeypatch.setattr("evaluation.runs.execute.open_evaluation", second_fails)
    with pytest.raises(RuntimeError, match="disk full"):
        execute(planned)

    ended = dict(EvaluationRun.objects.values_list("agent__slug", "status"))
    assert ended == {"ada": "pending", "bob": "errored"}
    assert EvaluationRun.objects.get(agent=bob).error == "RuntimeError: disk full"


def test_a_change_that_cannot_be_stored_is_stored_later(
    llm_server: LLMServer,
) -> None:
    llm_server.respond = answers(lambda claim: 5)
    agents = [speaking("ada", ["one"]), speaking("bob", ["two"])]
    capture([spec(agent) for agent in agents])
    for agent in agents:
        talk(agent, ["three"], channel=make_channel(f"{agent.slug}-later"), sent_at=MONDAY + timedelta(days=7))
    failures: list[str] = []

    def fails_once(run_statement: Callable[..., Any], sql: str, *query: Any) -> Any:
        if sql.startswith('INSERT INTO "changes"') and not failures:
            failures.append(sql)
            raise RuntimeError("disk full")
        return run_statement(sql, *query)

    with connection.execute_wrapper(fails_once):
        capture([spec(agent, is_baseline=False) for agent in agents])

    assert failures
    assert set(EvaluationRun.objects.values_list("status", flat=True)) == {"completed"}
    assert set(Change.objects.values_list("agent__slug", flat=True)) == {"bob"}
    refresh_changes()
    assert set(Change.objects.values_list("agent__slug", flat=True)) == {"ada", "bob"}


def test_a_failed_run_has_no_overall_score(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    propositions.write("adherence/ada.yaml", "propositions:\n  - {id: short, claim: short, rule: {max_words: 1}}\n")
    ada = speaking("ada", ["two words"])
    llm_server.always(status=401)

    found = measured(ada).summary

    assert found.run.status == "failed"
    (rule,) = (p for p in found.dimensions["adherence"].propositions if p.id == "short")
    assert rule.score == 0.0, "what the rule said stays visible"
    assert found.dimensions["adherence"].score is None, "but it is not the judge's"
    assert (found.overall_score, found.run.overall_score) == (None, None)
