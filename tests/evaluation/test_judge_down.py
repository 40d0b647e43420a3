"""A judge that does not answer: the run fails, the rest stays pending, the same capture again finishes it."""

from __future__ import annotations

from collections import Counter

import pytest
from pytest_django import Settings

from agents.alerts.models import Alert
from agents.models import Agent
from evaluation.change.models import Baseline
from evaluation.judge.asking import GIVE_UP_AFTER
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.judging import answers, entry, tail_of
from tests.evaluation.measuring import measured, statuses
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _two_at_once(settings: Settings) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 2, 0


# -- a judge that is down
def test_a_judge_that_is_down_fails_the_run_rest_pending(llm_server: LLMServer, chatty: Agent) -> None:
    llm_server.always(status=401)

    run = measured(chatty, samples=30).summary.run

    assert run.status == "failed"
    assert "HTTP 401" in run.error
    assert statuses() == Counter({"unscored": GIVE_UP_AFTER, "pending": 30 - GIVE_UP_AFTER})
    assert llm_server.calls <= GIVE_UP_AFTER + 2 * 2, "given up, but for what was in flight"
    assert run.overall_score is None
    assert not Baseline.objects.exists()


def test_an_evaluation_that_failed_raises_one_alert_however_often_it_fails(
    llm_server: LLMServer, chatty: Agent
) -> None:
    llm_server.always(status=401)
    for _ in range(2):
        run = measured(chatty, samples=30).summary.run

    alert = Alert.objects.get()
    assert (alert.kind, alert.agent, alert.times) == ("evaluation_failed", chatty, 2)
    assert alert.page == f"evaluation/evaluationrun/{run.pk}/change/"


def test_the_same_capture_again_finishes_it_and_asks_nothing_twice(llm_server: LLMServer, chatty: Agent) -> None:
    llm_server.always(status=401)
    failed = measured(chatty, samples=30).summary.run
    before = llm_server.calls
    llm_server.always(json=entry(5))

    found = measured(chatty, samples=30)

    assert found.resumed
    assert found.summary.run == failed
    assert (found.summary.run.status, found.summary.overall_score, found.summary.run.attempt) == ("completed", 5.0, 2)
    assert llm_server.calls - before == 30, "nothing had been stored, so all thirty are asked"
    assert Baseline.objects.get().evaluation_run == failed


def test_rules_alone_do_not_make_a_baseline_when_the_judge_is_down(
    llm_server: LLMServer, propositions: PropositionFolder, ada: Agent
) -> None:
    propositions.claims("adherence/ada.yaml", "brief", extra="rule: {max_words: 1}")
    llm_server.always(json={"p1": entry(4), "p2": entry(4)})
    first = measured(ada).summary.run
    llm_server.always(status=401)

    second = measured(ada).summary.run

    assert second.status == "failed"
    assert "HTTP 401" in second.error
    assert Baseline.objects.get().evaluation_run == first
    llm_server.always(json={"p1": entry(1), "p2": entry(1)})
    third = measured(ada)
    assert (third.summary.run, third.summary.run.status) == (second, "completed")
    assert Baseline.objects.get().evaluation_run == second


def test_the_same_capture_again_asks_only_what_failed(llm_server: LLMServer, settings: Settings, ada: Agent) -> None:
    """Also when most was answered and the run was completed; once nothing is missing, the next capture is a new run."""
    good = answers(lambda claim: 5)
    llm_server.respond = lambda body: {"status": 401} if "Never." in tail_of(body) else good(body)
    first = measured(ada)

    assert first.summary.run.status == "completed"
    missing = first.summary.dimensions["adherence"].unscored
    assert missing
    llm_server.respond = good
    asked = llm_server.calls

    second = measured(ada)

    assert second.resumed
    assert second.summary.run == first.summary.run
    assert second.summary.dimensions["adherence"].unscored == 0
    assert llm_server.calls - asked == 1, "the one call that had failed"
    assert not measured(ada).resumed
