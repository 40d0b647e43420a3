"""Phrases and regular expressions of operators, teams and files: checked when they are read, and stopped when they take too long."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from re import IGNORECASE, _parser  # type: ignore[attr-defined, unused-ignore]  # what `re` itself reads with
from re import error as ReError
from typing import Any

import regex

SECONDS = 0.1  # of processor time, for one pattern on one text
TOGETHER = (
    1.0  # seconds for all patterns of one message: those that come later get `AFTERWARDS` each, for as long again
)
AFTERWARDS = 0.01  # enough for an ordinary pattern (0.2 ms), so that a slow one cannot disable the others
LONGEST = 20_000  # characters of a text that a regular expression is shown
LARGEST = 1_000  # elements of a compiled expression; `regex` copies what is repeated, and looks at its clock only between elements
MOST_CHARACTERS = 1_000  # of a phrase or expression: compiling has no time limit
TIMED_OUT = "pattern timed out: "  # begins the reason of what a slow pattern left unscored
_FUZZY = regex.compile(r"(?<!\\)\{(?!\d*,?\d*\})[^{}]*\}?")  # `regex` reads {e<=1} as "about", `re` as these characters
_NAMED = 200  # characters of a pattern in a reason

_seconds_left: ContextVar[list[float] | None] = ContextVar("seconds left for the patterns of a message", default=None)


class Undecided(Exception):
    """A pattern cannot say whether it matches: it took too long, or the text goes on after what it was shown."""


@contextmanager
def one_message() -> Iterator[None]:
    """Let the patterns that run inside share `TOGETHER` seconds, see `find`. Inside another `one_message` it changes nothing."""
    if _seconds_left.get() is not None:
        yield
        return
    token = _seconds_left.set([TOGETHER])
    try:
        yield
    finally:
        _seconds_left.reset(token)


def check_phrase(phrase: str) -> None:
    """Refuse what cannot be looked for, without compiling it: that would take half a second for the shipped files.

    Raises:
        ValueError: The phrase is empty or longer than MOST_CHARACTERS, or the ``/regex/`` is not valid or too large.
    """
    if not phrase.strip():
        raise ValueError("an empty phrase matches everything; write at least one word")
    if len(phrase) > MOST_CHARACTERS:
        raise ValueError(f"{_shortened(phrase)} has {len(phrase):,} characters; allowed: {MOST_CHARACTERS:,}")
    if not _is_regex(phrase):
        return
    try:
        parsed = _parser.parse(phrase[1:-1], IGNORECASE)
        # Cheaper than to count, and enough for nearly all: no expression has more elements, as each + makes two of what it repeats.
        at_most = len(phrase) * 2 ** phrase.count("+")  # as `_size` counts, if nothing is repeated by a number
        size = at_most if at_most <= LARGEST and "{" not in phrase else _size(parsed)
    except (ReError, OverflowError, RecursionError) as error:
        raise ValueError(f"{phrase} is not a valid regular expression: {error}") from None
    if brace := _FUZZY.search(phrase):
        raise ValueError(
            f"{_shortened(phrase)} is not a valid regular expression: write \\{{ for the brace in {brace[0]}"
        )
    if size > LARGEST:
        raise ValueError(f"{_shortened(phrase)} is too large: {size:,} elements with its repeats; allowed: {LARGEST:,}")


@lru_cache(maxsize=4096)
def phrase_pattern(phrase: str) -> regex.Pattern[str]:
    """Return a compiled pattern for a phrase, or for ``/regex/``.

    A phrase matches whatever the case, on word boundaries, with any white space between its words and either shape of apostrophe.

    Raises:
        ValueError: The phrase is empty or too long, or the ``/regex/`` is too large, or not valid for `re` or for `regex`.
    """
    check_phrase(phrase)
    body = phrase[1:-1]
    if not _is_regex(phrase):
        words = phrase.split()
        before = r"(?<!\w)" if words[0][0].isalnum() else ""
        after = r"(?!\w)" if words[-1][-1].isalnum() else ""
        inside = r"\s+".join(regex.sub("['\u2019]", "['\u2019]", regex.escape(word)) for word in words)
        body = before + inside + after
    try:
        return regex.compile(body, regex.IGNORECASE | regex.VERSION0)
    except (regex.error, OverflowError, RecursionError) as error:  # `re` can read it, `regex` cannot
        raise ValueError(f"{_shortened(phrase)} is not a valid regular expression: {error}") from None


def find(phrase: str, text: str) -> regex.Match[str] | None:
    """Return the first place where a phrase or ``/regex/`` matches.

    A regular expression is searched for in the first 20,000 characters. A match there counts when the full text has it at the same
    place: the cut is no end for ``$``, ``\\Z``, ``\\b`` and lookaheads.

    Within `one_message` a pattern has 0.1 s as long as the message's second lasts, 0.01 s while the patterns take another second, and
    is not tried after that.

    Raises:
        Undecided: The phrase is not valid, it took too long, the message's time is over, or nothing matches in the first 20,000
            characters of a longer text.
    """
    try:
        pattern = phrase_pattern(phrase)
    except ValueError as problem:
        raise Undecided(str(problem)) from None
    head = text[:LONGEST] if _is_regex(phrase) else text
    left = _seconds_left.get()
    is_over = left is not None and left[0] < -TOGETHER  # below 0 it is what was taken beyond the message's time
    if is_over:
        raise Undecided(f"{TIMED_OUT}{_shortened(phrase)}")
    seconds = SECONDS if left is None or left[0] > 0 else AFTERWARDS
    started = time.thread_time()  # waiting for other threads costs a message nothing
    try:
        match = pattern.search(head, timeout=seconds)
        if match is not None and len(head) < len(text):
            match = pattern.match(text, match.start(), timeout=seconds)
    except TimeoutError:
        raise Undecided(f"{TIMED_OUT}{_shortened(phrase)}") from None
    finally:
        if left is not None:
            left[0] -= time.thread_time() - started
    if match is None and len(head) < len(text):
        raise Undecided(f"the first {LONGEST:,} of {len(text):,} characters do not decide {_shortened(phrase)}")
    return match


def find_all(phrases: Iterable[str], text: str) -> tuple[dict[str, regex.Match[str]], dict[str, Undecided]]:
    """Return the first match of each phrase that occurs, and apart from them, with the reason, the phrases that cannot say."""
    matches: dict[str, regex.Match[str]] = {}
    undecided: dict[str, Undecided] = {}
    for phrase in phrases:
        try:
            match = find(phrase, text)
        except Undecided as problem:
            undecided[phrase] = problem
        else:
            if match is not None:
                matches[phrase] = match
    return matches, undecided


def _is_regex(phrase: str) -> bool:
    return len(phrase) > 2 and phrase.startswith("/") and phrase.endswith("/")


def _shortened(phrase: str) -> str:
    return phrase if len(phrase) <= _NAMED else f"{phrase[: _NAMED - 1]}…"


def _size(parsed: Any) -> int:
    """Return how many elements the compiled expression has: what must occur n times stands in it n times, and once more if it may
    occur more often."""
    size = 0
    for code, value in parsed:
        inside = sum(map(_size, _parts(value))) or (len(value) if isinstance(value, list) else 1)
        if str(code).endswith("_REPEAT"):
            fewest, most, _ = value
            inside *= int(fewest) + (most != fewest)
        size += inside
    return size


def _parts(value: Any) -> Iterator[Any]:
    """Yield the expressions inside an element of a parsed one."""
    if isinstance(value, _parser.SubPattern):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _parts(item)
