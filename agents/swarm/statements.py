"""What a sentence of a person does to what is remembered: whether it only asks, answers a question, or takes back an older sentence.

English rules. They miss much, and say nothing where they are not sure. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agents.kit.text.tokens import split_sentences, tokenize
from agents.kit.text.voices import stem

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
_NO_ANSWER = re.compile(
    r"\?|^\W*(?:never ?mind|forget (?:it|that)|instead|tell|give|show|find|explain|write|make|let'?s talk)\b"
    r"|\b(?:no idea|(?:do not|don't|dunno|didn't) (?:know|understand)|dunno|not sure|rather not|whatever)\b",
    re.IGNORECASE,
)

# Of these there is one; a sentence names it as "my … is", its question as "is your …".
_OWN = r"(?:favou?rite \w+|name|age|address|e-?mail|phone number|weight|height|birthday|budget|deadline|due date|salary|rent)"
_SLOT = re.compile(
    rf"\b(?:my (?P<my>{_OWN})|the (?P<the>budget|deadline|due date)) (?:is|are)\b|\b(?:is|are) your (?P<your>{_OWN})\b"
    r"|\bi(?:'m| am|'ve| have)?(?: just| now| recently)* (?P<home>live|living|moved|relocated)(?: now| back)? (?:in|to)\b"
    r"|\bi(?:'m| am)?(?: now)? (?P<work>work|working)(?: now)? as\b"
    r"|\bi(?: now)? (?P<weight>weigh)\b",
    re.IGNORECASE,
)
# A clause with one of these may tell of another time or person, or of nothing that is:
_NOT_NOW = re.compile(
    r"\b(?:if|unless|when(?! (?:is|are) your)|before|until|used to|years ago|in (?:19|20)\d\d"
    r"|sa(?:id|ys?)|t(?:old|ells?)|thinks?|claims?|wish)\b",
    re.IGNORECASE,
)
_PURPOSE = re.compile(r"\bfor\b(.*)", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:?!]|\.(?=\s|$)|\b(?:and|but|or|because|so)\b", re.IGNORECASE)
_DENIES = re.compile(r"\b(?:not|never|no|no longer|stopped|quit|gave up)\b|n't\b", re.IGNORECASE)
_SELF = re.compile(r"\b(?:i|i'm|i've|i'd|my|we|we're|we've|our)\b", re.IGNORECASE)
# What a statement and its opposite may differ in:
_LITTLE = frozenset(
    """
    i i'm i've i'd we we're we've my our me am are is be been being a an the do does don doesn isn aren ain
    not never no any more anymore longer now again still actually sorry currently today just really already these days
    stop stopped quit gave up start started
    """.split()  # noqa: SIM905 (quotation marks do not help a reader)
)


def only_asks(sentence: str) -> bool:
    """Return whether a sentence asks for something, such as "Summarise what we decided.", and so states no decision."""
    return _ASKS.search(_plain(sentence)) is not None


def question_at_the_end(text: str) -> str:
    """Return the question that a text ends with; empty where it ends otherwise, or with a word or two."""
    last = split_sentences(text)[-1:]
    return next((one for one in last if one.endswith("?") and len(tokenize(one)) >= SHORTEST_QUESTION), "")


def is_answer(text: str) -> bool:
    """Return whether a message after a question may answer it: short, no question or new request, and not "I don't know"."""
    plain = _plain(text)
    return any(map(str.isalnum, plain)) and len(plain) <= LONGEST_ANSWER and not _NO_ANSWER.search(plain)


def contradicts(newer: str, older: str) -> bool:
    """Return whether a person's newer statement about themselves takes the place of an older one.

    It does where both name the same thing of which a person has one ("my budget is …", "I live in …"), for the same purpose where they name
    one ("… for the trip"), or where a clause says the opposite of an older clause in the same words ("I am vegetarian", "I'm not vegetarian
    any more"). What may tell of another time or person ("if I live in Oslo", "my mother said my name is silly") names nothing.
    """
    newer, older = _plain(newer), _plain(older)
    if tokenize(newer) == tokenize(older):
        return False
    slot = _slot(newer)
    if slot and slot == _slot(older):
        return True
    if not (_SELF.search(newer) and _SELF.search(older)):
        return False
    said = set(_claims(older))
    return any((words, not denied) in said for words, denied in _claims(newer))


def _slot(sentence: str) -> str:
    """Name the one thing that a sentence states of its speaker, with what it is for; empty where it is not sure to hold now."""
    match = _SLOT.search(sentence)
    if match is None:
        return ""
    rest = _CLAUSE.split(sentence[match.end() :])[0]
    if _NOT_NOW.search(sentence[: match.end()] + rest):
        return ""
    own = match["my"] or match["your"] or match["the"]
    if not own:
        return str(match.lastgroup)
    purpose = _PURPOSE.search(rest)
    purpose_words = _telling_words(purpose[1]) if purpose else frozenset()
    return " ".join([own.casefold(), *sorted(purpose_words)])


def _claims(sentence: str) -> Iterator[tuple[frozenset[str], bool]]:
    """The telling words of each clause, and whether it denies them."""
    for clause in _CLAUSE.split(sentence):
        if telling := _telling_words(clause):
            yield telling, _DENIES.search(clause) is not None


def _telling_words(clause: str) -> frozenset[str]:
    words = (word.removesuffix("n't").partition("'")[0] for word in tokenize(clause) if word not in _LITTLE)
    return frozenset(stem(word) for word in words if word and word not in _LITTLE)


def _plain(sentence: str) -> str:
    return " ".join(sentence.replace("\u2019", "'").split())
