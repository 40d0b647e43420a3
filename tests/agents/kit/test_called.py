"""Whom a message calls, on a table of cases; `python -m tests.agents.kit.test_called` prints the share that is right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agents.kit.text.called import Party, read_calls

TABLE = yaml.safe_load(Path(__file__).with_name("called.yaml").read_text(encoding="utf-8"))
PARTIES = [
    Party.named(slug, one["display_name"], slug=slug, aliases=one.get("aliases", ()))
    for slug, one in TABLE["agents"].items()
]
PEOPLE = [Party.named(f"person {name}", name) for name in TABLE["people"]]
PARTS = ("tried", "held_out", "later", "last", "later_still", "everyone", "corrected")


def read(case: dict[str, Any]) -> dict[str, str]:
    """What each agent that is called is read of the text."""
    to = case.get("reply_to")
    calls = read_calls(case["text"], [*PARTIES, *PEOPLE], replied_to=f"person {to}" if to in TABLE["people"] else to)
    return {slug: calls.said_to(slug) for slug in sorted(TABLE["agents"]) if slug in calls.called}


def called_in(case: dict[str, Any]) -> list[str]:
    called = case["called"]
    if isinstance(called, list):
        return called
    left_out = called.removeprefix("all").removeprefix(" but ").split()
    return sorted(TABLE["agents"].keys() - set(left_out))


def is_right(case: dict[str, Any]) -> bool:
    said = read(case)
    return list(said) == called_in(case) and ("asked" not in case or said == case["asked"])


def name_of(case: dict[str, Any]) -> str:
    return f"{case['text']} {case.get('reply_to', '')}"


@pytest.mark.parametrize("case", [case for part in PARTS for case in TABLE[part]], ids=name_of)
def test_those_are_called_whom_a_person_speaks_to(case: dict[str, Any]) -> None:
    assert read(case) == case.get("asked", read(case))
    assert list(read(case)) == called_in(case)


def test_where_one_is_called_alone_it_is_read_the_whole_text() -> None:
    alone = [case for part in PARTS for case in TABLE[part] if len(called_in(case)) == 1 and "asked" not in case]

    assert len(alone) > 50
    assert [case["text"] for case in alone if list(read(case).values()) != [case["text"]]] == []


WORDS = "Jim Dwight Pam @jim , . ! ? : – and is be loud hey you please > ` ' …"
PIECES = st.sampled_from([*WORDS.split(), '"', " ", "\n"])


@given(st.lists(PIECES, max_size=40).map(" ".join), st.sampled_from([None, "pam", "someone else"]))
def test_every_sentence_of_any_text_concerns_one_that_is_called_or_nobody(text: str, replied_to: str | None) -> None:
    calls = read_calls(text, PARTIES, replied_to=replied_to)

    assert "".join(text[one.start : one.end] for one in calls.sentences) == text
    assert all(calls.said_to(key) in text or len(calls.sentences) > 1 for key in calls.called)


if __name__ == "__main__":
    for part in (*PARTS, "missed"):
        wrong = [case for case in TABLE[part] if not is_right(case)]
        count = len(TABLE[part])
        sys.stdout.write(f"{part}: {count - len(wrong)} of {count} right\n")
        sys.stdout.writelines(f"  {name_of(case)!r}: {read(case)}\n" for case in wrong)
