"""Evaluations over the API: listed, narrowed, looked at with their judgements."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from evaluation.models import EvaluationRun
from tests.api_client import RUNS, Program, listed, program, queries, refused
from tests.console import superuser
from tests.evaluation.conversing import diverse
from tests.evaluation.judged import OFFLINE, make_run, make_score
from tests.evaluation.judging import answers
from tests.evaluation.measuring import evaluate_agent
from tests.factories import make_agent, talk
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


def test_the_list_is_newest_first_with_judge_procedure_and_progress_ac_6_0_7(client: Program) -> None:
    first = make_run(make_agent("ada"), judge=OFFLINE, overall_score=6.5)
    second = make_run(status="running", dimensions=["convergence"], repeats=3, hard=True)
    make_score(second, 5, dimension="convergence")
    make_score(second, None, dimension="convergence", proposition_id="b", status="pending")

    newer, older = client.get(RUNS).json()["results"]

    assert (newer["id"], older["id"]) == (second.pk, first.pk)
    assert (older["agent"], older["channel"], older["judge"], older["heuristic"]) == ("ada", None, OFFLINE, True)
    assert (older["overall_score"], older["procedure"]) == (6.5, "plumbline")
    assert (newer["agent"], newer["channel"], newer["heuristic"]) == (None, "room", False)
    assert (newer["procedure"], newer["repeats"], newer["status"]) == ("plumbline+hard", 3, "running")
    assert newer["progress"] == {"settled": 1, "total": 2}
    assert newer["url"].startswith("https://")
    assert newer["url"].endswith(f"{RUNS}{second.pk}/")


def test_a_waiting_evaluation_answers_304_until_something_is_judged(client: Program) -> None:
    run = make_run(make_agent("ada"), status="running")
    score = make_score(run, None, status="pending")
    url = f"{RUNS}{run.pk}/?scores=0"
    etag = client.get(url)["ETag"]

    assert client.get(url, headers={"If-None-Match": etag}).status_code == 304
    type(score).objects.update(status="scored", score=5, raw_score=5)
    changed = client.get(url, headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["progress"]) == (200, {"settled": 1, "total": 1})
    EvaluationRun.objects.update(status="completed")
    assert client.get(url, headers={"If-None-Match": changed["ETag"]}).status_code == 200


# -- one of them
def judged(server: LLMServer, **fields: Any) -> EvaluationRun:
    server.respond = answers(lambda claim: 8 if "voice" in claim else 4)
    return evaluate_agent(agent=Agent.objects.get(slug="ada"), dimensions=("adherence",), **fields).run


def test_one_evaluation_is_shown_with_its_scores_ac_6_0_7(client: Program, llm_server: LLMServer, ada: Agent) -> None:
    run = judged(llm_server)

    shown = client.get(f"{RUNS}{run.pk}/").json()

    assert (shown["status"], shown["progress"]) == ("completed", {"settled": 6, "total": 6})
    assert shown["summary"]["overall_score"] == shown["overall_score"] == 6.0
    assert shown["summary"]["dimensions"]["adherence"]["propositions"] == {"mood": 4.0, "voice": 8.0}
    assert len(shown["scores"]) == 6
    assert shown["scores_complete"] is True
    first = shown["scores"][0]
    assert (first["dimension"], first["status"], first["score"], first["judge"], first["heuristic"]) == (
        "adherence", "scored", 8, "test-model", False,
    )  # fmt: skip
    assert (first["channel"], first["context_snippet"], first["reasoning"]) == ("office", "No.", "Two words, no more.")
    assert {row["position"] for row in shown["scores"]} == {1, 2, 3}
    assert shown["compare_url"].endswith(f"/api/evaluations/baselines/ada/compare/?run={run.pk}")


def test_somebody_who_waits_need_not_be_sent_the_scores(client: Program, llm_server: LLMServer, ada: Agent) -> None:
    run = judged(llm_server)

    without, some = (client.get(f"{RUNS}{run.pk}/?scores={n}").json() for n in (0, 5))

    assert (without["scores"], without["scores_complete"], without["progress"]["settled"]) == ([], False, 6)
    assert (len(some["scores"]), some["scores_complete"]) == (5, False)
    assert "allowed: 0 to 1,000" in refused(client.get(f"{RUNS}{run.pk}/?scores=1001"))["scores"][0]
    assert "allowed: 0 to 1,000" in refused(client.get(f"{RUNS}{run.pk}/?scores=-1"))["scores"][0]


def test_all_scores_stand_in_pages_and_are_narrowed(client: Program, llm_server: LLMServer, ada: Agent) -> None:
    run = judged(llm_server)
    url = client.get(f"{RUNS}{run.pk}/").json()["scores_url"]
    make_score(run, None, reason="timeout", proposition_id="late")

    everything = listed(client, url)

    page = client.get(f"{url}?page_size=4").json()
    rest = client.get(page["next"]).json()
    assert [row["id"] for row in (*page["results"], *rest["results"])] == everything == sorted(everything)
    assert len(listed(client, f"{url}?proposition=voice")) == 3
    assert len(listed(client, f"{url}?status=unscored")) == 1
    assert listed(client, f"{url}?dimension=fluency") == []
    assert "allowed: pending, scored, trivial, unscored" in refused(client.get(f"{url}?status=bad"))["status"][0]


def test_people_who_label_are_not_shown_what_the_judge_said(client: Program, llm_server: LLMServer, ada: Agent) -> None:
    run = judged(llm_server)
    make_score(run, None, reason="timeout", proposition_id="late")

    rows = client.get(f"{RUNS}{run.pk}/scores/?blind=true").json()["results"]

    assert len(rows) == 6, "only what was scored can be labelled"
    assert rows[0]["context_snippet"] == "No."
    assert not {"score", "raw_score", "reasoning", "justification", "flaws", "judge", "confidence"} & set(rows[0])


def test_an_agent_s_evaluation_leads_to_those_of_its_channels(client: Program, llm_server: LLMServer) -> None:
    diverse()
    run = evaluate_agent(agent=Agent.objects.get(slug="ada"), dimensions=("convergence",)).run

    shown = client.get(f"{RUNS}{run.pk}/").json()

    (channel,) = shown["channels"]
    assert (channel["channel"], channel["messages"], channel["status"]) == ("diverse", 5, "completed")
    assert shown["progress"] == client.get(channel["url"]).json()["progress"]
    assert shown["progress"]["settled"] == shown["progress"]["total"] > 0
    assert shown["scores"] == [], "they are the channel's"


def test_scores_cost_the_same_queries_however_many(client: Program) -> None:
    ada = make_agent("ada")
    run = make_run(ada)
    make_score(run, 4, message=talk(ada, ["one"])[0])
    few = [queries(client, f"{RUNS}{run.pk}/{rest}") for rest in ("", "scores/")]
    for n, message in enumerate(talk(ada, ["more"] * 5)):
        make_score(run, 4, message=message, proposition_id=f"p{n}")

    assert [queries(client, f"{RUNS}{run.pk}/{rest}") for rest in ("", "scores/")] == few
