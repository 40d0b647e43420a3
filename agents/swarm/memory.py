"""What of a conversation stands in an agent's prompt: the last messages in full, what is pinned, older messages that share words with
the new one, and the others in a summary.

A summary is made of sentences that were said. A model, or offline a rule, chooses them by their numbers; the words between them are ours.
So a summary cannot state what nobody said. A worker makes one every few turns from the one before and the messages since. What is pinned
and was not chosen is added. A summary that is empty or reaches into the window is refused, and the one before stays.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, prefetch_related_objects
from django.db.models.functions import Left
from pydantic import BaseModel, ConfigDict

from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Turn, complete
from agents.kit.llm.requests import object_schema
from agents.kit.models.lease import LeaseLost
from agents.kit.text.fences import fence, neutral, new_nonce, one_line, render_prompt
from agents.kit.text.tokens import split_sentences, tokenize
from agents.kit.text.voices import STOP_WORDS, stem, vocabulary
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Agent, Channel, Message
from agents.swarm.calibration import PREFERENCES
from agents.swarm.models import DialogEntry, DialogState, DialogSummary
from agents.swarm.state import (
    MOST_CHARACTERS,
    WITH_ENTRIES,
    QuoteKey,
    StateRefused,
    all_entries,
    drop_summarised,
    entries,
    folded,
    key_of,
    pinned,
    shortened,
    state_of,
    to_forget,
    updating,
    was_removed,
)
from agents.swarm.statements import only_asks
from agents.turn.pipeline import Overrides
from agents.turn.pipeline import Turn as AgentTurn

SUMMARY_CHARACTERS = 2_000  # of a summary's quotes, pinned ones aside
# Of all that is remembered in a prompt. The more is pinned, the less is shown of the rest; of a summary and of recalled messages at
# least so much each:
MEMORY_CHARACTERS, LEAST_SHOWN = 3_200, 600
MOST_RECALLED, RECALLED_CHARACTERS = 8, 300  # messages that share words with the new one, and of each
MOST_SEARCHED, SEARCHED_CHARACTERS = 2_000, 1_000  # newest messages before the window that are searched, and of each
_MAY_FORGET = re.compile(r"(?i)\b(?:forget|disregard|ignore|scratch)\b")
SINCE_CHARACTERS, MOST_SINCE = 480, 10  # of messages that no summary covers yet, together
MOST_MESSAGES = 400  # that one summary reads; the first one of a conversation reads the last of them
MOST_WANTED, MOST_DECIDED = 2, 6  # that the rules choose
LEAST_NEW = 0.6  # a sentence comes last by the rules when this share of its words stands in others
NOTE_CHARACTERS = 2_000
MAX_TOKENS = 1_000
LEASE = timedelta(minutes=5)  # longer than a call may take

Part = Literal["note", "wants", "discussed", "decided", "pending"]
_OF_KIND: Mapping[str, Part] = {"facts": "discussed", "assumptions": "discussed", "decisions": "decided"}
Status = DialogSummary.Status


class Quote(BaseModel):
    """A sentence of a message in a summary; or the note of a person who wrote the summary (at position 0).

    Attributes:
        part: Where it stands in the summary.
        position: Of the message. `who`: said it.
        quote: The sentence, on one line.
    """

    model_config = ConfigDict(frozen=True)

    part: Part = "discussed"
    position: int
    who: str = ""
    quote: str

    @property
    def key(self) -> QuoteKey:
        return key_of(self.position, self.quote)


# -- the prompt
def window(transcript: Sequence[Message]) -> list[Message]:
    """The messages that the agent is shown in full."""
    return list(transcript[-settings.SWARM_WINDOW :])


def remember(turn: AgentTurn, state: DialogState, preferences: Mapping[str, str], *, message: Message | None) -> None:
    """Shorten the turn's transcript to the window, and add the section about what was before it.

    Messages of which a person removed a part, and those that say what their speaker later asked to forget, are quoted no more.

    Args:
        message: The one to be answered. Older messages that share words with it are recalled.
    """
    summary = newest_summary(turn.agent, turn.channel)
    turn.transcript = window(turn.transcript)
    between: list[Message] = []
    found: list[Message] = []
    if turn.transcript:
        older = _said(turn.channel).filter(position__lt=turn.transcript[0].position)
        if Overrides.of(turn.overrides).apart:
            older = older.filter(Q(agent=turn.agent) | Q(agent=None))
        words_of = searched(older, newer=turn.transcript)
        for entry in all_entries(state):
            if entry.removed:
                words_of.pop(entry.position, None)
        covered = summary.to_position if summary else 0
        unsummarised = [position for position in words_of if position > covered][: MOST_SINCE + 1]
        nearest = recalled(message.text, words_of) if message is not None else []
        rows = older.filter(position__in=[*unsummarised, *nearest])
        messages = {row.position: row for row in rows}
        between = [messages[position] for position in reversed(unsummarised) if position in messages]
        found = [messages[position] for position in nearest if position in messages]
    text = memory_section(state, summary, preferences, turn.nonce, between=between, recalled=found)
    if text:
        turn.add_section("This conversation so far", text)
    turn.count(
        pinned=len(pinned(state)),
        shown_in_full=len(turn.transcript),
        summarised=int(summary is not None),
        recalled=len(found),
    )


def searched(older: QuerySet[Message], *, newer: Iterable[Message] = ()) -> dict[int, frozenset[str]]:
    """Return position to telling words of the newest messages, newest first, without what people asked to forget.

    A message is left out when it holds all telling words of something that the same person asks to forget in it or after it.
    Messages of agents are never left out.

    Args:
        older: The messages to read; of each only the beginning.
        newer: Messages after these, which are not returned but may ask to forget.
    """
    to_forget_of: defaultdict[tuple[int | None, str], list[frozenset[str]]] = defaultdict(list)
    for message in newer:
        if message.agent_id is None:
            to_forget_of[message.user_id, message.outsider] += to_forget(message.text)
    columns = ("position", "agent_id", "user_id", "outsider", Left("text", SEARCHED_CHARACTERS))
    rows = older.order_by("-position").values_list(*columns)[:MOST_SEARCHED]
    words_of: dict[int, frozenset[str]] = {}
    for position, agent, user, outsider, text in rows:
        words_of[position] = _telling_words(text)
        if agent is not None:
            continue
        unwanted = to_forget_of[user, outsider]
        if _MAY_FORGET.search(text):
            unwanted += to_forget(text)
        if any(forgotten <= words_of[position] for forgotten in unwanted):
            del words_of[position]
    return words_of


def recalled(text: str, words_of: Mapping[int, frozenset[str]]) -> list[int]:
    """Return the positions of the messages that share most words with a text, best first; those that share none are left out.

    A shared word counts the more, the fewer of the messages hold it. Of equal messages the newer comes first.

    Args:
        words_of: Position to telling words of each message.
    """
    wanted = _telling_words(text)
    holders = Counter[str]()
    for words in words_of.values():
        holders.update(wanted & words)
    worth = {word: math.log(1 + len(words_of) / count) for word, count in holders.items()}
    scores: dict[int, float] = {}
    for position, words in words_of.items():
        shared = wanted & words
        if shared:
            scores[position] = math.fsum(worth[word] for word in shared)
    best_first = sorted(scores, key=lambda position: (scores[position], position), reverse=True)
    return best_first[:MOST_RECALLED]


def _telling_words(text: str) -> frozenset[str]:
    """The words of a text as in `vocabulary`, and its numbers."""
    return frozenset(stem(word) for word in tokenize(text) if word not in STOP_WORDS)


def memory_section(
    state: DialogState,
    summary: DialogSummary | None,
    preferences: Mapping[str, str],
    nonce: str,
    *,
    between: Sequence[Message] = (),
    recalled: Sequence[Message] = (),
) -> str:
    """Render what the agent remembers; empty when there is nothing.

    Args:
        state: Its anchor, goal and entries are shown with the words they rest on.
        summary: The newest one. What the state shows already is left out of it.
        preferences: Of the person; unknown names and values are left out.
        nonce: Of the turn's fences.
        between: Messages before the window that the summary does not cover, oldest first; the last ones are shown by their beginning,
            but those that are recalled.
        recalled: Older messages that share words with the new one, best first; as many are shown as there is room for.
    """
    shown: set[QuoteKey] = set()
    lines: list[str] = []
    for heading, remembered in _shown_entries(state).items():
        if remembered:
            lines += [f"{heading}:", *(f"- {_entry(entry)}" for entry in remembered)]
            shown.update(key_of(entry.position, entry.quote) for entry in remembered)
    room = MEMORY_CHARACTERS - SINCE_CHARACTERS - sum(map(len, lines))
    quotes = _recalled_quotes(recalled, room=max(room - LEAST_SHOWN, LEAST_SHOWN))
    if quotes:
        lines.append("Earlier messages that share words with the last one:")
        lines += [f"- {quotes[position]}" for position in sorted(quotes)]
        room -= sum(map(len, quotes.values()))
    if summary is not None:
        rest = [quote for quote in _left(quotes_of(summary), state) if quote.key not in shown]
        rest = [quote for quote in rest if quote.position not in quotes]
        if text := compose(fitting(rest, set(), room=max(room, LEAST_SHOWN))):
            lines += [f"Summary of messages {summary.from_position} to {summary.to_position}:", text]
    latest = [message for message in between[-MOST_SINCE:] if message.position not in quotes]
    each = SINCE_CHARACTERS // max(1, len(latest))
    since = ["[… earlier messages that are not summarised yet …]"] if len(between) > MOST_SINCE else []
    since += [_quoted(message.text, message.author_name, message.position, limit=each - 16) for message in latest]
    if since:
        lines += ["Since then, each message by its beginning:", *(f"- {quote}" for quote in since)]
    wishes = {name: value for name, value in preferences.items() if value in PREFERENCES.get(name, ())}
    if not lines and not wishes:
        return ""
    memory = fence("REMEMBERED", "\n".join(lines), nonce) if lines else ""
    return render_prompt("swarm/memory", memory=memory, wishes=sorted(wishes.items()))


def _recalled_quotes(messages: Iterable[Message], *, room: int) -> dict[int, str]:
    """Position to quote of the first messages for which there is room."""
    quotes: dict[int, str] = {}
    for message in messages:
        quote = _quoted(message.text, message.author_name, message.position, limit=RECALLED_CHARACTERS)
        room -= len(quote)
        if room < 0:
            break
        quotes[message.position] = quote
    return quotes


def _shown_entries(state: DialogState) -> dict[str, list[DialogEntry]]:
    """Heading to entries: all that are pinned, and of the others the newest within a limit."""
    shown = {"What it is about": entries(state, "anchor"), "What the person wants now": entries(state, "goal")}
    shown["Pinned"] = pinned(state)
    pinned_length = sum(len(_entry(entry)) for remembered in shown.values() for entry in remembered)
    room = (MEMORY_CHARACTERS - SINCE_CHARACTERS - 2 * LEAST_SHOWN - pinned_length) // 2
    others = [entry for entry in entries(state, *_OF_KIND) if not (entry.pinned or entry.leaving)]
    others.sort(key=lambda entry: entry.position, reverse=True)
    rest: dict[str, list[DialogEntry]] = {kind: [] for kind in _OF_KIND}
    for entry in others:
        room -= len(_entry(entry))
        if room >= 0:
            rest[entry.kind].insert(0, entry)
    return shown | {kind.capitalize(): rest[kind] for kind in _OF_KIND}


def _entry(entry: DialogEntry) -> str:
    quote = _quoted(entry.quote, entry.author, entry.position)
    if entry.until is not None:
        quote += f", until message {entry.until}"
    if folded(entry.text) in folded(entry.quote):
        return quote
    if entry.text.endswith(f"? {entry.quote}"):  # an answer
        return f"{_flat(entry.text.removesuffix(entry.quote), MOST_CHARACTERS)} {quote}"
    return f"{_flat(entry.text, MOST_CHARACTERS)}: {quote}"


def _quoted(text: str, who: str, position: int, *, limit: int = MOST_CHARACTERS) -> str:
    """What was said as a quote that cannot end early or pass for another line."""
    return f"\u201c{_flat(text, limit)}\u201d ({one_line(who)}, {position})"


def _flat(text: str, limit: int) -> str:
    flat = " ".join(neutral(text)[0].split()).translate({ord(mark): "'" for mark in '"\u201c\u201d\u201e'})
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "\u2026"


# -- summaries
def newest_summary(agent: Agent, channel: Channel) -> DialogSummary | None:
    """The summary that is shown."""
    done = DialogSummary.objects.filter(agent=agent, channel=channel, status=Status.COMPLETED)
    newest: DialogSummary | None = done.order_by("-to_position", "-pk").first()
    return newest


def why_no_summary(agent: Agent, channel: Channel) -> str:
    """Say which messages the newest summary should have covered and why it failed; empty when a later one was made."""
    rows = DialogSummary.objects.filter(agent=agent, channel=channel, status__in=[Status.COMPLETED, Status.FAILED])
    newest: DialogSummary | None = rows.order_by("-to_position", "-pk").first()
    if newest is None or newest.status == Status.COMPLETED:
        return ""
    return f"messages up to {newest.to_position} are not summarised: {newest.error}"


def quotes_of(summary: DialogSummary) -> list[Quote]:
    return [Quote.model_validate(one) for one in summary.quotes]


def text_of(summary: DialogSummary, state: DialogState) -> str:
    """The summary's text without what a person has removed from the state since it was made."""
    quotes = quotes_of(summary)
    left = _left(quotes, state)
    return summary.text if len(left) == len(quotes) else compose(left)


def _left(quotes: Iterable[Quote], state: DialogState) -> list[Quote]:
    """The quotes without those that were removed from the state, and without facts that hold no longer: the state shows these."""
    rows = all_entries(state)
    past = {
        key_of(row.position, row.quote)
        for row in rows
        if row.kind == "facts" and row.replaced_by_id and not (row.pinned or row.removed)
    }
    return [
        quote
        for quote in quotes
        if quote.part == "note" or not (quote.key in past or was_removed(rows, quote.position, quote.quote))
    ]


def compose(quotes: Iterable[Quote]) -> str:
    """The text of a summary, in the order of the conversation: User wants … Discussed … and … Decided on … Pending: …"""
    parts: dict[str, list[Quote]] = {}
    for quote in sorted(quotes, key=lambda quote: quote.position):
        parts.setdefault(quote.part, []).append(quote)
    sentences = [_flat(note.quote, NOTE_CHARACTERS) for note in parts.get("note", [])]
    beginnings = {"wants": "User wants", "discussed": "Discussed", "decided": "Decided on", "pending": "Pending:"}
    for part, beginning in beginnings.items():
        if said := [_quoted(quote.quote, quote.who, quote.position) for quote in parts.get(part, [])]:
            sentences.append(f"{beginning} {' and '.join(filter(None, (', '.join(said[:-1]), said[-1])))}.")
    return " ".join(sentences)


def refusal(text: str, *, to_position: int, window_from: int, held: Iterable[DialogEntry]) -> str:
    """Why a summary may not replace the one before; empty when it may.

    Args:
        to_position: Of the last message it covers.
        window_from: Of the first message that is shown in full.
        held: What is pinned, or leaves into the summary. Those of covered messages have to stand in it.
    """
    if not any(char.isalnum() for char in text):
        return "it is empty"
    if to_position >= window_from:
        return (
            f"it covers message {to_position}; allowed: messages before {window_from}, which the agent is shown in full"
        )
    plain = folded(text)
    for entry in held:
        words = (folded(_flat(one, MOST_CHARACTERS)) for one in (entry.quote, entry.text))
        if entry.position <= to_position and not any(one in plain for one in words):
            return f"it lacks {_quoted(entry.quote, entry.author, entry.position)}, which is pinned"
    return ""


def queue_summary(state: DialogState) -> bool:
    """Queue a summary when one is due, every `SWARM_SUMMARY_EVERY` turns. Call it inside `updating`.

    Returns:
        Whether one was due. The same turn queues it once.
    """
    if state.turn % settings.SWARM_SUMMARY_EVERY:
        return False
    upto = _said(state.channel).filter(position__lte=state.position)
    if not (last := _before_window(upto)):
        return False
    row = DialogSummary(agent_id=state.agent_id, channel_id=state.channel_id, from_position=1, to_position=last)
    DialogSummary.objects.bulk_create([row], ignore_conflicts=True)
    transaction.on_commit(wake_workers)
    return True


def write_summary(agent: Agent, channel: Channel, text: str) -> DialogSummary:
    """Replace the summary by one that a person wrote. Later summaries begin with it.

    Raises:
        StateRefused: It is empty or too long, lacks a pinned entry, or there are no messages before the window.
    """
    text = text.strip()
    if len(text) > NOTE_CHARACTERS:
        raise StateRefused("summary", f"it has {len(text):,} characters; allowed: at most {NOTE_CHARACTERS:,}")
    with updating(agent, channel) as state:
        said = _said(channel)
        if not (last := _before_window(said)):
            raise StateRefused("summary", f"all messages are shown; allowed: with more than {settings.SWARM_WINDOW}")
        if why := refusal(text, to_position=last, window_from=last + 1, held=pinned(state)):
            raise StateRefused("summary", f"{why}; allowed: a text with all that is pinned")
        note = Quote(part="note", position=0, quote=text)
        DialogSummary.objects.filter(agent=agent, channel=channel, to_position=last, origin="person").delete()
        row: DialogSummary = DialogSummary.objects.create(
            agent=agent,
            channel=channel,
            from_position=1,
            to_position=last,
            text=text,
            quotes=[note.model_dump()],
            origin="person",
            status=Status.COMPLETED,
        )
        covered = [entry for entry in pinned(state) if entry.position <= last]
        drop_summarised(state, [key_of(entry.position, entry.quote) for entry in covered])
    return row


def work_one(*, owner: str) -> bool:
    """Make the summary that has waited longest; return whether there was one."""
    return do_next(DialogSummary, lambda row: _summarise(row, owner), owner=owner, lease=LEASE)


def summarise_now(agent: Agent, channel: Channel, *, owner: str) -> None:
    """Make the summaries of a conversation that wait, as a worker would."""
    waiting = DialogSummary.objects.filter(DialogSummary.leasable(), agent=agent, channel=channel)
    for row in waiting.order_by("to_position"):
        if row.acquire(owner=owner, lease=LEASE):
            carry_out(row, lambda row: _summarise(row, owner), owner=owner)


def _summarise(row: DialogSummary, owner: str) -> Mapping[str, Any] | None:
    """Make a leased summary from the one before and the messages since, and store it with the state that it relieves."""
    base = newest_summary(row.agent, row.channel)
    if base is not None and base.to_position >= row.to_position:
        return {"status": Status.CANCELLED, "error": f"summary {base.pk} covers as much"}
    since = base.to_position if base else 0
    new = _said(row.channel).filter(position__gt=since, position__lte=row.to_position)
    messages = list(new.order_by("position" if base else "-position")[:MOST_MESSAGES])
    messages.sort(key=lambda message: message.position)
    upto, agent = messages[-1].position if messages else row.to_position, row.agent.display_name
    state = state_of(row.agent, row.channel)
    must = [quote for quote in _to_hold(state) if quote.position <= upto]
    old = _left(quotes_of(base), state) if base else []
    notes = [quote for quote in old if quote.part == "note"]
    choice = _left(candidates([quote for quote in old if quote.part != "note"], messages, must), state)
    reply = complete(_request(row, choice, must), deadline=settings.LLM_EVALUATION_DEADLINE)
    if not reply.ok:
        return {"status": Status.FAILED, "error": f"{reply.status}: {reply.error}"[:1000]}
    chosen: list[Quote] = reply.value
    if not chosen:
        return {"status": Status.FAILED, "error": "refused: it is empty"}
    if all(quote.position <= since for quote in chosen):  # the rules choose a sentence of the new messages
        newer = [quote for quote in choice if quote.position > since]
        chosen = [*chosen, *_chosen(choose(newer, (), agent=agent), newer, agent)[:1]]
    quotes = [*notes, *fitting(chosen, {quote.key for quote in must}, since=since)]
    first = base.from_position if base else messages[0].position if messages else row.to_position
    with updating(row.agent, row.channel) as state:
        if newest_summary(row.agent, row.channel) != base:  # a person, or another worker, was faster
            return {"status": Status.PENDING}
        prefetch_related_objects([state], WITH_ENTRIES)
        quotes = _left(quotes, state)
        chosen_keys = {quote.key for quote in quotes}
        quotes += [held for held in _to_hold(state) if held.position <= upto and held.key not in chosen_keys]
        text, window_from = compose(quotes), _before_window(_said(row.channel)) + 1
        if why := refusal(text, to_position=upto, window_from=window_from, held=pinned(state)):
            return {"status": Status.FAILED, "error": f"refused: {why}"[:1000]}
        stored: dict[str, Any] = {
            "text": text,
            "quotes": [quote.model_dump() for quote in quotes],
            "from_position": first,
            "to_position": upto,
        }
        heuristic = reply.provider == "offline"
        last = row.to_position
        others = DialogSummary.objects.filter(agent=row.agent, channel=row.channel, to_position=upto, origin=row.origin)
        others.exclude(pk=row.pk).delete()  # one that failed there
        if not row.finish(owner=owner, status=Status.COMPLETED, heuristic=heuristic, **stored):
            raise LeaseLost(f"summary {row.pk} is not held by {owner} any more")
        if upto < last:  # the rest is read next
            rest = DialogSummary(agent=row.agent, channel=row.channel, from_position=first, to_position=last)
            DialogSummary.objects.bulk_create([rest], ignore_conflicts=True)
        drop_summarised(state, [quote.key for quote in quotes])
    return None


def _said(channel: Channel) -> QuerySet[Message]:
    """As `agents.turn.prompt.recent_messages` reads them."""
    said = Message.objects.filter(channel=channel).select_related("agent", "user")
    return said if channel.synthetic else said.filter(synthetic=False)


def _before_window(said: QuerySet[Message]) -> int:
    """The position of the last message before the window; 0 when all are in it."""
    place = settings.SWARM_WINDOW
    positions = said.order_by("-position").values_list("position", flat=True)[place : place + 1]
    return next(iter(positions), 0)


def _to_hold(state: DialogState) -> list[Quote]:
    """What is pinned, or leaves, as parts of a summary."""
    return [
        Quote(part=_OF_KIND[entry.kind], position=entry.position, who=entry.author, quote=entry.quote)
        for entry in entries(state, *_OF_KIND)
        if entry.pinned or entry.leaving
    ]


# -- choosing
def candidates(old: Iterable[Quote], messages: Iterable[Message], must: Iterable[Quote]) -> list[Quote]:
    """What a summary may be made of, by position: the last one's quotes, what has to stand in it, and each sentence said since."""
    every = {quote.key: quote for quote in old}
    for message in messages:
        for sentence in split_sentences(message.text):
            quote = Quote(position=message.position, who=message.author_name, quote=shortened(sentence))
            every.setdefault(quote.key, quote)
    every |= {quote.key: quote for quote in must}
    return sorted(every.values(), key=lambda quote: quote.position)


def fitting(
    chosen: Sequence[Quote], must: set[QuoteKey], *, room: int = SUMMARY_CHARACTERS, since: int | None = None
) -> list[Quote]:
    """Of the chosen, in their order, what fits into a summary; what must stand in it, and a person's note, always do.

    What is said again in the same words stands there once.

    Args:
        since: The first sentence from after this position comes before all others: old ones that tell more leave room for it.
    """
    if since is not None:
        new = next((quote for quote in chosen if quote.position > since and quote.part != "pending"), None)
        chosen = sorted(chosen, key=lambda quote: quote != new)
    held, said = [], set[tuple[str, str]]()
    for quote in chosen:
        if quote.key not in must and quote.part != "note":
            size = len(_quoted(quote.quote, quote.who, quote.position)) + 2
            if size > room or (quote.who, folded(quote.quote)) in said:
                continue
            room -= size
        said.add((quote.who, folded(quote.quote)))
        held.append(quote)
    return held


class _Numbers(BaseModel):
    """Numbers of sentences, as a model answers."""

    model_config = ConfigDict(extra="ignore")

    wants: list[int] = []
    discussed: list[int] = []
    decided: list[int] = []
    pending: list[int] = []


def _request(row: DialogSummary, choice: Sequence[Quote], must: Sequence[Quote]) -> LLMRequest:
    nonce = new_nonce()
    keys = {quote.key for quote in must}
    numbers = [n for n, quote in enumerate(choice, 1) if quote.key in keys]
    lines = [f"{n}. {_quoted(q.quote, q.who, q.position)}" for n, q in enumerate(choice, 1)]
    text = render_prompt(
        "swarm/sentences", sentences=fence("SENTENCES", "\n".join(lines), nonce), pinned=", ".join(map(str, numbers))
    )
    return LLMRequest(
        role="actor",
        task="swarm_summary",
        model=row.agent.model_id,
        system=(Block(render_prompt("swarm/summary", characters=SUMMARY_CHARACTERS), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        schema=_SCHEMA,
        parse=lambda data: _chosen(data, choice, row.agent.display_name),
        example={"wants": [1], "discussed": [4, 2], "decided": [7], "pending": []},
        reask=True,
        max_tokens=MAX_TOKENS,
        retries=settings.LLM_EVALUATION_RETRIES,
        nonce=nonce,
        facts={
            "sentences": [quote.model_dump() for quote in choice],
            "pinned": numbers,
            "agent": row.agent.display_name,
        },
        label=Label(purpose="swarm", mechanism="summary", agent_id=row.agent_id, work_id=f"summary:{row.pk}"),
    )


def _chosen(data: Any, choice: Sequence[Quote], agent: str) -> list[Quote]:
    """The sentences of these numbers, each in one part, in the order of importance: what is discussed comes last.

    What the agent says is no wish of the person, and a question is no decision: these are discussed.
    """
    numbers = _Numbers.model_validate(data)
    chosen: dict[int, Quote] = {}
    parts: tuple[Part, ...] = ("wants", "decided", "pending", "discussed")
    for part in parts:
        for number in getattr(numbers, part):
            if not 1 <= number <= len(choice):
                raise InvalidAnswer(f"{part}: there is no sentence {number}; allowed: 1 to {len(choice)}")
            quote = choice[number - 1]
            claims = (part == "wants" and quote.who == agent) or (part == "decided" and only_asks(quote.quote))
            chosen.setdefault(number, quote.model_copy(update={"part": "discussed" if claims else part}))
    return list(chosen.values())


_SCHEMA = object_schema({name: {"type": "array", "items": {"type": "integer"}} for name in _Numbers.model_fields})

# -- offline
_WANTED = re.compile(
    r"(?i)\b(?:i|we)(?:'d| would)? (?:want|need|wish|hope|plan|like) to\b|\bmy goal\b|\b(?:trying|looking) (?:to|for)\b"
)
_DECIDED = re.compile(
    r"(?i)\b(?:decided|agreed|booked|chose|settled on|let's|(?:i|we)(?:'ll| will)|(?:i'm|i am|we're|we are) going (?:to|with|for))\b"
)
_DENIED = re.compile(r"(?i)\b(?:not|never|nobody|no one)\b|n[\u2019']t\b")


def offline(request: LLMRequest) -> Mapping[str, Any]:
    """Choose by rules (responder for the task ``swarm_summary``)."""
    facts = request.facts
    return choose([Quote(**one) for one in facts["sentences"]], facts["pinned"], agent=facts["agent"])


def choose(choice: Sequence[Quote], must: Sequence[int], *, agent: str) -> dict[str, list[int]]:
    """Numbers of sentences by part: what must be there, what the person wants, what was decided, and the rest by how much they tell."""
    numbers: dict[str, list[int]] = {part: [] for part in _Numbers.model_fields}
    for number in must:
        numbers[choice[number - 1].part].append(number)
    last, seen = max((quote.position for quote in choice), default=0), set[str]()
    repeated: list[int] = []
    free = [(number, quote) for number, quote in enumerate(choice, 1) if number not in must]
    for number, quote in sorted(free, key=lambda one: (_told(one[1].quote), one[1].position), reverse=True):
        text, words = quote.quote, vocabulary([quote.quote])
        if text.endswith("?") and quote.position == last and quote.who == agent:
            numbers["pending"] = [number]
        elif len(words & seen) >= LEAST_NEW * len(words):
            repeated.append(number)
        else:
            seen |= words
            wants = quote.who != agent and not text.endswith("?") and _WANTED.search(text)
            decides = _DECIDED.search(text) and not (only_asks(text) or _DENIED.search(text))
            numbers["wants" if wants else "decided" if decides else "discussed"].append(number)
    numbers["wants"].sort(reverse=True)  # the newest wishes
    for part, most in (("wants", MOST_WANTED), ("decided", MOST_DECIDED)):
        numbers["discussed"] += numbers[part][most:]
        del numbers[part][most:]
    numbers["discussed"] += repeated
    return numbers


def _told(sentence: str) -> float:
    """How much a sentence tells for its length: telling words, numbers and names; questions little."""
    words = tokenize(sentence)
    names = len(re.findall(r"(?<=[a-z,;:] )[A-Z][a-z]+", sentence))
    worth = 0.3 * min(12, len(vocabulary([sentence]))) + 2.0 * any(any(map(str.isdigit, word)) for word in words)
    worth += 1.0 * min(2, names) - 3.0 * sentence.endswith("?")
    return (worth if len(words) > 3 else worth - 3.0) / math.sqrt(len(sentence) + 30)
