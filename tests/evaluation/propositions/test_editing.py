"""Changing proposition files: only the lines of what changes, where a proposition is saved, what is refused, and what a decision does."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from evaluation.drafting.editing import (
    NO_FOLDER,
    CannotSave,
    Decision,
    decide,
    replace_file,
    save_proposition,
    with_entry,
)
from evaluation.propositions.entries import all_entries, entry_at, listed
from evaluation.propositions.files import load_all, load_file, propositions_for
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import HAND_WRITTEN

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


def decision(name: str, choice: Decision) -> None:
    decide(mark=mark_of(name), owner="ada", decision=choice)


def asked(owner: str = "ada") -> dict[str, str]:
    return {p.id: p.claim for p in propositions_for(agent_slug=owner, dimension="adherence")}


# -- the text of a file
HERE = Path("x.yaml")


def entry_in(text: str, name: str) -> dict[str, Any]:
    return dict(next(p for p in yaml.safe_load(text)["propositions"] if p["id"] == name))


def changed(text: str, name: str, **fields: Any) -> str:
    """The text with some fields changed; None removes one."""
    entry = entry_in(text, name) | fields
    return with_entry(text, {key: value for key, value in entry.items() if value is not None}, HERE)


@pytest.mark.parametrize(
    ("name", "fields", "before", "after"),
    [
        
        ("short", {"active": True}, "active: false     # not yet", "active: true      # not yet"),
        ("short", {"weight": None}, "\n      weight: 2.0\n", "\n"),
        ("short", {"rejected": True}, "weight: 2.0\n", "weight: 2.0\n      rejected: true\n"),
        
        ("dry", {"active": None}, "- active: false\n      id: dry", "- id: dry"),
        (
            "dry",
            {"cues": {"supports": ["a", "no"]}},
            'source: "Dry and exact"\n    - {id: exact',
            'source: "Dry and exact"\n      cues:\n        supports:\n            - a\n            - \'no\'\n    - {id: exact',
        ),
        
        ("exact", {"active": True}, 'is exact, \u00e9", active: false', 'is exact, \u00e9", active: true'),
    ],
)  # fmt: skip
def test_only_the_lines_of_changed_fields_change(name: str, fields: dict[str, Any], before: str, after: str) -> None:
    usual = changed(HAND_WRITTEN, "kind")  # spaces and words such as `no` as ruamel.yaml writes them
    for newline in ("\n", "\r\n"):
        assert before in usual
        assert changed(usual.replace("\n", newline), name, **fields) == usual.replace(before, after).replace(
            "\n", newline
        )


def test_every_shipped_proposition_can_be_changed_by_one_line() -> None:
    for path in sorted(Path(settings.PROPOSITIONS_DIR).rglob("*.yaml")):
        text = path.read_text()
        entry = yaml.safe_load(text)["propositions"][0]
        after = changed(text, entry["id"], source="new words")
        assert len(set(after.split("\n")) - set(text.split("\n"))) == 1, path
        assert changed(after, entry["id"], source=entry.get("source")) == text, path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("propositions: [{id: y, claim: c}]", "has no proposition x"),
        ("propositions: [", "not valid YAML"),
        ("- a", "no mapping"),
        ("propositions:\n- {id: x, claim: &f c}\n- {id: y, claim: *f}", "cannot be changed alone"),
    ],
)
def test_what_cannot_be_changed_alone_is_left_to_a_person(text: str, message: str) -> None:
    with pytest.raises(CannotSave, match=message):
        with_entry(text, {"id": "x", "claim": "other"}, HERE)


_COMMENTS = st.sampled_from(["", " # why not", "  #\u00fc\U0001f600", " "])
_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=40).map(lambda text: text.replace("'", "''"))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file as people write them: block and flow entries, comments, odd indents, either line end, with or without the last one."""
    newline, margin = draw(st.sampled_from(["\n", "\r\n"])), " " * draw(st.integers(0, 4))
    lines, ids = ["# head", "dimension: adherence", "propositions:"], []
    for number in range(draw(st.integers(1, 4))):
        ids.append(f"p{number}")
        word = draw(st.sampled_from(["false", "no", "False", "off"]))
        fields = [f"id: p{number}", f"claim: '{draw(_TEXTS)}'", f"active: {word}", f"source: '{draw(_TEXTS)}'"]
        fields = draw(st.permutations(fields))
        if draw(st.booleans()):
            lines.append(f"{margin}- {{{', '.join(fields)}}}{draw(_COMMENTS)}")
            continue
        lines += [f"{margin}{'- ' if n == 0 else '  '}{field}{draw(_COMMENTS)}" for n, field in enumerate(fields)]
        if draw(st.booleans()):
            lines.append(f"{margin}  # {number}")
    return newline.join(lines) + draw(st.sampled_from(["", newline])), ids


@given(files(), st.data())
def test_a_switch_changes_one_line_and_can_be_undone(file: tuple[str, list[str]], data: st.DataObject) -> None:
    text, ids = file
    name = data.draw(st.sampled_from(ids))
    text = changed(text, name)
    accepted = changed(text, name, active=True)

    different = [(a, b) for a, b in zip(text.split("\n"), accepted.split("\n"), strict=True) if a != b]
    assert len(different) == 1
    assert yaml.safe_load(changed(accepted, name, active=False)) == yaml.safe_load(text)
    rejected = changed(text, name, active=False, rejected=True)
    assert yaml.safe_load(changed(rejected, name, rejected=None)) == yaml.safe_load(text)


_VALUES = st.one_of(
    st.text(max_size=30), st.booleans(), st.integers(0, 99), st.lists(st.text(max_size=8), max_size=3), st.none()
)


@given(files(), st.data())
def test_any_change_reads_back_as_it_was_meant_and_leaves_the_neighbours(
    file: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, ids = file
    name = data.draw(st.sampled_from(ids))
    fields = data.draw(st.dictionaries(st.sampled_from(["claim", "source", "weight", "cues"]), _VALUES, max_size=3))
    before = yaml.safe_load(text)
    try:
        after = yaml.safe_load(changed(text, name, **fields))
    except CannotSave:
        return
    place = ids.index(name)
    wanted = {key: value for key, value in (before["propositions"][place] | fields).items() if value is not None}
    assert after["propositions"][place] == wanted
    assert [p for n, p in enumerate(after["propositions"]) if n != place] == [
        p for n, p in enumerate(before["propositions"]) if n != place
    ]


# -- where it goes
def test_a_new_one_makes_a_file_and_the_next_joins_it(team: PropositionFolder) -> None:
    path = save(rule={"max_words": 5})
    save(id="dry", claim="{{agent_name}} is dry", active=False)

    assert path == team.path / "adherence" / "ada.yaml"
    assert path.read_text().startswith("dimension: adherence\nagent_id: ada\npropositions:\n  - id: brief\n")
    assert [p.id for p in load_file(path).propositions] == ["brief"]
    assert [p.id for p in load_file(path).inactive] == ["dry"]


def test_a_shipped_one_is_replaced_in_the_teams_folder_meaning_the_same(
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
    [result] = propositions_for(agent_slug="ada", dimension="adherence")

    assert (result.claim, result.include_personas, result.last_n) == (CLAIM, False, 7)
    assert ours.read_text() == before
    [one] = listed("ada", files=load_all())
    assert (one.is_shipped, one.replaces and one.replaces.path) == (False, ours)


def test_one_of_the_team_is_changed_where_it_stands(team: PropositionFolder) -> None:
    path = team.write("adherence/ada.yaml", "propositions:\n  - id: brief   # why\n    claim: old\n  # the end\n")
    save(mark=mark_of("brief"))

    assert path.read_text() == f"propositions:\n  - id: brief   # why\n    claim: '{CLAIM}'\n  # the end\n"


# -- what is refused
@pytest.mark.parametrize(
    ("entry", "field", "message"),
    [
        ({"claim": "{{nobody}} is brief"}, "claim", "unknown variable"),
        ({"rule": {"matches": "("}}, "matches", "regular expression"),
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


def test_a_save_that_landed_after_the_files_were_read_is_not_overwritten(team: PropositionFolder) -> None:
    path = team.claims("adherence/ada.yaml", "brief")
    seen, files = mark_of("brief"), load_all()
    path.write_text(path.read_text().replace("claim brief", "claim other"))
    entry = {"id": "brief", "claim": CLAIM}

    with pytest.raises(CannotSave, match="changed or removed"):
        save_proposition(owner="ada", dimension="adherence", level="evaluation", entry=entry, mark=seen, files=files)
    with pytest.raises(CannotSave, match="changed or removed"):
        decide(mark=seen, owner="ada", decision=Decision.RETIRE, files=files)
    assert "claim other" in path.read_text()


def test_an_id_stays_because_scores_are_stored_under_it(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "brief")

    with pytest.raises(CannotSave, match="the id brief stays"):
        save(id="short", mark=mark_of("brief"))


def test_a_slug_that_is_no_file_name_makes_no_file(team: PropositionFolder) -> None:
    with pytest.raises(CannotSave):
        save("../ada")
    assert not list(team.path.rglob("*.yaml"))


# -- deciding
def test_accepting_makes_it_judged_and_undo_gives_the_file_back(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.suggestions.yaml", changed(HAND_WRITTEN, "kind"))
    before = path.read_bytes()

    decision("exact", Decision.ACCEPT)
    assert list(asked()) == ["exact", "kind"]
    decision("exact", Decision.UNDO)
    assert path.read_bytes() == before
    decision("short", Decision.REJECT)
    assert {e.proposition.id: e.state for e in all_entries()} == {
        "kind": "accepted", "short": "rejected", "dry": "suggested", "exact": "suggested"
    }  # fmt: skip
    decision("short", Decision.UNDO)
    assert path.read_bytes() == before


def test_a_suggestion_whose_id_is_taken_is_not_accepted(propositions: PropositionFolder) -> None:
    propositions.write("adherence/ada.suggestions.yaml", HAND_WRITTEN)
    propositions.claims("adherence/_default.yaml", "dry")

    with pytest.raises(CannotSave, match="'dry' stands in"):
        decide(mark=mark_of("dry", "suggested"), owner="ada", decision=Decision.ACCEPT)


# -- retiring
def test_retiring_takes_it_out_and_restoring_has_it_asked_again(team: PropositionFolder) -> None:
    path = team.write("adherence/ada.yaml", "propositions:\n- {id: brief, claim: c}\n- id: dry\n  claim: d\n")
    decision("dry", Decision.RETIRE)
    assert list(asked()) == ["brief"]
    assert load_file(path).inactive[0].retired

    decision("dry", Decision.RESTORE)
    assert list(asked()) == ["brief", "dry"]
    with pytest.raises(CannotSave, match="dry is accepted"):
        decision("dry", Decision.RESTORE)


def test_one_of_ours_is_retired_in_the_teams_folder(propositions: PropositionFolder, team: PropositionFolder) -> None:
    ours = propositions.claims("adherence/ada.yaml", "brief", "dry")
    before = ours.read_text()
    decision("dry", Decision.RETIRE)

    assert list(asked()) == ["brief"]
    assert ours.read_text() == before
    assert {one.proposition.id: one.state for one in listed("ada", files=load_all())} == {
        "brief": "accepted",
        "dry": "retired",
    }


# -- keys and export
def test_a_key_names_one_place_and_no_file_that_is_not_read(team: PropositionFolder) -> None:
    team.claims("adherence/ada.yaml", "brief")
    files = load_all()
    [entry] = all_entries(files)

    assert entry.key == "1/adherence/ada.yaml:brief"
    assert entry_at(entry.key, "ada", files=files) == entry
    for key in ("1/../../etc/passwd:brief", "9/adherence/ada.yaml:brief", "", entry.key[:-1]):
        assert entry_at(key, "ada", files=files) is None
    assert entry_at(entry.key, "bob", files=files) is None


# -- replacing
def test_a_file_that_changed_meanwhile_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"theirs")

    with pytest.raises(CannotSave, match="was changed meanwhile"):
        replace_file(path, b"ours", expected=b"as it was")
    with pytest.raises(CannotSave, match="was changed meanwhile"):
        replace_file(path, b"ours", expected=None)
    assert path.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_writers_wait_for_each_other_and_a_killed_one_leaves_nothing_locked(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    (tmp_path / ".x.yaml.new").write_bytes(b"half written by a process that was killed")
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    writer = threading.Thread(target=replace_file, args=(path, b"ours"), kwargs={"expected": None})
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    assert not path.exists()
    os.close(folder)
    writer.join(10)

    assert path.read_bytes() == b"ours"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CannotSave, match="cannot be written: Permission denied"):
        replace_file(tmp_path / "x.yaml", b"ours", expected=None)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_bytes(b"a")
    link.symlink_to(real)
    replace_file(link, b"b", expected=b"a")

    assert link.is_symlink()
    assert real.read_bytes() == b"b"
