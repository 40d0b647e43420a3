"""Proposals without a model: rules, where the persona says outright what a program can check. Small and honest: nothing is guessed.

A sentence that hedges ("usually", "hardly any"), makes an exception or speaks of somebody else gives no rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from agents.llm.requests import LLMRequest
from evaluation.drafting.found import Found
from evaluation.drafting.lengths import lengths
from evaluation.drafting.marks import demanded_mark, forbidden_marks, marks_of_trait
from evaluation.drafting.validation import NAME
from evaluation.drafting.wording import lower_case, wording

READERS = (forbidden_marks, lengths, lower_case, demanded_mark, wording)
LONGEST_SENTENCE = 600  # characters; what is longer is no sentence
READABLE = 200  # a quote of so many characters is the whole sentence, so that a person sees what it says
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_BULLET = re.compile(r"\s*(?:[-*\u2022]|\d{1,2}[.)])\s+")
_SENTENCE_END = re.compile(r"(?:(?<=[.!?\u2026])|(?<=[.!?\u2026][\"'\u2019\u201d)]))\s+(?=[\"'\u2018\u201c(]?[A-Z0-9])")
_HEDGED_TRAITS = ("rarely", "sometimes", "usually")  # headings of `agents.persona.render_persona`, and "never (stop …"
_OTHERS = re.compile(r"\b(people|others?|colleagues?|relations?(?:hips?)?|friends|family|background|history)\b")
_EXCEPTION = re.compile(
    r"\b(unless|except|only (?:when|if|to|for|in|with)|when(?:ever)?|(?<!as )if|until|while)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_QUOTED = re.compile('["\u201c\u201e][^"\u201c\u201d\u201e]*["\u201d\u201c]')
_SUBJECT = re.compile(
    r"\W*(?:the |my |your )?(\w+) (?:never|always|do(?:es)?|do(?:es)?n['\u2019]t|writes|types|ends|starts|uses|has|is)\b",
    re.IGNORECASE,
)
_PRONOUNS = frozenset({"i", "you", "he", "she", "they", "it", "never", "always", "do", "don't", "no", "not"})


def draft(request: LLMRequest) -> dict[str, Any]:
    """Rules for what the persona of the request says outright (responder for the task ``draft``); none where it says nothing."""
    facts = request.facts
    found: dict[str, Found] = {}
    for sentence, is_stopped in sentences(facts["persona"]):
        if is_stopped:
            rules = list(marks_of_trait(sentence))
        elif _EXCEPTION.search(_unquoted(sentence)) or not is_own(sentence, facts["name"], facts["others"]):
            continue
        else:
            rules = [rule for read in READERS for rule in read(sentence)]
        for rule in rules:
            whole = replace(rule, quote=sentence) if len(sentence) <= READABLE else rule
            found.setdefault(rule.id, whole)
    return {"proposals": [_proposal(rule) for rule in found.values()]}


def sentences(persona: str) -> Iterator[tuple[str, bool]]:
    """The sentences outside of sections about others and of traits that hold only sometimes.

    Each with whether it is a trait of strength 0, which says what is never to be done.
    """
    section, paragraph = "", ""
    for line in [*persona.splitlines(), ""]:
        heading, bullet = _HEADING.match(line), _BULLET.match(line)
        if heading or bullet or not line.strip():
            if not _OTHERS.search(section) and section not in _HEDGED_TRAITS:
                for sentence in _SENTENCE_END.split(paragraph):
                    if 0 < len(sentence) <= LONGEST_SENTENCE:
                        yield sentence, section.startswith("never (")
            paragraph = ""
        if heading:
            section = heading[1].strip().casefold()
        else:
            paragraph = f"{paragraph} {line[bullet.end() :] if bullet else line}".strip()


def is_own(sentence: str, name: str, others: Sequence[str]) -> bool:
    """Whether a sentence can only speak of the agent: it names none of the others and nothing else that looks like a name."""
    own = {part.casefold() for part in _WORD.findall(name)}
    elsewhere = {part.casefold() for other in others for part in _WORD.findall(other)} - own
    text = _unquoted(sentence)
    for match in _WORD.finditer(text):
        word, before = match.group(), text[: match.start()].rstrip(" \"'\u201c\u2018(")
        if word.casefold() in elsewhere and word[0].isupper():
            return False
        starts = not before or before[-1] in ":.!?\u2014\u2013-"
        if word[0].isupper() and not (starts or word.isupper() or word.casefold() in own | _PRONOUNS):
            return False
    subject = _SUBJECT.match(
        text
    )  # "Bob never shouts": what only follows a subject, and that is neither agent nor pronoun
    return subject is None or subject[1].casefold() in own | _PRONOUNS


def _unquoted(sentence: str) -> str:
    """The sentence with nothing between its quotation marks: what an agent says is no statement about it."""
    return _QUOTED.sub("\u201c\u201d", sentence)


def _proposal(found: Found) -> dict[str, Any]:
    return {
        "id": found.id,
        "claim": f"{NAME} {found.says}",
        "inverted": False,
        "quote": found.quote,
        "rule": found.rule,
        "supports": [],
        "contradicts": [],
        "recommendation": found.advice,
    }
