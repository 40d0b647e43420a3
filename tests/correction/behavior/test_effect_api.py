"""Whether a request changed anything, over the API."""

from __future__ import annotations

from typing import Any

import pytest

from correction.behavior.effects import work_one
from correction.behavior.models import BehaviorRequest
from tests.api_client import Program, program
from tests.console import staff, superuser
from tests.correction.behavior.changed import Changed
from tests.correction.behavior.proposals import proposed
from tests.factories import make_agent
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Program:
    return program(superuser("eve"))


@pytest.fixture
def row(changed: Changed) -> BehaviorRequest:
    return changed()


def url(row: BehaviorRequest) -> str:
    return f"/api/behavior-requests/{row.pk}/effect/"


def ask(client: Program, row: BehaviorRequest, body: dict[str, Any] | None = None, **more: Any) -> Any:
    return client.post(url(row), {} if body is None else body, format="json", **more)


def test_the_plan_asks_no_model_and_says_what_is_missing(
    client: Program, row: BehaviorRequest, llm_server: LLMServer
) -> None:
    result = client.get(url(row)).json()
    plan = result["plan"]
    shown = (plan["agent"], plan["trait"], plan["expected"], plan["wanted"], plan["before"], plan["after"])
    assert shown == ("ada", "emoji use", "more", 10, 3, 3)
    assert (plan["waits"], plan["judge"]) == ("not yet: 3 of 10 messages since", "test-model")
    assert plan["estimate"]["calls"] == 6
    assert plan["claim"].startswith("Ada "), "as the judge reads it, with no placeholder"
    assert (result["why_not"], result["effects"], llm_server.calls) == ("", [], 0)
    assert client.get(f"{url(row)}?messages=2").json()["plan"]["waits"] == ""
    refused = client.get(f"{url(row)}?messages=101")
    assert (refused.status_code, "allowed: 1 to 100" in refused.json()["detail"]) == (400, True)


def test_it_is_asked_for_and_what_came_out_is_shown_newest_first(
    client: Program, row: BehaviorRequest, llm_server: LLMServer
) -> None:
    asked = ask(client, row, {"messages": 3})
    assert (asked.status_code, asked.json()["status"], asked.json()["result"]) == (202, "pending", None)
    assert asked.headers["Location"].endswith(url(row))
    assert (asked.json()["requested_by"], asked.json()["heuristic"], llm_server.calls) == ("eve", False, 0)
    again = ask(client, row, {"messages": 3})
    assert (again.status_code, "under way" in again.json()["detail"]) == (409, True)

    work_one(owner="w")
    assert ask(client, row).status_code == 202

    newest, first = client.get(url(row)).json()["effects"]
    assert (newest["status"], first["status"]) == ("pending", "completed")
    result = first["result"]
    assert (result["mean_before"], result["mean_after"], result["verdict"]) == (0.0, 9.0, "more")
    assert (result["as_requested"], result["actual_calls"], len(result["messages"])) == (True, 6, 6)
    assert len(client.get(first["calls_url"]).json()["results"]) == 6


def test_what_cannot_be_judged_is_a_409_that_says_why(client: Program, row: BehaviorRequest) -> None:
    never = proposed(make_agent("bob"))
    result = client.get(url(never)).json()
    assert (result["plan"], "nothing was changed by it" in result["why_not"]) == (None, True)
    refused = ask(client, never)
    assert (refused.status_code, "allowed: a request that was applied" in refused.json()["detail"]) == (409, True)
    assert client.get("/api/behavior-requests/999999/effect/").status_code == 404
    assert client.post("/api/behavior-requests/999999/effect/", {}, format="json").status_code == 404


def test_measuring_needs_the_right_to_ask_for_evaluations_not_to_change_requests(row: BehaviorRequest) -> None:
    view, measure = "behavior.view_behaviorrequest", "evaluation.add_evaluationrun"
    reader = program(staff(view, username="reader"))
    assert program().get(url(row)).status_code == 401
    assert program(staff(measure, username="blind")).get(url(row)).status_code == 403
    assert ask(program(staff(measure, username="blinder")), row).status_code == 403
    assert ask(reader, row).status_code == 403
    assert ask(program(staff(view, measure, username="measurer")), row).status_code == 202
    work_one(owner="w")
    judged = reader.get(url(row)).json()["effects"][0]["result"]["messages"]
    assert {message["justification"] for message in judged} == {None}, "it quotes, and messages may not be read"
    both = program(staff(view, "agents.view_message", username="both"))
    judged = both.get(url(row)).json()["effects"][0]["result"]["messages"]
    assert all(message["justification"] for message in judged)
