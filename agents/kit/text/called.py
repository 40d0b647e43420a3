"""Whom a person's message calls, and which of its sentences are said to whom. Read from the words; no model is asked.

A name is *called* where it stands apart from the sentence: at its start or end, set off by a comma, colon or dash, after a greeting, or
before "please", "can you", "what" and their like; an ``@name`` anywhere; a full display name where the sentence passes the word to it ("Ask
Jim Halpert", "What about Jim Halpert?"); and the author of the message replied to, up to the first sentence that calls another. Words for
all ("everyone", "all of you", "guys") call all parties in these places, and where they speak to them ("Can you guys …", "I want everyone
to …"); "you and Dwight" calls Dwight beside the one who was spoken to. A name
that is left out ("except Jim", "not you, Jim") is not called, nor do quotations and code call. Display names go before aliases and first
names, after an @ agents before people; a name that several share is nobody's, unless one of them is who the sentence before was said to.
The words for greetings, verbs and exclusions are English, the first two with a few of other languages; commas, colons, dashes and @ are
read in all.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

LONGEST_READ = 20_000  # characters of a message
REACH = 200  # characters before a name that are looked at
EVERYONE, SHARED = "everyone", "shared"  # keys: all that the text calls; a name that several share

_TITLES = frozenset("dr dr. prof prof. mr mr. mrs mrs. ms ms. sir lady the a an der die das le la el".split())  # noqa: SIM905
_QUOTED = re.compile(
    r"""
    ^[ \t]{0,3}(?:>|&gt;).*$                                               # quoted line by line
    | ^[ \t]{0,3}(?P<fence>`{3,}|~{3,})(?s:.)*?(?:^[ \t]{0,3}(?P=fence)|\Z)  # a block of code
    | `[^`\n]{1,1000}` | \bhttps?://\S{1,1000}
    | "[^"\n]{1,1000}" | “[^”]{1,2000}” | „[^“”]{1,2000}[“”] | «[^»]{1,2000}» | 「[^」]{1,2000}」
    | (?<!\w)['‘][^'’\n]{1,500}['’](?!\w)
    """,
    re.MULTILINE | re.VERBOSE,
)
_MASK = "\ue000"
_SENTENCE_END = re.compile(r"[.!?…;]+[\"')\]]*(?=\s|$)|[。！？；]+|\n+")
_SET = r"(?:\s*[,，、،]|\s*[–—]+|\s+-+(?=\s)|\s*--+)"  # what sets a name apart from the sentence
_APART = re.compile(rf"[*_~]{{0,3}}(?:\s*\([^()\n]{{1,100}}\))?(?:{_SET}|\s*[:：])")
_GREETING = (
    r"(?:hey|hi|hiya|hello|yo|dear|ok|okay|oi|thanks|thank you|thx|cheers|sorry|congrats|welcome|well done|shut up|calm down|come on"
    r"|what['’]?s up|how are you|(?:good|great|nice) (?:job|work|one|point)|(?:good )?(?:morning|evening|afternoon|night)"
    r"|hallo|danke|bitte|guten (?:morgen|tag|abend)|lieber?|hola|gracias|salut|bonjour|merci|ciao|grazie|ol[áa]|obrigad[oa]|hoi|bedankt)"
)
_LEAD_WORD = (
    rf"(?:{_GREETING}|and|but|so|now|then|well|also|oh|ah|um|yes|yeah|no|nope|right|sure|great|look|listen|please|pls|again|you|wait|stop"
    r"|und|aber|ja|nein|also|y|pero|et|mais|oui|non)"
)
_LEAD = re.compile(rf"[\s\W]*(?:{_LEAD_WORD}\b[\s,.!…–—-]*)*", re.IGNORECASE)
_GREETED = re.compile(rf"\b{_GREETING}[\s,!]*$", re.IGNORECASE)
_BEFORE_LAST = re.compile(rf"{_SET}\s*(?:{_LEAD_WORD}\b[\s,]*)*$", re.IGNORECASE)
_JOINT = re.compile(r"\s*(?:[,/&+，、]\s*)?(?:(?:and|or|und|oder|et|y|e|en|plus)\s+)?", re.IGNORECASE)
_POSSESSIVE = re.compile(r"['’]s?(?!\w)")
_AUXILIARY = (
    r"(?:(?:is|are|was|were|has|have|had|does|do|did|will|would|can|could|should|shall|must|may|might)(?:n['’]?t)?|ain't|ca\s?n't|won't"
    r"|ist|war|sind|hat|wird|kann|soll|est|a|es|está|era|fue)"
)
_BESIDES = re.compile(  # "Dwight, who sits there", "Dwight, my neighbour, is loud": the name is the subject, though a comma follows
    rf"{_SET}\s*(?:(?:who|whose|whom|which)\b(?=[^?？]*\Z)|(?:(?-i:[A-Z][^\W\d]+)|the|an?|my|our|his|her|their|like|unlike|as|of|along|together|however|though|too|by|on|in"
    rf"|at|for|with|without|even)\b[^,.–—]{{0,80}}{_SET}\s*(?:{_AUXILIARY}|said|never|always)\b"
    r"(?!\s+(?:you|it|that|there|this|he|she|we|they|i)\b))",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(
    r"\s+(?:please|pls|you|your|be|stop|don['’]?t|do not|let['’]s"
    r"|(?:can|could|would|will|do|did|are|were|have|should|may|must)(?:n['’]?t)? you"
    r"|what|why|how|where|(?:when|which)\b(?:\W+\w+){0,3}?\W+you)\b",
    re.IGNORECASE,
)
_GOES_ON = re.compile(  # "It is lovely, Jim, but I am late"; not "Anna, Jim, and Bob"
    r"\s+(?:(?:but|so|because|since|if|when|though|it|that|this|there|he|she|we|they|not|maybe|i)\b|and\s+(?:(?-i:[a-z])|i\b))",
    re.IGNORECASE,
)
_APPOSITION = re.compile(
    r"\b(?:my|our|his|her|their)\s+\w+(?:\s+\w+)?,\s*$", re.IGNORECASE
)  # "I met my boss, Jim, and left"
_YOU = re.compile(r"\byou\W*$", re.IGNORECASE)
_PASSES_ON = re.compile(  # the word to the name behind it: "Ask Jim Halpert", "This one is for Jim Halpert"
    rf"(?:^[\s\W]*(?:(?:{_LEAD_WORD}|maybe|let['’]?s|(?:can|could|should|shall) (?:we|someone|somebody|you)"
    r"|(?:i|we)(?: would|['’]d)? (?:want|like) to)\b[\s,]*)*"
    r"(?:ask|call|tell|let|hear(?: from)?)"
    r"|\b(?:what|how) about|\bover to"
    r"|\b(?:questions?|message|request|task|this(?: one)?|that one)(?:['’]s| (?:is|goes))? (?:for|to))\s+$",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(  # "everyone except Jim", "not Jim"; "not you, Jim" at the start, for "it is not you, Jim" is said to Jim
    rf"\b(?:except(?:ing)?(?: for)?|excluding|without|apart from|other than"
    r"|(?:every(?:one|body)|any(?:one|body)|all)(?: of you)? but|(?<!why )not(?: for)?)\s+$"
    rf"|(?:^[\s\W]*(?:{_LEAD_WORD}\b[\s,]*)*not|\bbut not|\bexcept(?: for)?|\bapart from) you\s*,?\s*$",
    re.IGNORECASE,
)
_AND_SO = re.compile(r"\s*(?:,?\s*(?:and|or|nor)\s+|[&+/]\s*)", re.IGNORECASE)
_OBJECT = re.compile(r"\b(?:with|to|for|from|like|about|of|and|or|than|as|by|at|on|cc)\s+$", re.IGNORECASE)
_SIGNATURE = re.compile(r",\s*\n\s*$|\n\s*[-–—]+\s*$")
_CLAUSE = re.compile(r",\s+(?:and|but|while|und|aber)\s+$", re.IGNORECASE)
_YOU_ALL = {
    *("all of you", "both of you", "each of you", "every one of you", "the two of you", "the three of you"),
    *("you all", "you both", "you guys", "you folks", "you two", "you three"),
}
_EVERYBODY = {"everyone", "everybody", "guys", "folks"}
_ALL = {"all", "both", "team", *_EVERYBODY, *_YOU_ALL}  # the first three only apart: "Do all dogs bark?" speaks of dogs
_AT_ALL = {"all", "everyone", "everybody"}
_ASKING = rf"^[\s\W]*(?:{_LEAD_WORD}\b[\s,]*)*(?:can|could|would|will|should|may|must|do|did|are|were|have|let)(?:n['’]?t)?\s+"
_WANTING = r"\b(?:i|we)(?: would|['’]d)? (?:\w+ )?(?:want|need|like|love|prefer|expect|ask)\s+"
_ASKED = re.compile(rf"(?:{_ASKING}|{_WANTING})$", re.IGNORECASE)  # "Could everyone …", "I want everyone …"
_YOU_AND = re.compile(  # "You and Dwight", "Could you and Dwight …"; not "I saw you and Dwight"
    rf"(?:^[\s\W]*(?:{_LEAD_WORD}\b[\s,]*)*|{_ASKING}|{_WANTING})you\s+(?:and|&)\s+$", re.IGNORECASE
)
_AND_YOU = re.compile(r"\s+(?:and|&)\s+you\b", re.IGNORECASE)
_OF = re.compile(r"\s+of\b", re.IGNORECASE)  # "Can all of them …"
_BUT = re.compile(  # between a word for all and the first that it leaves out
    r"\s+(?:except(?:ing)?(?: for)?|excluding|without|apart from|other than|but)\s+@?", re.IGNORECASE
)
_OTHER_ALL = re.compile(
    r"\s+(?:right|set|ready|done|alone|day|night|over|by|the|ways?)\b", re.IGNORECASE
)  # "you all right"


class Party(NamedTuple):
    """Who may be called: a key, the slug after an @, the full names, and the aliases and first names."""

    key: Hashable
    slug: str
    full: tuple[str, ...]
    short: tuple[str, ...]
    person: bool = False

    @classmethod
    def named(
        cls, key: Hashable, name: str, *, slug: str = "", aliases: Iterable[str] = (), person: bool = False
    ) -> Party:
        """With the first name of a display name that has several words, titles and articles aside."""
        words = name.split()
        bare = [word for word in words if word.casefold() not in _TITLES]
        first = bare[:1] if len(words) > 1 else []
        return cls(key, _folded(slug), (_folded(name),), tuple(_folded(one) for one in (*aliases, *first)), person)


class _Name(NamedTuple):
    """A name where it stands in the text, and whether an @ goes before it."""

    start: int
    end: int
    text: str
    at: bool


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, the keys it is said to (empty = to no one in particular), and those it names besides."""

    start: int
    end: int
    to: frozenset[Hashable]
    names: frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Calls:
    """The sentences of a text by whom they are said to.

    Attributes:
        names: Each name of a party as the text writes it, with its key; the key is `SHARED` where several have the name.
    """

    text: str
    sentences: tuple[_Sentence, ...]
    names: tuple[tuple[str, Hashable], ...] = ()

    @property
    def called(self) -> frozenset[Hashable]:
        """The keys of all that the text calls."""
        return frozenset(key for one in self.sentences for key in one.to | one.names)

    def said_to(self, key: Hashable) -> str:
        """The sentences that concern this one: said to it or to no one in particular, or such that name it."""
        concern = (one for one in self.sentences if not one.to or key in one.to | one.names)
        return "".join(self.text[one.start : one.end] for one in concern).strip()


def read_calls(text: str, parties: Sequence[Party], *, replied_to: Hashable | None = None) -> Calls:
    """Read whom a text calls, in time proportional to its length; what follows 20,000 characters goes with the last sentence.

    Args:
        replied_to: The key of the author of the message that the text replies to.
    """
    text = unicodedata.normalize("NFC", text)
    masked = _QUOTED.sub(lambda match: re.sub(r"[^\n]", _MASK, match[0]), text[:LONGEST_READ])
    names = deque(_names(masked, parties))
    full = {form for party in parties for form in party.full}
    nobody = frozenset[Hashable]()
    everyone = frozenset(party.key for party in parties)
    to = nobody if replied_to is None else frozenset({replied_to})
    names_only = False  # "Jim! Pam! Listen!" is said to both
    sentences: list[_Sentence] = []
    written: dict[tuple[str, Hashable], None] = {}
    for start, end in list(_bounds(masked, names)):
        sentence, within = masked[:end], list[_Name]()
        while names and names[0].start < end:
            within.append(names.popleft())
        written |= dict.fromkeys((name.text, _meant(name, parties, to)) for name in within)
        left_out = _left_out(sentence, start, within)
        gone = {_meant(name, parties, to) for name in left_out}
        to -= gone
        within = _with_exceptions(sentence, within, left_out)
        apart, subject = _set_apart(sentence, start, within) if within else ([], [])
        besides = [name for name in within if name.at and name not in apart]
        joined = [name for name in within if _is_joined(sentence, start, name, apart)]
        if apart:
            called = _keys([*apart, *joined], parties, to, gone)
            # "You and Dwight, be brief": here "you" is who was spoken to before.
            goes_on = names_only or (joined and all(name in apart for name in joined))
            to = to | called if goes_on else called
            lead = _LEAD.fullmatch(sentence, start, apart[0].start)
            names_only = lead is not None and not _said(sentence[apart[-1].end :])
        elif any(_is_said_to_all(sentence, start, name) for name in within):
            to = everyone - gone
        elif joined:
            to |= _keys(joined, parties, to, gone)
        else:
            inner = [name for name in within if not name.at and name not in subject and _folded(name.text) in full]
            besides += [name for name in inner if _is_passed_on(sentence, start, name)]
        named = _keys(besides, parties, to, gone)
        is_empty = not masked[start:end].strip(f"{_MASK} \t\n")  # a quotation is said to nobody
        sentences.append(_Sentence(start, len(text) if end == len(masked) else end, nobody if is_empty else to, named))
    return Calls(text, tuple(sentences), tuple(one for one in written if one[1] != EVERYONE))


def _names(text: str, parties: Sequence[Party]) -> Iterator[_Name]:
    """Every name in the text, the longest where several begin at one place."""
    bare = {form for party in parties for form in (*party.full, *party.short)}
    pattern = re.compile(
        rf"(?<![\w@])@(?P<at>{_any_of(bare | {party.slug for party in parties} | _AT_ALL)})(?![\w-])"
        rf"|(?<![\w@])(?<!\w[.-])(?P<bare>{_any_of(bare | _ALL)})(?!\w|-\w|@)",
        re.IGNORECASE,
    )
    for match in pattern.finditer(text):
        yield _Name(match.start(), match.end(), match["at"] or match["bare"], match["at"] is not None)


def _any_of(forms: Iterable[str]) -> str:
    longest_first = sorted(filter(None, forms), key=lambda form: (-len(form), form))
    return "|".join(r"\s+".join(map(re.escape, form.split())) for form in longest_first)


def _bounds(text: str, names: Iterable[_Name]) -> Iterator[tuple[int, int]]:
    """Where sentences begin and end. What follows "…, and" is one of its own where it begins with a name set apart."""
    inside = {place for name in names for place in range(name.start, name.end)}  # "Dr. Blum"
    ends = {match.end() for match in _SENTENCE_END.finditer(text) if match.start() not in inside}
    after_name = -1
    for name in names:
        joint = _CLAUSE.search(text, max(0, name.start - 20), name.start)
        if joint and joint.start() != after_name and _APART.match(text, name.end):
            ends.add(joint.start() + 1)
        after_name = name.end
    start = 0
    for end in sorted(ends | {len(text)}):
        if end > start:
            yield start, end
            start = end


def _set_apart(text: str, start: int, names: Sequence[_Name]) -> tuple[list[_Name], list[_Name]]:
    """Of the names in a sentence, from `start` to the text's end, those that stand apart from it, and those that it begins with."""
    runs: list[list[_Name]] = []
    for name in names:  # "Jim, Pam and Dwight" is one run
        between = text[runs[-1][-1].end : name.start] if runs else ""
        if between.strip(" ") and _JOINT.fullmatch(between):
            runs[-1].append(name)
        else:
            runs.append([name])
    begins = _LEAD.fullmatch(text, start, runs[0][0].start) is not None
    apart = _at_start(text, start, runs[0]) if begins else []
    for run in runs[begins:]:
        before, end = _before(text, start, run[0]), run[-1].end
        if not _said(text[end:]):
            if apart and not _GREETED.search(before):
                continue
            if _BEFORE_LAST.search(before) or _GREETED.search(before) or (run[0].at and not _OBJECT.search(before)):
                apart += run
        elif not apart and (comma := _APART.match(text, end)) and _BEFORE_LAST.search(before):
            goes_on = len(run) == 1 and _GOES_ON.match(text, comma.end()) and not _APPOSITION.search(before)
            apart += run if goes_on or _YOU.search(before) or _SECOND_PERSON.match(text, comma.end()) else []
    return apart, runs[0] if begins else []


def _at_start(text: str, start: int, run: list[_Name]) -> list[_Name]:
    """The names of a run at the start of a sentence that are called."""
    before, end = _before(text, start, run[0]), run[-1].end
    if not _said(text[end:]):
        return [] if _SIGNATURE.search(text[max(0, run[0].start - REACH) : run[0].start]) else run
    is_possessive = _POSSESSIVE.match(text, end) is not None
    if not is_possessive and _APART.match(text, end) and not _BESIDES.match(text, end):
        return run
    # "Jim, Pam is looking for you" calls Jim; "Jim, Dwight and Pam have left" calls nobody.
    if len(run) > 1 and {text[one.end : two.start].strip() for one, two in pairwise(run)} == {","}:
        return run[:-1]
    return (
        run if not is_possessive and (_GREETED.search(before) or run[0].at or _SECOND_PERSON.match(text, end)) else []
    )


def _before(text: str, start: int, name: _Name) -> str:
    return text[max(start, name.start - REACH) : name.start]


def _said(text: str) -> bool:
    return any(char.isalnum() or char == _MASK for char in text)


def _is_passed_on(text: str, start: int, name: _Name) -> bool:
    """Whether a name within the sentence is one that the sentence passes the word to, and no possessive."""
    return _PASSES_ON.search(_before(text, start, name)) is not None and not _POSSESSIVE.match(text, name.end)


def _left_out(text: str, start: int, names: Sequence[_Name]) -> list[_Name]:
    """The names that the sentence excludes: "except Jim and Pam"."""
    left: list[_Name] = []
    for number, name in enumerate(names):
        goes_on = left and left[-1] is names[number - 1] and _AND_SO.fullmatch(text, left[-1].end, name.start)
        if goes_on or _LEFT_OUT.search(_before(text, start, name)):
            left.append(name)
    return left


def _with_exceptions(text: str, names: Sequence[_Name], left_out: Sequence[_Name]) -> list[_Name]:
    """The names without those left out; a word for all reaches to the end of what it leaves out: "everyone except Jim"."""
    if not left_out:
        return list(names)
    kept: list[_Name] = []
    is_exception = False
    for name in names:
        if name not in left_out:
            kept.append(name)
            is_exception = False
        elif kept and (is_exception or _BUT.fullmatch(text, kept[-1].end, name.start)):
            kept[-1] = kept[-1]._replace(end=name.end)
            is_exception = True
    return kept


def _is_said_to_all(text: str, start: int, name: _Name) -> bool:
    """Whether a word for all within the sentence speaks to them: "Can you guys", "I want all of you to", "Could everyone"."""
    form, before = _folded(name.text), _before(text, start, name)
    if form in _YOU_ALL:
        return not _OBJECT.search(before) and not _OTHER_ALL.match(text, name.end)
    return form in _EVERYBODY and _ASKED.search(before) is not None and not _OF.match(text, name.end)


def _is_joined(text: str, start: int, name: _Name, apart: Sequence[_Name]) -> bool:
    """Whether a name is spoken to together with "you": "Could you and Dwight", "Can Dwight and you", "Jim, can you and Dwight"."""
    called_before = [called.end for called in apart if called.end < name.start]
    for begin in (start, *called_before):
        before = _before(text, begin, name)
        if _YOU_AND.search(before):
            return True
        if _ASKED.search(before) and _AND_YOU.match(text, name.end):
            return True
    return False


def _keys(
    names: Iterable[_Name], parties: Sequence[Party], current: frozenset[Hashable], gone: Collection[Hashable]
) -> frozenset[Hashable]:
    """The keys of those whom names mean; a word for all means every party that is not left out."""
    keys = {_meant(name, parties, current) for name in names}
    if EVERYONE in keys:
        keys |= {party.key for party in parties if party.key not in gone}
    return frozenset(keys) - {EVERYONE}


def _meant(name: _Name, parties: Sequence[Party], current: frozenset[Hashable]) -> Hashable:
    """The key of the one that a name means."""
    form = _folded(name.text)
    agents = [party for party in parties if not party.person] if name.at else []
    for mean in (
        [party.key for party in agents if party.slug == form],
        [party.key for party in parties if name.at and party.slug == form],
        [party.key for party in agents if form in party.full],
        [party.key for party in agents if form in party.short],
        [party.key for party in parties if form in party.full],
        [party.key for party in parties if form in party.short],
    ):
        if mean:
            among = mean if len(mean) == 1 else [key for key in mean if key in current]
            return among[0] if len(among) == 1 else SHARED
    return EVERYONE if form in _ALL else SHARED


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", " ".join(name.split()).casefold())
