"""Regular expressions that people and models write: those that may take for ever are refused."""

from __future__ import annotations

import pytest

from agents.text.patterns import ends_soon


@pytest.mark.parametrize(
    "phrase", ["plain (words)+", "/no[ -]?way/", r"/\bsynerg\w+/", "/(ab)+/", "/a{2,5}/", "/(?:a|b)c*/", "//"]
)
def test_what_ends_soon_is_given_back(phrase: str) -> None:
    assert ends_soon(phrase) == phrase


@pytest.mark.parametrize("phrase", ["/(a+)+$/", "/(a|aa)*b/", r"/(\w+\s?)*!/", "/((a?)b)+/", "/(?:x(y*))+/"])
def test_what_may_take_for_ever_is_refused_with_the_reason(phrase: str) -> None:
    with pytest.raises(ValueError, match="may take for ever"):
        ends_soon(phrase)
