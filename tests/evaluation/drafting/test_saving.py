"""Saving propositions: where they go, what is refused, and what retiring does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from evaluation.drafting.decisions import all_entries
from evaluation.drafting.exporting import exported
from evaluation.drafting.library import entry_at, key_of, listed
from evaluation.drafting.saving import NO_FOLDER, CannotSave, retire, save_proposition
from evaluation.propositions.files import load_all, load_file, propositions_for
from tests.evaluation.conftest import PropositionFolder

CLAIM = "{{agent_name}} is brief"


@pytest.fixture
def team(propositions: PropositionFolder, settings: Settings, tmp_path: Path) -> PropositionFolder:
    """A folder of a team's own beside the shipped one (`propositions`)."""
    folder = tmp_path / "team"
    folder.mkdir()
    settings.PROPOSITION_DIRS = [folder]
    return PropositionFolder(folder)


def mark_of(name: str, state: str = "") -> str:
    return next(e.mark for e in all_entries() if e.proposition.id == name and state in ("", e.state))


def save(owner: str = "ada", *, mark: str = "", level: str = "evaluation", **entry: Any) -> Path:
    entry = {"id": "brief", "claim": CLAIM, **entry}
    return save_proposition(owner=owner, dimension="adherence", level=level, entry=entry, mark=mark)


def asked(owner: str = "ada") -> dict[str, str]:
    return {p.id: p.claim for p in propositions_for(agent_slug=owner, dimension="adherence")}


# -- where it goes
def test_a_new_one_makes_a_file_in_the_teams_folder_and_the_next_joins_it(team: PropositionFolder) -> None:
    path = save(rule={"max_words": 5})
    save(id="dry", claim="{{agent_name}} is dry", active=False)

    assert path == team.path / "adherence" / "ada.yaml"
    assert path.read_text().startswith("dimension: adherence\nagent_id: ada\npropositions:\n  - id: brief\n")
    assert [p.id for p in load_file(path).propositions] == ["brief"]
    assert [p.id for p in load_file(path).drafts] == ["dry"]


def test_one_about_drafts_goes_into_a_file_of_its_level(team: PropositionFolder) -> None:
    path = save(level="action", claim="{{action}} is brief")

    assert path.name == "ada.action.yaml"
    assert load_file(path).level == "action"


def test_one_of_ours_is_replaced_in_the_teams_folder_and_means_the_same_but_for_the_change(
    propositions: PropositionFolder, team: PropositionFolder
) -> None:
    ours = propositions.write(
        "adherence/ada.yaml",
        """
        include_personas: false
        last_n: 7
        propositions:
          - id: brief  # ours
            claim: "{{agent_name}} is short"
        """,
    )
    before = ours.read_text()
    save(mark=mark_of("brief"))
    [found] = propositions_for(agent_slug="ada", dimension="adherence")

    assert (found.claim, found.include_personas, found.last_n) == (CLAIM, False, 7)
    assert ours.read_text() == before
    [one] = listed("ada", files=load_all())
    assert (one.origin, one.in_place_of and one.in_place_of.path) == ("team", ours)


def test_one_of_the_team_is_changed_where_it_stands(team: PropositionFolder) -> None:
    path = team.write("adherence/ada.yaml", "propositions:\n  - id: brief   # why\n    claim: old\n  # the end\n")
    save(mark=mark_of("brief"))

    assert path.read_text() == f"propositions:\n  - id: brief   # why\n    claim: '{CLAIM}'\n  # the end\n"


# -- what is refused
@pytest.mark.parametrize(
    ("entry", "field", "message"),
    [
        ({"weight": 9.0}, "weight", "less than or equal to 5"),
        ({"claim": "{{nobody}} is brief"}, "claim", "unknown variable"),
        ({"id": "Not Kebab"}, "id", "pattern"),
        ({"rule": {"matches": "("}}, "matches", "regular expression"),
        ({"rule": {"max_words": 3}, "cues": {"supports": ["a"]}}, "", "rule stands alone"),
        ({"inverted": True, "hard": True}, "", "exclude each other"),
        ({"cues": {"supports": ["/(?:a{99}){99}/"]}}, "supports", "too large"),
        ({"id": "taken"}, "id", "taken is in use"),
    ],
)
def test_what_the_loader_would_refuse_is_refused_by_field(
    team: PropositionFolder, entry: dict[str, Any], field: str, message: str
) -> None:
    team.claims("adherence/_default.yaml", "taken")
    with pytest.raises(CannotSave) as refused:
        save(**entry)

    assert message in refused.value.errors[field]
    assert not (team.path / "adherence" / "ada.yaml").exists()


def test_without_a_teams_folder_nothing_can_be_saved(propositions: PropositionFolder) -> None:
    with pytest.raises(CannotSave, match="PROPOSITION_DIRS") as refused:
        save()
    assert refused.value.errors == {"": NO_FOLDER}


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(team: PropositionFolder) -> None:
    path = team.claims("adherence/ada.yaml", "brief")
    seen = mark_of("brief")
    path.write_text(path.read_text().replace("claim brief", "claim other"))

    with pytest.raises(CannotSave, match="changed or taken out"):
        save(mark=seen)
    assert "claim other" in path.read_text()


def test_a_save_that_landed_after_the_files_were_read_is_not_overwritten(team: PropositionFolder) -> None:
    path = team.claims("adherence/ada.yaml", "brief")
    seen, files = mark_of("brief"), load_all()
    path.write_text(path.read_text().replace("claim brief", "claim other"))
    entry = {"id": "brief", "claim": CLAIM}

    with pytest.raises(CannotSave, match="changed or taken out"):
        save_proposition(owner="ada", dimension="adherence", level="evaluation", entry=entry, mark=seen, files=files)
    with pytest.raises(CannotSave, match="changed or taken out"):
        retire(mark=seen, owner="ada", files=files)
    assert "claim other" in path.read_text()


def test_one_of_ours_that_changed_meanwhile_is_not_replaced(
    propositions: PropositionFolder, team: PropositionFolder
) -> None:
    ours = propositions.claims("adherence/ada.yaml", "brief")
    seen, files = mark_of("brief"), load_all()
    ours.write_text("no: [proposition file")
    entry = {"id": "brief", "claim": CLAIM}

    with pytest.raises(CannotSave, match="changed or taken out"):
        save_proposition(owner="ada", dimension="adherence", level="evaluation", entry=entry, mark=seen, files=files)
    assert not list(team.path.rglob("*.yaml"))


def test_an_id_stays_because_scores_are_stored_under_it(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "brief")

    with pytest.raises(CannotSave, match="the id of brief stays"):
        save(id="short", mark=mark_of("brief"))


@pytest.mark.parametrize("owner", ["../ada", ".ada", "a/b"])
def test_a_slug_that_is_no_file_name_makes_no_file(team: PropositionFolder, owner: str) -> None:
    with pytest.raises(CannotSave):
        save(owner)
    assert not list(team.path.rglob("*.yaml"))


# -- retiring
def test_retiring_takes_it_out_and_restoring_has_it_asked_again(team: PropositionFolder) -> None:
    path = team.write("adherence/ada.yaml", "propositions:\n- {id: brief, claim: c}\n- id: dry\n  claim: d\n")
    retire(mark=mark_of("dry"), owner="ada")
    assert list(asked()) == ["brief"]
    assert load_file(path).drafts[0].retired

    retire(mark=mark_of("dry"), owner="ada", back=True)
    assert list(asked()) == ["brief", "dry"]
    with pytest.raises(CannotSave, match="dry is accepted"):
        retire(mark=mark_of("dry"), owner="ada", back=True)


def test_one_of_ours_is_retired_in_the_teams_folder(propositions: PropositionFolder, team: PropositionFolder) -> None:
    ours = propositions.claims("adherence/ada.yaml", "brief", "dry")
    before = ours.read_text()
    retire(mark=mark_of("dry"), owner="ada")

    assert list(asked()) == ["brief"]
    assert ours.read_text() == before
    assert {one.entry.proposition.id: one.entry.state for one in listed("ada", files=load_all())} == {
        "brief": "accepted",
        "dry": "retired",
    }


def test_an_agents_file_can_take_out_what_every_agent_is_asked(
    team: PropositionFolder, propositions: PropositionFolder
) -> None:
    propositions.claims("adherence/_default.yaml", "voice", "mood")
    team.claims("adherence/ada.yaml", "mood", extra="active: false, retired: true")

    assert list(asked()) == ["voice"]
    assert list(asked("bob")) == ["voice", "mood"]


def test_retired_excludes_active_and_rejected(team: PropositionFolder) -> None:
    both: tuple[dict[str, Any], ...] = ({"retired": True}, {"retired": True, "rejected": True, "active": False})
    for switches in both:
        with pytest.raises(CannotSave, match="retired: true needs active: false"):
            save(**switches)


# -- keys and export
def test_a_key_names_one_place_and_no_file_that_is_not_read(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "brief")
    files = load_all()
    [entry] = all_entries(files)

    assert key_of(entry) == "1/adherence/ada.yaml:brief"
    assert entry_at(key_of(entry), "ada", files=files) == entry
    for key in ("1/../../etc/passwd:brief", "9/adherence/ada.yaml:brief", "", key_of(entry)[:-1]):
        assert entry_at(key, "ada", files=files) is None
    assert entry_at(key_of(entry), "bob", files=files) is None


def test_an_export_is_a_file_that_loads_and_means_the_same(
    propositions: PropositionFolder, team: PropositionFolder, tmp_path: Path
) -> None:
    propositions.write(
        "adherence/ada.yaml", "last_n: 7\npropositions:\n- {id: a, claim: 'é', weight: 2.0}\n- {id: b, claim: c}\n"
    )
    team.claims("adherence/ada.drafts.yaml", "d", extra="active: false")
    files = load_all()
    path = tmp_path / "adherence" / "export.yaml"
    path.parent.mkdir()
    path.write_text(exported("ada", "adherence", "evaluation", files=files))
    [ours] = [file for file in files if file.propositions]

    again = load_file(path)
    assert again.agent_id == "ada"
    assert [p.fingerprint() for p in again.propositions] == [p.fingerprint() for p in ours.propositions]
    path.write_text(exported("ada", "adherence", "evaluation", files=files, drafts=True))
    assert [p.id for p in load_file(path).drafts] == ["d"]
    assert exported("ada", "fluency", "evaluation", files=files) == ""


def test_a_pattern_that_stood_there_before_does_not_stop_a_change_of_something_else(team: PropositionFolder) -> None:
    team.write("adherence/ada.yaml", "propositions:\n- id: brief\n  claim: c\n  cues: {supports: ['/(a+)+b/']}\n")
    save(mark=mark_of("brief"), cues={"supports": ["/(a+)+b/"]}, weight=2.0)

    assert propositions_for(agent_slug="ada", dimension="adherence")[0].weight == 2.0
