"""Store what an agent keeps of a conversation: its anchor, the goal, facts, assumptions and decisions, each with the words it rests on.

Each is a row (`DialogEntry`). It enters only with the position and the words of the message it stands in. The stored quote is the message's
own sentence, so that words cannot be cut out of "I do not …", and only a person puts it into other words. What was removed stays as a
row that is not shown, so that it does not come back.
There is one `DialogState` per agent and channel; change it and its entries inside `updating`, which no model call may be made in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from django.db import transaction
from django.db.models import Case, F, QuerySet, When, Window, prefetch_related_objects
from django.db.models.functions import RowNumber
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agents.kit.text.tokens import split_sentences
from agents.kit.text.voices import vocabulary
from agents.models import Agent, Channel, Message
from agents.models.conversations import FieldRefused
from agents.swarm.models import DialogEntry, DialogState
from agents.swarm.statements import is_answer, only_asks, question_at_the_end

SINGLE_KINDS = ("anchor", "goal")  # kinds of which there is one entry
LIST_KINDS = ("facts", "assumptions", "decisions")
KINDS = (*SINGLE_KINDS, *LIST_KINDS)
MOST_PINNED = 30  # entries of the three lists together
MOST_UNPINNED = 10  # of each list; the oldest goes
MOST_CHARACTERS = 300  # of a text, and of a quote
QuoteKey = tuple[int, str]  # position and folded quote
FIELDS = ("text", "position", "quote", "pinned")  # that a person enters

_ASKS_TO_FORGET = re.compile(  # English only; not "don't forget that …"
    r"\W*(?:(?:please|pls|ok(?:ay)?|actually|and|so|no|sorry|(?:can|could|would) you|just)\b[\s,]*)*"
    r"(?:forget|disregard|(?:ignore|scratch) (?=that i\b|what i\b))\b\s*"
    r"(?:(?:that|about|what i (?:said|told you|wrote|mentioned)(?: about)?|the (?:thing|part|bit) about|my|it)\b\s*)*"
    r"(?P<forgotten>[^.!?;,]*)",
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
    rows = DialogState.objects.filter(agent=agent, channel=channel).prefetch_related("entries")
    return rows.first() or DialogState(agent=agent, channel=channel)


def all_entries(state: DialogState) -> list[DialogEntry]:
    """Return the entries of a state, those that were removed too, oldest first."""
    return [] if state.pk is None else list(state.entries.all())


def entries(state: DialogState, *kinds: str) -> list[DialogEntry]:
    """Return what is remembered of these kinds, one kind after the other, each oldest first."""
    remembered: list[DialogEntry] = []
    for kind in kinds:
        remembered += [entry for entry in all_entries(state) if entry.kind == kind and not entry.removed]
    return remembered


def pinned(state: DialogState) -> list[DialogEntry]:
    """Return the entries that stay in every prompt, and those that stay until a summary holds them, by position."""
    staying = [entry for entry in entries(state, *LIST_KINDS) if entry.pinned or entry.leaving]
    return sorted(staying, key=lambda entry: entry.position)


def was_removed(rows: Iterable[DialogEntry], position: int, quote: str) -> bool:
    """Return whether this quote of a message was removed, or a quote that holds it or stands in it.

    False while an entry that was not removed rests on exactly these words.

    Args:
        rows: All entries of the state, removed ones too; at least those of this message.
        position: Of the message.
    """
    of_message = [row for row in rows if row.position == position]
    removed = [row for row in of_message if row.removed and _overlap(row.quote, quote)]
    resting = [row for row in of_message if not row.removed and _rests_on(row, position, quote)]
    return bool(removed) and not resting


def _rests_on(row: DialogEntry, position: int, quote: str) -> bool:
    return key_of(row.position, row.quote) == key_of(position, quote)


def _overlap(removed_quote: str, quote: str) -> bool:
    """Return whether one of two quotes holds the other."""
    removed_words = folded(removed_quote)
    words = folded(quote)
    return removed_words in words or words in removed_words


def _shown_rows(state: DialogState, *kinds: str) -> QuerySet[DialogEntry]:
    """Return the rows of these kinds that are shown."""
    return state.entries.filter(kind__in=kinds, removed=False)


# -- writing
@contextmanager
def updating(agent: Agent, channel: Channel, *, stored: bool = True) -> Iterator[DialogState]:
    """Inside, the caller alone changes the state of an agent in a channel; it is as it was after an exception.

    The state is made where there is none, and its row is locked. At the end it is saved, after entries beyond the limits went.

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
        prefetch_related_objects([state], "entries")
        if not stored:
            transaction.set_rollback(True)


def advance(state: DialogState, message: Message) -> bool:
    """Count a message that the agent is to answer, once.

    Returns:
        False when the state takes the message into account already: a turn that was killed is taken again and must not change it twice.
    """
    if message.position <= state.position:
        return False
    state.position = message.position
    state.turn += 1
    return True


def add_quoted(state: DialogState, kind: str, new: Iterable[Entry], messages: Sequence[Message]) -> int:
    """Add the entries whose quote stands in the message at their position; white space, case and the form of quotation marks aside.

    An entry that is there already is not added again, but becomes pinned if the new one is. The goal is replaced, the anchor is not. What
    was removed is passed over, and so are a goal in the words of an agent and a decision that only asks for one.

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
    _store_new(state, accepted)
    state.dropped += dropped
    return dropped


def _is_unwanted(entry: DialogEntry, *, by_agent: bool) -> bool:
    """Return whether an entry states nothing to remember: an agent's goal, a decision that only asks, something to be forgotten.

    An anchor may ask to forget something, for it says only what the conversation is about; so may what a person entered.
    """
    if entry.kind == "goal" and by_agent:
        return True
    if entry.kind == "decisions" and only_asks(entry.quote):
        return True
    asks_to_forget = entry.by != "person" and bool(_words_to_forget(entry.quote))
    return entry.kind != "anchor" and asks_to_forget


def _store_new(state: DialogState, new: Sequence[DialogEntry]) -> None:
    """Store entries of a model or a rule, but for words that were removed or that an entry of the same kind rests on already.

    An anchor is stored only where there is none; a goal replaces the one before; an equal entry of a list becomes pinned if the new
    one is.
    """
    if not new:
        return
    rows = all_entries(state)
    for entry in new:
        if was_removed(rows, entry.position, entry.quote):
            continue
        current = [row for row in rows if row.kind == entry.kind and not row.removed]
        if entry.kind == "anchor" and current:
            continue
        same_words = [row for row in current if _rests_on(row, entry.position, entry.quote)]
        if entry.kind in LIST_KINDS and same_words:
            if entry.pinned:
                state.entries.filter(pk=same_words[0].pk, pinned=False).update(pinned=True, leaving=False)
            continue
        if entry.kind == "goal":
            _shown_rows(state, "goal").delete()
        entry.state = state
        entry.save()
        rows.append(entry)


def add_answer(state: DialogState, message: Message, message_before: Message | None) -> None:
    """Add what a person answers to a question in the agent's message before, as a fact whose text is question and answer.

    It is pinned where the agent had asked back and waits for it (`pending`). Nothing is added where the message before is another's or
    ends with no question, or the message is the agent's, answers nothing, or asks to forget something.
    """
    if message.agent_id is not None or message_before is None or message_before.agent_id != state.agent_id:
        return
    question = question_at_the_end(message_before.text)
    quote = " ".join(message.text.split())
    if not question or not is_answer(quote) or words_to_forget(quote):
        return
    # The question is cut, not the answer, to keep to the length of an entry.
    text = f"{shortened(question)[: MOST_CHARACTERS - len(quote) - 1]} {quote}"
    answer = _entry_of_message(message, kind="facts", text=text, quote=quote, pinned=bool(state.pending), by="rule")
    _store_new(state, [answer])


def assume(state: DialogState, text: str, message: Message) -> None:
    """Add what is assumed in the answer to a message; the same assumption made before goes."""
    _shown_rows(state, "assumptions").filter(text=text).delete()
    quote = " ".join(message.text.split())[:MOST_CHARACTERS]
    assumption = _entry_of_message(message, kind="assumptions", text=text, quote=quote)
    assumption.state = state
    assumption.save()


def forget_asked(state: DialogState, message: Message) -> int:
    """Remove what the message's sender asks to forget: "Forget that I am vegetarian". No entry that a person pinned or wrote.

    A goal or an entry of a list goes when it quotes another message of the sender, with all telling words of what is to be forgotten.
    What else that sentence says goes, too. Removed rows stay in the database, so that they do not come back.

    Returns:
        How many entries were removed.
    """
    forgotten = words_to_forget(message.text)
    if not forgotten:
        return 0
    quoting_sender = _shown_rows(state, "goal", *LIST_KINDS).filter(author=message.author_name)
    unwanted: list[int] = []
    for entry in quoting_sender.exclude(position=message.position).exclude(by="person"):
        quoted_words = vocabulary([entry.quote])
        if any(words <= quoted_words for words in forgotten):
            unwanted.append(entry.pk)
    return state.entries.filter(pk__in=unwanted).update(removed=True)


def words_to_forget(text: str) -> list[frozenset[str]]:
    """Return the telling words of each thing that a text asks to forget."""
    of_sentences = [_words_to_forget(sentence) for sentence in split_sentences(text)]
    return [words for words in of_sentences if words]


def _words_to_forget(sentence: str) -> frozenset[str]:
    """Return the telling words of what a sentence asks to forget; empty where it asks nothing of the kind, or says only "forget it"."""
    match = _ASKS_TO_FORGET.match(sentence)
    return vocabulary([match["forgotten"]]) if match else frozenset()


def grounded(kind: str, entry: Entry, message: Message | None) -> DialogEntry | None:
    """Return the entry with the message's own sentence as its quote, and as its text unless a person wrote it.

    Returns:
        None when the quote is not in the message.
    """
    quote = quoted(entry.quote, message.text) if message else ""
    if message is None or not quote:
        return None
    text = " ".join(entry.text.split()) if entry.by == "person" else quote
    return _entry_of_message(message, kind=kind, text=text, quote=quote, pinned=entry.pinned, by=entry.by)


def _entry_of_message(message: Message, **fields: Any) -> DialogEntry:
    """Return an entry that is not stored yet."""
    return DialogEntry(message=message, position=message.position, author=message.author_name, **fields)


def _make_room(state: DialogState) -> None:
    """Keep to the limits of the lists.

    Beyond `MOST_PINNED` pinned entries, those that people pinned counted first, the oldest is unpinned and starts to leave: it stays
    until a summary holds it. Beyond `MOST_UNPINNED` others of a kind, the one that was entered first is deleted.
    """
    people_first = Case(When(by="person", then=0), default=1)
    newest_pinned_first = Window(RowNumber(), order_by=[people_first, F("position").desc(), F("pk").desc()])
    all_pinned = _shown_rows(state, *LIST_KINDS).filter(pinned=True).annotate(number=newest_pinned_first)
    for entry in all_pinned.filter(number__gt=MOST_PINNED):
        entry.pinned = False
        entry.leaving = True
        entry.save()

    newest_of_kind_first = Window(RowNumber(), partition_by=[F("kind")], order_by=F("pk").desc())
    unpinned = _shown_rows(state, *LIST_KINDS).filter(pinned=False, leaving=False)
    surplus = unpinned.annotate(number=newest_of_kind_first).filter(number__gt=MOST_UNPINNED)
    state.entries.filter(pk__in=[entry.pk for entry in surplus]).delete()


def drop_summarised(state: DialogState, keys: Iterable[QuoteKey]) -> None:
    """Delete the entries with quotes of these keys that were leaving: a summary holds them."""
    summarised = set(keys)
    leaving = _shown_rows(state, *LIST_KINDS).filter(leaving=True)
    gone = [entry.pk for entry in leaving if key_of(entry.position, entry.quote) in summarised]
    state.entries.filter(pk__in=gone).delete()


# -- changes by people; each raises StateRefused where it is not allowed, or there is no such entry
def add(state: DialogState, kind: str, values: dict[str, Any]) -> DialogEntry:
    """Add what a person entered: text, position, quote, and whether it is pinned. It needs a quote like all others.

    It takes the place of an anchor or a goal, of an entry of its kind with the same text, and of what was removed with these words.

    Raises:
        StateRefused: The kind or a value is not allowed, the quote is not in that message, or 30 are pinned by people.
    """
    entered = _checked_entry(kind, values)
    messages = Message.objects.filter(channel=state.channel_id).select_related("agent", "user")
    entry = grounded(kind, entered, messages.filter(position=entered.position).first())
    if entry is None:
        raise StateRefused(
            f"{kind}.quote",
            f"{entered.quote[:80]!r} does not stand in message {entered.position}; allowed: words of the message at its position",
        )
    if entry.pinned and kind in LIST_KINDS:
        _check_room(state, kind)
    _delete_replaced(state, entry)
    entry.state = state
    entry.save()
    return entry


def _checked_entry(kind: str, values: dict[str, Any]) -> Entry:
    """Return what a person entered.

    Raises:
        StateRefused: The kind or a value is not allowed.
    """
    if kind not in KINDS:
        raise StateRefused("kind", f"{kind!r}; allowed: {', '.join(KINDS)}")
    unknown = set(values) - set(FIELDS)
    if unknown:
        raise StateRefused(f"{kind}.{min(unknown)}", f"unknown; allowed: {', '.join(FIELDS)}")
    try:
        entered = Entry.model_validate({**values, "by": "person"})
    except ValidationError as error:
        first = error.errors()[0]
        raise StateRefused(f"{kind}.{first['loc'][0]}", f"{first['msg']}; allowed: {', '.join(FIELDS)}") from None
    _checked_text(f"{kind}.text", entered.text)
    return entered


def _delete_replaced(state: DialogState, entry: DialogEntry) -> None:
    """Delete what an entry of a person takes the place of.

    These are removed rows of its message whose quote overlaps with its own, and, of its kind, the only one (anchor, goal) or the one
    with the same text.
    """
    replaced: list[int] = []
    for row in state.entries.filter(removed=True, position=entry.position):
        if _overlap(row.quote, entry.quote):
            replaced.append(row.pk)
    for row in _shown_rows(state, entry.kind):
        if entry.kind in SINGLE_KINDS or folded(row.text) == folded(entry.text):
            replaced.append(row.pk)
    state.entries.filter(pk__in=replaced).delete()


def pin(state: DialogState, entry_id: int) -> None:
    """Pin an entry as a person's wish: it stays in every prompt until a person unpins it.

    Raises:
        StateRefused: There is no such entry, or people pinned as many as they may.
    """
    entry = _find(state, entry_id)
    if entry.kind in LIST_KINDS and not (entry.pinned and entry.by == "person"):
        _check_room(state, entry.kind)
    state.entries.filter(pk=entry.pk).update(pinned=True, leaving=False, by="person")


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
    """Return an entry of a state by its primary key.

    Raises:
        StateRefused: There is none, or it was removed.
    """
    current = _shown_rows(state, *KINDS)
    entry = current.filter(pk=entry_id).first()
    if entry is None:
        allowed = ", ".join(map(str, current.values_list("pk", flat=True)))
        raise StateRefused("id", f"there is no entry {entry_id}; allowed: {allowed or 'none, the state is empty'}")
    return entry


def _check_room(state: DialogState, kind: str) -> None:
    """Raise `StateRefused` where people have pinned as many entries as they may; entries that a model pinned give way."""
    by_people = _shown_rows(state, *LIST_KINDS).filter(pinned=True, by="person").count()
    if by_people >= MOST_PINNED:
        raise StateRefused(f"{kind}.pinned", f"people pinned {by_people} entries; allowed: at most {MOST_PINNED}")


def _checked_text(field: str, text: str) -> str:
    text = " ".join(text.split())
    if not 0 < len(text) <= MOST_CHARACTERS:
        raise StateRefused(field, f"it has {len(text)} characters; allowed: 1 to {MOST_CHARACTERS}")
    return text


# -- words
CUT_MARK = " \u2026"  # behind a quote whose sentence goes on
_STRAIGHT_MARKS = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', "\u201e": '"'}
)


def quoted(quote: str, text: str) -> str:
    """Return the sentences of a text that hold a quote, verbatim on one line; empty when it is not there.

    A quote is whole words. Sentences that are longer than an entry may be are cut behind it, never before it, for a "not" may stand there;
    a quote too far behind their beginning counts as not there.
    """
    words = quote.translate(_STRAIGHT_MARKS).removesuffix(CUT_MARK).split()  # a stored quote may have been cut
    if not any(char.isalnum() for char in quote):
        return ""
    pattern = r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)"
    match = re.search(pattern, text.translate(_STRAIGHT_MARKS), re.IGNORECASE)
    if match is None:
        return ""
    # From the words of the quote to whole sentences: those that the quote reaches into.
    start, end = match.span()
    read_to = 0
    for sentence in split_sentences(text):
        sentence_start = text.index(sentence, read_to)
        read_to = sentence_start + len(sentence)
        if sentence_start < match.end() and match.start() < read_to:
            start = min(start, sentence_start)
            end = max(end, read_to)
    sentences = " ".join(text[start:end].split())
    if len(sentences) <= MOST_CHARACTERS:
        return sentences
    up_to_quote = " ".join(text[start : match.end()].split())
    if len(up_to_quote) > MOST_CHARACTERS:
        return ""
    return max(up_to_quote + CUT_MARK, shortened(sentences), key=len)  # the one that says more


def shortened(sentence: str) -> str:
    """Return a sentence that is no longer than a quote may be; where it is cut, a mark says so."""
    line = " ".join(sentence.split())
    if len(line) <= MOST_CHARACTERS:
        return line
    return line[:MOST_CHARACTERS].rsplit(" ", 1)[0] + CUT_MARK


def key_of(position: int, quote: str) -> QuoteKey:
    """Return what names a quote, in the state and in summaries; two entries may rest on the same sentence."""
    return position, folded(quote)


def folded(text: str) -> str:
    """Return a text for comparing: case, white space and the form of quotation marks aside."""
    return " ".join(text.translate(_STRAIGHT_MARKS).casefold().split())
