"""Rules that a persona suggests by its own words."""

from __future__ import annotations

from typing import Any

import pytest

from evaluation.drafting.offered import offered_sentences


@pytest.mark.parametrize(
    ("persona", "rule"),
    [
        ("I never say sorry.", {"contains_none": ["sorry"]}),
        ("Never uses more than two sentences.", {"max_sentences": 2}),
        ("You do not write more than 40 words.", {"max_words": 40}),
        ("You don’t write more than 40 words.", {"max_words": 40}),
        ("Bob never says sorry.", None),
        ("You never say more.", {"contains_none": ["more"]}),
    ],
)
def test_a_persona_suggests_what_it_says_of_itself(persona: str, rule: dict[str, Any] | None) -> None:
    offered = offered_sentences(persona=persona, name="Ada Lund")
    fields = [suggestion.fields() for suggestion in offered]

    assert [made and made["rule"] for made in fields] == ([rule] if rule else [])
