"""The mapping's answer as values that can be stored and shown, or why it is none. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

LONGEST_NAME, LONGEST_DESCRIPTION = 120, 4_000  # characters
MOST_TOUCHED = 50  # names of traits an answer may say it is about
_UNSEEN = frozenset(
    "\u00ad\u034f\u180e\u200b\u2060\u2061\u2062\u2063\u2064\ufeff"
)  # not joiners: emoji and scripts need them
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def name_key(name: str) -> str:
    """By which names of traits are compared: case-folded, however composed or spaced, whatever stands in them unseen.

    What a database's LOWER() holds for equal is equal here, also a capital İ and an i; so are ß and ss, which it tells apart.
    """
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf") or name
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.replace("i\u0307", "i").split())


class Invalid(Exception):
    """Names the value and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A trait as the model, or a person, would have it. None = not said.

    `touches`: names of listed traits the change is about or works against.
    """

    name: str
    description: str
    sentiment: float | None
    strength: float | None
    is_new: bool
    replaces: str
    contradiction: str
    warnings: tuple[str, ...]
    touches: tuple[str, ...] | None = None


def read_answer(answer: object) -> Answer:
    """Read it. Numbers out of range are clamped, with a warning; that an answer leaves open whether it contradicts counts as no.

    Raises:
        Invalid: A field is missing or not of its kind.
    """
    if not isinstance(answer, Mapping):
        raise Invalid(f"{_shown(answer)} is no object")
    warnings: list[str] = []
    name = _line("name", answer.get("name"))
    if not any(unicodedata.category(char)[0] in "LNPS" for char in name):
        raise Invalid(f"name {_shown(name)} shows nothing; allowed: 1 to {LONGEST_NAME} characters")
    if len(name) > LONGEST_NAME:
        raise Invalid(f"name has {len(name)} characters; allowed: 1 to {LONGEST_NAME}")
    description = _text("description", answer.get("description"))
    if len(description) > LONGEST_DESCRIPTION:
        raise Invalid(f"description has {len(description)} characters; allowed: at most {LONGEST_DESCRIPTION:,}")
    contradicts = answer.get("contradicts_persona")
    contradiction = _line("contradiction", answer.get("contradiction"))
    return Answer(
        name=name,
        description=description,
        sentiment=_number("sentiment", answer.get("sentiment"), -1.0, 1.0, warnings),
        strength=_number("strength", answer.get("strength"), 0.0, 1.0, warnings),
        is_new=answer.get("is_new") is True,
        replaces=_line("replaces_trait", answer.get("replaces_trait")),
        contradiction="" if contradicts in (None, False) else contradiction or "it goes against its core",
        warnings=tuple(warnings),
        touches=_names(answer.get("touches")),
    )


def _names(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list):
        return None
    return tuple(filter(None, (_line("touches", name) for name in value[:MOST_TOUCHED] if isinstance(name, str))))


def _number(name: str, value: object, low: float, high: float, warnings: list[str]) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise Invalid(f"{name} {_shown(value)} is no number; allowed: {low:g} to {high:g}")
    within = float(min(high, max(low, value)))
    if within != value:
        warnings.append(f"{name} {_shown(value)} is not from {low:g} to {high:g}: {within:g} is taken")
    return within + 0.0  # never -0.0


def _text(name: str, value: object) -> str:
    """A text as it can be stored and shown: no control characters, trimmed."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Invalid(f"{name} {_shown(value)} is no text")
    seen = (char for char in value if char not in _UNSEEN)
    return "".join(char if char == "\n" or _is_plain(char) else " " for char in seen).strip()


def _line(name: str, value: object) -> str:
    return " ".join(_text(name, value).split())


def _is_plain(char: str) -> bool:
    """Not a control character, half a surrogate pair, or a mark that turns the direction of what follows."""
    return unicodedata.category(char) not in ("Cc", "Cs") and char not in _TURNING


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
