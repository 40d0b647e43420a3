"""What an agent keeps of a conversation: its anchor, the goal, facts, assumptions and decisions, each with the words it rests on.

Each is a row (`DialogEntry`). It enters only with the position and the words of the message it stands in. The stored quote is the message's
own sentence, so that words cannot be cut out of "I do not …", and only a person puts it into other words. What a newer statement
contradicts stays readable and names the newer message. What was removed stays as a row that is not shown, so that it does not come back.
There is one `DialogState` per agent and channel; change it and its entries inside `updating`, which no model call may be made in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from django.db import transaction
from django.db.models import Case, F, Prefetch, QuerySet, When, Window, prefetch_related_objects
from django.db.models.functions import RowNumber
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.kit.text.tokens import split_sentences
from agents.kit.text.voices import vocabulary
from agents.models import Agent, Channel, Message
from agents.models.conversations import FieldRefused
from agents.swarm.models import DialogEntry, DialogState
from agents.swarm.statements import contradicts, is_answer, only_asks, question_at_the_end

ONE = ("anchor", "goal")  # kinds of which there is one entry
MANY = ("facts", "assumptions", "decisions")
KINDS = (*ONE, *MANY)
MOST_PINNED = 30  # entries of the three lists together
MOST_UNPINNED = 10  # of each list, and of those that no longer hold; the oldest goes
MOST_CHARACTERS = 300  # of a text, and of a quote
QuoteKey = tuple[int, str]  # position and folded quote
FIELDS = ("text", "position", "quote", "pinned")  # that a person enters
WITH_ENTRIES = Prefetch("entries", DialogEntry.objects.select_related("replaced_by"))

_FORGET = re.compile(  # English only; not "don't forget that …"
    r"\W*(?:(?:please|pls|ok(?:ay)?|actually|and|so|no|sorry|(?:can|could|would) you|just)\b[\s,]*)*"
    r"(?:forget|disregard|(?:ignore|scratch) (?=that i\b|what i\b))\b\s*"
    r"(?:(?:that|about|what i (?:said|told you|wrote|mentioned)(?: about)?|the (?:thing|part|bit) about|my|it)\b\s*)*(?P<what>[^.!?;,]*)",
    re.IGNORECASE,
)


class StateRefused(FieldRefused):
    """A change that a person asked for is not allowed."""


class Entry(BaseModel):
    """What a model, a rule or a person wants to be remembered of a message.

    Attributes:
        text: It in short.
        position: Of the message it stands in.
        quote: Words of that message.
        pinned: It is to stay in every prompt.
        by: Who wants it.
    """

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    text: str = Field(min_length=1)
    position: int = Field(ge=1)
    quote: str = Field(min_length=1)
    pinned: bool = False
    by: Literal["model", "rule", "person"] = "model"


# -- reading
def state_of(agent: Agent, channel: Channel) -> DialogState:
    """Return what an agent keeps of a channel, with its entries; where there is nothing yet, a state that is not stored."""
    rows = DialogState.objects.filter(agent=agent, channel=channel).prefetch_related(WITH_ENTRIES)
    return rows.first() or DialogState(agent=agent, channel=channel)


def all_entries(state: DialogState) -> list[DialogEntry]:
    """Return the entries of a state, those that were removed too, oldest first."""
    return [] if state.pk is None else list(state.entries.all())


def entries(state: DialogState, *kinds: str) -> list[DialogEntry]:
    """Return what is remembered of these kinds, one kind after the other, each oldest first."""
    remembered = [entry for entry in all_entries(state) if not entry.removed]
    return [entry for kind in kinds for entry in remembered if entry.kind == kind]


def pinned(state: DialogState) -> list[DialogEntry]:
    """Return the entries that stay in every prompt, and those that stay until a summary holds them, by position."""
    staying = [entry for entry in entries(state, *MANY) if entry.pinned or entry.leaving]
    return sorted(staying, key=lambda entry: entry.position)


def was_removed(rows: Iterable[DialogEntry], position: int, quote: str) -> bool:
    """Return whether words of a message were removed, or more or fewer words of it; not while another entry rests on them.

    Args:
        rows: All entries of the state, at least those of this message.
    """
    of_message = [row for row in rows if row.position == position]
    if not any(row.removed and _overlap(row.quote, quote) for row in of_message):
        return False
    return not any(_rests_on(row, position, quote) for row in of_message if not row.removed)


def _rests_on(row: DialogEntry, position: int, quote: str) -> bool:
    return key_of(row.position, row.quote) == key_of(position, quote)


def _overlap(removed: str, quote: str) -> bool:
    gone, words = folded(removed), folded(quote)
    return gone in words or words in gone


def _current(state: DialogState, *kinds: str) -> QuerySet[DialogEntry]:
    return state.entries.filter(kind__in=kinds, removed=False)


# -- writing
@contextmanager
def updating(agent: Agent, channel: Channel, *, stored: bool = True) -> Iterator[DialogState]:
    """Inside, the caller alone changes the state of an agent in a channel; it is as it was after an exception.

    At the end it is saved, and keeps to the limits of its entries.

    Args:
        stored: False for a preview: the database is as it was afterwards; the value has the changes and the entries.
    """
    with transaction.atomic():
        rows = DialogState.objects.select_for_update()
        state = rows.filter(agent=agent, channel=channel).first()
        if state is None:
            DialogState.objects.bulk_create([DialogState(agent=agent, channel=channel)], ignore_conflicts=True)
            state = rows.get(agent=agent, channel=channel)
        yield state
        _make_room(state)
        state.save()
        prefetch_related_objects([state], WITH_ENTRIES)
        if not stored:
            transaction.set_rollback(True)


def advance(state: DialogState, message: Message) -> bool:
    """Count a message that the agent is to answer, once.

    Returns:
        False when the state takes the message into account already: a turn that was killed is taken again and must not change it twice.
    """
    if message.position <= state.position:
        return False
    state.position, state.turn = message.position, state.turn + 1
    return True


def add_quoted(state: DialogState, kind: str, new: Iterable[Entry], messages: Sequence[Message]) -> int:
    """Add the entries whose quote stands in the message at their position; white space, case and the form of quotation marks aside.

    An entry that is there already is not added again, but becomes pinned if the new one is. The goal is replaced, the anchor is not. A fact
    ends older ones that it contradicts. What was removed is passed over, and so are a goal in the words of an agent and a decision
    that only asks for one.

    Args:
        state: The counts in it are not saved here, see `updating`.
        kind: One of `KINDS`.
        new: As a model or a rule reported them.
        messages: Of the channel, those that could be quoted.

    Returns:
        How many were dropped because their quote is not there. The state counts them, too.
    """
    by_position = {message.position: message for message in messages}
    accepted: list[DialogEntry] = []
    dropped = 0
    for reported in new:
        message = by_position.get(reported.position)
        entry = grounded(kind, reported, message)
        if entry is None:
            dropped += 1
        elif not _is_unwanted(entry, by_agent=bool(message and message.agent_id)):
            accepted.append(entry)
    _enter(state, accepted)
    state.dropped += dropped
    return dropped


def _is_unwanted(entry: DialogEntry, *, by_agent: bool) -> bool:
    if entry.kind == "goal" and by_agent:
        return True
    if entry.kind == "decisions" and only_asks(entry.quote):
        return True
    return entry.kind != "anchor" and entry.by != "person" and bool(_to_forget(entry.quote))


def _enter(state: DialogState, new: Sequence[DialogEntry]) -> None:
    """Store entries of a model or a rule, but for words that were removed or that an entry of the same kind rests on already."""
    rows = all_entries(state) if new else []
    for entry in new:
        current = [row for row in rows if row.kind == entry.kind and not row.removed]
        same_words = [row for row in current if _rests_on(row, entry.position, entry.quote)]
        if was_removed(rows, entry.position, entry.quote):
            continue
        if entry.kind == "anchor" and current:
            continue
        if entry.kind in MANY and same_words:
            if entry.pinned:
                state.entries.filter(pk=same_words[0].pk, pinned=False).update(pinned=True, leaving=False)
            continue
        if entry.kind == "goal":
            _current(state, "goal").delete()
        if entry.kind == "facts":
            _end_contradicted(rows, entry)
        entry.state = state
        entry.save()
        rows.append(entry)


def _end_contradicted(rows: Iterable[DialogEntry], newer: DialogEntry) -> None:
    """Mark what a newer fact of the same speaker contradicts; what a person pinned stays pinned."""
    for row in rows:
        is_older = row.author == newer.author and row.position < newer.position
        if not is_older or row.removed or row.replaced_by_id or row.kind not in ("anchor", "facts"):
            continue
        if contradicts(newer.text, row.text):
            row.replaced_by = newer.message
            row.pinned = row.pinned and row.by == "person"
            row.leaving = False
            row.save()


def add_answer(state: DialogState, message: Message, before: Message | None) -> None:
    """Add what a person answers to a question in the agent's message before, as a fact whose text is question and answer.

    It is pinned where the answer depended on it (`pending`).
    """
    if before is None or before.agent_id != state.agent_id or message.agent_id is not None:
        return
    question = question_at_the_end(before.text)
    quote = " ".join(message.text.split())
    if not question or not is_answer(quote) or to_forget(quote):
        return
    text = f"{shortened(question)[: MOST_CHARACTERS - len(quote) - 1]} {quote}"
    answer = _of_message(message, kind="facts", text=text, quote=quote, pinned=bool(state.pending), by="rule")
    _enter(state, [answer])


def assume(state: DialogState, text: str, message: Message) -> None:
    """Add what is assumed in the answer to a message; the same assumption made before goes."""
    _current(state, "assumptions").filter(text=text).delete()
    quote = " ".join(message.text.split())[:MOST_CHARACTERS]
    assumption = _of_message(message, kind="assumptions", text=text, quote=quote)
    assumption.state = state
    assumption.save()


def forget_asked(state: DialogState, message: Message) -> int:
    """Remove what the message's sender asks to forget: "Forget that I am vegetarian". No entry that a person pinned.

    An entry goes when it quotes the sender, and all telling words of what is to be forgotten. What else that sentence says goes, too.

    Returns:
        How many entries were removed.
    """
    wanted = to_forget(message.text)
    if not wanted:
        return 0
    theirs = _current(state, "goal", *MANY).filter(author=message.author_name).exclude(position=message.position)
    unwanted = [
        entry.pk for entry in theirs.exclude(by="person") if any(words <= vocabulary([entry.quote]) for words in wanted)
    ]
    return state.entries.filter(pk__in=unwanted).update(removed=True)


def to_forget(text: str) -> list[frozenset[str]]:
    """Return the telling words of each thing that a text asks to forget."""
    return list(filter(None, map(_to_forget, split_sentences(text))))


def _to_forget(sentence: str) -> frozenset[str]:
    """The telling words of what a sentence asks to forget; empty where it asks nothing of the kind, or says only "forget it"."""
    match = _FORGET.match(sentence)
    return vocabulary([match["what"]]) if match else frozenset()


def grounded(kind: str, entry: Entry, message: Message | None) -> DialogEntry | None:
    """Return the entry with the message's own sentence as its quote, and as its text unless a person wrote it.

    Returns:
        None when the quote is not in the message.
    """
    quote = quoted(entry.quote, message.text) if message else ""
    if message is None or not quote:
        return None
    text = " ".join(entry.text.split()) if entry.by == "person" else quote
    return _of_message(message, kind=kind, text=text, quote=quote, pinned=entry.pinned, by=entry.by)


def _of_message(message: Message, **fields: Any) -> DialogEntry:
    """An entry that is not stored yet. In a trial the message has no row."""
    row = message if message.pk else None
    return DialogEntry(message=row, position=message.position, author=message.author_name, **fields)


def _make_room(state: DialogState) -> None:
    """Keep to the limits: the oldest pinned entry that no person pinned starts to leave; of the rest the oldest goes."""
    people_first = Case(When(by="person", then=0), default=1)
    newest_first = Window(RowNumber(), order_by=[people_first, F("position").desc(), F("pk").desc()])
    all_pinned = _current(state, *MANY).filter(pinned=True).annotate(number=newest_first)

    holds = Case(When(replaced_by=None, then=True), default=False)
    newest_of_kind = Window(RowNumber(), partition_by=[F("kind"), holds], order_by=F("pk").desc())
    unpinned = _current(state, *MANY).filter(pinned=False, leaving=False).annotate(number=newest_of_kind)

    surplus = all_pinned.filter(number__gt=MOST_PINNED).order_by()
    for entry in surplus.union(unpinned.filter(number__gt=MOST_UNPINNED).order_by()):
        if not entry.pinned and entry.replaced_by_id is None:
            entry.delete()
            continue
        if entry.pinned:
            entry.pinned, entry.leaving = False, True
        else:
            entry.removed = True  # no summary shows it as if it held
        entry.save()


def drop_summarised(state: DialogState, keys: Iterable[QuoteKey]) -> None:
    """Delete the entries with quotes of these keys that were leaving: a summary holds them."""
    held = set(keys)
    leaving = _current(state, *MANY).filter(leaving=True)
    gone = [entry.pk for entry in leaving if key_of(entry.position, entry.quote) in held]
    state.entries.filter(pk__in=gone).delete()


# -- changes by people; each raises StateRefused where it is not allowed, or there is no such entry
def add(state: DialogState, kind: str, values: dict[str, Any]) -> DialogEntry:
    """Add what a person entered: text, position, quote, and whether it is pinned. It needs a quote like all others.

    Raises:
        StateRefused: The kind or a value is not allowed, the quote is not in that message, or 30 are pinned by people.
    """
    if kind not in KINDS:
        raise StateRefused("kind", f"{kind!r}; allowed: {', '.join(KINDS)}")
    if unknown := set(values) - {*FIELDS}:
        raise StateRefused(f"{kind}.{min(unknown)}", f"unknown; allowed: {', '.join(FIELDS)}")
    try:
        entered = Entry.model_validate({**values, "by": "person"})
    except ValidationError as error:
        first = error.errors()[0]
        raise StateRefused(f"{kind}.{first['loc'][0]}", f"{first['msg']}; allowed: {', '.join(FIELDS)}") from None
    _checked_text(f"{kind}.text", entered.text)
    messages = Message.objects.filter(channel=state.channel_id).select_related("agent", "user")
    entry = grounded(kind, entered, messages.filter(position=entered.position).first())
    if entry is None:
        raise StateRefused(
            f"{kind}.quote",
            f"{entered.quote[:80]!r} does not stand in message {entered.position}; allowed: words of the message at its position",
        )
    if entry.pinned and kind in MANY:
        _check_room(state, kind)
    replaced = [
        row.pk
        for row in state.entries.filter(removed=True, position=entry.position)
        if _overlap(row.quote, entry.quote)
    ]
    for row in _current(state, kind):
        if kind in ONE or folded(row.text) == folded(entry.text):
            replaced.append(row.pk)
    state.entries.filter(pk__in=replaced).delete()
    entry.state = state
    entry.save()
    return entry


def pin(state: DialogState, entry_id: int) -> None:
    """Pin an entry as a person's wish: it holds, and stays in every prompt until a person unpins it."""
    entry = _find(state, entry_id)
    if entry.kind in MANY and not (entry.pinned and entry.by == "person"):
        _check_room(state, entry.kind)
    state.entries.filter(pk=entry.pk).update(pinned=True, leaving=False, replaced_by=None, by="person")


def unpin(state: DialogState, entry_id: int) -> None:
    """Let an entry go with the other unpinned ones."""
    entry = _find(state, entry_id)
    state.entries.filter(pk=entry.pk).update(pinned=False, leaving=False)


def edit(state: DialogState, entry_id: int, text: str) -> None:
    """Change an entry's text; its quote stays."""
    entry = _find(state, entry_id)
    state.entries.filter(pk=entry.pk).update(text=_checked_text("text", text), by="person")


def remove(state: DialogState, entry_id: int) -> None:
    """Remove an entry. No rule or model enters its quote again, and summaries leave it out."""
    entry = _find(state, entry_id)
    state.entries.filter(pk=entry.pk).update(removed=True)


def _find(state: DialogState, entry_id: int) -> DialogEntry:
    current = _current(state, *KINDS)
    entry = current.filter(pk=entry_id).first()
    if entry is None:
        allowed = ", ".join(map(str, current.values_list("pk", flat=True)))
        raise StateRefused("id", f"there is no entry {entry_id}; allowed: {allowed or 'none, the state is empty'}")
    return entry


def _check_room(state: DialogState, kind: str) -> None:
    by_people = _current(state, *MANY).filter(pinned=True, by="person").count()
    if by_people >= MOST_PINNED:
        raise StateRefused(f"{kind}.pinned", f"people pinned {by_people} entries; allowed: at most {MOST_PINNED}")


def _checked_text(field: str, text: str) -> str:
    text = " ".join(text.split())
    if not 0 < len(text) <= MOST_CHARACTERS:
        raise StateRefused(field, f"it has {len(text)} characters; allowed: 1 to {MOST_CHARACTERS}")
    return text


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


def key_of(position: int, quote: str) -> QuoteKey:
    """Return what names a quote, in the state and in summaries; two entries may rest on the same sentence."""
    return position, folded(quote)


def folded(text: str) -> str:
    """A text for comparing: case, white space and the form of quotation marks aside."""
    return " ".join(text.translate(_MARKS).casefold().split())
