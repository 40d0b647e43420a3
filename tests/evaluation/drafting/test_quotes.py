"""Quotes from a persona: found whatever the white space, case and marks, and only where every word stands there."""

from __future__ import annotations

import pytest

from evaluation.drafting.quotes import find_quote

ARABIC = "\u0644\u0627 \u062a\u0633\u062a\u062e\u062f\u0645"


@pytest.mark.parametrize(
    "quote",
    [
        "no emoji  or\nexclamation marks",
        "NO EMOJI OR EXCLAMATION MARKS",
        "\u201cno emoji or exclamation marks\u201d",
        "no emoji or exclamation\u2026",
    ],
)
def test_white_space_case_and_quotation_marks_do_not_matter(quote: str) -> None:
    text = "You use no emoji or\n  exclamation marks, ever."
    span = find_quote(quote, text)

    assert span is not None
    assert text[slice(*span)].startswith("no emoji or\n  exclamation")


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("it's \u201cfine\u201d \u2013 really", "You say it\u2019s \"fine\" - really."),
        ("\u7d75\u6587\u5b57\u306f", "\u5f7c\u306f\u7d75\u6587\u5b57\u306f\u4f7f\u308f\u306a\u3044\u3002"),
        (ARABIC, f"\u0623\u0646\u062a {ARABIC} \u0627\u0644\u0631\u0645\u0648\u0632"),
    ],
)  # fmt: skip
def test_quotes_are_found_whatever_the_script_and_the_shape_of_marks(quote: str, text: str) -> None:
    assert find_quote(quote, text) is not None
