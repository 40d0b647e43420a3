"""Accepting, rejecting and taking it back: one line of a file changes, every other byte stays as somebody wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.drafting.decisions import SWITCHES, CannotDecide, Decision, decide, entries
from evaluation.drafting.edits import CannotEdit, with_switches
from evaluation.drafting.writing import parse
from evaluation.propositions.files import load_file, propositions_for
from tests.evaluation.conftest import PropositionFolder
from tests.evaluation.drafting.proposing import HAND_WRITTEN


# -- switching
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("short", "active:   false   # not yet", "active:   true   # not yet"),
        ("dry", "- active: no", "- active: true"),
        ("exact", 'is exact, \u00e9", active: false', 'is exact, \u00e9", active: true'),
    ],
)
def test_accepting_changes_one_word(name: str, before: str, after: str) -> None:
    assert with_switches(HAND_WRITTEN, name, SWITCHES[Decision.ACCEPT]) == HAND_WRITTEN.replace(before, after)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("short", "# not yet\n", "# not yet\n      rejected: true\n"),
        ("dry", "- active: no\n", "- active: false\n      rejected: true\n"),
        ("exact", 'is exact, \u00e9", active: false', 'is exact, \u00e9", active: false, rejected: true'),
    ],
)
def test_rejecting_adds_one_line(name: str, before: str, after: str) -> None:
    assert with_switches(HAND_WRITTEN, name, SWITCHES[Decision.REJECT]) == HAND_WRITTEN.replace(before, after)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (HAND_WRITTEN, "kind", "has no line “active:”"),
        (HAND_WRITTEN, "gone", "there is no proposition 'gone'"),
        ("propositions: [", "x", "not valid YAML"),
        ("- a", "x", "no mapping"),
        ("base: &b {active: false}\npropositions: [{<<: *b, id: x}]", "x", "cannot be changed alone"),
        ("propositions: [{id: x, active: &f false}, {id: y, active: *f}]", "x", "cannot be changed alone"),
    ],
)
def test_what_cannot_be_changed_alone_is_left_to_a_person(text: str, name: str, message: str) -> None:
    with pytest.raises(CannotEdit, match=message):
        with_switches(text, name, SWITCHES[Decision.ACCEPT])


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
def test_a_switch_leaves_every_other_byte_and_can_be_taken_back(
    file: tuple[str, list[str]], data: st.DataObject
) -> None:
    text, ids = file
    name = data.draw(st.sampled_from(ids))
    before = parse(text)[1]
    accepted = with_switches(text, name, SWITCHES[Decision.ACCEPT])
    waiting = with_switches(accepted, name, SWITCHES[Decision.UNDO])
    rejected = with_switches(waiting, name, SWITCHES[Decision.REJECT])

    changed = [(a, b) for a, b in zip(text.splitlines(), accepted.splitlines(), strict=True) if a != b]
    assert len(changed) == 1
    place = next(n for n, p in enumerate(before["propositions"]) if p["id"] == name)
    for found, wanted in ((accepted, {"active": True}), (waiting, {}), (rejected, {"rejected": True})):
        expected = [dict(p) for p in before["propositions"]]
        expected[place] |= wanted
        assert parse(found)[1] == {**before, "propositions": expected}
    assert with_switches(rejected, name, SWITCHES[Decision.UNDO]) == waiting
    assert with_switches(waiting, name, SWITCHES[Decision.ACCEPT]) == accepted
    if ": false" in text and not any(f": {word}" in text for word in ("no", "False", "off")):
        assert waiting == text


# -- deciding
def mark_of(name: str) -> str:
    return next(e.mark for e in entries() if e.proposition.id == name)


def test_accepting_makes_it_judged_and_undo_gives_the_file_back(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN)
    before = path.read_bytes()

    decide(mark=mark_of("exact"), decision=Decision.ACCEPT)
    assert [p.id for p in propositions_for(agent_slug="ada", dimension="adherence")] == ["exact", "kind"]
    decide(mark=mark_of("exact"), decision=Decision.UNDO)
    assert path.read_bytes() == before
    decide(mark=mark_of("short"), decision=Decision.REJECT)
    assert {e.proposition.id: e.state for e in entries()} == {"short": "rejected", "dry": "waiting", "exact": "waiting"}
    decide(mark=mark_of("short"), decision=Decision.UNDO)
    assert path.read_bytes() == before


def test_a_draft_that_was_changed_since_it_was_seen_is_not_decided(propositions: PropositionFolder) -> None:
    path = propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN)
    seen, other = mark_of("dry"), mark_of("exact")
    path.write_text(HAND_WRITTEN.replace("is dry", "is very dry"))

    with pytest.raises(CannotDecide, match="was changed, decided or taken out"):
        decide(mark=seen, decision=Decision.ACCEPT)
    decide(mark=other, decision=Decision.ACCEPT)  # what another person did to a neighbour is no obstacle
    assert "is very dry" in path.read_text()


def test_a_draft_whose_id_is_taken_is_not_accepted(propositions: PropositionFolder) -> None:
    propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN)
    propositions.claims("adherence/_default.yaml", "dry")

    with pytest.raises(CannotDecide, match=r"The id dry is in use in _default\.yaml"):
        decide(mark=mark_of("dry"), decision=Decision.ACCEPT)


def test_a_files_own_words_win_over_what_was_read_before(propositions: PropositionFolder) -> None:
    """Between reading the page's files and editing one, somebody saves it."""
    path = propositions.write("adherence/ada.drafts.yaml", HAND_WRITTEN)
    files = [load_file(path)]
    mark = next(e.mark for e in entries(files) if e.proposition.id == "dry")
    path.write_text(HAND_WRITTEN.replace("is dry", "is very dry"))

    with pytest.raises(CannotDecide, match="was changed meanwhile by somebody else"):
        decide(mark=mark, decision=Decision.ACCEPT, files=files)
    path.unlink()
    with pytest.raises(CannotDecide, match="is gone"):
        decide(mark=mark, decision=Decision.ACCEPT, files=files)
