"""Reading proposition files: every error has a place and says what is allowed."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from evaluation.checks import proposition_files_are_valid
from evaluation.propositions.files import PropositionError, default_dimensions, load_all, load_file, propositions_for
from evaluation.propositions.schema import PropositionFile
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import HAND_WRITTEN
from tests.factories import make_agent, make_channel

GOOD = """
dimension: adherence
agent_id: ada
propositions:
  - id: terse
    claim: "{{agent_name}} is terse"
    weight: 1.5
"""


def problems(path: Path) -> list[str]:
    with pytest.raises(PropositionError) as caught:
        load_file(path)
    return [str(problem) for problem in caught.value.problems]


def ids(slug: str, dimension: str = "adherence", level: str = "evaluation") -> list[str]:
    return [p.id for p in propositions_for(agent_slug=slug, dimension=dimension, level=level)]


# -- errors: file, line, field, allowed values (AC-6.0.2)
def test_an_unknown_field_is_reported_with_its_line_and_the_allowed_ones_ac_6_0_2(
    propositions: PropositionFolder,
) -> None:
    path = propositions.write("adherence/ada.yaml", GOOD + "    wieght: 2\n")

    (result,) = problems(path)

    assert result.startswith(
        f"{path}:7: propositions[0].wieght (terse): unknown field; allowed: id, claim, weight, inver"
    )


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("    hard: true\n    inverted: true\n", "4: propositions[0] (terse): hard and inverted exclude each other"),
        ("  - claim: no id\n", "7: propositions[1].id: is required"),
        (
            "  - {id: action, claim: '{{action}} x'}\n",
            "(action): {{action}} has no value in adherence at evaluation level",
        ),
    ],
)
def test_every_problem_has_file_line_field_and_what_is_allowed(
    propositions: PropositionFolder, lines: str, expected: str
) -> None:
    path = propositions.write("adherence/ada.yaml", GOOD.replace("\n    weight: 1.5", "\n    # a line") + lines)

    (result,) = problems(path)

    assert result.startswith(f"{path}:")
    assert expected in result


def test_problems_of_propositions_in_their_file_have_the_line_of_each(propositions: PropositionFolder) -> None:
    lines = ("  - {id: first, claim: 'Says {{action}}.'}", "  # a line", "  - {id: terse, claim: Twice.}")
    last = "  - {id: last, claim: 'Says {{action}}.'}"
    path = propositions.write("adherence/ada.yaml", GOOD + "\n".join((*lines, last)) + "\n")

    found = [(int(problem.removeprefix(f"{path}:").split(":")[0]), problem) for problem in problems(path)]

    assert [path.read_text().splitlines()[line - 1].split(",")[0] for line, _ in found] == [
        "  - {id: first", "  - {id: terse", "  - {id: last"
    ]  # fmt: skip
    assert "(terse): the id 'terse' stands twice in this file" in found[1][1]


def test_a_key_that_stands_twice_is_not_silently_overwritten(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.yaml", GOOD + "    weight: 2.0\n")

    assert problems(path) == [f"{path}:7: not valid YAML: weight: stands twice in the same mapping"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a mapping with dimension and propositions at the top"),
        ("a: [1\n", "not valid YAML"),
        ("a: \x00\n", "not valid YAML"),
        ("a: !!python/object:os.system x\n", "not valid YAML"),
        ("1: x\npropositions: []\n", "keys should be strings"),
        ("propositions: &a [*a]\n", "aliases are not allowed"),
        ("[" * 3_000, "YAML"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_broken_file_is_an_error_of_that_file_never_a_crash(
    propositions: PropositionFolder, text: str, words: str
) -> None:
    path = propositions.path / "adherence" / "ada.yaml"
    path.parent.mkdir()
    path.write_text(text)

    result = problems(path)

    assert all(problem.startswith(str(path)) for problem in result)
    assert any(words in problem or "nested too deeply" in problem for problem in result)


def test_a_file_that_is_not_text_is_an_error_of_that_file(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.yaml", "")
    path.write_bytes(b"\xff\xfe\x00bad")

    assert "cannot be read" in problems(path)[0]


@given(st.text(alphabet="abc:-[]{}&*!?|>#'\"%@,.0123 \n\tidclaim", max_size=80))
def test_no_text_at_all_makes_the_loader_crash(propositions: PropositionFolder, text: str) -> None:
    path = propositions.write("adherence/fuzz.yaml", "")
    path.write_text("propositions:\n - id: x\n   claim: " + text)

    with suppress(PropositionError):
        load_file(path)


def test_an_id_in_the_defaults_and_an_agents_file_is_an_error(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "terse", "kind")
    propositions.claims("adherence/ada.yaml", "dry", "terse")

    with pytest.raises(PropositionError, match=r"ada.yaml:4: id: 'terse' stands in .*_default.yaml as well"):
        propositions_for(agent_slug="ada", dimension="adherence")
    assert [p.id for p in propositions_for(agent_slug="bob", dimension="adherence")] == ["terse", "kind"]


def test_what_an_editor_leaves_lying_about_is_not_read(propositions: PropositionFolder) -> None:
    """Emacs marks an open file by a hidden symbolic link to nothing that also ends in .yaml."""
    path = propositions.claims("adherence/ada.yaml", "terse")
    (path.parent / ".#ada.yaml").symlink_to("user@host.1234")
    (path.parent / ".ada.yaml").write_text("half a: [file")

    assert [file.path for file in load_all()] == [path]
    path.with_name("bob.yaml").symlink_to("gone.yaml")
    with pytest.raises(PropositionError, match=r"bob.yaml: cannot be read"):
        propositions_for(agent_slug="bob", dimension="adherence")


def test_a_missing_folder_is_named(propositions: PropositionFolder, settings: Settings) -> None:
    propositions.claims("adherence/_default.yaml", "terse")
    settings.PROPOSITION_DIRS = [propositions.path / "nowhere"]

    with pytest.raises(PropositionError, match="nowhere: PROPOSITION_DIRS: there is no such folder"):
        load_all()


@pytest.mark.parametrize(
    ("name", "text", "spoilt"),
    [
        ("adherence/ada.yaml", "propositons: []\n", [("ada", "adherence", "evaluation")]),
        ("adherence/team.yaml", "agent_id: ada\npropositions: [\n", [("ada", "adherence", "evaluation")]),
        (
            "adherence/_default.yaml",
            "propositions: 3\n",
            [("ada", "adherence", "evaluation"), ("bob", "adherence", "evaluation")],
        ),
        (
            "mine/bob.yaml",  # of no dimension: of any
            "propositions: 3\n",
            [("bob", "adherence", "evaluation"), ("bob", "fluency", "evaluation")],
        ),
    ],
)
def test_a_broken_file_spoils_only_what_it_is_about(
    propositions: PropositionFolder, name: str, text: str, spoilt: list[tuple[str, str, str]]
) -> None:
    propositions.claims("fluency/_default.yaml", "varied")
    propositions.write(name, text)

    found = []
    for agent in ("ada", "bob"):
        for dimension in ("adherence", "fluency"):
            for level in ("evaluation", "action"):
                try:
                    propositions_for(agent_slug=agent, dimension=dimension, level=level)
                except PropositionError:
                    found.append((agent, dimension, level))

    assert found == spoilt


def test_a_changed_file_is_read_again(propositions: PropositionFolder) -> None:
    propositions.claims("adherence/_default.yaml", "terse")
    assert ids("ada") == ["terse"]

    propositions.claims("adherence/_default.yaml", "terse", "brief")

    assert ids("ada") == ["terse", "brief"]


# -- whose they are, and the merge (AC-6.1.5)
def test_dimension_and_agent_come_from_folder_and_file_name_when_left_out(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.yaml", "propositions: [{id: terse, claim: x}]\n")

    result = load_file(path)

    assert (result.dimension, result.agent_id, result.level) == ("adherence", "ada", "evaluation")


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

    result = {p.id: p for p in propositions_for(agent_slug="ada", dimension="adherence")}

    assert list(result) == ["voice", "mood", "terse", "formal"]
    assert result["mood"].weight == 3.0
    assert result["terse"].rule is not None


# -- the doors: system check and command
def test_the_system_check_names_each_broken_file_and_what_to_do(propositions: PropositionFolder) -> None:
    assert list(proposition_files_are_valid(None)) == []
    propositions.write("adherence/a.yaml", '"x\\e[2J": 1\n')
    propositions.write("adherence/b.yaml", "x: [\n")

    result = proposition_files_are_valid(None)

    assert not any("\x1b" in str(error) for error in result), "a terminal obeys what a file says"

    assert {error.id for error in result} == {"evaluation.W001"}
    assert not any(error.is_serious() for error in result)  # nothing stops for them
    assert {Path(str(error.msg).split(":")[0]).name for error in result} == {"a.yaml", "b.yaml"}
    assert all("check_propositions" in str(error.hint) for error in result)


@pytest.mark.django_db
@pytest.mark.parametrize("command", [["work", "--once"], ["costs"]])
def test_a_broken_file_is_a_warning_to_commands_that_need_none(
    propositions: PropositionFolder, command: list[str]
) -> None:
    make_agent("ada")
    propositions.write("adherence/ada.yaml", "propositions:\n  - {id: dry, clam: dry}\n")
    err = io.StringIO()

    call_command(*command, skip_checks=False, stdout=io.StringIO(), stderr=err)

    assert "ada.yaml:2: propositions[0].clam (dry): unknown field" in err.getvalue()


@pytest.mark.django_db
def test_the_command_lists_what_there_is_and_fails_on_a_broken_file(propositions: PropositionFolder) -> None:
    good = propositions.claims("adherence/_default.yaml", "voice", extra="rule: {max_words: 3}")
    out = io.StringIO()
    call_command("check_propositions", stdout=out)
    assert "adherence/_default: 1 proposition (1 rule)" in out.getvalue()

    bad = propositions.write("adherence/ada.yaml", "propositions: 3\n")
    with pytest.raises(CommandError, match=r"1 problem:\n.*ada.yaml:1: propositions"):
        call_command("check_propositions", stdout=out)

    with pytest.raises(CommandError, match="1 problem"):
        call_command("check_propositions", str(good), str(bad), stdout=out)


@pytest.mark.django_db
def test_a_file_about_a_channel_is_looked_up_among_channels(propositions: PropositionFolder) -> None:
    make_agent("ada")
    make_channel("office")
    claim = "target_type: environment\npropositions: [{id: own, claim: own}]\n"
    for slug in ("ada", "office"):
        propositions.write(f"convergence/{slug}.yaml", claim)
    out = io.StringIO()

    call_command("check_propositions", stdout=out)

    lines = dict(line.split(":", 1) for line in out.getvalue().splitlines()[:2])
    assert "(no channel of that slug here)" in lines["convergence/ada"]
    assert "of that slug" not in lines["convergence/office"]


def test_editors_get_a_json_schema_that_knows_every_field() -> None:
    out = io.StringIO()

    call_command("check_propositions", "--schema", stdout=out)

    schema = json.loads(out.getvalue())
    assert schema == PropositionFile.model_json_schema()
    assert "recommendations_for_improvement" in schema["$defs"]["PropositionSpec"]["properties"]


# -- inactive ones
def test_inactive_propositions_are_never_judged(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.suggestions.yaml", HAND_WRITTEN)
    propositions.write("fluency/_default.yaml", 'propositions: [{id: x, claim: "x", active: false}]')
    file = load_file(path)

    assert [p.id for p in file.propositions] == ["kind"]
    assert [p.id for p in file.inactive] == ["short", "dry", "exact"]
    assert [p.id for p in propositions_for(agent_slug="ada", dimension="adherence")] == ["kind"]
    assert default_dimensions() == ("adherence",), "a dimension with suggestions alone has nothing to measure"


def test_a_file_of_suggestions_is_its_agents_even_without_saying_so(propositions: PropositionFolder) -> None:
    assert load_file(propositions.claims("adherence/ada.suggestions.yaml", "x")).agent_id == "ada"
