"""The API of debates: started, asked for rounds, read in four layers, exported; who may what, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.debates.debate import play
from agents.debates.measures import Exit
from agents.debates.models import Debate
from agents.debates.report import DebateReport, as_json, as_markdown, report
from agents.kit.models import owner_name
from agents.models import Agent
from tests.agents.debates.finished import make_debate, says
from tests.agents.debates.refusals import GOOD, written
from tests.api_client import Program, listed, program, refused
from tests.console import staff, superuser

pytestmark = pytest.mark.django_db
DEBATES = "/api/debates/"
AGREED = Exit(ends=True, reason="consensus", details="agreement 1, at least 0.9")


@pytest.fixture
def client() -> Program:
    return program(superuser("root"))


@pytest.mark.parametrize(
    ("changes", "field", "part"),
    [
        ({"agents": "ada"}, "agents", "allowed: a valid list"),
        ({"models": {"1": "replay:answers.jsonl"}}, "models.1", "allowed: the name of a model"),
    ],
)
def test_a_body_of_another_shape_is_a_400(
    client: Program, people: list[Agent], changes: dict[str, Any], field: str, part: str
) -> None:
    before = written()

    assert part in refused(client.post(DEBATES, {**GOOD, **changes}))[field][0]
    assert written() == before


def test_a_debate_is_started_played_by_rounds_then_to_its_end(client: Program, people: list[Agent]) -> None:
    off = {"consensus": None, "confidence": None, "convergence_rounds": None}

    made = client.post(DEBATES, {**GOOD, "rounds": 3, **off})

    assert made.status_code == 201
    url = made["Location"]
    assert (made.json()["status"], made.json()["topic"]) == ("waiting", "Should we move?")
    asked = client.post(f"{url}rounds/", {})
    assert (asked.status_code, asked["Location"]) == (202, url)
    assert (asked.json()["status"], asked.json()["rounds_asked"]) == ("pending", 1)
    assert client.post(f"{url}rounds/", {"rounds": None}).json()["rounds_asked"] == 1  # it waits to be played
    play(Debate.objects.get(), owner=owner_name())
    shown = client.get(url)
    assert shown.json()["metadata"]["rounds_played"] == 1
    assert client.post(f"{url}rounds/", {"rounds": None}).json()["rounds_asked"] == 3
    play(Debate.objects.get(), owner=owner_name())
    ended = client.get(url).json()
    assert (ended["metadata"]["status"], ended["metadata"]["exit_reason"]) == ("completed", "max_rounds")
    assert DebateReport.model_validate(ended) == report(Debate.objects.get())
    assert "has ended" in refused(client.post(f"{url}rounds/", {}), 409)["detail"][0]


def test_cancelling_twice_is_allowed_and_cancelling_an_ended_debate_is_a_409(
    client: Program, people: list[Agent]
) -> None:
    url = client.post(DEBATES, GOOD)["Location"]
    client.post(f"{url}rounds/", {})

    first, again = (client.post(f"{url}cancel/", {}) for _ in range(2))

    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    assert first.json() == again.json()
    assert "has ended (cancelled)" in refused(client.post(f"{url}rounds/", {}), 409)["detail"][0]
    ended = make_debate([[says(1), says(2)]], slug="over", ended=AGREED)
    assert "has ended (completed)" in refused(client.post(f"{DEBATES}{ended.pk}/cancel/", {}), 409)["detail"][0]


def test_a_start_sent_again_under_its_key_makes_one_debate(client: Program, people: list[Agent]) -> None:
    first = client.post(DEBATES, GOOD, headers={"Idempotency-Key": "k1"})
    again = client.post(DEBATES, GOOD, headers={"Idempotency-Key": "k1"})

    assert first.json() == again.json()
    assert Debate.objects.count() == 1


def test_a_person_speaks_between_the_rounds_and_no_agent_answers(client: Program, people: list[Agent]) -> None:
    client.post(DEBATES, GOOD)
    debate = Debate.objects.get()

    said = client.post("/api/messages/", {"channel": debate.channel.slug, "text": "@ada, think of the parking."})

    assert (said.status_code, said.json()["turns"]) == (201, [])
    assert [remark.text for remark in report(debate).evidence.remarks] == ["@ada, think of the parking."]


def test_the_export_is_the_report_as_markdown_or_json(client: Program) -> None:
    debate = make_debate([[says(1), says(2)], [says(1), says(2)]], ended=AGREED)

    page, data = (client.get(f"{DEBATES}{debate.pk}/export/{query}") for query in ("", "?as=json"))

    assert page["Content-Type"] == "text/markdown; charset=utf-8"
    assert page["Content-Disposition"] == 'attachment; filename="debate-1.md"'
    assert page.content.decode() == as_markdown(report(debate))
    assert data["Content-Type"] == "application/json; charset=utf-8"
    assert data.content.decode() == as_json(report(debate))
    assert json.loads(data.content)["metadata"]["exit_reason"] == "consensus"
    assert "allowed: markdown, json" in refused(client.get(f"{DEBATES}{debate.pk}/export/?as=pdf"))["as"][0]


def test_the_list_is_narrowed_by_who_has_a_seat(client: Program, people: list[Agent]) -> None:
    with_ada = make_debate([], slug="one", agents=people[:2])
    make_debate([], slug="two", agents=people[1:])

    assert listed(client, f"{DEBATES}?agent=ada") == [with_ada.pk]


def test_words_and_models_need_permissions_of_their_own(people: list[Agent]) -> None:
    url = f"{DEBATES}{make_debate([[says(1), says(2)]]).pk}/"
    starter, blind = (program(staff(f"debates.{act}_debate", username=act)) for act in ("add", "view"))

    assert blind.get(DEBATES).status_code == 200
    assert blind.get(url).status_code == blind.get(f"{url}export/").status_code == 403
    chosen = starter.post(DEBATES, {**GOOD, "models": {"1": "offline:scripted"}})
    assert "agents.change_agent" in refused(chosen, 403)["detail"][0]
