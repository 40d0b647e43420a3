"""Tell from its words whether a sentence only asks, and whether a message answers a question. English rules; pure functions.

They miss much, and say no where they are not sure.
"""

from __future__ import annotations

import re

from agents.kit.text.tokens import split_sentences, tokenize

LONGEST_ANSWER = 200  # characters
SHORTEST_QUESTION = 4  # words: a persona's "Right?" asks nothing

_COURTESY = r"^\W*(?:(?:please|ok(?:ay)?|so|and|now|just|hey|(?:can|could|would|will) you)\b[\s,]*)*"
_AUXILIARY = "did|do|does|are|is|was|were|should|shall|can|could|would"
_ASKS = re.compile(
    r"\?\W*$"
    rf"|{_COURTESY}(?:summari[sz]e|recap|remind|repeat|list|tell|give|show|explain"
    # but not "what we decided is to sell", "when we arrive we will …"
    r"|(?:what|which|who|where|why|how)\b(?! (?:i|we|you|they)\b.* (?:is|was)\b)"
    rf"|when(?: exactly)? (?:{_AUXILIARY}|will|have|has|had)|{_AUXILIARY}|(?:have|has) (?:i|we|you|they))\b"
    r"|\b(?:wonder|not sure|unsure|know|remember|forgot|ask(?:ing|ed)?)\b[^,;.]{0,20}\b(?:if|whether|what|which|where|when|how)\b",
    re.IGNORECASE,
)
_ASKS_OR_EVADES = re.compile(  # a message that answers no question
    r"\?|^\W*(?:never ?mind|forget (?:it|that)|instead|tell|give|show|find|explain|write|make|let'?s talk)\b"
    r"|\b(?:no idea|(?:do not|don't|dunno|didn't) (?:know|understand)|dunno|not sure|rather not|whatever)\b",
    re.IGNORECASE,
)


def only_asks(sentence: str) -> bool:
    """Return whether a sentence asks for something, such as "Summarise what we decided.", and so states no decision."""
    return _ASKS.search(_with_straight_apostrophes(sentence)) is not None


def question_at_the_end(text: str) -> str:
    """Return the question that a text ends with; empty where it ends otherwise, or with a word or two."""
    sentences = split_sentences(text)
    if not sentences:
        return ""
    last = sentences[-1]
    is_question = last.endswith("?") and len(tokenize(last)) >= SHORTEST_QUESTION
    return last if is_question else ""


def is_answer(text: str) -> bool:
    """Return whether a message after a question may answer it: short, no question or new request, and not "I don't know"."""
    plain = _with_straight_apostrophes(text)
    has_words = any(char.isalnum() for char in plain)
    return has_words and len(plain) <= LONGEST_ANSWER and not _ASKS_OR_EVADES.search(plain)


def _with_straight_apostrophes(sentence: str) -> str:
    """Return a sentence on one line, with straight apostrophes."""
    return " ".join(sentence.replace("\u2019", "'").split())
