"""``manage.py draft_propositions`` and ``check_propositions``: what is written, shown and how it ends."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.test import override_settings
from pytest_django import Settings

from agents.kit.models import LLMCall
from evaluation.models import EvaluationRun
from evaluation.propositions.files import load_file
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import document, file_of, make_ada, proposal, reply, run
from tests.llm_server import LLMServer

pytestmark = pytest.mark.django_db


@pytest.fixture
def team(settings: Settings, propositions: PropositionFolder, tmp_path: Path) -> Path:
    """A team's folder, which is read."""
    folder = tmp_path / "team"
    folder.mkdir()
    settings.PROPOSITION_DIRS = [folder]
    return folder


def test_suggestions_go_to_the_teams_first_folder_and_are_shown(llm_server: LLMServer, team: Path) -> None:
    make_ada()
    llm_server.reply(**reply(proposal(), proposal("{{agent_name}} sails", quote="adores sailing")))
    code, out = run("draft_propositions", "--agents", "all")

    assert code == 0
    for fact in ("test-model", "ada-sales-talk (cues)", "Sales talk makes you wince", "no such words", "unpriced"):
        assert fact in out
    assert [p.id for p in load_file(file_of(team)).inactive] == ["ada-sales-talk"]


def test_a_dry_run_writes_nothing_and_json_has_everything(llm_server: LLMServer, team: Path) -> None:
    make_ada()
    llm_server.reply(**reply(proposal(), "nonsense"))
    result = document("draft_propositions", "--dry-run")

    assert list(team.iterdir()) == []
    [ada] = result["agents"]
    assert result["dry_run"] is True
    assert [d["id"] for d in ada["suggestions"]] == ["ada-sales-talk"]
    assert ada["dropped"][0]["claim"] == "nonsense"
    assert (ada["calls"], ada["cost_usd"], ada["unpriced_calls"], ada["file"]) == (1, None, 1, None)


@pytest.mark.django_db(transaction=True)
def test_one_agent_without_an_answer_costs_the_others_nothing(llm_server: LLMServer, team: Path) -> None:
    make_ada()
    make_ada("bob", display_name="Bob")
    llm_server.respond = lambda body: (
        {"status": 400} if "specification of Bob" in json.dumps(body) else reply(proposal())
    )
    code, out = run("draft_propositions")

    assert code == 2
    assert "no suggestions for:\n  bob: rejected" in out
    assert file_of(team).exists()


@pytest.mark.usefixtures("propositions")
def test_without_a_folder_one_must_be_named() -> None:
    make_ada()

    assert run("draft_propositions")[0] == 3
    assert "name one in PROPOSITION_DIRS" in run("draft_propositions")[1]


def test_offline_it_says_that_suggestions_need_a_model(team: Path, settings: Settings) -> None:
    settings.JUDGE_MODEL = "offline:lexical-1"
    make_ada()
    code, out = run("draft_propositions")

    assert code == 3
    assert re.search("suggestions need a model: set ANTHROPIC_API_KEY.*write propositions in the console", out)
    assert list(team.iterdir()) == []
    assert not LLMCall.objects.exists()


def test_suggestions_are_shown_by_the_check(propositions: PropositionFolder) -> None:
    propositions.write(
        "adherence/ada.suggestions.yaml",
        """
        propositions:
          - {id: a, claim: "a", active: false}
          - {id: b, claim: "b", active: false, rejected: true}
          - {id: c, claim: "c", source: "some words"}
        """,
    )
    propositions.claims("adherence/bob.suggestions.yaml", "d", extra="active: false")
    _, out = run("check_propositions")

    assert "adherence/ada: 1 proposition (1 judge only), 1 suggestion, 1 rejected" in out
    assert "adherence/bob: 1 suggestion" in out
    assert "2 suggestions not judged before you accept them." in out


def test_a_file_that_cannot_be_written_ends_with_2_and_a_reason(llm_server: LLMServer, team: Path) -> None:
    make_ada()
    (team / "adherence").write_text("a file where a folder should be")
    llm_server.reply(**reply(proposal()))
    code, out = run("draft_propositions")

    assert code == 2
    assert "cannot be" in out


def test_suggestions_alone_are_not_measured(llm_server: LLMServer, propositions: PropositionFolder) -> None:
    make_ada()
    propositions.claims("adherence/ada.suggestions.yaml", "d", extra="active: false")

    with override_settings(LLM_EVALUATION_RETRIES=0):
        code, _ = run("capture_baseline", "--agents", "ada")

    assert code != 0
    assert LLMCall.objects.count() == 0
    assert not EvaluationRun.objects.filter(overall_score__isnull=False).exists()
