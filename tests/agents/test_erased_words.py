"""What counts as somebody's words in another text, and what is left of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.erasure import ERASED, Words, blanked

SAID = "My boiler has leaked since the third of March."


def words(*texts: str, names: tuple[str, ...] = ("Marla",)) -> Words:
    return Words(texts or (SAID,), names=names, label="erased-1")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"She said: {SAID} Twice.", f"She said: {ERASED} Twice."),
        ("I hear your BOILER HAS\n  LEAKED SINCE May.", f"I hear your{ERASED}May."),
        ("Her boiler leaked.", "Her boiler leaked."),
        (f"{SAID}{SAID}", f"{ERASED}{ERASED}"),
        ("", ""),
    ],
)
def test_a_stretch_of_what_was_said_goes_and_the_rest_stays(text: str, left: str) -> None:
    assert words().without(text, near=False) == left


def test_name_and_short_messages_go_only_where_the_person_was() -> None:
    found = words("PIN 4711")

    assert found.without({"Marla": ["PIN  4711", "Marla's PIN"]}, near=True) == {"erased-1": [ERASED, "erased-1's PIN"]}
    assert found.without(["PIN 4711", "Marla"], near=False) == ["PIN 4711", "Marla"]
    assert (found.named({"x": ["dear Marla,"]}), found.named("Marlan")) == (True, False)


def test_a_name_that_is_also_a_word_goes_only_as_it_is_written() -> None:
    assert words(names=("Will",)).without("Will will come", near=True) == "erased-1 will come"
    assert words(names=("Ann Lee",)).without("ann LEE came", near=True) == "erased-1 came"


def test_what_is_no_text_and_how_an_exchange_is_built_stay() -> None:
    exchange = {
        "role": "user",
        "blocks": [{"type": "text", "text": "Hi", "cache": True}],
        "persona_version": 3,
        "none": None,
    }

    assert words().without(exchange, near=True) == exchange
    assert blanked(exchange) == exchange | {"blocks": [{"type": "text", "text": ERASED, "cache": True}]}


@given(st.text(), st.text("abcDE \n", min_size=20), st.text())
def test_nothing_of_a_quote_is_left_and_a_second_time_changes_nothing(before: str, said: str, after: str) -> None:
    found = Words([said], names=(), label="erased-1")

    left = found.without(before + said + after, near=False)

    assert not found.quoted(left)
    assert found.without(left, near=False) == left
