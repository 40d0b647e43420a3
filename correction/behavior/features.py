"""What the detector sees of a message: hashed n-grams of characters, words, kinds and groups of words, and its form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from correction.behavior.lexicon import folded, lexicon, tokens
from correction.behavior.masking import CODE, QUOTE, masked
from correction.behavior.word_groups import Groups, word_groups

# Groups of features: how many buckets each is hashed into.
GROUPS: dict[str, int] = {
    "characters": 1 << 17,
    "words": 1 << 17,
    "kinds": 1 << 16,
    "widest": 1 << 16,
    "wider": 1 << 16,
    "alike": 1 << 16,
    "mixed": 1 << 18,
}
CHARACTERS = (2, 5)  # shortest and longest n-gram
KINDS = (1, 4)
# Of the groups of words that are used alike (`word_groups`), from the widest on: the longest n-gram, and how far apart two may stand.
ALIKE: dict[str, tuple[int, int]] = {"widest": (4, 6), "wider": (3, 6), "alike": (2, 4)}
MIXED = (5, 6)  # the same of common words and, for the others, of their wider groups
MOST_WORDS = 120  # of a part, whose groups are looked at
LONGEST_PART = 320  # characters judged together; a longer message is judged in parts
START, OTHER, EMOJI, NUMBER = "^", "_", "E", "#"
_SPACES = re.compile(r"[^\S\n]+")
SENTENCE_ENDS = frozenset(".!?\n")
_ENDS = frozenset(".!…。！।\n;")
_ASKS = frozenset("?？؟")
_SENTENCE = re.compile(r"[^.!?…。！？؟।\n]*[.!?…。！？؟।\n]*\s*")
_SHARED = {",": ",", "、": ",", "，": ",", ":": ":", "：": ":", QUOTE: "Q", CODE: "K"}

Features = dict[str, set[int]]


def whole(text: str) -> str:
    """A message as it is read: masked and folded."""
    return _SPACES.sub(" ", folded(masked(text))).strip()


def parts(text: str, longest: int = LONGEST_PART) -> list[str]:
    """The pieces of a message that are judged: all of a short one, of a long one stretches of sentences."""
    read = whole(text)
    if len(read) <= longest:
        return [read]
    found: list[str] = []
    for sentence in _SENTENCE.findall(read):
        for start in range(0, len(sentence), longest):
            piece = sentence[start : start + longest]
            if found and len(found[-1]) + len(piece) <= longest // 2:
                found[-1] += piece
            elif piece.strip():
                found.append(piece)
    return [piece.strip() for piece in found] or [""]


def features(part: str) -> Features:
    """The buckets of a part of a message, per group."""
    words, known = tokens(part), word_groups()
    groups = [known.of(word) for word in words[:MOST_WORDS]]
    grams: dict[str, Iterable[str]] = {
        "characters": _character_grams(part),
        "words": _word_grams(words),
        "kinds": [*_kind_grams(kinds_of(words)), *_form(part, words)],
        "mixed": _alike_grams(list(_mixed(words, groups, known.common)), 2, *MIXED),
    }
    for place, (name, reach) in enumerate(ALIKE.items()):
        grams[name] = _alike_grams([START, *(found[place] for found in groups)], 1, *reach)
    return {name: _hashed(grams[name], buckets) for name, buckets in GROUPS.items()}


def kinds_of(words: list[str]) -> list[str]:
    """The message as kinds of words; words of no kind in a row are one ``_``. Begins with ``^``, as does each sentence."""
    found, place, known = [START], 0, lexicon()
    while place < len(words):
        word = words[place]
        sign = _sign(word)
        if sign:
            length = 1
        else:
            sign, length = known.kind_at(words, place)
            sign = sign or OTHER
        place += length
        if sign == "." and found[-1] in (START, "."):
            continue
        if not (sign in (OTHER, EMOJI, NUMBER) and found[-1] == sign):
            found.append(sign)
        if sign in (".", "?") and place < len(words):
            found.append(START)
    return found


def _sign(word: str) -> str:
    if word in _SHARED:
        return _SHARED[word]
    if word in _ENDS:
        return "."
    if word in _ASKS:
        return "?"
    if word.isdecimal():
        return NUMBER
    if word[0].isalnum():
        return ""
    return OTHER if word.isascii() else EMOJI


def _character_grams(part: str) -> set[str]:
    text, (shortest, longest) = f" {part} ", CHARACTERS
    return {text[i : i + n] for n in range(shortest, longest + 1) for i in range(len(text) - n + 1)}


def _word_grams(words: list[str]) -> Iterator[str]:
    begun = [START, *words]
    yield from words
    yield from (f"{a} {b}" for a, b in zip(begun, words, strict=False))
    yield from (f"{a} {b} {c}" for a, b, c in zip(begun, words, words[1:], strict=False))


def _kind_grams(kinds: list[str]) -> Iterator[str]:
    shortest, longest = KINDS
    for n in range(shortest, longest + 1):
        yield from (" ".join(kinds[i : i + n]) for i in range(len(kinds) - n + 1))
    known = [kind for kind in kinds if kind != OTHER][:24]  # pairs in order, at any distance
    yield from (f"{a}..{b}" for i, a in enumerate(known) for b in known[i + 1 : i + 9])


def _mixed(words: list[str], groups: Sequence[Groups], common: frozenset[str]) -> Iterator[str]:
    yield START
    for word, found in zip(words, groups, strict=False):
        yield word if word in common else f"g{found[1]}"
        if word in SENTENCE_ENDS:
            yield START


def _alike_grams(signs: Sequence[str], shortest: int, longest: int, furthest: int) -> Iterator[str]:
    for n in range(shortest, longest + 1):
        yield from (" ".join(signs[i : i + n]) for i in range(len(signs) - n + 1))
    for apart in range(2, furthest + 1):  # pairs in order
        yield from (f"{a}~{b}" for a, b in zip(signs, signs[apart:], strict=False))


def _form(part: str, words: list[str]) -> Iterator[str]:
    """Facts about the form that no n-gram holds."""
    spoken = [word for word in words if word[0].isalpha()]
    yield f"length {min(6, len(spoken) // 4)}"
    yield f"asks {part.rstrip()[-1:] in _ASKS}"
    if not spoken:
        yield "no word"
    if QUOTE in part or CODE in part:
        yield "shows"
        yield f"shows first {part.lstrip()[:1] in (QUOTE, CODE)}"
        yield f"shows, words {min(3, len(spoken) // 3)}"


def _hashed(grams: Iterable[str], buckets: int) -> set[int]:
    mask = buckets - 1
    return {crc32(gram.encode("utf-8", "surrogatepass")) & mask for gram in grams}
