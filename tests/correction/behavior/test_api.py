"""Behaviour requests over the API: the queue, and what one decides."""

from __future__ import annotations

from typing import Any

import pytest

from agents.models import Agent
from agents.personas.persona import TraitValue
from correction.behavior.effects import work_one
from correction.behavior.models import BehaviorRequest
from tests.api_client import Program, listed, paged, program
from tests.console import staff, superuser
from tests.correction.behavior.asking import traits_of
from tests.correction.behavior.changed import Changed
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db
REQUESTS = "/api/behavior-requests/"


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def ada() -> Agent:
    return make_agent("ada", traits=[TraitValue("dry wit", "Jokes without a smile.", 0.4, 0.6)])


def test_the_queue_shows_each_request_and_its_page_what_the_tiers_said(client: Program, ada: Agent) -> None:
    row = proposed(ada, "Could you keep it <b>shorter</b>?")

    brief = client.get(REQUESTS).json()["results"][0]
    complete = client.get(brief["url"]).json()

    shown = {name: brief[name] for name in ("id", "agent", "channel", "requester", "status", "confidence", "operation")}
    assert shown == {
        "id": row.pk, "agent": "ada", "channel": "desk", "requester": "Zoe", "status": "pending_review",
        "confidence": "medium", "operation": "add",
    }  # fmt: skip
    assert (brief["trait_before"], brief["trait_after"], brief["heuristic"]) == (None, CONCISE, False)
    assert not {"gate_result", "text"} & brief.keys()
    assert (complete["text"], complete["gate_result"]["reason"]) == ("Could you keep it <b>shorter</b>?", "asks for it")
    for link in ("message_url", "calls_url"):
        assert client.get(complete[link]).status_code == 200
    assert client.get(f"{REQUESTS}{10**30}/").status_code == 404


def test_the_queue_is_filtered_and_paged(client: Program, ada: Agent) -> None:
    one = proposed(ada)
    two = proposed(make_agent("bob"), status=Status.NO_REQUEST, after={}, confidence="", operation="")

    assert listed(client, REQUESTS) == paged(client, f"{REQUESTS}?page_size=1") == [two.pk, one.pk]
    for query in ("trait=Concise%20Replies", f"message={one.message_id}"):
        assert listed(client, f"{REQUESTS}?{query}") == [one.pk], query


def test_a_request_is_applied_and_reverted(client: Program, ada: Agent) -> None:
    row = proposed(ada)

    applied = client.post(f"{REQUESTS}{row.pk}/apply/", {}, format="json")
    assert (applied.status_code, applied.json()["status"], applied.json()["reviewed_by"]) == (200, "applied", "eve")
    assert traits_of(ada) == {"concise replies": 0.7, "dry wit": 0.6}
    assert (applied.json()["persona_version_before"], applied.json()["persona_version"]) == (1, 2)
    again = client.post(f"{REQUESTS}{row.pk}/apply/", {}, format="json")
    assert again.status_code == 409

    reverted = client.post(f"{REQUESTS}{row.pk}/revert/", {}, format="json")
    assert (reverted.status_code, reverted.json()["status"]) == (200, "reverted")
    assert traits_of(ada) == {"dry wit": 0.6}


def test_a_request_is_edited_and_applied_or_rejected_with_a_reason(client: Program, ada: Agent) -> None:
    row, other = proposed(ada), proposed(ada, "Sing, please.", after={**CONCISE, "name": "singing"})

    body = {"trait": {"name": "short answers", "strength": 0.3}}
    assert client.post(f"{REQUESTS}{row.pk}/apply/", body, format="json").status_code == 200
    rejected = client.post(f"{REQUESTS}{other.pk}/reject/", {"why": "not our style"}, format="json")

    assert traits_of(ada) == {"dry wit": 0.6, "short answers": 0.3}
    assert ada.traits.get(name="short answers").description == CONCISE["description"], "what is left out is as proposed"
    assert (rejected.json()["status"], "not our style" in rejected.json()["why"]) == ("rejected", True)


def test_deciding_and_reading_need_their_own_rights(ada: Agent) -> None:
    row = proposed(ada)
    reader = program(staff("behavior.view_behaviorrequest", username="reader"))
    half = program(staff("behavior.view_behaviorrequest", "behavior.change_behaviorrequest", username="half"))

    complete, brief = reader.get(f"{REQUESTS}{row.pk}/").json(), reader.get(REQUESTS).json()["results"][0]
    assert {complete[name] for name in ("text", "gate_result", "extract_result", "map_result", "error")} == {None}
    assert {shown[name] for shown in (complete, brief) for name in ("why", "warnings")} == {None}
    assert "shorter" not in f"{complete}{brief}", "the tiers quote"
    assert (brief["trait_name"], brief["status"]) == ("concise replies", "pending_review")
    for act in ("apply", "reject", "revert", "retry"):
        assert reader.post(f"{REQUESTS}{row.pk}/{act}/", {}, format="json").status_code == 403, act
        assert half.post(f"{REQUESTS}{row.pk}/{act}/", {}, format="json").status_code == 403, act
    assert traits_of(ada) == {"dry wit": 0.6}


# -- whether a request changed anything
@pytest.fixture
def row(changed: Changed) -> BehaviorRequest:
    return changed()


def effect_url(row: BehaviorRequest) -> str:
    return f"/api/behavior-requests/{row.pk}/effect/"


def ask(client: Program, row: BehaviorRequest, body: dict[str, Any] | None = None, **more: Any) -> Any:
    return client.post(effect_url(row), {} if body is None else body, format="json", **more)


def test_the_plan_asks_no_model_and_says_what_is_missing(
    client: Program, row: BehaviorRequest, llm_server: LLMServer
) -> None:
    result = client.get(effect_url(row)).json()
    plan = result["plan"]
    shown = (plan["agent"], plan["trait"], plan["expected"], plan["wanted"], plan["before"], plan["after"])
    assert shown == ("ada", "emoji use", "more", 10, 3, 3)
    assert (plan["waits"], plan["judge"]) == ("not yet: 3 of 10 messages since", "test-model")
    assert plan["estimate"]["calls"] == 6
    assert plan["claim"].startswith("Ada "), "as the judge reads it, with no placeholder"
    assert (result["why_not"], result["effects"], llm_server.calls) == ("", [], 0)
    assert client.get(f"{effect_url(row)}?messages=2").json()["plan"]["waits"] == ""
    refused = client.get(f"{effect_url(row)}?messages=101")
    assert (refused.status_code, "allowed: 1 to 100" in refused.json()["detail"]) == (400, True)


def test_it_is_asked_for_and_what_came_out_is_shown_newest_first(
    client: Program, row: BehaviorRequest, llm_server: LLMServer
) -> None:
    asked = ask(client, row, {"messages": 3})
    assert (asked.status_code, asked.json()["status"], asked.json()["result"]) == (202, "pending", None)
    assert asked.headers["Location"].endswith(effect_url(row))
    assert (asked.json()["requested_by"], asked.json()["heuristic"], llm_server.calls) == ("eve", False, 0)
    again = ask(client, row, {"messages": 3})
    assert (again.status_code, "under way" in again.json()["detail"]) == (409, True)

    work_one(owner="w")
    assert ask(client, row).status_code == 202

    newest, first = client.get(effect_url(row)).json()["effects"]
    assert (newest["status"], first["status"]) == ("pending", "completed")
    result = first["result"]
    assert (result["mean_before"], result["mean_after"], result["verdict"]) == (0.0, 9.0, "more")
    assert (result["as_requested"], result["actual_calls"], len(result["messages"])) == (True, 6, 6)
    assert len(client.get(first["calls_url"]).json()["results"]) == 6


def test_what_cannot_be_judged_is_a_409_that_says_why(client: Program, row: BehaviorRequest) -> None:
    never = proposed(make_agent("bob"))
    result = client.get(effect_url(never)).json()
    assert (result["plan"], "nothing was changed by it" in result["why_not"]) == (None, True)
    refused = ask(client, never)
    assert (refused.status_code, "allowed: a request that was applied" in refused.json()["detail"]) == (409, True)
    assert client.get("/api/behavior-requests/999999/effect/").status_code == 404
    assert client.post("/api/behavior-requests/999999/effect/", {}, format="json").status_code == 404


def test_measuring_needs_the_right_to_ask_for_evaluations_not_to_change_requests(row: BehaviorRequest) -> None:
    view, measure = "behavior.view_behaviorrequest", "evaluation.add_evaluationrun"
    reader = program(staff(view, username="reader"))
    assert ask(program(staff(measure, username="blind")), row).status_code == 403
    assert ask(reader, row).status_code == 403
    assert ask(program(staff(view, measure, username="measurer")), row).status_code == 202
    work_one(owner="w")
    judged = reader.get(effect_url(row)).json()["effects"][0]["result"]["messages"]
    assert {message["justification"] for message in judged} == {None}, "it quotes, and messages may not be read"
    both = program(staff(view, "agents.view_message", username="both"))
    judged = both.get(effect_url(row)).json()["effects"][0]["result"]["messages"]
    assert all(message["justification"] for message in judged)
