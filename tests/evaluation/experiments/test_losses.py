"""What goes wrong while an experiment is played: failing agents and judges, treatments that cannot act, budgets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from agents.kit.models import LLMCall, owner_name
from agents.models import Agent
from correction.config.configure import configure
from evaluation.experiments.measuring import evaluations, judge_here
from evaluation.experiments.models import Experiment, ExperimentEnvironment
from evaluation.experiments.play import play, resume_experiment, work_one
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.starting import start_experiment
from tests.evaluation.experiments.playing import respond, scenario
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db

CAST = [f"agent-{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def _models(settings: Settings, llm_server: LLMServer) -> None:
    settings.ACTOR_MODEL, settings.JUDGE_MODEL = "plain-model", "judge-model"
    settings.WORKER_THREADS = 1
    llm_server.respond = respond


def started(*, environments: int = 10, **changes: Any) -> Experiment:
    """Start an experiment with as many agents as it seats."""
    cast = CAST[: 2 * environments]
    for slug in cast:
        make_agent(slug, display_name=slug.capitalize(), system_prompt=f"You are {slug}.")
    fields: dict[str, Any] = {
        "population": None,
        "cast": cast,
        "environments": environments,
        "agents": 2,
        "arms": [{"name": "north"}, {"name": "south", "overrides": {"model": "other-model"}}],
        "dimensions": [{"id": "adherence"}],
    }
    return start_experiment(scenario(**fields | changes))


def reported(experiment: Experiment) -> ExperimentReport:
    judge_here(play(experiment))
    experiment.refresh_from_db()
    return report(experiment)


@pytest.mark.slow
def test_more_than_a_tenth_of_failed_agents_leave_no_verdict(llm_server: LLMServer) -> None:
    failing = 3

    def some_fail(body: dict[str, Any]) -> dict[str, Any]:
        acted = "tools" in body and body["model"] == "other-model"
        named = json.dumps(body["system"])
        if acted and any(f"You are {slug}." in named for slug in CAST[:failing]):
            return {"status": 400}
        return respond(body)

    llm_server.respond = some_fail

    shown = reported(started())

    row = next(row for row in shown.rows if row.measure == "adherence")
    assert (row.treatment.n, row.treatment.missing) == (20 - failing, failing)
    assert (row.control.n, row.control.missing) == (20, 0)
    assert [arm.missing for arm in shown.arms] == [0, 2 * failing]
    silence = next(row for row in shown.rows if row.measure == "silence")
    assert silence.treatment.mean == 0, "a turn that failed is missing, and no silence of the agent"
    assert (row.verdict, row.p) == ("not enough data", None)
    assert "missing" in row.why


@pytest.mark.slow
def test_judgements_that_fail_are_missing_and_never_a_score(llm_server: LLMServer) -> None:
    def judge_fails(body: dict[str, Any]) -> dict[str, Any]:
        said_there = "a good wall" in json.dumps(body["messages"])
        return {"text": "no object"} if body["model"] == "judge-model" and said_there else respond(body)

    llm_server.respond = judge_fails

    row = reported(started()).rows[0]

    assert (row.treatment.n, row.treatment.missing, row.treatment.mean) == (0, 20, None)
    assert (row.control.n, row.control.missing) == (20, 0)
    assert row.verdict == "not enough data"


def test_what_a_server_does_not_count_is_no_figure_of_an_arm(llm_server: LLMServer) -> None:
    def uncounted(body: dict[str, Any]) -> dict[str, Any]:
        return {**respond(body), "usage": None} if body["model"] == "other-model" else respond(body)

    llm_server.respond = uncounted

    tokens = next(row for row in reported(started(environments=3)).rows if row.measure == "tokens")

    assert (tokens.treatment.mean, tokens.treatment.missing) == (None, 3)
    assert tokens.control.mean is not None
    assert tokens.verdict == "not enough data"


IDLE = {
    "gate without a dimension": {"overrides": {"gate_mode": "enforce"}, "treatment": ["gate"]},
    "gate whose stage is left out": {
        "overrides": {"stages": [], "gate_mode": "enforce", "gate_adherence_enabled": True},
        "treatment": ["gate"],
    },
    "repetition that is switched off": {
        "overrides": {"repetition_suppression_enabled": False},
        "treatment": ["repetition"],
    },
}


@pytest.mark.parametrize("name", IDLE)
def test_a_treatment_that_cannot_act_ends_void(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = started(environments=2, arms=[{"name": "plain"}, {"name": "treated", **IDLE[name]}])

    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", str(experiment.pk), "--json")

    assert error.value.returncode == 2
    shown = ExperimentReport.model_validate_json(capsys.readouterr().out)
    assert shown.void
    assert shown.void[0].startswith("treated was not treated")
    with pytest.raises(CommandError) as error:
        call_command("experiment", "report", str(experiment.pk), "--format", "markdown")
    assert error.value.returncode == 2
    assert capsys.readouterr().out.startswith("**VOID: treated was not treated")


@pytest.mark.slow
def test_a_used_up_budget_pauses_it_and_its_number_goes_on(
    llm_server: LLMServer, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = started(arms=[{"name": "north"}, {"name": "south"}])
    configure(agent=Agent.objects.get(slug="agent-3"), changes={"budget_enabled": True, "daily_budget_usd": "0"})

    with pytest.raises(CommandError) as error:
        call_command("experiment", "run", str(experiment.pk))

    experiment.refresh_from_db()
    assert error.value.returncode == 1
    assert "Agent-3" in str(error.value)
    assert experiment.state == "paused"
    assert "Agent-3" in experiment.paused
    assert experiment.environments.filter(status=ExperimentEnvironment.Status.PAUSED_BUDGET).count() == 2
    assert (
        not evaluations(experiment)
        .exclude(environment_link__environment__status=ExperimentEnvironment.Status.COMPLETED)
        .exists()
    )
    calls = LLMCall.objects.filter(role="actor").count()

    configure(agent=Agent.objects.get(slug="agent-3"), changes={"daily_budget_usd": "100"})
    call_command("experiment", "run", str(experiment.pk), "--json")

    experiment.refresh_from_db()
    assert experiment.state == "reported"
    assert LLMCall.objects.filter(role="actor").count() > calls
    prompts = [json.dumps(body) for body in llm_server.bodies if "tools" in body]
    assert len(prompts) == len(set(prompts))


def test_a_conversation_that_crashed_pauses_it_and_going_on_plays_it_again() -> None:
    experiment = started(environments=2)
    crashed = experiment.environments.order_by("pk")[0]
    ExperimentEnvironment.objects.filter(pk=crashed.pk).update(
        status=ExperimentEnvironment.Status.ERRORED, error="KeyError: 'x'"
    )
    assert work_one(owner=owner_name())
    experiment.refresh_from_db()

    resume_experiment(experiment)

    assert experiment.paused == "KeyError: 'x'"
    crashed.refresh_from_db()
    assert crashed.status == ExperimentEnvironment.Status.PENDING
    experiment.refresh_from_db()
    assert experiment.state == "playing"
    assert reported(experiment).unfinished == ""
