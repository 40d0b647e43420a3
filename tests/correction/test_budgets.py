"""A daily budget: past it paid checks pass and evaluations pause, and both go on when there is room again."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import time_machine
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from agents.kit.models import LLMCall
from agents.models import Agent, Channel
from correction.config.configure import configure
from correction.config.settings import resolve_config
from correction.costs import BudgetDay, budgets_today, evaluation_over_budget, over_budget, spent_today
from evaluation.models import EvaluationRun, EvaluationScore
from evaluation.runs.execute import execute, work_one
from evaluation.runs.planning import prepare_run
from evaluation.runs.spec import RunSpec
from tests.correction.ledger import call, price
from tests.declaring import declare
from tests.evaluation.channel_cast import gather
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


@pytest.fixture
def propositions(settings: Settings, tmp_path: Path) -> PropositionFolder:
    folder = PropositionFolder(tmp_path / "propositions")
    folder.path.mkdir()
    settings.PROPOSITIONS_DIR, settings.PROPOSITION_DIRS = folder.path, []
    return folder


@pytest.fixture
def ada(settings: Settings) -> Agent:
    settings.JUDGE_MODEL = "claude-haiku-5-5"
    return make_agent("ada")


def is_over(agent: Agent) -> bool:
    return over_budget(agent, resolve_config(agent))


def cap(agent: Agent | None, dollars: str) -> None:
    configure(agent=agent, changes={"budget_enabled": True, "daily_budget_usd": dollars})


# -- who is over
def test_without_a_budget_nothing_is_asked_of_the_database(
    ada: Agent, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    call(ada, cost="1000")
    config = resolve_config(ada)
    configure(agent=ada, changes={"daily_budget_usd": "0.01"})
    amount_only = resolve_config(ada)
    configure(agent=ada, changes={"daily_budget_usd": None, "budget_enabled": True})
    switch_only = resolve_config(ada)

    with django_assert_num_queries(0):
        assert not any(over_budget(ada, got) for got in (config, amount_only, switch_only))


def test_an_agent_whose_checks_cost_its_cap_is_over_budget(
    ada: Agent, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    cap(ada, "0.03")
    call(ada, cost="0.01")
    call(ada, purpose="intervention", cost="0.01")
    assert not is_over(ada)
    call(ada, purpose="evaluation", cost="0.01")

    config = resolve_config(ada)
    with django_assert_num_queries(1):
        assert over_budget(ada, config)


def test_what_does_not_count_does_not_use_a_budget_up(ada: Agent) -> None:
    cap(ada, "0.02")
    call(ada, purpose="turn", cost="5")  # speaking is not checking
    call(make_agent("bob"), cost="5")
    call(None, cost="5")
    call(ada, cost=None)  # what it costs is not known
    call(ada, cost="0.01")

    assert not is_over(ada)
    assert spent_today(ada).unpriced == 1
    assert spent_today(ada).cost_usd == Decimal("0.01")


def test_a_budget_lasts_from_midnight_to_midnight_utc(ada: Agent) -> None:
    cap(ada, "0.01")
    with time_machine.travel(NOON, tick=False):
        call(ada, at=NOON.replace(hour=0))
        assert is_over(ada)
    with time_machine.travel(NOON + timedelta(hours=11, minutes=59), tick=False):
        assert is_over(ada)
    with time_machine.travel(NOON + timedelta(hours=12), tick=False):
        assert not is_over(ada)


# -- evaluations
@pytest.fixture
def paid(llm_server: LLMServer) -> LLMServer:
    """A judge whose every call costs one cent."""
    price()
    llm_server.always(usage={"input_tokens": 1000, "output_tokens": 0})
    return llm_server


@pytest.fixture
def chatty(propositions: PropositionFolder) -> Agent:
    """Twelve messages and one claim: twelve calls. A rule besides, which is free."""
    propositions.write(
        "adherence/_default.yaml",
        """
        dimension: adherence
        propositions:
          - {id: voice, claim: 'claim voice of {{agent_name}}'}
          - {id: short, claim: 'is short', rule: {max_words: 9}}
        """,
    )
    agent = make_agent("chatty")
    talk(agent, [f"line {n}" for n in range(12)])
    return agent


def evaluate(agent: Agent) -> EvaluationRun:
    run, _ = prepare_run(RunSpec(agent=agent, dimensions=("adherence",), samples=12))
    execute([run])
    run.refresh_from_db()
    return run


def test_an_evaluation_pauses_when_the_budget_is_used_up_and_says_so(
    paid: LLMServer, chatty: Agent, settings: Settings
) -> None:
    settings.LLM_MAX_CONCURRENCY, settings.LLM_GATE_SLOTS = 2, 0
    cap(chatty, "0.02")

    run = evaluate(chatty)

    assert run.status == "paused_budget"
    assert "the daily budget of Chatty is used up" in run.error
    assert "of $0.0200" in run.error
    assert run.overall_score is None
    assert 2 <= paid.calls < 12  # what was asked between two looks, and what was in flight
    scores = EvaluationScore.objects.filter(evaluation_run=run)
    assert scores.filter(status="pending").count() == 12 - paid.calls
    assert set(scores.filter(proposition_id="short").values_list("status", flat=True)) == {"scored"}, "which is free"


def test_a_worker_resumes_a_paused_evaluation_the_next_day(paid: LLMServer, chatty: Agent) -> None:
    cap(chatty, "0.4")
    now = timezone.now()
    call(chatty, cost="0.4")
    run = evaluate(chatty)
    assert run.status == "paused_budget"

    assert not work_one(owner="worker")
    LLMCall.objects.update(created_at=now - timedelta(days=1))
    assert work_one(owner="worker")

    run.refresh_from_db()
    assert (run.status, paid.calls) == ("completed", 12)


def test_an_offline_judge_goes_on_without_a_budget_left(chatty: Agent, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    cap(chatty, "0")

    assert evaluate(chatty).status == "completed"


@pytest.mark.parametrize("path", ["correction.costs.nobody", "correction.costs.BUDGETED"])
def test_a_watcher_that_cannot_be_asked_is_an_error_at_start_up(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, "evaluation_budget", path)

    with pytest.raises(SystemCheckError, match="evaluation_budget is"):
        call_command("check")


def test_a_capture_over_budget_ends_with_the_reason(paid: LLMServer, chatty: Agent) -> None:
    cap(chatty, "0")

    with pytest.raises(CommandError, match="the daily budget of Chatty is used up") as error:
        call_command("capture_baseline", "--agents", "chatty", "--dimensions", "adherence", stdout=io.StringIO())

    assert "paused_budget" in str(error.value)
    assert "Run the same command again to judge what is left." in str(error.value)
    assert error.value.returncode == 2


def test_watching_a_budget_costs_few_queries(paid: LLMServer, chatty: Agent, settings: Settings) -> None:
    cap(chatty, "100")

    with CaptureQueriesContext(connection) as seen:
        evaluate(chatty)

    asked = [q["sql"] for q in seen if "agent_evaluation_config" in q["sql"]]
    assert 1 <= len(asked) <= 5  # twelve calls


TODAY_NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def today() -> BudgetDay:
    with time_machine.travel(TODAY_NOON, tick=False):
        return budgets_today()


def test_only_checking_and_measuring_count_and_only_since_midnight_utc() -> None:
    ada = make_agent()
    cap(ada, "1")
    call(ada, cost="0.10", at=TODAY_NOON)
    call(ada, cost="0.20", at=TODAY_NOON, purpose="evaluation")
    call(ada, cost="5.00", at=TODAY_NOON, purpose="turn")
    call(ada, cost="7.00", at=TODAY_NOON - timedelta(hours=13))
    call(ada, cost=None, at=TODAY_NOON)
    got = today()

    assert (got.total, got.checking, got.capped) == (Decimal("5.30"), Decimal("0.30"), Decimal("0.30"))
    assert got.unpriced == 1


def test_only_agents_with_a_budget_count_against_budgets() -> None:
    for slug, amount, cost in (("ada", "1", "1.00"), ("bob", "1", "0.80"), ("cleo", "2", "0.79"), ("eve", None, "9")):
        agent = make_agent(slug)
        if amount:
            cap(agent, amount)
        call(agent, cost=cost, at=TODAY_NOON)
    got = today()

    assert (got.capped, got.budget, got.budgets) == (Decimal("2.59"), Decimal("4.0000"), 3)
    assert (got.used_up, got.nearly) == (1, 1)


def test_the_defaults_budget_active_agents_and_all_channels_together() -> None:
    ada, bob = make_agent("ada"), make_agent("bob")
    make_agent("old", is_active=False)
    cap(None, "1")
    configure(agent=bob, changes={"budget_enabled": False})
    call(ada, cost="0.20", at=TODAY_NOON)
    call(None, cost="1.50", at=TODAY_NOON, purpose="evaluation")
    got = today()

    assert (got.budgets, got.budget) == (2, Decimal("2.0000")), "Ada's and that of the channels"
    assert (got.capped, got.used_up) == (Decimal("1.70"), 1)


PAID = "claude-haiku-5-5"


@pytest.fixture
def cast(llm_server: LLMServer) -> dict[str, Agent]:
    return gather(llm_server)


def evaluate_channel(**asked: object) -> EvaluationRun:
    run, _ = prepare_run(RunSpec(**asked))  # type: ignore[arg-type]
    execute([run])
    run.refresh_from_db()
    return run


def test_calls_for_no_agent_use_up_the_cap_of_the_defaults() -> None:
    cap(None, "0.02")
    call(None, cost="0.01", purpose="evaluation")
    assert evaluation_over_budget(None, PAID) == ""
    call(None, cost="0.01", purpose="evaluation")
    call(None, cost="5", purpose="drafting")  # neither measuring nor correcting

    why = evaluation_over_budget(None, PAID)

    assert why is not None
    assert "the daily budget of evaluations of channels (that of the defaults) is used up: $0.0200 of $0.0200" in why


def test_a_worker_resumes_a_paused_channel_evaluation_the_next_day(
    cast: dict[str, Agent], llm_server: LLMServer
) -> None:
    cap(None, "0.5")
    call(None, cost="0.5", purpose="evaluation")
    channel = Channel.objects.earliest("pk")

    run = evaluate_channel(channel=channel, dimensions=("convergence",))
    assert (run.status, llm_server.calls) == ("paused_budget", 0)
    assert "evaluations of channels" in run.error
    assert not work_one(owner="worker")

    LLMCall.objects.update(created_at=timezone.now() - timedelta(days=1))
    assert work_one(owner="worker")
    run.refresh_from_db()
    assert (run.status, run.error) == ("completed", "")
    assert llm_server.calls > 0


def test_an_evaluation_completes_without_its_channels_and_adds_them_later(
    cast: dict[str, Agent], llm_server: LLMServer
) -> None:
    cap(None, "1")
    call(None, cost="1", purpose="evaluation")

    run = evaluate_channel(agent=cast["ada"], dimensions=("fluency", "convergence"))
    assert run.status == "completed"
    alone = run.overall_score
    assert set(run.channel_runs.values_list("status", flat=True)) == {"paused_budget"}

    cap(None, "2")
    while work_one(owner="worker"):
        pass
    run.refresh_from_db()
    assert set(run.channel_runs.values_list("status", flat=True)) == {"completed"}
    assert run.overall_score != alone
