"""What kind of word a word is, in many languages: the detector reads a message as a sequence of these kinds.

The kinds and their words stand in `behavior_data/lexicon.yaml`; `stop_words.yaml` adds how people say stop, more, less and how often.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).resolve().parent.parent / "behavior_data"
LONGEST_PHRASE = 6  # words; in scripts without spaces, characters
SHORTEST_STEM = 2
SHORTEST_ADDED = 5  # letters of an entry of `stop_words.yaml`: short ones mean other things in other languages
KIND_OF_AMOUNT = {"sometimes": "often", "usually": "often", "rarely": "often", "from_now_on": "lasting"}

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u200c\u200d"
_WORD = rf"[^\W\d_{_UNSPACED}](?:[^\W_{_UNSPACED}]|[{_MARKS}]|['\-](?=[^\W\d_]))*"
_TOKEN = re.compile(rf"[{_UNSPACED}]|{_WORD}|\d+|[?!.,:;…。！？、，：؟।\n]|[^\w\s]")
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'", "\u0307": None})


def folded(text: str) -> str:
    """The text as words are compared: NFKC, case-folded, with one shape of apostrophe."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_APOSTROPHES)


def tokens(text: str) -> list[str]:
    """Words, numbers and signs of a folded text, in order. Scripts without spaces are split into characters."""
    return _TOKEN.findall(text)


class Lexicon:
    """Finds the kinds of words and phrases.

    Args:
        kinds: Words and phrases per kind; one that ends in ``*`` stands for all that begin so. The first kind that lists a word has it.
    """

    def __init__(self, kinds: Mapping[str, list[str]]) -> None:
        self._exact: dict[tuple[str, ...], str] = {}
        self._stems: dict[tuple[str, ...], str] = {}
        self._first: dict[str, int] = {}  # longest phrase by its first word
        self._stem_lengths: tuple[int, ...] = ()
        for kind, entries in kinds.items():
            for entry in entries:
                self.add(kind, entry)

    def add(self, kind: str, entry: str) -> None:
        """Have one more word or phrase, unless it has a kind already."""
        words = tuple(tokens(folded(entry.removesuffix("*"))))[:LONGEST_PHRASE]
        if not words:
            return
        table = self._stems if entry.endswith("*") and len(words[-1]) >= SHORTEST_STEM else self._exact
        table.setdefault(words, kind)
        if table is self._stems and len(words[-1]) not in self._stem_lengths:
            self._stem_lengths = tuple(sorted({*self._stem_lengths, len(words[-1])}, reverse=True))
        if len(words) > 1:
            self._first[words[0]] = max(self._first.get(words[0], 1), len(words))

    def kind_at(self, words: list[str], start: int) -> tuple[str, int]:
        """The kind of the longest phrase that begins at `start`, and its length; an empty kind where none does."""
        longest = min(self._first.get(words[start], 1), len(words) - start)
        for length in range(longest, 0, -1):
            phrase = tuple(words[start : start + length])
            if kind := self._exact.get(phrase):
                return kind, length
            if kind := self._stem(phrase):
                return kind, length
        return "", 1

    def _stem(self, phrase: tuple[str, ...]) -> str:
        head, last = phrase[:-1], phrase[-1]
        for length in self._stem_lengths:
            if length <= len(last) and (kind := self._stems.get((*head, last[:length]))):
                return kind
        return ""


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The lexicon of the repository, read once per process."""
    found = Lexicon({kind: _flat(entries) for kind, entries in _read("lexicon.yaml").items()})
    for amounts in read_stop_words().values():
        for amount, entries in amounts.items():
            for entry in entries:
                if len(entry) >= SHORTEST_ADDED or not entry[0].isascii():
                    found.add(KIND_OF_AMOUNT.get(amount, amount), entry)
    return found


def read_stop_words() -> dict[str, dict[str, list[str]]]:
    """How people say stop, more, less and how often: language to amount to words."""
    return _read("stop_words.yaml")


def lexicon_digest() -> str:
    """SHA-256 (hex) of the files that tell of words: weights hold for the words they were learnt with."""
    found = hashlib.sha256()
    for name in ("lexicon.yaml", "stop_words.yaml", "word_groups.txt"):
        path = DATA / name
        found.update(path.read_bytes() if path.exists() else b"")
    return found.hexdigest()


def _read(name: str) -> dict[str, Any]:
    path = DATA / name
    if not path.exists():
        return {}
    read = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 (texts only: "no" is a word here)
    return read if isinstance(read, dict) else {}


def _flat(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, Mapping):
        return [word for part in entries.values() for word in _flat(part)]
    return [word for part in entries for word in _flat(part)]
