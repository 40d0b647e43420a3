"""Whose propositions they are: the merge for one agent, and what check and command say of the files."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from evaluation.checks import proposition_files_are_valid
from evaluation.propositions.files import load_file, propositions_for
from evaluation.propositions.schema import PropositionFile
from tests.evaluation.conftest import PropositionFolder


def ids(slug: str, dimension: str = "adherence", level: str = "evaluation") -> list[str]:
    return [p.id for p in propositions_for(agent_slug=slug, dimension=dimension, level=level)]


# -- whose they are, and the merge (AC-6.1.5)
def test_dimension_and_agent_come_from_folder_and_file_name_when_left_out(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.yaml", "propositions: [{id: terse, claim: x}]\n")

    found = load_file(path)

    assert (found.dimension, found.agent_id, found.level) == ("adherence", "ada", "evaluation")


def test_an_agents_own_propositions_join_the_defaults_ac_6_1_5(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("adherence/ada.yaml", "terse")
    propositions.claims("adherence/bob.yaml", "loud")
    propositions.claims("fluency/_default.yaml", "varied")

    assert ids("ada") == ["voice", "mood", "terse"]
    assert ids("carl") == ["voice", "mood"]
    assert ids("ada", "fluency") == ["varied"]


def test_action_level_propositions_are_kept_apart(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice")
    propositions.write(
        "adherence/drafts.yaml",
        "agent_id: _default\nlevel: action\npropositions: [{id: voice, claim: '{{action}} is in voice'}]\n",
    )

    assert ids("ada") == ["voice"]
    (draft,) = propositions_for(agent_slug="ada", dimension="adherence", level="action")
    assert (draft.first_n, draft.last_n) == (5, 10)


def test_a_teams_folder_adds_and_overrides(propositions: PropositionFolder, settings: Settings, tmp_path: Path) -> None:
    team = PropositionFolder(tmp_path / "team")
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    propositions.claims("adherence/ada.yaml", "terse")
    team.claims("adherence/_default.yaml", "mood", extra="weight: 3.0")
    team.claims("deeper/adherence/ada.yaml", "terse", "formal", extra="rule: {max_words: 3}")
    settings.PROPOSITION_DIRS = [team.path]

    found = {p.id: p for p in propositions_for(agent_slug="ada", dimension="adherence")}

    assert list(found) == ["voice", "mood", "terse", "formal"]
    assert found["mood"].weight == 3.0
    assert found["terse"].rule is not None


def test_where_a_proposition_stands_is_known(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")

    assert [p.source for p in propositions_for(agent_slug="ada", dimension="adherence")] == [
        "_default.yaml:3",
        "_default.yaml:4",
    ]


# -- the doors: system check and command
def test_the_system_check_names_each_broken_file_and_what_to_do(propositions: PropositionFolder) -> None:
    assert list(proposition_files_are_valid(None)) == []
    propositions.write("adherence/a.yaml", "x: 1\n")
    propositions.write("adherence/b.yaml", "x: [\n")

    found = proposition_files_are_valid(None)

    assert {error.id for error in found} == {"evaluation.E001"}
    assert {Path(str(error.msg).split(":")[0]).name for error in found} == {"a.yaml", "b.yaml"}
    assert all("check_propositions" in str(error.hint) for error in found)


@pytest.mark.django_db
def test_the_command_lists_what_there_is_and_fails_on_a_broken_file(propositions: PropositionFolder) -> None:
    good = propositions.claims("adherence/_default.yaml", "voice", extra="rule: {max_words: 3}")
    out = io.StringIO()
    call_command("check_propositions", stdout=out)
    assert "adherence/_default: 1 proposition (1 rule)" in out.getvalue()

    bad = propositions.write("adherence/ada.yaml", "propositions: 3\n")
    with pytest.raises(CommandError, match=r"1 problem:\n.*ada.yaml:1: propositions"):
        call_command("check_propositions", stdout=out)

    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("check_propositions", "--json", str(good), str(bad), stdout=out)
    assert json.loads(out.getvalue())["problems"][0]["field"] == "propositions"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("rule: {matches: '(x'}", "rule.matches (odd): /(x/ is not a valid regular expression: missing )"),
        ("rule: {contains_any: ['/[z-a]/']}", "rule.contains_any[0] (odd): /[z-a]/ is not a valid regular expression"),
        ("cues: {supports: ['/(?:a{999}){999}/']}", "cues.supports[0] (odd): /(?:a{999}){999}/ is too large"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_named_with_its_file_and_proposition(
    propositions: PropositionFolder, fields: str, said: str
) -> None:
    propositions.write("adherence/ada.yaml", f"propositions:\n  - id: odd\n    claim: c\n    {fields}\n")
    with pytest.raises(CommandError) as refused:
        call_command("check_propositions")

    assert "adherence/ada.yaml:4: propositions[0]." in str(refused.value)
    assert said in str(refused.value)


def test_editors_get_a_json_schema_that_knows_every_field() -> None:
    out = io.StringIO()

    call_command("check_propositions", "--schema", stdout=out)

    schema = json.loads(out.getvalue())
    assert schema == PropositionFile.model_json_schema()
    assert "recommendations_for_improvement" in schema["$defs"]["PropositionSpec"]["properties"]
