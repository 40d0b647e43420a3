"""What is asked of the judge, over the API."""

from __future__ import annotations

import pytest

from tests.api_client import PROPOSITIONS, Program, program, queries, refused
from tests.console import superuser
from tests.evaluation.conftest import PropositionFolder
from tests.factories import make_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def client(propositions: PropositionFolder) -> Program:
    make_agent("ada")
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.write(
        "adherence/ada.yaml",
        """
        dimension: adherence
        agent_id: ada
        propositions:
          - {id: short, claim: "{{agent_name}} is short", rule: {max_words: 9}, inverted: true, weight: 2}
          - {id: sings, claim: "{{agent_name}} sings", active: false, source: "she sings"}
        """,
    )
    propositions.write(
        "fluency/_default.action.yaml",
        "dimension: fluency\nlevel: action\npropositions:\n  - {id: fresh, claim: 'it is fresh', recommendations_for_improvement: vary}\n",
    )
    return program(superuser("eve"))


def found(client: Program, query: str = "") -> list[tuple[str, str | None]]:
    rows = client.get(f"{PROPOSITIONS}?{query}").json()["results"]
    return [(row["id"], row["agent"]) for row in rows]


def test_every_file_s_propositions_are_listed_with_whose_they_are(client: Program) -> None:
    assert found(client) == [("voice", None), ("mood", None), ("short", "ada"), ("sings", "ada")]
    assert found(client, "level=action") == [("fresh", None)]
    assert found(client, "dimension=fluency") == []


def test_of_an_agent_those_that_its_evaluation_asks(client: Program) -> None:
    make_agent("bea")

    assert found(client, "agent=ada&active=true") == [("voice", "ada"), ("mood", "ada"), ("short", "ada")]
    assert found(client, "agent=bea") == [("voice", "bea"), ("mood", "bea")]


def test_a_proposition_is_shown_whole(client: Program) -> None:
    (row,) = [row for row in client.get(PROPOSITIONS).json()["results"] if row["id"] == "short"]

    assert (row["dimension"], row["claim"], row["weight"], row["inverted"]) == (
        "adherence", "{{agent_name}} is short", 2.0, True,
    )  # fmt: skip
    assert (row["first_n"], row["last_n"], row["include_personas"], row["target_type"]) == (10, 100, True, "agent")
    assert row["rule"]
    assert row["source"].startswith("ada.yaml:")
    (row,) = client.get(f"{PROPOSITIONS}?level=action").json()["results"]
    assert row["recommendations_for_improvement"] == "vary"


def test_drafts_are_told_apart(client: Program) -> None:
    (row,) = client.get(f"{PROPOSITIONS}?active=false").json()["results"]

    assert (row["id"], row["active"], row["rejected"], row["quote"]) == ("sings", False, False, "she sings")
    assert ("sings", "ada") in found(client, "agent=ada")


def test_it_has_pages_and_touches_no_table(client: Program) -> None:
    page = client.get(f"{PROPOSITIONS}?page_size=3").json()

    assert (page["count"], len(page["results"])) == (4, 3)
    assert len(client.get(page["next"]).json()["results"]) == 1
    assert queries(client, PROPOSITIONS) == 1  # token with user


def test_wrong_filters_and_broken_files_are_said(client: Program, propositions: PropositionFolder) -> None:
    assert "allowed: evaluation, action" in refused(client.get(f"{PROPOSITIONS}?level=both"))["level"][0]
    assert "there is no parameter" in refused(client.get(f"{PROPOSITIONS}?id=voice"))["id"][0]
    propositions.write("adherence/broken.yaml", "propositions: 7\n")
    assert "broken.yaml" in refused(client.get(PROPOSITIONS), 409)["detail"][0]
