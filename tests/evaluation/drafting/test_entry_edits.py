"""Editing one proposition of a file: its changed fields are written anew, every other byte stays as somebody wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.drafting.edits import CannotEdit
from evaluation.drafting.entry_edits import with_entry
from evaluation.drafting.writing import parse
from tests.evaluation.drafting.proposing import HAND_WRITTEN
from tests.evaluation.drafting.test_deciding import files


def entry_in(text: str, name: str) -> dict[str, Any]:
    return dict(next(p for p in parse(text)[1]["propositions"] if p["id"] == name))


def changed(text: str, name: str, **fields: Any) -> str:
    """The text with some fields changed; None takes one out."""
    entry = entry_in(text, name) | fields
    return with_entry(text, name, {key: value for key, value in entry.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "fields", "before", "after"),
    [
        ("short", {"weight": 1.5}, "weight: 2.0", "weight: 1.5"),
        ("short", {"active": True}, "active:   false   # not yet", "active: true   # not yet"),
        ("short", {"weight": None}, "\n      weight: 2.0\n", "\n"),
        ("dry", {"claim": "is drier"}, "claim: '{{agent_name}} is dry'", "claim: is drier"),
        ("dry", {"active": None}, "- active: no\n      id: dry", "- id: dry"),
        (
            "dry",
            {"cues": {"supports": ["a"]}},
            'source: "Dry and exact"\n    - {id: exact',
            'source: "Dry and exact"\n      cues:\n        supports:\n        - a\n    - {id: exact',
        ),
        ("kind", {"weight": 2}, '{id: kind, claim: "{{agent_name}} is kind"}', "{id: kind, claim: '{{agent_name}} is kind', weight: 2}"),
    ],
)  # fmt: skip
def test_only_the_lines_of_changed_fields_change(name: str, fields: dict[str, Any], before: str, after: str) -> None:
    assert before in HAND_WRITTEN
    assert changed(HAND_WRITTEN, name, **fields) == HAND_WRITTEN.replace(before, after)


def test_a_folded_claim_is_replaced_whole() -> None:
    text = changed(HAND_WRITTEN, "short", claim="{{agent_name}} is brief")

    assert "claim: '{{agent_name}} is brief'\n      active:   false   # not yet" in text
    assert "is\n        short" not in text


def test_what_does_not_change_is_the_same_text() -> None:
    for name in ("short", "dry", "exact"):
        assert entry_in(changed(HAND_WRITTEN, name), name) == entry_in(HAND_WRITTEN, name)
    assert changed(HAND_WRITTEN, "short") == HAND_WRITTEN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("propositions: [{id: y, claim: c}]", "there is no proposition 'x'"),
        ("propositions: [", "not valid YAML"),
        ("base: &b {claim: c}\npropositions:\n- <<: *b\n  id: x", "cannot be changed alone"),
    ],
)
def test_what_cannot_be_changed_alone_is_left_to_a_person(text: str, message: str) -> None:
    with pytest.raises(CannotEdit, match=message):
        with_entry(text, "x", {"id": "x", "claim": "other"})


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
    before = parse(text)[1]
    try:
        after = parse(changed(text, name, **fields))[1]
    except CannotEdit:
        return
    place = ids.index(name)
    wanted = {key: value for key, value in (before["propositions"][place] | fields).items() if value is not None}
    assert after["propositions"][place] == wanted
    assert [p for n, p in enumerate(after["propositions"]) if n != place] == [
        p for n, p in enumerate(before["propositions"]) if n != place
    ]


@given(files(), st.data())
def test_changing_a_plain_value_is_always_possible(file: tuple[str, list[str]], data: st.DataObject) -> None:
    text, ids = file
    name = data.draw(st.sampled_from(ids))

    assert entry_in(changed(text, name, claim="other", weight=2.5), name)["claim"] == "other"
