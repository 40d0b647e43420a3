"""A text as the guards read it: words that say something, numbers as values, contractions written out; links, code, quotes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from agents.kit.text.voices import STOP_WORDS, stem

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DATA: Mapping[str, Any] = yaml.load(Path(__file__).with_name("reading.yaml").read_text("utf-8"), Loader=_Loader)  # noqa: S506 (a safe one)

_HIDDEN = frozenset(_DATA["hidden"].split())
_CONJUNCTIONS = frozenset(_DATA["conjunctions"].split())
_KINDS = dict.fromkeys(
    (*STOP_WORDS, *_HIDDEN, *_CONJUNCTIONS, *_DATA["function"].split(), *_DATA["fillers"].split()), ""
)
TELLING = frozenset(_DATA["telling"].split())
_KINDS |= dict.fromkeys(TELLING, "word")
_KINDS |= dict.fromkeys(_DATA["days"].split(), "date")
_KINDS |= dict.fromkeys(_DATA["languages"]["English"]["negations"].split(), "negation")
_MONTHS: Sequence[str] = _DATA["months"].split()
CARDINALS: Mapping[str, int] = _DATA["cardinals"]
_SCALES: Mapping[str, int] = _DATA["scales"]
_ORDINALS: Mapping[str, int] = _DATA["ordinals"]
_ADVERBS: Mapping[str, str] = _DATA["adverbs"]
_NUMBER_WORDS = frozenset([*CARDINALS, *_SCALES, *_ORDINALS, *_ADVERBS])
_UNITS = {word: unit for unit, words in _DATA["units"].items() for word in words.split()}
_NEGATIONS = {name: frozenset(entry["negations"].split()) for name, entry in _DATA["languages"].items()}
_NUMBERS: Mapping[str, Mapping[str, int]] = {
    name: entry.get("numbers", {}) for name, entry in _DATA["languages"].items()
}
_SPOKEN_IN = {name: frozenset(entry["function"].split()) for name, entry in _DATA["languages"].items()}
_SPOKEN: dict[str, list[str]] = {}  # the languages of a function word
for _name, _spoken in _SPOKEN_IN.items():
    for _word in _spoken:
        _SPOKEN.setdefault(_word, []).append(_name)


def _either(phrases: Collection[str]) -> str:
    return "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))


_SIGNS = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2044": "/", "\u200b": None, "⟦": None, "⟧": None})
_BLANKS = re.compile(r"[^\S\n]+")
_WRAPPED = re.compile(r"(?<=[^\s.!?:;]) ?\n ?(?=[a-z(])")  # a line that goes on in the next one
_LIST_NUMBER = re.compile(r"^\s*\d{1,2}[.)]\s", re.MULTILINE)
_LETTERS = re.compile(r"[^\W\d_]+")
_LINK = re.compile(
    r"(?:https?://|www\.)[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
_MAY_BE_CODE = re.compile(r"[`/_~]|(?<!\w)-|\(\)|\.[a-z]")
_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`"  # fences and spans
    r"|(?<![\w-])--?[a-z][\w-]*(?:=[^\s,;]+)?(?![\w-])"  # --option=value, -o
    r"|(?<![\w/])(?:~|\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)*/?"  # paths
    r"|\b[^\W_]+(?:_[^\W_]+)+\b|\b\w+\(\)"  # snake_case, call()
    r"|\b[\w-]+\.(?:py|js|ts|sh|ya?ml|json|toml|md|txt|csv|html|css|sql|cfg|ini|log|exe|zip|pdf)\b",
    re.DOTALL,
)
_QUOTE = re.compile(r'"([^"]{1,1000})"|“([^“”]{1,1000})”|„([^“”]{1,1000})[“”]|«([^«»]{1,1000})»')
_SHORTENED: Mapping[str, str] = _DATA["contractions"]
_CONTRACTION = re.compile(rf"(?<![\w'])(?:{_either(_SHORTENED)})(?!\w)", re.IGNORECASE)
_FILLER_PHRASE = re.compile(rf"\b(?:{_either(_DATA['filler_phrases'])})\b", re.IGNORECASE)
_MODAL = re.compile(r"\b(?:must|shall|should|ought|may|might|(?:have|has|had|needs?|got|ve) to)\b")
_DATED = re.compile(r"⟦[^⟧]*⟧")
_LIMIT = re.compile(
    rf"\b(?:{_either(_DATA['limits'])})\b"
    rf"|\b(?:about|around|roughly|over|under)(?= (?:[$€£¥]?\d|(?:{_either(CARDINALS)})\b))"
)
_MODALS = {"may": "may", "might": "may", "should": "should", "ought": "should"}
_MONTH = "|".join(_MONTHS)
_DAY = r"(?:(?P<{0}>\d{{1,2}})(?:st|nd|rd|th)?|(?P<{0}word>" + "|".join(_ORDINALS) + "))"
_DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}-\d\d?-\d\d?)|(?:the\s+)?{_DAY.format('before')}\s+(?:of\s+)?(?P<month>{_MONTH})\b(?:,?\s+(?P<year>\d{{4}}))?"
    rf"|(?P<month2>{_MONTH})\s+(?:the\s+)?{_DAY.format('after')}\b(?![:.]?\d)(?:,?\s+(?P<year2>\d{{4}}))?)",
    re.IGNORECASE,
)
_MONTH_WORD, _DAY_NEAR = (
    re.compile(_MONTH),
    re.compile(r"\d|" + "|".join(_ORDINALS)),
)  # before `_DATE`, which takes longer
_ISO = re.compile(r"\d{4}-\d")
_TOKEN = re.compile(
    r"(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)(?![^\W_])"
    r"|(?P<date>⟦[^⟧]*⟧)"
    r"|(?P<number>(?:(?<![\w.)%-])-)?[$€£¥]?\d+(?:[.,:/]\d+)*)(?P<suffix>\s?(?:%|°|[ap]\.m\.|[ap]m\b)|[^\W\d_]+)?(?![^\W_])"
    r"|(?P<mixed>[^\W_]*\d[^\W_]*)"
    r"|(?P<mark>[.!?…。！？]+|[,;:()\[\]\"“”„«»\n—–•]| -+ )",
)
_UNSPACED = re.compile(r"([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff])")
_SCRIPTS = {
    name: re.compile(f"[{letters}]")
    for name, letters in {
        "Cyrillic": "\u0400-\u04ff",
        "Greek": "\u0370-\u03ff",
        "Hebrew": "\u0590-\u05ff",
        "Arabic": "\u0600-\u06ff",
        "Devanagari": "\u0900-\u097f",
        "Thai": "\u0e00-\u0e7f",
        "Japanese": "\u3040-\u30ff",
        "Chinese": "\u4e00-\u9fff",
        "Korean": "\uac00-\ud7af",
    }.items()
}
_DETERMINERS = frozenset(["the", "a", "an", "another", "this", "that", "which", "each", "every", "any"])
A_ONE = "one"  # as in "the red one", which counts nothing
CONTENT = ("word", "name", "start")  # kinds of words that say something by themselves
COURTESY = frozenset(_DATA["courtesy"].split())
_FORMS = {form: base for base, forms in _DATA["irregular"].items() for form in forms.split()}
_TITLES = frozenset(["mr", "mrs", "ms", "dr", "prof", "st"])


@lru_cache(maxsize=8192)
def word_base(word: str) -> str:
    """Return what the forms of a word have in common: ``sent`` and ``sends`` give ``send``, ``easily`` and ``easier`` give ``easy``."""
    word = stem(_FORMS.get(word, word))
    for ending, base in (("ily", "y"), ("ier", "y"), ("iest", "y"), ("ly", ""), ("er", ""), ("est", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + base
    return word


class Word(NamedTuple):
    """A word of a text that says something: case-folded, contractions written out, a number as its value.

    Attributes:
        kind: ``number``, ``date``, ``negation``, ``name`` (capitalised inside a sentence), ``start`` (capitalised where a sentence
            begins) or ``word``.
        stem: Its `word_base`.
        said: As it is written, for a reason.
    """

    text: str
    kind: str
    sentence: int
    stem: str
    said: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A text as the guards see it.

    Attributes:
        words: Those that say something: no stop words, auxiliaries or fillers.
        every: All words by their base, stop words and fillers too.
        context: Words by their base that a rewriting may use besides.
        language: Its name, or that of a script; empty where the text does not show it.
    """

    text: str
    words: tuple[Word, ...]
    every: frozenset[str]
    context: frozenset[str]
    links: Counter[str]
    code: Counter[str]
    quotes: Counter[str]
    modals: frozenset[str]
    limits: frozenset[str]
    language: str

    def of(self, kind: str) -> Counter[str]:
        return Counter(word.text for word in self.words if word.kind == kind)

    def content(self) -> list[Word]:
        return [word for word in self.words if word.kind in CONTENT]


def read(text: str, *, names: Collection[str] = (), context: str = "") -> Reading:
    """Read a text for the guards.

    Args:
        names: Names that are names wherever they stand, as of agents.
        context: Text whose words a rewriting of this one may use besides.
    """
    plain = _WRAPPED.sub(" ", _BLANKS.sub(" ", unicodedata.normalize("NFKC", text).translate(_SIGNS)))
    links = Counter(_LINK.findall(plain)) if any(mark in plain for mark in ("://", "@", "www.", "WWW.")) else Counter()
    plain = _LINK.sub(" ", plain) if links else plain
    code = Counter(" ".join(span.split()) for span in _CODE.findall(plain)) if _MAY_BE_CODE.search(plain) else Counter()
    plain = _CODE.sub(" ", plain) if code else plain
    lowered = plain.casefold()
    if any(short in lowered for short in _SHORTENED):
        plain = _CONTRACTION.sub(lambda match: _SHORTENED[match.group().casefold()], plain)
    plain = plain.replace("n't", " not").replace("N'T", " NOT")
    if _ISO.search(plain) or any(
        _DAY_NEAR.search(lowered, max(0, m.start() - 16), m.end() + 16) for m in _MONTH_WORD.finditer(lowered)
    ):
        plain = _DATE.sub(_date, plain)
    lowered = plain.casefold()
    every = frozenset(map(word_base, _LETTERS.findall(lowered)))
    language = language_of(plain)
    words = tuple(_words(plain, language, frozenset(part for name in names for part in name.casefold().split())))
    return Reading(
        text=text,
        words=words,
        every=every | {word.stem for word in words},
        context=frozenset(map(word_base, _LETTERS.findall(context.casefold()))),
        links=links,
        code=code,
        quotes=Counter(_bare("".join(parts)) for parts in _QUOTE.findall(plain)),
        modals=frozenset(_MODALS.get(modal, "must") for modal in _MODAL.findall(_DATED.sub(" ", lowered))),
        limits=frozenset(_LIMIT.findall(_DATED.sub(" ", lowered))),
        language=language,
    )


def language_of(text: str) -> str:
    """The language of a text by its script, or by its function words; empty where neither says."""
    if not text.isascii():
        letters = sum(map(str.isalpha, text))
        for name, pattern in _SCRIPTS.items():
            if 3 * len(pattern.findall(text)) > letters:
                return name
    hits = Counter(name for word in _LETTERS.findall(text.casefold()) for name in _SPOKEN.get(word, ()))
    (first, most), (_, second) = [*hits.most_common(2), ("", 0), ("", 0)][:2]
    return first if most >= 3 and most >= 1.5 * second else ""


def foreign_words(text: Reading, other: Reading) -> tuple[str, ...]:
    """The commonest words of a language in a text that neither another text holds nor its language; one may be by chance."""
    usual = _SPOKEN_IN.get(other.language, frozenset())
    words = {word.text: word.said for word in text.words if word.stem not in other.every and word.text not in usual}
    of_one = (tuple(said for word, said in words.items() if word in spoken) for spoken in _SPOKEN_IN.values())
    most = max(of_one, key=len)
    return most if len(most) > 1 else ()


def _bare(quote: str) -> str:
    return " ".join(word for word in re.findall(r"\w+", quote.casefold()) if word not in _HIDDEN)


def _words(text: str, language: str, names: Collection[str]) -> Iterator[Word]:
    """The words in order. A sentence ends at its mark and at a line break."""
    function = _SPOKEN_IN.get(language, frozenset()) if language != "English" else frozenset()
    negations = _NEGATIONS.get(language, frozenset())
    numbers = _NUMBERS.get(language, {})
    plain, lowered = _LIST_NUMBER.sub("\n", text), text.casefold()
    plain = (
        _FILLER_PHRASE.sub(" well ", plain) if any(phrase in lowered for phrase in _DATA["filler_phrases"]) else plain
    )
    tokens = list(_TOKEN.finditer(plain if plain.isascii() else _UNSPACED.sub(r" \1 ", plain)))
    sentence = position = 0
    begins, before = True, ""
    while position < len(tokens):
        token, start = tokens[position], position
        position += 1
        group, said = token.lastgroup, token.group().strip()
        if group == "mark":
            ends = not said or said[0] in ".!?…。！？"
            if not (said == "." and before in _TITLES):
                sentence += ends
                begins = begins or ends or said in (":", '"', "“", "„", "«", "•", "(")
            continue
        word = said.casefold()
        if group == "date":
            yield Word(word, "date", sentence, word, said[1:-1])
        elif group in ("number", "suffix"):
            value, position = _digits(token, tokens, position)
            yield Word(value, "number", sentence, value, said)
        elif group == "mixed":
            yield Word(word, "number", sentence, word, said)
        elif ((bare := word.removesuffix("'s")) in _NUMBER_WORDS or bare in numbers) and (
            spelled := _spelled(tokens, start, numbers)
        ):
            value, position = spelled
            said = " ".join(token.group() for token in tokens[start:position])
            if word == "one" and value == "1" and _counts_nothing(tokens[max(0, start - 3) : start]):
                value = A_ONE
            yield Word(value, "number", sentence, value, said)
        else:
            base, _, ending = word.partition("'")
            base = base if ending in _HIDDEN else word
            kind = "negation" if base in negations else "name" if base in names else _KINDS.get(base)
            if kind is None and base not in function:
                kind = "word" if not said[0].isupper() else "start" if begins else "name"
            if kind:
                yield Word(base, kind, sentence, word_base(base), said)
        begins, before = False, word


def _counts_nothing(before: Sequence[re.Match[str]]) -> bool:
    """Whether the words before a "one" make it one of the kind, as in "the red one"."""
    for token in reversed(before):
        word = token.group().casefold()
        if token.lastgroup != "word" or word in _CONJUNCTIONS:
            return False
        if word in _DETERMINERS:
            return True
    return False


def _date(match: re.Match[str]) -> str:
    if match["iso"]:
        year, month, day = map(int, match["iso"].split("-"))
        return f"⟦{day} {_MONTHS[month - 1] if 1 <= month <= 12 else month} {year}⟧"
    word = match["beforeword"] or match["afterword"]
    day = _ORDINALS[word.casefold()] if word else int(match["before"] or match["after"])
    return f"⟦{day} {match['month'] or match['month2']} {match['year'] or match['year2'] or ''}".strip() + "⟧"


def _unit(tokens: Sequence[re.Match[str]], position: int, *, shortest: int) -> tuple[str, int]:
    """The unit of so many letters that follows a number, and where reading goes on."""
    if position < len(tokens):
        word = tokens[position].group().casefold()
        if len(word) >= shortest and word in _UNITS:
            return _UNITS[word], position + 1
    return "", position


def _digits(token: re.Match[str], tokens: Sequence[re.Match[str]], position: int) -> tuple[str, int]:
    """The number in figures that a token holds, with its unit, and where reading goes on."""
    raw, suffix = token["number"], (token["suffix"] or "").strip().casefold()
    value, unit = _value(raw.lstrip("$€£¥")), _UNITS.get(raw[0], "")
    if suffix in ("st", "nd", "rd", "th"):
        return f"{value} ordinal", position
    scale = {"k": 1_000, "mn": 1_000_000, "bn": 1_000_000_000}.get(suffix, 0)
    if not suffix and position < len(tokens) and (scale := _SCALES.get(tokens[position].group().casefold(), 0)):
        position += 1
    if scale and re.fullmatch(r"\d+(?:\.\d+)?", value):
        value, suffix = _plain(Decimal(value) * scale), ""
    if suffix and suffix not in _UNITS:
        return f"{value}{suffix}", position
    if suffix:
        unit = _UNITS[suffix]
    elif not unit:
        unit, position = _unit(tokens, position, shortest=1)
    return _with_unit(value, unit), position


def _with_unit(value: str, unit: str) -> str:
    """A value with its unit; a time with am or pm is one of 24 hours."""
    hour, _, minute = value.partition(":")
    if unit in ("am", "pm") and hour.isdecimal() and int(hour) <= 12:
        return f"{int(hour) % 12 + (12 if unit == 'pm' else 0)}:{minute or '00'}"
    return f"{value} {unit}".strip()


def _value(raw: str) -> str:
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", raw):
        raw = raw.replace(",", "")
    elif re.fullmatch(r"\d+,\d+", raw):
        raw = raw.replace(",", ".")
    if re.fullmatch(r"(?:0|[1-9]\d*)(?:\.\d+)?", raw):
        return _plain(Decimal(raw))
    return raw.removeprefix("0") if ":" in raw else raw  # a time, a fraction, a version, or digits such as 007


def _plain(value: Decimal) -> str:
    return format(value.normalize(), "f") if value else "0"


def _spelled(tokens: Sequence[re.Match[str]], start: int, more: Mapping[str, int]) -> tuple[str, int] | None:
    """The number in words that begins at a token, with its unit, and where reading goes on."""
    total, at = 0, start
    current: int | None = None
    while at < len(tokens) and tokens[at].lastgroup == "word":
        word = tokens[at].group().casefold().removesuffix("'s")
        n = CARDINALS.get(word, more.get(word))
        below = (current or 0) % 100
        if n is not None:
            if (
                current is not None
                and not (current >= 100 and not below)
                and not (below >= 20 and below % 10 == 0 < n < 10)
            ):
                break  # "two three" are two numbers
            current = (current or 0) + n
        elif word in ("hundred", "dozen"):
            current = (1 if current is None else current) * _SCALES[word]
        elif word in _SCALES:
            total, current = total + (1 if current is None else current) * _SCALES[word], None
        elif word in _ORDINALS and (current is None or (below % 10 == 0 and (below or current >= 100))):
            return f"{total + (current or 0) + _ORDINALS[word]} ordinal", at + 1
        elif word in _ADVERBS and current is None and not total:
            return _ADVERBS[word], at + 1
        elif (
            word != "and"
            or (current or total) < 100
            or not any(t[0].casefold() in CARDINALS for t in tokens[at + 1 : at + 2])
        ):
            break
        at += 1
    if current is None and not total:
        return None
    value = Decimal(total + (current or 0))
    if [token.group().casefold() for token in tokens[at : at + 3]] == ["and", "a", "half"]:
        value, at = value + Decimal("0.5"), at + 3
    unit, at = _unit(tokens, at, shortest=2)
    return _with_unit(_plain(value), unit), at
