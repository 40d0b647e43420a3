"""Asking for an evaluation over the API: queued, never judged in the request; what makes no sense is refused with what would."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from agents.kit.models import ModelPrice
from agents.models import Agent
from evaluation.models import EvaluationRun
from evaluation.runs.execute import work_one
from tests.api_client import RUNS, Program, program, refused
from tests.console import superuser
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.conversing import diverse
from tests.evaluation.judging import answers
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def asked(client: Program, **body: Any) -> EvaluationRun:
    response = client.post(RUNS, body)
    assert response.status_code == 202, response.content
    run: EvaluationRun = EvaluationRun.objects.get(pk=response.json()["id"])
    return run


def test_asking_answers_202_with_the_run_and_its_url_and_judges_nothing_ac_6_0_7(
    client: Program, llm_server: LLMServer, ada: Agent
) -> None:
    response = client.post(RUNS, {"agent": "ada", "dimensions": ["adherence"]})

    assert response.status_code == 202
    says = response.json()
    assert (says["status"], says["agent"], says["judge"], says["taken_up"]) == ("pending", "ada", "test-model", False)
    assert says["progress"] == {"settled": 0, "total": 6}
    assert response["Location"] == says["url"]
    assert type(response.headers["Location"]) is str, "WSGI servers refuse a header of a subclass"
    assert llm_server.calls == 0

    llm_server.respond = answers(lambda claim: 7)
    assert work_one(owner="worker:1:x")
    shown = client.get(says["url"]).json()
    assert (shown["status"], shown["overall_score"], len(shown["scores"])) == ("completed", 7.0, 6)


def test_everything_a_run_may_be_asked_is_understood(client: Program, ada: Agent) -> None:
    ModelPrice.objects.create(
        model="judge-9", effective_from=date(2026, 1, 1), input_usd=1, output_usd=5, cache_write_usd=1, cache_read_usd=1
    )

    run = asked(
        client, agent="ada", dimensions=["adherence"], window="last:2", where={"build": "41"}, samples=7, seed=-3,
        per_call=2, history="4w", history_where={"build": "40"}, repeats=2, hard=True, double_check=True,
        judge="offline:lexical-1", additional_context={"season": "winter"}, position_bins="1-5,6+",
    )  # fmt: skip

    assert (run.window, run.where, run.samples, run.seed, run.per_call) == ("last:2", {"build": "41"}, 7, -3, 2)
    assert (run.history, run.history_where, run.repeats) == ("4w", {"build": "40"}, 2)
    assert (run.procedure, run.judge) == ("plumbline+hard+double-check", "offline:lexical-1")
    assert (run.additional_context, run.position_bins) == ({"season": "winter"}, [[1, 5], [6, None]])
    assert run.is_baseline is False
    assert asked(client, agent="ada", method="tinytroupe", dimensions=["fluency"]).per_call == 1


def test_a_channel_is_measured_in_what_channels_are_measured_in(client: Program) -> None:
    diverse()

    run = asked(client, channel="diverse")

    assert (run.agent, run.dimensions) == (None, ["convergence", "ideas_quantity"])


def test_asking_for_the_same_again_asks_for_nothing_new(client: Program, ada: Agent) -> None:
    first = asked(client, agent="ada")

    again = client.post(RUNS, {"agent": "ada"}).json()

    assert (again["id"], again["taken_up"]) == (first.pk, True)
    EvaluationRun.objects.filter(pk=first.pk).update(status="errored")
    assert client.post(RUNS, {"agent": "ada"}).json()["status"] == "pending"
    assert EvaluationRun.objects.count() == 1


def test_unusable_proposition_files_answer_409_with_the_problem(
    client: Program, ada: Agent, propositions: PropositionFolder
) -> None:
    propositions.write("adherence/ada.yaml", "dimension: adherence\npropositions: 7\n")

    says = refused(client.post(RUNS, {"agent": "ada"}), 409)["detail"][0]

    assert "proposition files cannot be used" in says
    assert "ada.yaml" in says
