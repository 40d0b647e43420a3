"""Read rules out of a persona without a model: what it never says, phrases it quotes, limits such as "two sentences at most"."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.kit.text.tokens import split_sentences
from evaluation.drafting.sentences import BY_NAME, NotFilledIn, Sentence, typed

MOST_OFFERED = 8
LONGEST_PERSONA = 60_000  # characters that are read
LONGEST_SENTENCE = 600
LONGEST_PHRASE = 80
_NUMBERS = {
    word: number
    for number, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1)
}
_HOW_OFTEN = (  # of ten messages, by the first of these that the sentence has
    (r"always|every", 10),
    (r"mostly|usually|most of", 7),
    (r"often|regularly", 5),
    (r"sometimes|now and then|occasionally", 2),
)
_RARELY = 1
_NEVER = re.compile(r"\b(?:never|do(?:es)? not|don['’]t|doesn['’]t|must not|avoids?)\b|^no\b", re.IGNORECASE)
_WRAPPED = re.compile(r"\n[ \t]*(?=[a-z(])")  # a line break inside of a sentence
_QUOTED = re.compile(r"[“„]([^“”„]+)[”“]|\"([^\"]+)\"|«([^»]+)»|(?<!\w)['‘]([^'‘’]+)['’](?!\w)")
_SAYS = re.compile(
    r"\b(?:says?|calls?|greets?|uses?|signs?|begins?|starts?|opens?|ends?|closes?|answers?|catch ?phrases?|phrases?|words?)\b",
    re.IGNORECASE,
)
_BARE_WORDS = re.compile(r"\bsay(?:s|ing)?\s+(?:the words?\s+)?([^.!?:;]+)", re.IGNORECASE)
_AT_MOST = re.compile(
    r"\b(?:at most|no more than|(?:never|not|\w+n['’]t)(?: \w+)? more than|up to|maximum of|one or)"
    r"\s+(\w+)\s+(?:\w+\s+)?(sentence|word)s?\b"
    r"|\b(\w+)\s+(?:short\s+)?(sentence|word)s?\s+(?:at most|or less|or fewer|maximum|max)\b",
    re.IGNORECASE,
)
_ENDS_WITH_QUESTION = re.compile(r"\bends?\b[^.]{0,60}\bquestion\b", re.IGNORECASE)
_LOWERCASE = re.compile(r"\blower[ -]?case\b", re.IGNORECASE)
_NAMED_MARKS = (("!", r"exclamation (?:marks?|points?)"), ("?", r"question marks?|asks? (?:any )?questions?"))
_BULLET = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)])\s+")
_ABOUT = r"i|you|your|she|he|they"
# A sentence without a subject is about the agent, such as "Never say sorry" or "Two sentences at most".
_ORDER = re.compile(
    r"(?:never|no|do|don['’]t|avoid|always|usually|often|sometimes|keep|answer|reply|write|use|say|end|begin|start|open|close|sign|greet"
    r"|call|speak|stay|be|at most|up to|one|two|three|four|five|six|seven|eight|nine|ten|\d+|[a-z])\b"
)


@dataclass(frozen=True, slots=True)
class Offered:
    """A sentence that a persona suggests, and the words of the persona. One with an empty blank is to be filled in first."""

    sentence: Sentence
    quote: str

    def fields(self) -> dict[str, Any] | None:
        """Return the fields of the proposition it makes; None where a blank is empty."""
        try:
            return self.sentence.fields()
        except NotFilledIn:
            return None


def offered_sentences(*, persona: str, name: str, known: Collection[Mapping[str, Any]] = ()) -> list[Offered]:
    """Return up to eight sentences that a persona suggests, in its order, those with an empty blank last.

    English only. What is said of another person ("Bob never uses question marks") is passed over.

    Args:
        persona: The text a person wrote, which may be hostile: nothing of it is a pattern.
        name: Of the agent.
        known: Rules that are not offered again, as files have them.
    """
    offered: list[Offered] = []
    seen = list(known)
    for text, is_forbidden in _sentences(persona[:LONGEST_PERSONA]):
        if not is_forbidden and not _is_about(text, name):
            continue
        for kind, filled in _read(text, is_forbidden):
            suggestion = Offered(Sentence(BY_NAME[kind], filled), text)
            fields = suggestion.fields()
            if fields is not None and fields["rule"] in seen:
                continue
            if fields is not None:
                seen.append(fields["rule"])
            offered.append(suggestion)
    offered.sort(key=lambda suggestion: suggestion.fields() is None)
    return offered[:MOST_OFFERED]


def _sentences(persona: str) -> Iterator[tuple[str, bool]]:
    """Yield the sentences of a persona, wrapped lines joined, and whether each stands in a list of what is not to be done."""
    is_forbidden = False
    for line in _WRAPPED.sub(" ", persona).splitlines():
        if line.startswith("#"):
            is_forbidden = _NEVER.search(line.lstrip("# ")) is not None
            continue
        bullet = _BULLET.match(line)
        text = line[bullet.end() :] if bullet else line
        for sentence in split_sentences(text):
            if len(sentence) <= LONGEST_SENTENCE:
                yield sentence, is_forbidden and bullet is not None


def _is_about(sentence: str, name: str) -> bool:
    """Return whether a sentence of a persona is about the agent, as far as its words tell."""
    names = "|".join(re.escape(word) for word in {name, *name.split()} if word)
    about = f"{_ABOUT}|{names}" if names else _ABOUT
    never = _NEVER.search(sentence)
    before = sentence[: never.start()] if never else sentence
    if re.search(rf"(?<!\w)(?:{about})(?!\w)", before, re.IGNORECASE):
        return True
    first = sentence[:1].lower() + sentence[1:]
    return _ORDER.match(first) is not None and (never is None or not before.strip() or before[0].islower())


def _read(sentence: str, is_forbidden: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the kinds of sentences that one of a persona says, and what is in their blanks."""
    at_most = _AT_MOST.search(sentence)
    number = _number(at_most) if at_most else None
    if at_most and number:
        unit = (at_most[2] or at_most[4]).lower()
        yield f"{unit}s", {"number": str(number)}
        return
    never = _NEVER.search(sentence)
    if never:
        says_never = never[0].lower() == "never"
        yield from _forbidden(sentence[never.end() :], is_worth_words=is_forbidden or says_never)
        return
    if is_forbidden:
        yield from _forbidden(sentence, is_worth_words=True)
        return
    phrases = _quoted(sentence)
    if phrases and _SAYS.search(sentence):
        yield "says", {"words": typed(phrases), "of_ten": str(_how_often(sentence))}
    if _ENDS_WITH_QUESTION.search(sentence):
        yield "question", {}
    if _LOWERCASE.search(sentence):
        yield "lowercase", {}


def _forbidden(what: str, *, is_worth_words: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what forbids this.

    Args:
        is_worth_words: Whether to yield "never says …" with nothing filled in where it does not say which words.
    """
    phrases = _quoted(what)
    phrases += [mark for mark, pattern in _NAMED_MARKS if re.search(pattern, what, re.IGNORECASE)]
    has_emoji = re.search(r"\bemojis?\b", what, re.IGNORECASE)
    has_capitals = re.search(r"\b(?:capitals|capital letters|upper[ -]?case)\b(?! for)", what, re.IGNORECASE)
    if has_emoji:
        yield "emoji", {}
    if has_capitals:
        yield "lowercase", {}
    if not phrases:
        phrases = _bare_words(what)
    if phrases:
        yield "never", {"words": typed(phrases)}
    elif is_worth_words and not has_emoji and not has_capitals:
        yield "never", {"words": ""}


def _bare_words(what: str) -> list[str]:
    """Return the words that a sentence says not to say, such as "sorry or please"; none where they are a clause."""
    match = _BARE_WORDS.search(what)
    if match is None:
        return []
    words = [word.strip() for word in re.split(r",|\bor\b|\band\b|\bnor\b", match[1]) if word.strip()]
    is_clause = any(len(word.split()) > 2 or len(word) > LONGEST_PHRASE for word in words)
    return [] if is_clause else words


def _quoted(sentence: str) -> list[str]:
    """Return the phrases in quotation marks, without what a rule would take for a pattern."""
    phrases = []
    for groups in _QUOTED.findall(sentence):
        phrase = " ".join("".join(groups).split()).rstrip(",.")
        is_pattern = phrase.startswith("/") and phrase.endswith("/")
        if phrase and not is_pattern and len(phrase) <= LONGEST_PHRASE and '"' not in phrase:
            phrases.append(phrase)
    return phrases


def _number(at_most: re.Match[str]) -> int | None:
    word = (at_most[1] or at_most[3]).lower()
    if word.isdecimal() and len(word) <= 3:
        return int(word) or None
    return _NUMBERS.get(word)


def _how_often(sentence: str) -> int:
    for pattern, of_ten in _HOW_OFTEN:
        if re.search(rf"\b(?:{pattern})\b", sentence, re.IGNORECASE):
            return of_ten
    return _RARELY
