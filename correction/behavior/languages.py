"""The words of requests by language, and the patterns that read them, compiled once per process from the files of `data`."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

from correction.behavior.topics import alternatives, read_data, word_pattern
from correction.behavior.trait_change import Amount

# Marks of the private use area: masked text holds no other character of it.
QUOTE = "\ue000"
CODE = "\ue001"
TURNING_KINDS = ("not", "end", "less", "turn")  # kinds of words that turn a meaning around
Pattern = re.Pattern[str]
Match = re.Match[str]
NEVER_MATCHES = re.compile(r"(?!)")


@cache
def pattern_named(name: str) -> Pattern:
    """Compile a pattern of `patterns.yaml`."""
    data = read_data("patterns.yaml")
    if name == "clauses in pt":  # where "mais" is no "but"
        return re.compile(data["clauses"].replace("mais|", ""))
    text = "".join(data[name]).replace("{QUOTE}", QUOTE).replace("{WORDS}", data["words of language"])
    flags = re.IGNORECASE if name == "code line" else 0
    return re.compile(text, re.MULTILINE | flags)


@cache
def _amount_patterns() -> dict[Amount, Pattern]:
    """Compile the words for how often something is to be done, by the amount they mean."""
    return {amount: re.compile("".join(words)) for amount, words in read_data("patterns.yaml")["how often"].items()}


def has_pattern(name: str, text: str) -> bool:
    """Return whether a pattern of `patterns.yaml` is in the text."""
    return pattern_named(name).search(text) is not None


def amount_by_frequency(text: str) -> Amount | None:
    """Return the amount that a word such as "sometimes" means; None where the text has none."""
    for amount, pattern in _amount_patterns().items():
        if pattern.search(text):
            return amount
    return None


@cache
def spoken_languages() -> dict[str, Pattern]:
    """Compile the names of languages that the agent may be asked to speak, by their English names."""
    data = read_data("patterns.yaml")
    return {name: word_pattern(words, data["before a language"]) for name, words in data["languages"].items()}


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a language by what they do (the keys of `requests.yaml`), and the ending of a comparative."""

    name: str
    kinds: dict[str, Pattern]
    comparative: Pattern

    def __getitem__(self, kind: str) -> Pattern:
        return self.kinds.get(kind, NEVER_MATCHES)

    def has(self, text: str, *kinds: str) -> bool:
        """Return whether the text has a word of one of these kinds."""
        return any(self[kind].search(text) for kind in kinds)

    def begins(self, text: str, *kinds: str, at: int = 0) -> bool:
        """Return whether a word of one of these kinds stands at this position of the text."""
        return any(self[kind].match(text, at) for kind in kinds)

    def count(self, text: str, kind: str) -> int:
        """Count the words of a kind."""
        return len(self[kind].findall(text))

    def count_request_words(self, text: str) -> int:
        """Count the positions at which a word of a request begins."""
        positions: set[int] = set()
        for kind, pattern in self.kinds.items():
            if kind not in ("plain", "known", "turning"):
                positions.update(match.start() for match in pattern.finditer(text))
        return len(positions)


@cache
def languages() -> dict[str, Language]:
    """Compile the words of `requests.yaml`, by language, and two kinds made of them.

    ``turning`` are all words that turn a meaning around; ``known`` are all words but those that begin a complaint (``fault``).
    """
    languages = {}
    for name, words_by_kind in read_data("requests.yaml").items():
        turning = "|".join(words_by_kind[kind] for kind in TURNING_KINDS if kind in words_by_kind)
        known = "|".join([*(words for kind, words in words_by_kind.items() if kind != "fault"), turning])
        # Whole words alone; ``unspaced`` are languages that write no spaces between words.
        frame = "(?:{})" if name == "unspaced" else r"(?<!\w)(?:{})(?!\w)"
        patterns = {}
        for kind, words in {**words_by_kind, "turning": turning, "known": known}.items():
            patterns[kind] = re.compile(frame.format("|".join(alternatives(words))))
        comparative = NEVER_MATCHES
        if ending := read_data("patterns.yaml")["comparatives"].get(name):
            comparative = re.compile(rf"(?:{ending})$")
        languages[name] = Language(name, patterns, comparative)
    return languages


def folded(text: str) -> str:
    """Return the text as words are compared: NFKC, case-folded, with one shape of apostrophe and single spaces."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    plain = plain.translate({0x2019: "'", 0x2BC: "'", 0x2018: "'", 0x307: None})
    return re.sub(r"[^\S\n]+", " ", plain)
