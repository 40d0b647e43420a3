"""The ways to ask for batches: the command, schedules, and the API."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse
from pytest_django import Settings

from agents.kit.models import ModelPrice
from agents.models import Agent
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.estimate import estimate
from evaluation.runs.execute import work_one
from evaluation.runs.schedules import fire_now
from tests.api_client import program
from tests.batch_server import BatchServer
from tests.console import signed_in, superuser
from tests.evaluation.measuring import spec

pytestmark = pytest.mark.django_db


def when_looked_at(server: BatchServer) -> None:
    def end(method: str, path: str) -> None:
        if method == "GET":
            server.end()

    server.fail = end


def test_the_command_stays_until_the_answers_are_there(ada: Agent, server: BatchServer, price: ModelPrice) -> None:
    when_looked_at(server)
    out, err = io.StringIO(), io.StringIO()
    call_command("capture_baseline", "--no-simulate", "--batch", "--json", "--agents", "ada", stdout=out, stderr=err)
    found = json.loads(out.getvalue())
    assert "Waiting for batch msgbatch_01: 0 of 3 answered" in err.getvalue()
    assert found["runs"][0]["status"] == "completed"
    assert found["actual"]["cost_usd"] == pytest.approx(0.00018)
    assert server.live() == 0


def test_a_dry_run_estimates_half(ada: Agent, server: BatchServer, price: ModelPrice) -> None:
    full, half = estimate(spec(ada)).cost_usd, estimate(spec(ada, batch=True)).cost_usd
    assert full is not None
    assert half is not None
    assert half == pytest.approx(full / 2, abs=Decimal("0.00000002"))


def test_a_schedule_has_its_runs_judged_in_batches(ada: Agent, server: BatchServer) -> None:
    call_command("schedule", "add", "nightly", "--window", "all", "--batch", stdout=io.StringIO())
    schedule = EvaluationSchedule.objects.get()
    assert schedule.batch
    fire_now(schedule)
    assert work_one(owner="test")
    assert (server.made(), server.live()) == (1, 0)
    call_command("schedule", "change", "nightly", "--no-batch", stdout=io.StringIO())
    assert EvaluationSchedule.objects.filter(batch=False).exists()


@pytest.mark.parametrize("path", ["", "baselines/"])
def test_the_api_takes_it_and_says_what_is_waited_for(path: str, ada: Agent, server: BatchServer) -> None:
    client = program(superuser())
    body = {"agent": "ada", "dimensions": ["adherence"], "batch": True}
    if path:
        body["simulate"] = "never"
    made = client.post(f"/api/evaluations/{path}", body, format="json")
    assert made.status_code == 202
    assert (made.json()["batch"], made.json()["waits_for"]) == (True, "")
    assert work_one(owner="test")
    shown = client.get(made.json()["url"]).json()
    assert shown["waits_for"] == "waiting for batch msgbatch_01: 0 of 3 answered"
    assert shown["status"] == "pending"


ELSEWHERE = "foundry:claude-haiku-5-5"  # whose platform has no batches


@pytest.fixture
def no_batches(ada: Agent, settings: Settings) -> None:
    """Have the judge be one that can be asked, but not in batches."""
    settings.JUDGE_MODEL = ELSEWHERE
    settings.ANTHROPIC_FOUNDRY_RESOURCE = "a-resource"
    settings.ANTHROPIC_FOUNDRY_API_KEY = "foundry-key"


NO_BATCHES = f"the judge {ELSEWHERE} takes no batches"


@pytest.mark.parametrize("asked", [("capture_baseline", "--agents", "ada"), ("schedule", "add", "nightly")])
def test_a_command_refuses_batches_of_a_provider_without_any(no_batches: None, asked: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=NO_BATCHES):
        call_command(*asked, "--batch", stdout=io.StringIO())

    assert not EvaluationRun.objects.exists()
    assert not EvaluationSchedule.objects.exists()


def test_the_api_refuses_batches_of_a_provider_without_any(no_batches: None) -> None:
    body = {"agent": "ada", "dimensions": ["adherence"], "batch": True}

    refused = program(superuser()).post("/api/evaluations/", body, format="json")

    assert refused.status_code == 400
    assert NO_BATCHES in str(refused.json())
    assert not EvaluationRun.objects.exists()


def test_a_schedules_form_refuses_batches_of_a_provider_without_any(no_batches: None) -> None:
    client = signed_in(superuser())
    form = {"name": "nightly", "window": "all", "where": "{}", "samples": "20", "judge": "", "batch": "on"}
    when = {"every": "1d", "next_at_0": "2026-12-01", "next_at_1": "08:00:00", "drift_limit": "0.8"}

    schedule = client.post(reverse("admin:evaluation_evaluationschedule_add"), form | when)

    assert NO_BATCHES in schedule.content.decode()
    assert not EvaluationSchedule.objects.exists()


def test_a_schedule_measures_nothing_at_twice_the_price_when_its_judge_lost_batches(
    ada: Agent, server: BatchServer, settings: Settings
) -> None:
    call_command("schedule", "add", "nightly", "--window", "all", "--batch", stdout=io.StringIO())
    settings.JUDGE_MODEL = ELSEWHERE

    fired = fire_now(EvaluationSchedule.objects.get())

    assert NO_BATCHES in fired.outcome
    assert not EvaluationRun.objects.exists()
