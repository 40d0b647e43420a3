"""Behaviour requests over the API: the queue, and what one decides."""

from __future__ import annotations

import pytest

from agents.models import Agent
from agents.personas.persona import TraitValue
from tests.api_client import Program, listed, paged, program
from tests.console import staff, superuser
from tests.correction.behavior.asking import traits_of
from tests.correction.behavior.proposals import CONCISE, Status, proposed
from tests.factories import make_agent

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

    assert program().get(REQUESTS).status_code == 401
    complete, brief = reader.get(f"{REQUESTS}{row.pk}/").json(), reader.get(REQUESTS).json()["results"][0]
    assert {complete[name] for name in ("text", "gate_result", "extract_result", "map_result", "error")} == {None}
    assert {shown[name] for shown in (complete, brief) for name in ("why", "warnings")} == {None}
    assert "shorter" not in f"{complete}{brief}", "the tiers quote"
    assert (brief["trait_name"], brief["status"]) == ("concise replies", "pending_review")
    for act in ("apply", "reject", "revert", "retry"):
        assert reader.post(f"{REQUESTS}{row.pk}/{act}/", {}, format="json").status_code == 403, act
        assert half.post(f"{REQUESTS}{row.pk}/{act}/", {}, format="json").status_code == 403, act
    assert traits_of(ada) == {"dry wit": 0.6}
