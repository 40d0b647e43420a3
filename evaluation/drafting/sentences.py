"""Sentences with blanks that are exact rules, such as "Nora never says …": the one list of them, and what they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evaluation.propositions.schema import AGENT_NAME

ENDS_WITH_QUESTION = r"""[?？؟][\s"'”’»)\]*_]*\Z"""
MOST_COUNTED = 1_000  # sentences or words


class NotFilledIn(ValueError):
    """A blank is empty, or what is in it is not allowed."""

    def __init__(self, blank: str, why: str) -> None:
        self.blank = blank
        super().__init__(why)


@dataclass(frozen=True, slots=True)
class Blank:
    """A blank of a sentence: for a whole number from 1 to `most`, or for words (`most` 0)."""

    name: str
    label: str
    most: int = 0
    usual: int | None = None  # what is in it before anything is typed


@dataclass(frozen=True, slots=True)
class SentenceKind:
    """A sentence about an agent, with blanks.

    Attributes:
        text: What follows the agent's name; each blank by its name in braces.
        check: The check of the rule it makes.
        fixed: The value of the check; None: that of the first blank.
        blanks: In their order. One named ``of_ten`` says in how many of ten messages.
    """

    name: str
    text: str
    check: str
    fixed: Any = None
    blanks: tuple[Blank, ...] = ()

    def parts(self) -> Iterator[tuple[str, Blank | None]]:
        """Yield the text up to each blank and the blank, then the text after the last one and None."""
        rest = self.text
        for blank in self.blanks:
            before, _, rest = rest.partition(f"{{{blank.name}}}")
            yield before.strip(), blank
        yield rest.strip(), None


_WORDS = Blank("words", "words or phrases, with commas between them")
KINDS = (
    SentenceKind("never", "never says {words}", "contains_none", blanks=(_WORDS,)),
    SentenceKind(
        "says",
        "says one of {words} in at least {of_ten} of 10 messages",
        "contains_any",
        blanks=(_WORDS, Blank("of_ten", "of 10 messages", most=10, usual=5)),
    ),
    SentenceKind(
        "sentences",
        "writes at most {number} sentences",
        "max_sentences",
        blanks=(Blank("number", "sentences", most=MOST_COUNTED),),
    ),
    SentenceKind(
        "words", "writes at most {number} words", "max_words", blanks=(Blank("number", "words", most=MOST_COUNTED),)
    ),
    SentenceKind("question", "ends with a question", "matches", fixed=ENDS_WITH_QUESTION),
    SentenceKind("emoji", "uses no emoji", "no_emoji", fixed=True),
    SentenceKind("lowercase", "writes without capital letters", "lowercase", fixed=True),
)
BY_NAME: Mapping[str, SentenceKind] = {kind.name: kind for kind in KINDS}
# What a proposition may have besides its sentence; the sentence does not say the rest, such as a precondition.
_BESIDE = frozenset(
    ("id", "claim", "weight", "rule", "of_ten", "active", "rejected", "retired", "source", "recommendations_for_improvement")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with what is filled into its blanks, as typed: words with commas between them, numbers in digits."""

    kind: SentenceKind
    filled: Mapping[str, str]

    def fields(self) -> dict[str, Any]:
        """Return the fields of the proposition it makes: claim and rule, and ``of_ten`` where not every message must keep it.

        Raises:
            NotFilledIn: A blank is empty, or no such number.
        """
        values = {blank.name: _value(blank, self.filled.get(blank.name, "")) for blank in self.kind.blanks}
        of_ten = values.get("of_ten", 10)
        checked = self.kind.fixed
        if checked is None:
            checked = values[self.kind.blanks[0].name]
        fields: dict[str, Any] = {"claim": _claim(self.kind, values), "rule": {self.kind.check: checked}}
        if of_ten < 10:
            fields["of_ten"] = of_ten
        return fields


def sentence_in(fields: Mapping[str, Any]) -> Sentence | None:
    """Return the sentence that says the rule of a proposition as a file has it; None where it takes YAML to say all of it."""
    rule = fields.get("rule")
    if not isinstance(rule, Mapping) or len(rule) != 1 or not fields.keys() <= _BESIDE:
        return None
    [(check, value)] = rule.items()
    of_ten = fields.get("of_ten")
    for kind in KINDS:
        has_rate = any(blank.name == "of_ten" for blank in kind.blanks)
        if kind.check != check or (of_ten is not None and not has_rate):
            continue
        filled: dict[str, str] = {}
        if kind.blanks:
            filled[kind.blanks[0].name] = typed(value) if isinstance(value, list) else str(value)
        if has_rate:
            filled["of_ten"] = str(of_ten or 10)
        sentence = Sentence(kind, filled)
        try:
            sentence_fields = sentence.fields()
        except NotFilledIn:
            return None
        if sentence_fields["rule"] == rule:
            return sentence
    return None


def _value(blank: Blank, text: str) -> Any:
    """Return what is in a blank: a list of phrases, or a number."""
    if not blank.most:
        phrases = phrases_in(text)
        if not phrases:
            raise NotFilledIn(blank.name, "Type the words, with commas between them.")
        return phrases
    if not text.strip().isdecimal() or not 1 <= int(text[:20]) <= blank.most:
        raise NotFilledIn(blank.name, f"{text.strip() or 'nothing'}: type a whole number from 1 to {blank.most:,}.")
    return int(text)


def _claim(kind: SentenceKind, values: Mapping[str, Any]) -> str:
    words = [AGENT_NAME]
    for text, blank in kind.parts():
        words.append(text)
        if blank is None:
            continue
        value = values[blank.name]
        words.append(", ".join(map(_in_quotes, value)) if isinstance(value, list) else str(value))
    claim = " ".join(word for word in words if word)
    return claim.removesuffix("s") if values.get("number") == 1 else claim  # at most 1 sentence


def _in_quotes(phrase: str) -> str:
    """Return a phrase in quotation marks, with nothing that looks like a variable of a claim."""
    return f"“{re.sub(r'(?<={)(?={)|(?<=})(?=})', ' ', phrase)}”"


# -- words and phrases
_PHRASE = re.compile(r'["“„]([^"“”„]*)["”“]|([^,;\n"“”„]+)')


def phrases_in(text: str) -> list[str]:
    """Return the phrases between commas, semicolons and line breaks, each once; one in quotation marks may hold these."""
    phrases: dict[str, None] = {}
    for quoted, bare in _PHRASE.findall(text):
        phrase = " ".join((quoted or bare).split())
        if phrase:
            phrases[phrase] = None
    return list(phrases)


def typed(phrases: list[str]) -> str:
    """Return phrases as a person types them."""
    return ", ".join(f'"{phrase}"' if re.search("[,;]", phrase) else phrase for phrase in phrases)
