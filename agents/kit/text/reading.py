"""Parse a text for the guards of edits: the words that say something, numbers as values, contractions written out; links, code, quotes.

`parse_text` takes links and code out first, writes contractions out, marks dates as ``⟦3 may 2026⟧``, and then reads the rest token by
token. Numbers in words are read word by word: "twenty five" is ``20 5``, so that "25" is another number. A guard that compares the
two refuses the edit, and the draft is sent: the safe side.
"""

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
_WORD_LISTS: Mapping[str, Any] = yaml.load(
    Path(__file__).with_name("reading.yaml").read_text("utf-8"),
    Loader=_Loader,  # noqa: S506 (a safe one)
)

# --- Words -------------------------------------------------------------------------------------------------------------
TELLING = frozenset(_WORD_LISTS["telling"].split())
COURTESY = frozenset(_WORD_LISTS["courtesy"].split())
CARDINALS: Mapping[str, int] = _WORD_LISTS["cardinals"]
CONTENT_KINDS = ("word", "name", "start")  # kinds of words that say something by themselves
PRONOUN_ONE = "one"  # the value of the "one" in "the red one", which counts nothing

_AUXILIARIES = frozenset(_WORD_LISTS["hidden"].split())
_CONJUNCTIONS = frozenset(_WORD_LISTS["conjunctions"].split())
_DETERMINERS = frozenset(["the", "a", "an", "another", "this", "that", "which", "each", "every", "any"])
_TITLES = frozenset(["mr", "mrs", "ms", "dr", "prof", "st"])  # a full stop behind them ends no sentence
_MONTHS: Sequence[str] = _WORD_LISTS["months"].split()
_ORDINALS: Mapping[str, int] = _WORD_LISTS["ordinals"]
_SCALES: Mapping[str, int] = _WORD_LISTS["scales"]
_SCALE_SUFFIXES = {"k": 1_000, "mn": 1_000_000, "bn": 1_000_000_000}
_LANGUAGES: Mapping[str, Mapping[str, Any]] = _WORD_LISTS["languages"]


def _kinds_of_words() -> dict[str, str]:
    """Return the kind of each word that is listed; empty for those that say nothing. Later lists win."""
    kinds: dict[str, str] = {}
    for silent in (STOP_WORDS, _AUXILIARIES, _CONJUNCTIONS, _WORD_LISTS["function"], _WORD_LISTS["fillers"]):
        kinds |= dict.fromkeys(silent.split() if isinstance(silent, str) else silent, "")
    kinds |= dict.fromkeys(TELLING, "word")
    kinds |= dict.fromkeys(_WORD_LISTS["days"].split(), "date")
    kinds |= dict.fromkeys(_LANGUAGES["English"]["negations"].split(), "negation")
    return kinds


def _values_of_number_words() -> dict[str, str]:
    """Return the value of each English number word, as `Word.text` has it."""
    values = {word: str(number) for word, number in {**CARDINALS, **_SCALES}.items()}
    values |= {word: f"{number} ordinal" for word, number in _ORDINALS.items()}
    values.update(_WORD_LISTS["adverbs"])
    return values


def _units_of_words() -> dict[str, str]:
    """Return the unit that each word or sign names: ``kilogram`` for "kg" and "kilos"."""
    units = {}
    for unit, words in _WORD_LISTS["units"].items():
        for word in words.split():
            units[word] = unit
    return units


def _languages_of_function_words() -> dict[str, list[str]]:
    """Return the languages that each function word belongs to."""
    languages: dict[str, list[str]] = {}
    for name, words in _LANGUAGES.items():
        for word in set(words["function"].split()):
            languages.setdefault(word, []).append(name)
    return languages


_KINDS = _kinds_of_words()
_NUMBER_WORDS = _values_of_number_words()
_UNITS = _units_of_words()
_FUNCTION_WORDS = {name: frozenset(words["function"].split()) for name, words in _LANGUAGES.items()}
_LANGUAGES_OF_FUNCTION_WORD = _languages_of_function_words()
_BASE_OF_IRREGULAR = {form: base for base, forms in _WORD_LISTS["irregular"].items() for form in forms.split()}


def _any_of(phrases: Collection[str]) -> str:
    """Return a pattern for any of these phrases, the longest first."""
    return "|".join(re.escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))


# --- Patterns ----------------------------------------------------------------------------------------------------------
_PLAIN_SIGNS = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2044": "/", "\u200b": None, "⟦": None, "⟧": None})
_SPACES = re.compile(r"[^\S\n]+")
_BREAK_IN_A_SENTENCE = re.compile(r"(?<=[^\s.!?:;]) ?\n ?(?=[a-z(])")  # the line goes on in the next one
_LIST_NUMBER = re.compile(r"^[^\S\n]*\d{1,2}[.)]\s", re.MULTILINE)
_LETTERS = re.compile(r"[^\W\d_]+")
_LINK = re.compile(
    r"(?:https?://|www\.)[^\s<>\"')\]]*[^\s<>\"')\].,;:!?]|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+", re.IGNORECASE
)
_MAY_BE_CODE = re.compile(r"[`/_~]|(?<!\w)-|\(\)|\.[a-z]")  # before `_CODE`, which takes longer
_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]+`"  # fences and spans
    r"|(?<![\w-])--?[a-z][\w-]*(?:=[^\s,;]+)?(?![\w-])"  # --option=value, -o
    r"|(?<![\w/])(?:~|\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)*/?"  # paths
    r"|\b[^\W_]+(?:_[^\W_]+)+\b|\b\w+\(\)"  # snake_case, call()
    r"|(?<![\w-])[\w-]+\.(?:py|js|ts|sh|ya?ml|json|toml|md|txt|csv|html|css|sql|cfg|ini|log|exe|zip|pdf)\b",
    re.DOTALL,
)
_QUOTE = re.compile(r'"([^"]{1,1000})"|“([^“”]{1,1000})”|„([^“”]{1,1000})[“”]|«([^«»]{1,1000})»')
_CONTRACTIONS: Mapping[str, str] = _WORD_LISTS["contractions"]
_CONTRACTION = re.compile(rf"(?<![\w'])(?:{_any_of(_CONTRACTIONS)})(?!\w)", re.IGNORECASE)
_FILLER_PHRASES: Sequence[str] = _WORD_LISTS["filler_phrases"]
_FILLER_PHRASE = re.compile(rf"\b(?:{_any_of(_FILLER_PHRASES)})\b", re.IGNORECASE)
_MODAL = re.compile(r"\b(?:must|shall|should|ought|may|might|(?:have|has|had|needs?|got|ve) to)\b")
_STRENGTH_OF_MODAL = {"may": "may", "might": "may", "should": "should", "ought": "should"}  # the others: must
_LIMIT = re.compile(
    rf"\b(?:{_any_of(_WORD_LISTS['limits'])})\b"
    rf"|\b(?:about|around|roughly|over|under)(?= (?:[$€£¥]?\d|(?:{_any_of(CARDINALS)})\b))"
)
_MARKED_DATE = re.compile(r"⟦[^⟧]*⟧")
_MONTH = "|".join(_MONTHS)
_DAY = r"(?:(?P<{0}>\d{{1,2}})(?:st|nd|rd|th)?|(?P<{0}word>" + "|".join(_ORDINALS) + "))"
_DATE = re.compile(
    rf"\b(?:(?P<iso>\d{{4}}-\d\d?-\d\d?)|(?:the\s+)?{_DAY.format('before')}\s+(?:of\s+)?(?P<month>{_MONTH})\b(?:,?\s+(?P<year>\d{{4}}))?"
    rf"|(?P<month2>{_MONTH})\s+(?:the\s+)?{_DAY.format('after')}\b(?![:.]?\d)(?:,?\s+(?P<year2>\d{{4}}))?)",
    re.IGNORECASE,
)
# Searched before `_DATE`, which takes longer: a date holds a year, or a month with a day near it.
_YEAR_AND_MONTH = re.compile(r"\d{4}-\d")
_MONTH_NAME = re.compile(_MONTH)
_DAY_OF_MONTH = re.compile(r"\d|" + "|".join(_ORDINALS))
_NEAR = 16  # characters
_TOKEN = re.compile(
    r"(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*)(?![^\W_])"
    r"|(?P<date>⟦[^⟧]*⟧)"
    r"|(?P<number>(?:(?<![\w.)%-])-)?[$€£¥]?\d+(?:[.,:/]\d+)*)(?P<suffix>\s?(?:%|°|[ap]\.m\.|[ap]m\b)|[^\W\d_]+)?(?![^\W_])"
    r"|(?P<mixed>[^\W_]*\d[^\W_]*)"
    r"|(?P<mark>[.!?…。！？]+|[,;:()\[\]\"“”„«»\n—–•]| -+ )",
)
_SENTENCE_ENDS = ".!?…。！？"
_BEFORE_A_CAPITAL = (":", '"', "“", "„", "«", "•", "(")  # behind them a capital is no sign of a name
_LETTER_WITHOUT_SPACES = re.compile(r"([\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff])")
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


@lru_cache(maxsize=8192)
def word_base(word: str) -> str:
    """Return what the forms of a word have in common: ``sent`` and ``sends`` give ``send``, ``easily`` and ``easier`` give ``easy``."""
    word = stem(_BASE_OF_IRREGULAR.get(word, word))
    for ending, base in (("ily", "y"), ("ier", "y"), ("iest", "y"), ("ly", ""), ("er", ""), ("est", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending) + base
    return word


class Word(NamedTuple):
    """A word of a text that says something: case-folded, contractions written out, a number as its value.

    Attributes:
        kind: ``number``, ``date``, ``negation``, ``name`` (capitalised inside a sentence), ``start`` (capitalised where a sentence
            begins) or ``word``.
        sentence: Number of its sentence, from 0.
        stem: Its `word_base`.
        written: As the text has it, to be quoted in a reason.
    """

    text: str
    kind: str
    sentence: int
    stem: str
    written: str


@dataclass(frozen=True, slots=True)
class ParsedText:
    """A text as the guards compare it.

    Attributes:
        words: Those that say something: no stop words, auxiliaries or fillers.
        every: All words by their base, stop words and fillers too.
        context: Words by their base that a rewriting may use besides.
        modals: Which of ``must``, ``should`` and ``may`` occur.
        limits: Phrases such as "at least" and "probably" that occur.
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

    def count_of_kind(self, kind: str) -> Counter[str]:
        """Count the words of a kind."""
        return Counter(word.text for word in self.words if word.kind == kind)

    def content_words(self) -> list[Word]:
        """Return the words that say something by themselves."""
        return [word for word in self.words if word.kind in CONTENT_KINDS]


def parse_text(text: str, *, names: Collection[str] = (), context: str = "") -> ParsedText:
    """Parse a text for the guards. Links and code are taken out before its words are read; the words of quotes count, too.

    Args:
        names: Names, as of agents, each word of which counts as one also at the start of a sentence or in lower case.
        context: Text whose words a rewriting of this one may use besides.
    """
    plain = unicodedata.normalize("NFKC", text).translate(_PLAIN_SIGNS)
    plain = _BREAK_IN_A_SENTENCE.sub(" ", _SPACES.sub(" ", plain))
    links: Counter[str] = Counter()
    if any(mark in plain for mark in ("://", "@", "www.", "WWW.")):
        links.update(_LINK.findall(plain))
        plain = _LINK.sub(" ", plain)
    code: Counter[str] = Counter()
    if _MAY_BE_CODE.search(plain):
        code.update(" ".join(span.split()) for span in _CODE.findall(plain))
        plain = _CODE.sub(" ", plain)
    plain = _write_out_contractions(plain)
    if _may_hold_a_date(plain):
        plain = _DATE.sub(_mark_date, plain)
    lowered = plain.casefold()
    without_dates = _MARKED_DATE.sub(" ", lowered)
    language = language_of(plain)
    parts_of_names = {part for name in names for part in name.casefold().split()}
    words = tuple(_Words(plain, language, parts_of_names).read())
    every = {word_base(word) for word in _LETTERS.findall(lowered)}
    every.update(word.stem for word in words)
    return ParsedText(
        text=text,
        words=words,
        every=frozenset(every),
        context=frozenset(word_base(word) for word in _LETTERS.findall(context.casefold())),
        links=links,
        code=code,
        quotes=Counter(_plain_quote("".join(groups)) for groups in _QUOTE.findall(plain)),
        modals=frozenset(_STRENGTH_OF_MODAL.get(modal, "must") for modal in _MODAL.findall(without_dates)),
        limits=frozenset(_LIMIT.findall(without_dates)),
        language=language,
    )


def _write_out_contractions(text: str) -> str:
    """Return the text with "do not" for "don't"; "'s" and the like stay, and are auxiliaries."""
    lowered = text.casefold()
    if any(contraction in lowered for contraction in _CONTRACTIONS):
        text = _CONTRACTION.sub(lambda match: _CONTRACTIONS[match.group().casefold()], text)
    return text.replace("n't", " not").replace("N'T", " NOT")


def _may_hold_a_date(text: str) -> bool:
    """Return whether it is worth looking for dates: quick, and true for every text with one. `_DATE` then decides."""
    if _YEAR_AND_MONTH.search(text):
        return True
    lowered = text.casefold()
    months = _MONTH_NAME.finditer(lowered)
    return any(_DAY_OF_MONTH.search(lowered, max(0, month.start() - _NEAR), month.end() + _NEAR) for month in months)


def _mark_date(match: re.Match[str]) -> str:
    """Return a date in one form, ``⟦3 may 2026⟧``, however it was written."""
    if match["iso"]:
        year, month, day = map(int, match["iso"].split("-"))
        return f"⟦{day} {_MONTHS[month - 1] if 1 <= month <= 12 else month} {year}⟧"
    day_word = match["beforeword"] or match["afterword"]
    day = _ORDINALS[day_word.casefold()] if day_word else int(match["before"] or match["after"])
    month_name = match["month"] or match["month2"]
    year_figures = match["year"] or match["year2"] or ""
    return f"⟦{day} {month_name} {year_figures}".strip() + "⟧"


def _plain_quote(quote: str) -> str:
    """Return a quote without punctuation and auxiliaries."""
    return " ".join(word for word in re.findall(r"\w+", quote.casefold()) if word not in _AUXILIARIES)


def language_of(text: str) -> str:
    """Return the language of a text by its script, or by its function words; empty where neither says.

    A script decides with more than a third of the letters (Japanese before Chinese, as it uses both). Of the languages by function words
    the first must have three, and half as many again as the second.
    """
    if not text.isascii():
        letters = sum(map(str.isalpha, text))
        for name, pattern in _SCRIPTS.items():
            if 3 * len(pattern.findall(text)) > letters:
                return name
    hits: Counter[str] = Counter()
    for word in _LETTERS.findall(text.casefold()):
        hits.update(_LANGUAGES_OF_FUNCTION_WORD.get(word, ()))
    ranked = hits.most_common(2)
    most = ranked[0][1] if ranked else 0
    second = ranked[1][1] if len(ranked) > 1 else 0
    return ranked[0][0] if most >= 3 and most >= 1.5 * second else ""


def foreign_words(text: ParsedText, other: ParsedText) -> tuple[str, ...]:
    """Return the function words of `text` of the language it borrows most from; empty for a single one, which may be there by chance.

    Words of the other text, and of its language, are not foreign.
    """
    own_words = _FUNCTION_WORDS.get(other.language, frozenset())
    new_words = {}
    for word in text.words:
        if word.stem not in other.every and word.text not in own_words:
            new_words[word.text] = word.written
    longest: list[str] = []  # the most words borrowed from one language
    for function_words in _FUNCTION_WORDS.values():
        borrowed = [written for word, written in new_words.items() if word in function_words]
        if len(borrowed) > len(longest):
            longest = borrowed
    return tuple(longest) if len(longest) > 1 else ()


class _Words:
    """Reads the tokens of a text one after the other. A sentence ends at its mark and at a line break."""

    def __init__(self, text: str, language: str, names: Collection[str]) -> None:
        """Cut a text, whose dates are marked and contractions written out, into tokens.

        Args:
            language: As `language_of` names it; its negations and number words count besides English ones.
            names: Single words, case-folded, that are names wherever they stand.
        """
        text = _LIST_NUMBER.sub("\n", text)
        lowered = text.casefold()
        if any(phrase in lowered for phrase in _FILLER_PHRASES):
            text = _FILLER_PHRASE.sub(" well ", text)
        if not text.isascii():
            text = _LETTER_WITHOUT_SPACES.sub(r" \1 ", text)
        self.tokens = list(_TOKEN.finditer(text))
        self.position = 0  # of the next token
        self.sentence = 0
        self.at_start = True  # a capital means nothing here
        self.names = names
        words = _LANGUAGES.get(language, {})
        self.negations = frozenset(words.get("negations", "").split())
        self.function_words = frozenset() if language in ("", "English") else _FUNCTION_WORDS.get(language, frozenset())
        self.number_words = {**_NUMBER_WORDS, **{word: str(n) for word, n in words.get("numbers", {}).items()}}

    def read(self) -> Iterator[Word]:
        """Yield the words that say something, in order."""
        while self.position < len(self.tokens):
            token = self.tokens[self.position]
            self.position += 1
            if token.lastgroup == "mark":
                self._pass_mark(token.group().strip())
                continue
            if word := self._word(token):
                yield word
            self.at_start = False

    def _pass_mark(self, mark: str) -> None:
        """Note whether a mark ends the sentence, and whether a capital after it means nothing; an empty mark is a line break."""
        if mark == "." and self._word_before() in _TITLES:
            return
        ends_sentence = not mark or mark[0] in _SENTENCE_ENDS
        self.sentence += ends_sentence
        self.at_start = self.at_start or ends_sentence or mark in _BEFORE_A_CAPITAL

    def _word_before(self) -> str:
        """Return the token before the mark that was just read, if it is a word."""
        before = self.tokens[self.position - 2] if self.position > 1 else None
        return before.group().casefold() if before and before.lastgroup == "word" else ""

    def _word(self, token: re.Match[str]) -> Word | None:
        """Return what a token says; None for a word that says nothing."""
        written = token.group().strip()
        lowered = written.casefold()
        if token.lastgroup == "date":
            return Word(lowered, "date", self.sentence, lowered, written[1:-1])
        if token.lastgroup == "mixed":  # such as "a4"
            return Word(lowered, "number", self.sentence, lowered, written)
        if token.lastgroup != "word":
            value = self._number_in_figures(token)
            return Word(value, "number", self.sentence, value, written)
        if lowered.removesuffix("'s") in self.number_words:
            return self._number_in_words()
        return self._plain_word(written, lowered)

    def _plain_word(self, written: str, lowered: str) -> Word | None:
        """Return a word that is no number, of the first kind that fits; None where it says nothing, as a stop word.

        Negations of the text's language and given names go before the word lists; a word of no list says something.
        """
        base, _, ending = lowered.partition("'")
        if ending not in _AUXILIARIES:  # the ending of "it's" is one
            base = lowered
        if base in self.negations:
            kind = "negation"
        elif base in self.names:
            kind = "name"
        elif base in _KINDS:
            kind = _KINDS[base]
        elif base in self.function_words:
            kind = ""
        elif not written[0].isupper():
            kind = "word"
        else:
            kind = "start" if self.at_start else "name"
        return Word(base, kind, self.sentence, word_base(base), written) if kind else None

    def _number_in_words(self) -> Word:
        """Pass number words that follow each other; return them as one number, value by value, with its unit: ``20 5 kilogram``."""
        first = self.position - 1
        self.position = first
        values = []
        while (value := self._number_word(self.position)) is not None:
            values.append(value)
            self.position += 1
            # "two hundred and fifty" and "two and a half" are one number, whose parts may not change places.
            for linking_words in (["and"], ["and", "a"]):
                after_them = self.position + len(linking_words)
                words = [token.group().casefold() for token in self.tokens[self.position : after_them]]
                if words == linking_words and self._number_word(after_them) is not None:
                    self.position = after_them
                    break
        value = _with_unit(" ".join(values), self._take_unit(shortest=2))  # a letter alone is no unit here: "two m"
        written = " ".join(token.group() for token in self.tokens[first : self.position])
        if value == "1" and self.tokens[first].group().casefold() == "one" and self._is_pronoun(first):
            value = PRONOUN_ONE
        return Word(value, "number", self.sentence, value, written)

    def _number_word(self, position: int) -> str | None:
        """Return the value of the number word at a position; None where there is none."""
        if position >= len(self.tokens):
            return None
        return self.number_words.get(self.tokens[position].group().casefold().removesuffix("'s"))

    def _is_pronoun(self, position: int) -> bool:
        """Return whether the "one" at a position is one of the kind, as in "the red one": a determiner stands shortly before it."""
        for token in reversed(self.tokens[max(0, position - 3) : position]):
            word = token.group().casefold()
            if token.lastgroup != "word" or word in _CONJUNCTIONS:
                return False
            if word in _DETERMINERS:
                return True
        return False

    def _number_in_figures(self, token: re.Match[str]) -> str:
        """Return the value of a number in figures, with its unit: ``5 kilogram``, ``3 ordinal``, ``15:30``.

        A scale multiplies it ("5k", "2 million"). A suffix that is neither scale nor unit stays with it. The unit is the suffix,
        else that of the currency's sign, else the next word.
        """
        figures = token["number"]
        suffix = (token["suffix"] or "").strip().casefold()
        value = _plain_figures(figures.lstrip("$€£¥"))
        unit = _UNITS.get(figures[0], "")  # of a currency's sign
        if suffix in ("st", "nd", "rd", "th"):
            return f"{value} ordinal"
        scale = _SCALE_SUFFIXES.get(suffix, 0)
        if not suffix:
            scale = self._take_scale()
        if scale and re.fullmatch(r"\d+(?:\.\d+)?", value):
            value = _plain_decimal(Decimal(value) * scale)
            suffix = ""
        if suffix and suffix not in _UNITS:
            return f"{value}{suffix}"
        if suffix:
            unit = _UNITS[suffix]
        elif not unit:
            unit = self._take_unit(shortest=1)
        return _with_unit(value, unit)

    def _take_scale(self) -> int:
        """Pass a word such as "thousand" behind a number; return what it multiplies by, 0 where there is none."""
        scale = _SCALES.get(self._next_word(), 0)
        self.position += bool(scale)
        return scale

    def _take_unit(self, *, shortest: int) -> str:
        """Pass the unit behind a number, of so many letters at least; return its name, empty where there is none."""
        word = self._next_word()
        if len(word) < shortest or word not in _UNITS:
            return ""
        self.position += 1
        return _UNITS[word]

    def _next_word(self) -> str:
        return self.tokens[self.position].group().casefold() if self.position < len(self.tokens) else ""


def _with_unit(value: str, unit: str) -> str:
    """Return a value with its unit; a time with am or pm as one of 24 hours."""
    hour, _, minute = value.partition(":")
    if unit in ("am", "pm") and hour.isdecimal() and int(hour) <= 12:
        hour_of_day = int(hour) % 12 + (12 if unit == "pm" else 0)
        return f"{hour_of_day}:{minute or '00'}"
    return f"{value} {unit}".strip()


def _plain_figures(figures: str) -> str:
    """Return figures in one form: ``1200`` for "1,200", ``2`` for "2.0"; times, fractions, versions and "007" as they are."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", figures):
        figures = figures.replace(",", "")
    elif re.fullmatch(r"\d+,\d+", figures):
        figures = figures.replace(",", ".")
    if re.fullmatch(r"(?:0|[1-9]\d*)(?:\.\d+)?", figures):
        return _plain_decimal(Decimal(figures))
    return figures.removeprefix("0") if ":" in figures else figures


def _plain_decimal(value: Decimal) -> str:
    return format(value.normalize(), "f") if value else "0"
