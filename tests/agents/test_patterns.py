"""Regular expressions that people and models write: those that may take for ever are refused."""

from __future__ import annotations

import pytest

from agents.text.patterns import LONGEST, ends_soon
from agents.text.tokens import phrase_pattern


@pytest.mark.parametrize(
    "phrase",
    [
        "plain (words)+",
        "/no[ -]?way/",
        r"/\bsynerg\w+/",
        "/(ab)+/",
        "/a{2,5}/",
        "/(?:a|b)c*/",
        "//",
        "/(?:ab){2}/",
        r"/\d{1,2}/",
        r"/(?:\d{1,3}\.){3}\d+/",
        r"/(\S+\s+){3,11}/",
        r"/\w+ \w+ \w+ \w+/",
        r"/(bar|bars)s?\b.*\b(x|y)/",
    ],
)
def test_what_ends_soon_is_given_back(phrase: str) -> None:
    assert ends_soon(phrase) == phrase


@pytest.mark.parametrize(
    "phrase",
    [
        "/(a+)+$/",
        "/(a|aa)*b/",
        r"/(\w+\s?)*!/",
        "/((a?)b)+/",
        "/(?:x(y*))+/",
        "/(a*){12}b/",
        "/(a{1,99}){1,99}b/",
        "/(a|a){1,22}!/",
        r"/(\w+\s?){1,60}!$/",
        "/.*.*.*.*x/",
        "/.*a.*a.*x/",
        "/a*b*a*b*a*c/",
        "/[a-z]*[A-Z]*[a-z]*!/",
        f"/{'a?' * 25}{'a' * 25}/",
        f"/{'(a|b|aa)' * 30}!/",
    ],
)
def test_what_may_take_for_ever_is_refused_with_the_reason(phrase: str) -> None:
    with pytest.raises(ValueError, match="may take for ever"):
        ends_soon(phrase)


def test_a_pattern_has_a_length_that_is_told() -> None:
    assert ends_soon(f"/{'a' * LONGEST}/")
    with pytest.raises(ValueError, match="has 501 characters; a regular expression may have 500"):
        ends_soon(f"/{'a' * 501}/")


@pytest.mark.parametrize("pattern", ["/a{99999999999}/", "/" + "(" * 20_000 + ")" * 20_000 + "/"])
def test_what_cannot_be_compiled_is_a_value_error_like_any_other(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a valid regular expression"):
        phrase_pattern(pattern)
