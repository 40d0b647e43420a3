"""Compare names as people see them, and find signs in a text that it asks for more than a manner (`data/hostile.yaml`)."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

HOSTILE_DATA = Path(__file__).resolve().parent / "data" / "hostile.yaml"
LONGEST_SEARCHED = 20_000  # characters searched for signs, from both ends of a longer text

# Letters of other scripts, and what Latin letter each looks like.
_LOOKS_LIKE = str.maketrans(
    "авсԁеёһіїјкӏмнорԛгѕтцԝхуүАВСЕНІЈКМОРЅТХУαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıłøϲſ",
    "abcdeehiijklmhopqrstuwxyyABCEHIJKMOPSTXYabeikvoptuxyABEZHIKMNOPTYXagilocs",
)
_DIGITS_LIKE_LETTERS = str.maketrans("01", "ol")


def name_key(name: str) -> str:
    """Return what names of traits are compared by: case-folded, however composed or spaced, without invisible characters.

    Names that are equal to a database's LOWER() have the same key, also with a capital İ and an i; so have ß and ss, which differ there.
    """
    visible = "".join(char for char in name if unicodedata.category(char) != "Cf") or name
    folded = unicodedata.normalize("NFKC", visible).casefold()
    folded = unicodedata.normalize("NFKC", folded)
    return " ".join(folded.replace("i\u0307", "i").split())


def plain_letters(text: str) -> str:
    """Return the text without accents and invisible marks, and with Latin letters for those that look like them."""
    decomposed = unicodedata.normalize("NFKD", text)
    visible = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", visible.translate(_LOOKS_LIKE))


def skeleton(name: str) -> str:
    """Return what names are compared by where one must not pass for another: letters and digits as they look, without case.

    A name without any is compared as it is, but for its case.
    """
    folded = plain_letters(plain_letters(name).casefold())
    letters = "".join(char for char in folded if char.isalnum())
    return letters.translate(_DIGITS_LIKE_LETTERS) or folded


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """Return what in these texts reads like an attempt to take the persona over; empty when nothing does.

    The signs add to the model's own judgement and do not replace it: an attempt that the patterns do not know goes unnoticed.
    """
    return _signs_in("signs", texts)


def caution_signs(*texts: str) -> tuple[str, ...]:
    """Return what in these texts asks for more than manner: conduct towards others, secrecy, harm, advertising."""
    return _signs_in("cautions", texts)


def names_a_duty(*texts: str) -> bool:
    """Return whether the texts name what an agent owes people, such as honesty: only a person may decide that it does less of it."""
    return bool(_signs_in("owed", texts))


@dataclass(frozen=True, slots=True)
class _Sign:
    """A sign in words for people, with the pattern for folded text and, where case matters, that for unfolded text."""

    wording: str
    folded_pattern: re.Pattern[str]
    cased_pattern: re.Pattern[str] | None


def _signs_in(group: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the signs of a group (a key of `hostile.yaml`) that any of the texts shows, in words for people, in the order of the data."""
    folded_texts = [_searchable(text.casefold()) for text in texts]
    cased_texts = [_searchable(text) for text in texts]
    signs = []
    for sign in _sign_patterns(group):
        is_seen = any(sign.folded_pattern.search(text) for text in folded_texts)
        if not is_seen and sign.cased_pattern is not None:
            is_seen = any(sign.cased_pattern.search(text) for text in cased_texts)
        if is_seen:
            signs.append(sign.wording)
    return tuple(signs)


@cache
def _sign_patterns(group: str) -> list[_Sign]:
    """Compile the patterns of a group of `hostile.yaml`; those under ``cased`` look at upper and lower case, the others do not."""
    data = yaml.safe_load(HOSTILE_DATA.read_text(encoding="utf-8"))
    signs = []
    for wording, by_language in data[group].items():
        cased = by_language.pop("cased", [])
        patterns = [pattern for patterns in by_language.values() for pattern in patterns]
        signs.append(
            _Sign(
                wording=wording,
                folded_pattern=_any_of(patterns, data),
                cased_pattern=_any_of(cased, data) if cased else None,
            )
        )
    return signs


def _any_of(patterns: list[str], data: dict[str, str]) -> re.Pattern[str]:
    """Compile alternatives, with the lists of words that stand for ``{rules}`` and ``{people}``."""
    text = "|".join(patterns).replace("{rules}", data["rules"]).replace("{people}", data["people"])
    return re.compile(plain_letters(text))


def _searchable(text: str) -> str:
    """Return the text as the patterns expect it: both ends of a long one, plain letters, single spaces within a line."""
    if len(text) > LONGEST_SEARCHED:
        half = LONGEST_SEARCHED // 2
        text = f"{text[:half]}\n{text[-half:]}"
    plain = plain_letters(text).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())
