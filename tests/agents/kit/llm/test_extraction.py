"""Finding the one JSON object in a text, or the reason why there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.kit.llm.requests import NotOneObject, extract_object

NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=4)
PROSE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}[]\x00"), max_size=60)


@given(OBJECTS, PROSE, PROSE)
@example({"score": 7}, "```json\n", "\n```")
def test_an_object_in_prose_is_found(result: dict[str, Any], before: str, after: str) -> None:
    assert extract_object(f"{before}{json.dumps(result)}{after}") == result


@given(OBJECTS, OBJECTS, PROSE)
@example({}, {}, "")
def test_two_objects_are_never_accepted(first: dict[str, Any], second: dict[str, Any], between: str) -> None:
    with pytest.raises(NotOneObject, match="more than one"):
        extract_object(f"{json.dumps(first)}{between}{json.dumps(second)}")


@given(OBJECTS.filter(bool))
def test_neither_a_cut_object_nor_a_whole_one_within_it_is_accepted(result: dict[str, Any]) -> None:
    text = json.dumps({"outer": result, "last": 1})
    for end in range(1, len(text)):
        with pytest.raises(NotOneObject):
            extract_object(text[:end])


@given(st.text(max_size=200) | st.text("{}[]\"':,\\ \n1aN", max_size=40))
def test_any_text_gives_an_object_or_a_reason_and_nothing_else(text: str) -> None:
    try:
        result = extract_object(text)
    except NotOneObject:
        return
    assert isinstance(result, dict)
    json.dumps(result, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer is empty"),
        ("7", "no JSON object"),
        ('"{score}"', "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('[\n {"score": 7}, {"score": 2}]', "a list of objects"),
        ('{"outer": {"a": 1, "a": 1}}', "'a' occurs twice"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "too large"),
        ('{"a": ' + "9" * 5000 + "}", "not JSON"),
        ("{'a': {\"b\": 1}}", "not JSON"),
        ('{"a": True}', "not JSON"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": {"b": 1}', "not JSON"),
        ('I opened a { and then {"a": 1}', "not JSON"),
        ('"{\\"a\\": 1}"', "not JSON"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_the_reason_names_what_was_found(text: str, reason: str) -> None:
    with pytest.raises(NotOneObject, match=reason):
        extract_object(text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("{}", {}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('Dear {name}, the score [1] is {"a": 1}. Yours, {judge}', {"a": 1}),
        ('{"a": "x } {\\"b\\": 2} [{"}', {"a": 'x } {"b": 2} [{'}),
        ('{"a": "two\nlines\tand a tab"}', {"a": "two\nlines\tand a tab"}),
        ('{"a": [{"b": 1}, {"b": 2}]}', {"a": [{"b": 1}, {"b": 2}]}),
    ],
)
def test_what_leaves_no_doubt_is_accepted(text: str, result: dict[str, Any]) -> None:
    assert extract_object(text) == result


def test_characters_no_database_takes_are_replaced_everywhere() -> None:
    text = '{"k\\u0000": ["\\ud800", {"x": "a\\u0000b"}], "ok": "\\ud83d\\ude00"}'
    assert extract_object(text) == {"k\ufffd": ["\ufffd", {"x": "a\ufffdb"}], "ok": "😀"}


@pytest.mark.parametrize("text", ["{" * 50_000, "[ " * 50_000, "{a}" * 50_000, "[" + " " * 100_000])
def test_hostile_texts_take_no_time(text: str) -> None:
    with pytest.raises(NotOneObject):
        extract_object(text)
