"""Baselines over the API: listed, captured, and compared with."""

from __future__ import annotations

import pytest
from django.utils import timezone

from agents.models import Agent
from agents.personas.persona import save_persona
from evaluation.calibration.models import JudgeCalibration
from evaluation.change.models import Baseline
from evaluation.models import EvaluationRun
from evaluation.runs.execute import work_one
from tests.api_client import BASELINES, Program, program, refused
from tests.console import superuser
from tests.evaluation.judged import LLM, OFFLINE, make_baseline, make_run
from tests.evaluation.judging import answers
from tests.evaluation.measuring import evaluate_agent, measured
from tests.factories import make_agent, make_channel, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def test_all_current_baselines_are_listed_ac_6_5_5(client: Program) -> None:
    bea, ada = make_agent("bea"), make_agent("ada")
    run = make_run(ada, judge=OFFLINE, is_baseline=True)
    make_baseline(ada, run, score=6.5)
    make_baseline(ada, run, dimension="ideas_quantity", score=None, count=4)
    make_baseline(bea, make_run(bea, is_baseline=True), procedure="plumbline+hard")
    ada.system_prompt = "You are Ada, and now you sing."
    save_persona(agent=ada, traits=[], note="edit")

    first, second, third = client.get(BASELINES).json()["results"]

    assert (first["agent"], first["dimension"], first["score"], first["count"]) == ("ada", "adherence", 6.5, None)
    assert (first["judge"], first["heuristic"], first["is_stale"]) == (OFFLINE, True, True)
    assert (second["dimension"], second["score"], second["count"]) == ("ideas_quantity", None, 4)
    assert (third["agent"], third["heuristic"], third["is_stale"]) == ("bea", False, False)
    assert third["procedure"] == "plumbline+hard"
    assert client.get(first["run_url"]).json()["id"] == run.pk
    assert client.get(first["url"]).json()["agent"] == "ada"


def test_one_agent_s_baselines_ac_6_5_5(client: Program) -> None:
    ada = make_agent("ada")
    make_baseline(ada, make_run(ada, judge=OFFLINE), score=6.5)
    make_baseline(ada, make_run(ada), dimension="fluency", score=3.0)
    make_agent("bea")

    found = client.get(f"{BASELINES}ada/").json()

    assert (found["agent"], found["display_name"]) == ("ada", "Ada")
    numbers = [(row["judge"], row["dimension"], row["score"]) for row in found["baselines"]]
    assert numbers == [(LLM, "fluency", 3.0), (OFFLINE, "adherence", 6.5)]
    assert client.get(f"{BASELINES}bea/").json()["baselines"] == [], "none was captured yet"
    assert "there is no agent 'cyd'" in refused(client.get(f"{BASELINES}cyd/"), 404)["detail"][0]


def test_a_capture_is_queued_and_a_worker_makes_it_the_baseline_ac_6_5_5(
    client: Program, llm_server: LLMServer, ada: Agent
) -> None:
    response = client.post(BASELINES, {"agent": "ada", "samples": 2, "hard": True, "simulate": "never"})

    assert response.status_code == 202
    says = response.json()
    assert (says["status"], says["is_baseline"], says["samples"], says["procedure"]) == (
        "pending", True, 2, "plumbline+hard",
    )  # fmt: skip
    assert (llm_server.calls, Baseline.objects.count()) == (0, 0)

    llm_server.respond = answers(lambda claim: {**_hard(), "value": 6})
    assert work_one(owner="worker:1:x")
    (row,) = client.get(f"{BASELINES}ada/").json()["baselines"]
    assert (row["dimension"], row["evaluation_run"]) == ("adherence", says["id"])


def test_only_on_request_does_a_baseline_of_all_replace_a_tagged_one(client: Program) -> None:
    ada = make_agent("ada")
    make_baseline(ada, make_run(ada, judge=OFFLINE, where={"build": "7"}))

    answer = client.post(BASELINES, {"agent": "ada", "dimensions": ["adherence"]})

    assert "build=7" in refused(answer, 409)["detail"][0]
    assert not EvaluationRun.objects.filter(status="pending").exists()
    for said in ({"where": {"build": "8"}}, {"replace": True}):
        assert client.post(BASELINES, {"agent": "ada", "dimensions": ["adherence"], **said}).status_code == 202


def _hard() -> dict[str, object]:
    said = {"evidence": "present", "reasoning": "Dry.", "justification": "“No.”", "value": 6, "confidence": 0.9}
    return {**said, "flaws": []}


def test_how_well_a_judge_agrees_with_people_stands_beside_it(client: Program) -> None:
    ada = make_agent("ada")
    make_baseline(ada, make_run(ada))
    JudgeCalibration.objects.create(
        judge=LLM, procedure="plumbline", dimension="adherence", kappa=0.71, kappa_low=0.6, kappa_high=0.8,
        labels=60, items=60, annotators=2, computed_at=timezone.now(),
    )  # fmt: skip

    (row,) = client.get(BASELINES).json()["results"]

    agreement = row["passport"]["rows"][0]
    assert (agreement["value"], agreement["interval"], agreement["verdict"]) == (0.71, [0.6, 0.8], "not shown")
    run = client.get(row["run_url"]).json()
    assert run["summary"]["dimensions"]["adherence"]["passport"] == row["passport"]


def test_a_judges_swap_test_stands_beside_it_or_null_if_never_run(client: Program) -> None:
    ada = make_agent("ada")
    run = make_run(ada, dimensions=["adherence", "consistency"])
    make_baseline(ada, run)
    make_baseline(ada, run, dimension="consistency")
    shown = {
        **{"auc": 0.65, "interval": [0.58, 0.72], "reason": "", "high_share": 0.63, "own_scored": 60},
        **{"swapped_scored": 60, "agents": 6, "against": "agents", "checked_at": "2026-11-23T15:00:00+00:00"},
    }
    known = {"judge": LLM, "procedure": "plumbline", "dimension": "adherence"}
    JudgeCalibration.objects.create(**known, swap_test={**shown, "by_agent": {"ada": 0.71, "bob": 0.6}})

    rows = {row["dimension"]: row for row in client.get(BASELINES).json()["results"]}

    checked, unchecked = (
        next(row for row in rows[name]["passport"]["rows"] if row["name"] == "swap test")
        for name in ("adherence", "consistency")
    )
    assert (checked["value"], checked["interval"], checked["verdict"]) == (0.65, [0.58, 0.72], "usable")
    assert "the agent alone 0.71" in checked["text"]
    assert (unchecked["value"], unchecked["verdict"]) == (None, "not shown")
    dimensions = client.get(rows["adherence"]["run_url"]).json()["summary"]["dimensions"]
    for name, row in rows.items():
        assert dimensions[name]["passport"] == row["passport"]


# -- compared with
def test_the_newest_evaluation_is_compared_with_the_baseline_ac_6_5_4(
    client: Program, llm_server: LLMServer, ada: Agent
) -> None:
    talk(ada, [f"Line {n}." for n in range(17)])
    llm_server.respond = answers(lambda claim: 8)
    baseline = measured(ada).summary.run
    talk(ada, [f"Later {n}." for n in range(17)], channel=make_channel("later"), sent_at=timezone.now())
    llm_server.respond = answers(lambda claim: 8 if "voice" in claim else 2)
    evaluate_agent(agent=ada, dimensions=("adherence",), seed=1)
    newest = evaluate_agent(agent=ada, dimensions=("adherence",), seed=2).run

    found = client.get(f"{BASELINES}ada/compare/").json()

    assert (found["agent"], found["run"]["id"]) == ("ada", newest.pk)
    change = found["comparison"]["dimensions"]["adherence"]
    assert (change["baseline"], change["candidate"], change["delta"], change["verdict"]) == (8.0, 5.0, -3.0, "drifted")
    assert change["interval"][0] <= -3.0 <= change["interval"][1] < 0
    assert list(change["propositions"]) == ["mood", "voice"], "worst first"
    assert change["propositions"]["mood"]["delta"] == -6.0
    assert found["comparison"]["baseline"]["evaluation_run"] == baseline.pk


def test_a_comparison_shows_its_judge_s_reliability_and_messages_without_a_time(
    client: Program, llm_server: LLMServer, ada: Agent
) -> None:
    llm_server.respond = answers(lambda claim: 8)
    measured(ada)
    talk(ada, ["Later."], channel=make_channel("later"), sent_at=None)
    run = evaluate_agent(agent=ada, dimensions=("adherence",), seed=1).run
    JudgeCalibration.objects.update_or_create(
        judge=run.judge, procedure=run.procedure, dimension="adherence",
        defaults={"kappa": 0.71, "labels": 60, "items": 60, "annotators": 2, "computed_at": timezone.now()},
    )  # fmt: skip

    comparison = client.get(f"{BASELINES}ada/compare/?run={run.pk}").json()["comparison"]

    change = comparison["dimensions"]["adherence"]
    assert change["passport"]["rows"][0]["value"] == 0.71
    assert any(note.startswith("undated: 1 of ") for note in comparison["notes"])


def test_what_cannot_be_compared_says_why(client: Program) -> None:
    ada, bea = make_agent("ada"), make_agent("bea")
    url = f"{BASELINES}ada/compare/"

    assert "ada has no baseline yet" in refused(client.get(url), 404)["detail"][0]
    baseline = make_run(ada)
    make_baseline(ada, baseline)
    assert "nothing to compare: no evaluation of ada" in refused(client.get(url), 404)["detail"][0]
    other = make_run(ada, judge=OFFLINE)
    assert "nothing to compare: no evaluation of ada" in refused(client.get(url), 404)["detail"][0], "another judge"
    says = refused(client.get(f"{url}?run={other.pk}"), 404)["detail"][0]
    assert says.startswith(f"no baseline by judge {OFFLINE} and procedure plumbline")
    assert says.endswith(f"there are: {LLM} by plumbline")
    running = make_run(ada, status="running")
    assert f"evaluation {running.pk} is running" in refused(client.get(f"{url}?run={running.pk}"), 409)["detail"][0]
    elsewhere = make_run(bea)
    says = refused(client.get(f"{url}?run={elsewhere.pk}"), 404)["detail"][0]
    assert says == f"there is no evaluation {elsewhere.pk} of ada"
    assert refused(client.get(f"{BASELINES}cyd/compare/"), 404)
