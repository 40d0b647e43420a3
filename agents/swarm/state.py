"""What an agent keeps of a conversation: its anchor, the goal, facts, assumptions and decisions, each with the words it rests on.

An entry enters only with the position and the words of the message it stands in. The stored quote is the message's own sentence, so that
words cannot be cut out of "I do not …", and only a person puts it into other words. Pinned entries stay in every prompt. What a newer
statement contradicts stays readable, marked with the position of the newer one.
There is one row per agent and channel; change it inside `updating`, which no model call may be made in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from django.db import transaction
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.kit.text.tokens import split_sentences
from agents.kit.text.voices import vocabulary
from agents.models import Agent, Channel, Message
from agents.models.conversations import FieldRefused
from agents.swarm.models import DialogState
from agents.swarm.statements import contradicts, is_answer, only_asks, question_at_the_end

ONE = ("anchor", "goal")  # kinds of which there is one entry
MANY = ("facts", "assumptions", "decisions")
KINDS = (*ONE, *MANY)
MOST_PINNED = 30  # entries of the three lists together
MOST_UNPINNED = 10  # of each list, and of those that no longer hold; the oldest goes
MOST_CHARACTERS = 300  # of a text, and of a quote
MOST_REMOVED = 200  # quotes that people removed and that do not come back
FIELDS = ("text", "position", "quote", "pinned")  # that a person enters

_FORGET = re.compile(  # English only; not "don't forget that …"
    r"\W*(?:(?:please|pls|ok(?:ay)?|actually|and|so|no|sorry|(?:can|could|would) you|just)\b[\s,]*)*"
    r"(?:forget|disregard|(?:ignore|scratch) (?=that i\b|what i\b))\b\s*"
    r"(?:(?:that|about|what i (?:said|told you|wrote|mentioned)(?: about)?|the (?:thing|part|bit) about|my|it)\b\s*)*(?P<what>[^.!?;,]*)",
    re.IGNORECASE,
)

By = Literal["model", "rule", "person"]


class StateRefused(FieldRefused):
    """A change that a person asked for is not allowed."""


class Entry(BaseModel):
    """One thing that was said.

    Attributes:
        text: It in short.
        position: Of the message it stands in.
        quote: The words of that message.
        who: Said them; set when the entry enters.
        pinned: It stays in every prompt.
        leaving: It was pinned and makes room for others; it stays until a summary holds it.
        until: Position of the newer statement that contradicts it; 0 while it holds.
        by: Who put it here, wrote its text, or pinned it.
        key: Names it in the API and the console, whatever its text becomes; set when it is stored.
    """

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    text: str = Field(min_length=1)
    position: int = Field(ge=1)
    quote: str = Field(min_length=1)
    who: str = ""
    pinned: bool = False
    leaving: bool = False
    until: int = Field(default=0, ge=0)
    by: By = "model"
    key: str = ""

    @property
    def quote_key(self) -> str:
        """Names its quote in summaries; two entries may rest on the same sentence."""
        return key_of(self.position, self.quote)

    def with_(self, **changes: Any) -> Entry:
        return self.model_copy(update=changes)


# -- the row
@contextmanager
def updating(agent: Agent, channel: Channel) -> Iterator[DialogState]:
    """Inside, the caller alone changes the state of an agent in a channel; it is saved at the end, and as it was after an exception."""
    with transaction.atomic():
        rows = DialogState.objects.select_for_update()
        state = rows.filter(agent=agent, channel=channel).first()
        if state is None:
            DialogState.objects.bulk_create([DialogState(agent=agent, channel=channel)], ignore_conflicts=True)
            state = rows.get(agent=agent, channel=channel)
        yield state
        state.save()


def advance(state: DialogState, message: Message) -> bool:
    """Count a message that the agent is to answer, once.

    Returns:
        False when the state takes the message into account already: a turn that was killed is taken again and must not change it twice.
    """
    if message.position <= state.position:
        return False
    state.position, state.turn = message.position, state.turn + 1
    return True


# -- entries
def entries(state: DialogState, kind: str) -> list[Entry]:
    """The entries of a kind, oldest first."""
    stored: Any = getattr(state, kind)
    return [Entry.model_validate(one) for one in (stored if kind in MANY else [stored] if stored else [])]


def pinned(state: DialogState) -> list[Entry]:
    """The entries that stay in every prompt, and those that stay until a summary holds them, by position."""
    each = (entry for kind in MANY for entry in entries(state, kind) if entry.pinned or entry.leaving)
    return sorted(each, key=lambda entry: entry.position)


def add_quoted(state: DialogState, kind: str, new: Iterable[Entry], messages: Sequence[Message]) -> int:
    """Add the entries whose quote stands in the message at their position; white space, case and the form of quotation marks aside.

    An entry that is there already is not added again, but becomes pinned if the new one is. The goal is replaced, the anchor is not. A fact
    ends older ones that it contradicts. What a person removed is passed over, and so are a goal in the words of an agent and a decision
    that only asks for one.

    Args:
        state: Not saved here, see `updating`.
        kind: One of `KINDS`.
        new: As a model or a rule reported them.
        messages: Of the channel, those that could be quoted.

    Returns:
        How many were dropped because their quote is not there. The state counts them, too.
    """
    said = {message.position: message for message in messages}
    held, dropped = entries(state, kind), 0
    for one in new:
        entry = grounded(one, said.get(one.position))
        if entry is None:
            dropped += 1
        elif (
            was_removed(state, entry.position, entry.quote)
            or (kind == "goal" and said[one.position].agent_id)
            or (kind == "decisions" and only_asks(entry.quote))
            or (kind != "anchor" and entry.by != "person" and _to_forget(entry.quote))
        ):
            continue
        elif kind in ONE:
            held = held if kind == "anchor" and held else [entry]
        elif entry.quote_key not in (known := [one.quote_key for one in held]):
            if kind == "facts":
                held = _ended(held, entry)
                store(state, "anchor", _ended(entries(state, "anchor"), entry))
            held.append(entry)
        elif entry.pinned and not held[place := known.index(entry.quote_key)].pinned:
            held[place] = held[place].with_(pinned=True, leaving=False)
    store(state, kind, held)
    state.dropped += dropped
    make_room(state)
    return dropped


def add_answer(state: DialogState, message: Message, before: Message | None) -> None:
    """Add what a person answers to a question in the agent's message before, as a fact whose text is question and answer.

    It is pinned where the answer depended on it (`pending`).
    """
    if before is None or before.agent_id != state.agent_id or message.agent_id is not None:
        return
    question, quote = question_at_the_end(before.text), " ".join(message.text.split())
    if not question or not is_answer(quote) or to_forget(quote) or was_removed(state, message.position, quote):
        return
    text = f"{shortened(question)[: MOST_CHARACTERS - len(quote) - 1]} {quote}"
    answer = Entry(
        text=text,
        position=message.position,
        quote=quote,
        who=message.author_name,
        pinned=bool(state.pending),
        by="rule",
    )
    held = entries(state, "facts")
    if answer.quote_key not in {one.quote_key for one in held}:
        store(state, "facts", [*_ended(held, answer), answer])
        store(state, "anchor", _ended(entries(state, "anchor"), answer))
        make_room(state)


def _ended(held: Iterable[Entry], newer: Entry) -> list[Entry]:
    """Mark the entries that a newer one of the same speaker contradicts; those that a person pinned stay pinned."""
    marked = []
    for entry in held:
        earlier = entry.who == newer.who and entry.position < newer.position and not entry.until
        if earlier and contradicts(newer.text, entry.text):
            kept = entry.pinned and entry.by == "person"
            entry = entry.with_(until=newer.position, pinned=kept, leaving=False)
        marked.append(entry)
    return marked


def forget_asked(state: DialogState, message: Message) -> int:
    """Remove what the message's sender asks to forget: "Forget that I am vegetarian". No entry that a person pinned.

    An entry goes when it quotes the sender, and all telling words of what is to be forgotten. What else that sentence says goes, too.

    Returns:
        How many entries were removed.
    """
    wanted = to_forget(message.text)
    gone = [
        entry.key
        for kind in ("goal", *MANY)
        for entry in entries(state, kind)
        if entry.by != "person" and entry.who == message.author_name and entry.position != message.position
        if any(words <= vocabulary([entry.quote]) for words in wanted)
    ]
    for key in gone:
        remove(state, key)
    return len(gone)


def to_forget(text: str) -> list[frozenset[str]]:
    """Return the telling words of each thing that a text asks to forget."""
    return list(filter(None, map(_to_forget, split_sentences(text))))


def _to_forget(sentence: str) -> frozenset[str]:
    """The telling words of what a sentence asks to forget; empty where it asks nothing of the kind, or says only "forget it"."""
    match = _FORGET.match(sentence)
    return vocabulary([match["what"]]) if match else frozenset()


def grounded(entry: Entry, message: Message | None) -> Entry | None:
    """The entry with the message's own sentence as its quote, and as its text but for a person's; None when the quote is not there."""
    quote = quoted(entry.quote, message.text) if message else ""
    if message is None or not quote:
        return None
    text = " ".join(entry.text.split()) if entry.by == "person" else quote
    return entry.with_(quote=quote, text=text, who=message.author_name, leaving=False)


def make_room(state: DialogState) -> None:
    """Keep to the limits: the oldest pinned entry that no person pinned starts to leave; of the rest the oldest goes."""
    lists = {kind: entries(state, kind) for kind in MANY}
    held = [(kind, entry) for kind in MANY for entry in lists[kind] if entry.pinned]
    free = sorted((one for one in held if one[1].by != "person"), key=lambda one: one[1].position)
    for kind, entry in free[: max(0, len(held) - MOST_PINNED)]:
        lists[kind][lists[kind].index(entry)] = entry.with_(pinned=False, leaving=True)
    for kind in MANY:
        usual = [entry for entry in lists[kind] if not (entry.pinned or entry.leaving)]
        past = [entry for entry in usual if entry.until]
        present = [entry for entry in usual if not entry.until]
        gone = [*past[: max(0, len(past) - MOST_UNPINNED)], *present[: max(0, len(present) - MOST_UNPINNED)]]
        store(state, kind, [entry for entry in lists[kind] if entry not in gone])
        for entry in gone:
            if entry.until:  # no summary shows it as if it held
                _note_removed(state, entry)


def drop_summarised(state: DialogState, keys: Iterable[str]) -> None:
    """Remove the entries with quotes of these keys that were leaving: a summary holds them."""
    gone = set(keys)
    for kind in MANY:
        store(state, kind, [e for e in entries(state, kind) if not (e.leaving and e.quote_key in gone)])


# -- changes by people; each raises StateRefused where it is not allowed, or there is no such entry
def add(state: DialogState, kind: str, values: dict[str, Any], messages: Sequence[Message]) -> Entry:
    """Add what a person entered: text, position, quote, and whether it is pinned. It needs a quote like all others.

    Raises:
        StateRefused: The kind or a value is not allowed, the quote is not in that message, or 30 are pinned by people.
    """
    if kind not in KINDS:
        raise StateRefused("kind", f"{kind!r}; allowed: {', '.join(KINDS)}")
    if unknown := set(values) - {*FIELDS}:
        raise StateRefused(f"{kind}.{min(unknown)}", f"unknown; allowed: {', '.join(FIELDS)}")
    try:
        entry = Entry.model_validate({**values, "by": "person"})
    except ValidationError as error:
        first = error.errors()[0]
        raise StateRefused(f"{kind}.{first['loc'][0]}", f"{first['msg']}; allowed: {', '.join(FIELDS)}") from None
    said = {message.position: message for message in messages}
    own = grounded(entry.with_(text=_checked_text(f"{kind}.text", entry.text)), said.get(entry.position))
    if own is None:
        raise StateRefused(
            f"{kind}.quote",
            f"{entry.quote[:80]!r} does not stand in message {entry.position}; allowed: words of the message at its position",
        )
    entry = own
    if entry.pinned and kind in MANY:
        _check_room(state, kind)
    state.removed = [one for one in state.removed if not _overlap(one, entry.position, entry.quote)]
    held = [] if kind in ONE else [one for one in entries(state, kind) if folded(one.text) != folded(entry.text)]
    store(state, kind, [*held, entry])
    make_room(state)
    return entries(state, kind)[-1]


def pin(state: DialogState, key: str) -> None:
    """Pin an entry as a person's wish: it holds, and stays in every prompt until a person unpins it."""
    kind, entry = _find(state, key)
    if kind in MANY and not (entry.pinned and entry.by == "person"):
        _check_room(state, kind)
    _replace(state, kind, entry, entry.with_(pinned=True, leaving=False, until=0, by="person"))
    make_room(state)


def unpin(state: DialogState, key: str) -> None:
    """Let an entry go with the other unpinned ones."""
    kind, entry = _find(state, key)
    _replace(state, kind, entry, entry.with_(pinned=False, leaving=False))
    make_room(state)


def edit(state: DialogState, key: str, text: str) -> None:
    """Change an entry's text; its quote stays."""
    kind, entry = _find(state, key)
    _replace(state, kind, entry, entry.with_(text=_checked_text("text", text), by="person"))


def remove(state: DialogState, key: str) -> None:
    """Remove an entry. No rule or model enters its quote again, and summaries leave it out."""
    kind, entry = _find(state, key)
    store(state, kind, [one for one in entries(state, kind) if one.key != entry.key])
    _note_removed(state, entry)


def _note_removed(state: DialogState, entry: Entry) -> None:
    state.removed = [*state.removed, {"position": entry.position, "quote": entry.quote}][-MOST_REMOVED:]


def was_removed(state: DialogState, position: int, quote: str) -> bool:
    """Whether a person removed what rests on these words, or on more or fewer of their message; not while another entry rests on them."""
    if not any(_overlap(one, position, quote) for one in state.removed):
        return False
    return key_of(position, quote) not in {entry.quote_key for kind in KINDS for entry in entries(state, kind)}


def _overlap(removed: dict[str, Any], position: int, quote: str) -> bool:
    gone, words = folded(removed["quote"]), folded(quote)
    return bool(removed["position"] == position) and (gone in words or words in gone)


def _find(state: DialogState, key: str) -> tuple[str, Entry]:
    every = {entry.key: (kind, entry) for kind in KINDS for entry in entries(state, kind)}
    if key not in every:
        raise StateRefused(
            "key", f"there is no entry {key!r}; allowed: {', '.join(every) or 'none, the state is empty'}"
        )
    return every[key]


def _check_room(state: DialogState, kind: str) -> None:
    by_people = sum(entry.pinned and entry.by == "person" for each in MANY for entry in entries(state, each))
    if by_people >= MOST_PINNED:
        raise StateRefused(f"{kind}.pinned", f"people pinned {by_people} entries; allowed: at most {MOST_PINNED}")


def _checked_text(field: str, text: str) -> str:
    text = " ".join(text.split())
    if not 0 < len(text) <= MOST_CHARACTERS:
        raise StateRefused(field, f"it has {len(text)} characters; allowed: 1 to {MOST_CHARACTERS}")
    return text


def _replace(state: DialogState, kind: str, entry: Entry, by: Entry) -> None:
    store(state, kind, [by if one.key == entry.key else one for one in entries(state, kind)])


def store(state: DialogState, kind: str, held: Sequence[Entry]) -> None:
    """Make these the entries of a kind, each with a key of its own."""
    stored = [
        entry.model_dump() | {"key": entry.key or key_of(entry.position, f"{kind} {entry.quote} {entry.text}")}
        for entry in held
    ]
    setattr(state, kind, stored if kind in MANY else stored[0] if stored else {})


# -- words
CUT = " \u2026"  # behind a quote whose sentence goes on
_MARKS = str.maketrans({"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'})


def quoted(quote: str, text: str) -> str:
    """The sentences of a text that hold a quote, verbatim on one line; empty when it is not there.

    A quote is whole words. Sentences that are longer than an entry may be are cut behind it, never before it, for a "not" may stand there;
    a quote too far behind their beginning counts as not there.
    """
    words = quote.translate(_MARKS).removesuffix(CUT).split()
    if not any(char.isalnum() for char in quote):
        return ""
    plain = text.translate(_MARKS)
    match = re.search(r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)", plain, re.IGNORECASE)
    if match is None:
        return ""
    start, end, place = match.start(), match.end(), 0
    for sentence in split_sentences(text):
        begin = text.index(sentence, place)
        place = begin + len(sentence)
        if begin < match.end() and match.start() < place:
            start, end = min(start, begin), max(end, place)
    sentences = " ".join(text[start:end].split())
    if len(sentences) <= MOST_CHARACTERS:
        return sentences
    needed = " ".join(text[start : match.end()].split())
    return max(needed + CUT, shortened(sentences), key=len) if len(needed) <= MOST_CHARACTERS else ""


def shortened(sentence: str) -> str:
    """A sentence that is no longer than a quote may be; where it is cut, a mark says so."""
    line = " ".join(sentence.split())
    return line if len(line) <= MOST_CHARACTERS else line[:MOST_CHARACTERS].rsplit(" ", 1)[0] + CUT


def key_of(position: int, quote: str) -> str:
    """What names a quote, in the state and in summaries."""
    return hashlib.sha256(f"{position} {folded(quote)}".encode()).hexdigest()[:10]


def folded(text: str) -> str:
    """A text for comparing: case, white space and the form of quotation marks aside."""
    return " ".join(text.translate(_MARKS).casefold().split())
