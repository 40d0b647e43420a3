"""What stands in a message: its author's own words, and what in them reads like an attempt to take a persona over."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

import yaml

DATA = Path(__file__).resolve().parent.parent / "behavior_data" / "hostile.yaml"
LONGEST_WORDS = 12_000  # characters of own words that are read, from both ends of a longer message
LONGEST_SEARCHED = 20_000  # characters searched for signs, from both ends of a longer text

_OPENING = re.compile(
    r"""
    ^[ \t]{0,3}(?P<line>(?:>|&gt;).*(?:\n[ \t]{0,3}(?:>|&gt;).*)*)       # quoted line by line
    | ^[ \t]{0,3}(?P<fence>`{3,}|~{3,})              # a block of code
    | ^-{2,}[ ]?(?:original|forwarded)[ ]message[ ]?-{2,}(?P<rest>)   # a mail: what follows is another's
    | (?P<mark>\"{3}|'{3}|\[quote\b[^\]\n]{0,80}\]|<blockquote>|[\u201c\u201e\u00ab\u300c\u300e])
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_CLOSING = {
    "\u201c": "\u201d", "\u201e": "\u201c", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "[": "[/quote]", "<": "</blockquote>", '"': '"""', "'": "'''",
}  # fmt: skip
_TYPOGRAPHIC = "\u201c\u201e\u00ab\u300c\u300e"  # a block when they go over a line's end, else part of a sentence
_MARK = re.compile(r"\[quoted text, [\d,]+ characters?\]")


@dataclass(frozen=True, slots=True)
class Words:
    """A person's own words in a message.

    Attributes:
        text: Without what is quoted in blocks, of which a mark says how much it was; cut in the middle when it is too long.
        quoted: Characters of the quoted blocks.
        cut: Characters of own words that were left out.
    """

    text: str
    quoted: int = 0
    cut: int = 0

    @property
    def say_something(self) -> bool:
        """Whether there is a letter of any script: signs, numbers and emoji alone ask for nothing."""
        return any(char.isalpha() for char in _MARK.sub("", self.text))


def own_words(text: str) -> Words:
    """Read a message, in time proportional to its length."""
    lowered = text.lower() if len(text.lower()) == len(text) else text
    missing: set[str] = set()  # closing marks that no longer come: each is searched for once
    parts: list[str] = []
    quoted = position = 0
    while opening := _OPENING.search(text, position):
        start, end = opening.start(), _end(lowered, opening, missing)
        if end is None:
            end = opening.end()
            parts.append(text[position:end])
        else:
            quoted += end - start
            parts += (text[position:start], f"[quoted text, {end - start:,} character{'s' * (end - start != 1)}]")
        position = end
    own = "".join((*parts, text[position:])).strip()
    cut, half = len(own) - LONGEST_WORDS, LONGEST_WORDS // 2
    if cut <= 0:
        return Words(own, quoted)
    return Words(f"{own[:half]}\n[… {cut:,} characters cut …]\n{own[-half:]}", quoted, cut)


def _end(text: str, opening: re.Match[str], missing: set[str]) -> int | None:
    """Where a quotation ends; None when it is none."""
    begin, mark = opening.end(), opening["mark"]
    if opening["line"]:
        return begin
    if opening["rest"] is not None:
        return len(text)
    closing = f"\n{opening['fence']}" if opening["fence"] else _CLOSING[mark[0]]
    closed = -1 if closing in missing else text.find(closing, begin)
    if closed < 0:
        missing.add(closing)
        return len(text) if opening["fence"] else None
    if mark and mark in _TYPOGRAPHIC and "\n" not in text[begin:closed]:
        return None
    return closed + len(closing)


# Letters of other scripts, and what Latin letter each looks like.
_LOOKS_LIKE = str.maketrans(
    "авсԁеёһіїјкӏмнорԛгѕтцԝхуүАВСЕНІЈКМОРЅТХУαβεικνορτυχγΑΒΕΖΗΙΚΜΝΟΡΤΥΧɑɡıłøϲſ",
    "abcdeehiijklmhopqrstuwxyyABCEHIJKMOPSTXYabeikvoptuxyABEZHIKMNOPTYXagilocs",
)


def name_key(name: str) -> str:
    """By which names of traits are compared: case-folded, however composed or spaced, without what stands in them unseen.

    What a database's LOWER() holds for equal is equal here, also a capital İ and an i; so are ß and ss, which it tells apart.
    """
    seen = "".join(char for char in name if unicodedata.category(char) != "Cf") or name
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return " ".join(folded.replace("i\u0307", "i").split())


def without_unseen(text: str) -> str:
    """Without accents, invisible and direction marks, and with one form of each letter; look-alikes become Latin letters."""
    decomposed = unicodedata.normalize("NFKD", text)
    seen = "".join(char for char in decomposed if unicodedata.category(char) not in ("Mn", "Cf"))
    return unicodedata.normalize("NFKC", seen.translate(_LOOKS_LIKE))


def skeleton(name: str) -> str:
    """What names are compared by where one must not pass for another: letters and digits as they look, without case.

    A name without any is what it is, but for its case.
    """
    folded = without_unseen(without_unseen(name).casefold())
    return "".join(char for char in folded if char.isalnum()).translate(str.maketrans("01", "ol")) or folded


def hostile_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts reads like an attempt to take the persona over, in the languages of `hostile.yaml`; empty when nothing does.

    It holds back beside the model's own judgement, not instead of it: what its patterns do not know it cannot see.
    """
    return _signs("signs", texts)


def caution_signs(*texts: str) -> tuple[str, ...]:
    """What in these texts asks for more than manner: conduct towards others, secrecy, harm, advertising; empty when nothing does."""
    return _signs("cautions", texts)


def gives_up(*texts: str) -> bool:
    """Whether the texts name something an agent owes those it talks to, so that less of it is nothing for a machine to decide."""
    return bool(_signs("owed", texts))


def _signs(group: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    seen = [(_seen(text.casefold()), _seen(text)) for text in texts]
    return tuple(
        sign
        for sign, pattern, cased in _patterns(group)
        if any(pattern.search(folded) or (cased is not None and cased.search(plain)) for folded, plain in seen)
    )


@cache
def _patterns(group: str) -> list[tuple[str, re.Pattern[str], re.Pattern[str] | None]]:
    """The signs of a group, each with its pattern for folded text and that for text in its own case."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))

    def any_of(patterns: list[str]) -> re.Pattern[str]:
        text = "|".join(one.replace("{rules}", data["rules"]).replace("{people}", data["people"]) for one in patterns)
        return re.compile(without_unseen(text))

    rows = []
    for sign, by_language in data[group].items():
        cased = by_language.pop("cased", None)
        rows.append((sign, any_of([*chain.from_iterable(by_language.values())]), any_of(cased) if cased else None))
    return rows


def _seen(text: str) -> str:
    if len(text) > LONGEST_SEARCHED:
        text = f"{text[: LONGEST_SEARCHED // 2]}\n{text[-LONGEST_SEARCHED // 2 :]}"
    plain = without_unseen(text).replace("\u2019", "'").replace("\u0131", "i")
    return "\n".join(" ".join(line.split()) for line in plain.splitlines())
