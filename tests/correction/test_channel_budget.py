"""Evaluations of channels belong to no agent: the cap of the defaults holds for all of a day together."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents.models import Agent, Channel, LLMCall
from correction.config.configure import configure
from correction.costs import evaluation_over_budget
from evaluation.models import EvaluationRun
from evaluation.runs.execute import execute, work_one
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from tests.correction.ledger import call
from tests.evaluation.channel_cast import gather
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
PAID = "claude-haiku-5-5"


@pytest.fixture
def cast(llm_server: LLMServer) -> dict[str, Agent]:
    return gather(llm_server)


def cap(dollars: str) -> None:
    configure(agent=None, changes={"budget_enabled": True, "daily_budget_usd": dollars})


def evaluate(**asked: object) -> EvaluationRun:
    run, _ = prepare_run(RunSpec(**asked))  # type: ignore[arg-type]
    execute([run])
    run.refresh_from_db()
    return run


def test_calls_for_no_agent_use_up_the_cap_of_the_defaults_and_no_agent_s() -> None:
    cap("0.02")
    call(None, cost="0.01", purpose="evaluation")
    assert evaluation_over_budget(None, PAID) == ""
    call(None, cost="0.01", purpose="evaluation")
    call(None, cost="5", purpose="drafting")  # neither measuring nor correcting

    why = evaluation_over_budget(None, PAID)

    assert why is not None
    assert "the daily budget of evaluations of channels (that of the defaults) is used up: $0.0200 of $0.0200" in why


def test_without_a_cap_in_the_defaults_channels_are_not_capped(cast: dict[str, Agent]) -> None:
    configure(agent=cast["ada"], changes={"budget_enabled": True, "daily_budget_usd": "0"})

    assert evaluation_over_budget(None, PAID) is None
    assert evaluation_over_budget(None, "offline:lexical-1") is None


@pytest.mark.parametrize("dimension", ["convergence", "ideas_quantity"])
def test_a_channel_s_evaluation_pauses_and_a_worker_goes_on_with_it_the_next_day(
    cast: dict[str, Agent], llm_server: LLMServer, dimension: str
) -> None:
    cap("0.5")
    call(None, cost="0.5", purpose="evaluation")
    channel = Channel.objects.earliest("pk")

    run = evaluate(channel=channel, dimensions=(dimension,))
    assert (run.status, llm_server.calls) == ("paused_budget", 0)
    assert "evaluations of channels" in run.error
    assert not work_one(owner="worker")

    LLMCall.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert work_one(owner="worker")
    run.refresh_from_db()
    assert (run.status, run.error) == ("completed", "")
    assert llm_server.calls > 0


def test_an_agent_s_evaluation_completes_without_its_channels_and_gets_their_number_later(
    cast: dict[str, Agent], llm_server: LLMServer
) -> None:
    cap("1")
    call(None, cost="1", purpose="evaluation")

    run = evaluate(agent=cast["ada"], dimensions=("fluency", "convergence"))
    assert run.status == "completed"
    alone = run.overall_score
    assert set(run.channel_runs.values_list("status", flat=True)) == {"paused_budget"}

    cap("2")
    while work_one(owner="worker"):
        pass
    run.refresh_from_db()
    assert set(run.channel_runs.values_list("status", flat=True)) == {"completed"}
    assert run.overall_score != alone
