"""Read from a person's text whom it calls, and which of its sentences are said to whom. No model is asked.

A text calls a party by

* ``@name`` anywhere;
* a name at the start or the end of a sentence, set off by a comma or colon: "Jim, be brief", "Jim and Pam: be brief", "Be brief, Jim";
* "you and Jim", beside the one who was spoken to before;
* "everyone" in the place of a name: it calls all parties.

A sentence that calls nobody is said to those whom the sentence before called; the first ones to the author of the message replied to.
Quotations, code and links call nobody. An ``@`` may stand before a slug, a display name, an alias or a first name.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

LONGEST_READ = 20_000  # characters of a message
EVERYONE = "everyone"  # the key of a word for all parties
SHARED = "shared"  # the key of a name that several parties have

WORDS_FOR_ALL = ("everyone", "everybody", "all of you")
NO_FIT = 5  # of a name and a party
WORDS_FOR_ALL_AFTER_AT = ("all", "everyone", "everybody")
TITLES = frozenset(
    ["dr", "dr.", "prof", "prof.", "mr", "mr.", "mrs", "mrs.", "ms", "ms.", "sir", "lady", "the", "a", "an"]
)

_QUOTATION_CODE_OR_LINK = re.compile(
    r"""
    ^[ \t]{0,3}(?:>|&gt;).*$                                               # quoted line by line
    | ^[ \t]{0,3}(?P<fence>`{3,}|~{3,})(?s:.)*?(?:^[ \t]{0,3}(?P=fence)|\Z)  # a block of code
    | `[^`\n]{1,1000}` | \bhttps?://\S{1,1000}
    | "[^"\n]{1,1000}" | “[^”]{1,2000}” | „[^“”]{1,2000}[“”] | «[^»]{1,2000}» | 「[^」]{1,2000}」
    | (?<!\w)['‘][^'’\n]{1,500}['’](?!\w)
    """,
    re.MULTILINE | re.VERBOSE,
)
_MASK = "\ue000"  # replaces each character of a quotation, so that positions stay
# A run of signs is read once, from its first one: else a message of dots alone would take minutes.
_SENTENCE_END = re.compile(r"(?<![.!?…;])[.!?…;]++[\"')\]]*+(?=\s|$)|[。！？；]+|\n+")
_COMMA_OR_COLON = re.compile(r"[*_]*\s*[,，、،:：]")  # a name may be bold in Markdown
_GREETING = re.compile(
    r"[\s\W]*(?:(?:hey|hi|hello|hallo|dear|(?:good )?morning|good evening|please|yes|no|ok|okay|thanks|and|but|so)\b[\s\W]*)?",
    re.IGNORECASE,
)
_BETWEEN_LISTED_NAMES = re.compile(r"\s*(?:[,&，、،]\s*)?(?:and\s+)?", re.IGNORECASE)
_ENDS_WITH_COMMA = re.compile(r"[,，、،]\s*$")
_ENDS_WITH_YOU_AND = re.compile(r"\byou\s+(?:and|&)\s+$", re.IGNORECASE)
_YOU_AND_LENGTH = 20  # characters before a name in which "you and" is looked for


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody who may be called.

    Attributes:
        key: Returned for this party.
        slug: May stand after an @; empty for people without one.
        full_name: The display name, folded.
        short_names: Aliases and the first name, folded.
        person: Not an agent.
    """

    key: Hashable
    slug: str
    full_name: str
    short_names: tuple[str, ...]
    person: bool = False

    @classmethod
    def named(
        cls, key: Hashable, name: str, *, slug: str = "", aliases: Iterable[str] = (), person: bool = False
    ) -> Party:
        """Make a party; its first name is the first word of a longer display name, titles and articles aside."""
        short_names = [_folded(alias) for alias in aliases]
        words = name.split()
        without_titles = [word for word in words if word.casefold() not in TITLES]
        if len(words) > 1 and without_titles:
            short_names.append(_folded(without_titles[0]))
        return cls(key, _folded(slug), _folded(name), tuple(short_names), person)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names by which a text may call it without an @."""
        return (self.full_name, *self.short_names)


@dataclass(frozen=True, slots=True)
class NameInText:
    """A party's name, or a word for all, where it stands in a text."""

    start: int
    end: int
    text: str
    after_at: bool


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text and the keys of those it is said to; none: to no one in particular."""

    start: int
    end: int
    said_to: frozenset[Hashable]


@dataclass(frozen=True, slots=True)
class Calls:
    """The sentences of a text by whom they are said to.

    Attributes:
        names: Each name of a party as the text writes it, with its key; the key is `SHARED` where several have the name.
    """

    text: str
    sentences: tuple[Sentence, ...]
    names: tuple[tuple[str, Hashable], ...] = ()

    @property
    def called(self) -> frozenset[Hashable]:
        """Return the keys of all that the text calls."""
        keys: set[Hashable] = set()
        for sentence in self.sentences:
            keys |= sentence.said_to
        return frozenset(keys)

    def said_to(self, key: Hashable) -> str:
        """Return the sentences that are said to this party or to no one in particular."""
        parts = []
        for sentence in self.sentences:
            if not sentence.said_to or key in sentence.said_to:
                parts.append(self.text[sentence.start : sentence.end])
        return "".join(parts).strip()


def read_calls(text: str, parties: Sequence[Party], *, replied_to: Hashable | None = None) -> Calls:
    """Read whom a text calls, in time proportional to its length; what follows 20,000 characters goes with the last sentence.

    A sentence that calls nobody is said to those whom the one before called; one that only quotes is said to no one in particular.

    Args:
        replied_to: The key of the author of the message that the text replies to, to whom the first sentences are said; None: to no one.
    """
    text = unicodedata.normalize("NFC", text)
    masked = _QUOTATION_CODE_OR_LINK.sub(_masked, text[:LONGEST_READ])
    names = list(_find_names(masked, parties))
    names_left = deque(names)
    said_to: frozenset[Hashable] = frozenset() if replied_to is None else frozenset([replied_to])
    sentences: list[Sentence] = []
    keys_by_name: dict[tuple[str, Hashable], None] = {}  # a set that keeps the order
    for start, end in _sentence_bounds(masked, names):
        names_of_sentence: list[NameInText] = []
        while names_left and names_left[0].start < end:
            names_of_sentence.append(names_left.popleft())
        for name in names_of_sentence:
            keys_by_name[name.text, _key_of(name, parties, said_to)] = None
        said_to = _called_by_sentence(masked[:end], start, names_of_sentence, parties, said_to)
        is_quotation = not masked[start:end].strip(f"{_MASK} \t\n")
        sentences.append(Sentence(start, end, frozenset() if is_quotation else said_to))
    if sentences:
        last = sentences[-1]
        sentences[-1] = Sentence(last.start, len(text), last.said_to)
    written = [(name, key) for name, key in keys_by_name if key != EVERYONE]  # "everyone" is no party's name
    return Calls(text, tuple(sentences), tuple(written))


def _masked(quotation: re.Match[str]) -> str:
    """Return a quotation with each character but line breaks replaced."""
    return re.sub(r"[^\n]", _MASK, quotation[0])


def _find_names(text: str, parties: Sequence[Party]) -> Iterator[NameInText]:
    """Yield every name of a party and every word for all, in order; the longest where several begin at one place."""
    names = set(WORDS_FOR_ALL)
    names_after_at = set(WORDS_FOR_ALL_AFTER_AT)
    for party in parties:
        names.update(party.names)
        names_after_at.update(party.names)
        names_after_at.add(party.slug)
    pattern = re.compile(
        rf"(?<![\w@])@(?P<after_at>{_any_of(names_after_at)})(?![\w-])"
        rf"|(?<![\w@])(?<!\w[.-])(?P<bare>{_any_of(names)})(?!\w|-\w|@|['’]s?(?!\w))",  # "Jim's" calls nobody
        re.IGNORECASE,
    )
    for match in pattern.finditer(text):
        after_at = match["after_at"] is not None
        yield NameInText(match.start(), match.end(), match["after_at"] or match["bare"], after_at)


def _any_of(names: Iterable[str]) -> str:
    """Return a regular expression for any of these names, longest first; white space in them may differ."""
    longest_first = sorted(filter(None, names), key=lambda name: (-len(name), name))
    return "|".join(r"\s+".join(map(re.escape, name.split())) for name in longest_first)


def _sentence_bounds(text: str, names: Iterable[NameInText]) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence. A full stop within a name, such as "Dr. Blum", ends none."""
    inside_names: set[int] = set()
    for name in names:
        inside_names.update(range(name.start, name.end))
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.start() not in inside_names:
            yield start, match.end()
            start = match.end()
    if start < len(text):
        yield start, len(text)


def _called_by_sentence(
    text: str, start: int, names: Sequence[NameInText], parties: Sequence[Party], said_to: frozenset[Hashable]
) -> frozenset[Hashable]:
    """Return the keys of those a sentence is said to: all after an @, all set off at its start (else its end), all in "you and NAME".

    Those of the sentence before are kept where it calls nobody, and besides where it calls only those in "you and NAME".

    Args:
        text: Up to the end of the sentence, which begins at `start`.
        said_to: The keys of those to whom the sentence before was said.
    """
    if not names:
        return said_to
    lists = _group_listed_names(text, names)
    called = [name for name in names if name.after_at]
    called += _set_off_at_start(text, start, lists[0]) or _set_off_at_end(text, start, lists[-1])
    beside_you: list[NameInText] = []
    for listed in lists:
        if _ENDS_WITH_YOU_AND.search(_before(text, start, listed[0])[-_YOU_AND_LENGTH:]):
            beside_you += listed
    keys = _keys_of(called, parties, said_to)
    if all(name in beside_you for name in called):  # "You and Dwight, be brief": "you" is who was spoken to before
        keys |= said_to
    return keys | _keys_of(beside_you, parties, said_to)


def _group_listed_names(text: str, names: Iterable[NameInText]) -> list[list[NameInText]]:
    """Group names that stand in one list, such as "Jim, Pam and Dwight"."""
    lists: list[list[NameInText]] = []
    for name in names:
        between = text[lists[-1][-1].end : name.start] if lists else ""
        # A comma or an "and" must stand between: names with only a space between them are no list.
        if between.strip(" ") and _BETWEEN_LISTED_NAMES.fullmatch(between):
            lists[-1].append(name)
        else:
            lists.append([name])
    return lists


def _set_off_at_start(text: str, start: int, listed: Sequence[NameInText]) -> list[NameInText]:
    """Return the names of a list that are called because it begins the sentence and a comma or the sentence's end follows.

    A greeting such as "Hey" may stand before it. Where the sentence goes on without a comma, the last of the names is its subject.
    """
    if not _GREETING.fullmatch(text, start, listed[0].start):
        return []
    end = listed[-1].end
    if _COMMA_OR_COLON.match(text, end) or not _has_words(text[end:]):
        return list(listed)
    # "Jim, Pam is looking for you" calls Jim alone: those up to the last comma.
    for count in range(len(listed) - 1, 0, -1):
        last_called = listed[count - 1]
        if _COMMA_OR_COLON.match(text, last_called.end):
            return list(listed[:count])
    return []


def _set_off_at_end(text: str, start: int, listed: Sequence[NameInText]) -> list[NameInText]:
    """Return the names of a list that are called because it ends the sentence and a comma stands before it."""
    if _has_words(text[listed[-1].end :]) or not _ENDS_WITH_COMMA.search(_before(text, start, listed[0])):
        return []
    return list(listed)


def _before(text: str, start: int, name: NameInText) -> str:
    return text[start : name.start]


def _has_words(text: str) -> bool:
    return any(char.isalnum() or char == _MASK for char in text)


def _keys_of(
    names: Iterable[NameInText], parties: Sequence[Party], said_to: frozenset[Hashable]
) -> frozenset[Hashable]:
    """Return the keys of those whom names mean; a word for all means every party. `SHARED` stays where a name fits several."""
    keys = {_key_of(name, parties, said_to) for name in names}
    if EVERYONE in keys:
        keys.remove(EVERYONE)
        keys.update(party.key for party in parties)
    return frozenset(keys)


def _key_of(name: NameInText, parties: Sequence[Party], said_to: frozenset[Hashable]) -> Hashable:
    """Return the key of the party that a name means, `EVERYONE`, or `SHARED`.

    A name that fits several equally well means the one of them to whom the sentence before was said.
    """
    written = _folded(name.text)
    misfits = {party.key: _misfit(party, written, after_at=name.after_at) for party in parties}
    best = min(misfits.values(), default=NO_FIT)
    words_for_all = WORDS_FOR_ALL_AFTER_AT if name.after_at else WORDS_FOR_ALL
    if best == NO_FIT and written in words_for_all:  # an agent may be called "Everybody"
        return EVERYONE
    bearers = [key for key, misfit in misfits.items() if misfit == best]
    if len(bearers) > 1:
        bearers = [key for key in bearers if key in said_to]
    return bearers[0] if len(bearers) == 1 else SHARED


def _misfit(party: Party, written: str, *, after_at: bool) -> int:
    """Return how badly a name fits a party, from 0; `NO_FIT` where it is none of its names.

    Slugs and display names go before aliases and first names; after an @, agents before people, so that no visitor can take an agent's
    name.
    """
    if after_at and not party.person and written in (party.slug, party.full_name):
        return 0
    if after_at and written == party.slug:
        return 1
    if after_at and not party.person and written in party.short_names:
        return 2
    if written == party.full_name:
        return 3
    if written in party.short_names:
        return 4
    return NO_FIT


def _folded(name: str) -> str:
    """Return a name for comparing: case and the form of white space aside."""
    return unicodedata.normalize("NFC", " ".join(name.split()).casefold())
