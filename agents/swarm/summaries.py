"""Make the summaries of a conversation's older messages.

A summary is made of sentences that were said. A model, or offline a rule, chooses them by their numbers; the words between them are ours.
So a summary cannot state what nobody said. A worker makes one every few turns from the one before and the messages since. What is pinned
and was not chosen is added. A summary that is empty or reaches into the window is refused, and the one before stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet, prefetch_related_objects
from pydantic import BaseModel, ConfigDict

from agents.kit.llm import Block, InvalidAnswer, Label, LLMRequest, Turn, complete
from agents.kit.llm.providers import is_heuristic
from agents.kit.llm.requests import object_schema
from agents.kit.models.lease import LeaseLost
from agents.kit.text.fences import fence, new_nonce, one_line, render_prompt, safe_and_cut
from agents.kit.text.tokens import split_sentences, tokenize
from agents.kit.text.voices import vocabulary
from agents.kit.work.queues import carry_out, do_next, wake_workers
from agents.models import Agent, Channel, Message
from agents.swarm.models import DialogEntry, DialogState, DialogSummary
from agents.swarm.state import (
    MOST_CHARACTERS,
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
    updating,
    was_removed,
)
from agents.swarm.statements import only_asks

SUMMARY_CHARACTERS = 2_000  # of a summary's quotes, pinned ones aside
NOTE_CHARACTERS = 2_000  # of a summary that a person writes
MOST_MESSAGES = 400  # that one summary reads; the first one of a conversation reads the last of them
MAX_TOKENS = 1_000
LEASE = timedelta(minutes=5)  # longer than a call may take

Part = Literal["note", "wants", "discussed", "decided", "pending"]
PART_OF_KIND: Mapping[str, Part] = {"facts": "discussed", "assumptions": "discussed", "decisions": "decided"}
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
        """Return what names the quote, in the state and in summaries."""
        return key_of(self.position, self.quote)


# -- reading summaries
def newest_summary(agent: Agent, channel: Channel) -> DialogSummary | None:
    """Return the summary that is shown."""
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
    """Return what a summary is made of."""
    return [Quote.model_validate(quote) for quote in summary.quotes]


def text_of(summary: DialogSummary, state: DialogState) -> str:
    """Return the summary's text without what a person has removed from the state since it was made."""
    quotes = quotes_of(summary)
    kept = without_removed(quotes, state)
    return summary.text if len(kept) == len(quotes) else compose(kept)


def without_removed(quotes: Iterable[Quote], state: DialogState) -> list[Quote]:
    """Return the quotes without those that were removed from the state; notes stay."""
    rows = all_entries(state)
    return [quote for quote in quotes if quote.part == "note" or not was_removed(rows, quote.position, quote.quote)]


# -- writing their text
def compose(quotes: Iterable[Quote]) -> str:
    """Return the text of a summary: notes, then a sentence for each part that has quotes, in each the order of the conversation.

    For example ``User wants “…” (Ann, 3). Discussed “…” (Ann, 1) and “…” (Bo, 2). Decided on …. Pending: ….``
    """
    parts: dict[str, list[Quote]] = {}
    for quote in sorted(quotes, key=lambda quote: quote.position):
        parts.setdefault(quote.part, []).append(quote)
    sentences = [on_one_line(note.quote, NOTE_CHARACTERS) for note in parts.get("note", [])]
    beginnings = {"wants": "User wants", "discussed": "Discussed", "decided": "Decided on", "pending": "Pending:"}
    for part, beginning in beginnings.items():
        quoted = [as_quote(quote.quote, quote.who, quote.position) for quote in parts.get(part, [])]
        if not quoted:
            continue
        listed = quoted[-1]
        if len(quoted) > 1:
            listed = f"{', '.join(quoted[:-1])} and {quoted[-1]}"
        sentences.append(f"{beginning} {listed}.")
    return " ".join(sentences)


def as_quote(text: str, author: str, position: int, *, limit: int = MOST_CHARACTERS) -> str:
    """Return what was said as a quote that cannot end early or pass for another line."""
    return f"\u201c{on_one_line(text, limit)}\u201d ({one_line(author)}, {position})"


def on_one_line(text: str, limit: int) -> str:
    """Return a text on one line, shortened, with single quotation marks."""
    single_marks = {ord(mark): "'" for mark in '"\u201c\u201d\u201e'}
    line = " ".join(safe_and_cut(text).split()).translate(single_marks)
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "\u2026"


def refusal(text: str, *, to_position: int, window_from: int, held: Iterable[DialogEntry]) -> str:
    """Return why a summary may not replace the one before; empty when it may.

    Args:
        to_position: Of the last message it covers.
        window_from: Of the first message that is shown in full.
        held: What is pinned, or leaves into the summary. Of those from covered messages, the quote or the wording has to stand in it.
    """
    if not any(char.isalnum() for char in text):
        return "it is empty"
    if to_position >= window_from:
        return (
            f"it covers message {to_position}; allowed: messages before {window_from}, which the agent is shown in full"
        )
    folded_text = folded(text)
    for entry in held:
        quote = folded(on_one_line(entry.quote, MOST_CHARACTERS))
        wording = folded(on_one_line(entry.text, MOST_CHARACTERS))
        if entry.position <= to_position and quote not in folded_text and wording not in folded_text:
            return f"it lacks {as_quote(entry.quote, entry.author, entry.position)}, which is pinned"
    return ""


# -- making them
def queue_summary(state: DialogState) -> bool:
    """Queue a summary when one is due, every `SWARM_SUMMARY_EVERY` turns. Call it inside `updating`.

    Returns:
        Whether one was due; it is not while all messages are in the window. One up to the same message is queued once.
    """
    if state.turn % settings.SWARM_SUMMARY_EVERY:
        return False
    last = _last_before_window(messages_of(state.channel).filter(position__lte=state.position))
    if not last:
        return False
    row = DialogSummary(agent_id=state.agent_id, channel_id=state.channel_id, from_position=1, to_position=last)
    DialogSummary.objects.bulk_create([row], ignore_conflicts=True)
    transaction.on_commit(wake_workers)
    return True


def write_summary(agent: Agent, channel: Channel, text: str) -> DialogSummary:
    """Replace the summary by one that a person wrote. Later summaries begin with it.

    It covers all messages before the window. Entries that were only waiting for a summary to hold them are deleted.

    Raises:
        StateRefused: It is empty or too long, lacks a pinned entry, or there are no messages before the window.
    """
    text = text.strip()
    if len(text) > NOTE_CHARACTERS:
        raise StateRefused("summary", f"it has {len(text):,} characters; allowed: at most {NOTE_CHARACTERS:,}")
    with updating(agent, channel) as state:
        last = _last_before_window(messages_of(channel))
        if not last:
            raise StateRefused("summary", f"all messages are shown; allowed: with more than {settings.SWARM_WINDOW}")
        why = refusal(text, to_position=last, window_from=last + 1, held=pinned(state))
        if why:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryMaterial:
    """What a summary is made from.

    Attributes:
        base: The summary before; None for a conversation's first.
        from_position, to_position: Of the first and the last message that the new one covers.
        notes: Summaries that people wrote, which stay at its beginning.
        choice: The sentences that may be chosen, by position.
        must: Those among them that have to stand in it.
    """

    base: DialogSummary | None
    from_position: int
    to_position: int
    notes: list[Quote]
    choice: list[Quote]
    must: list[Quote]

    @property
    def since(self) -> int:
        """Return the position of the last message that the summary before covers."""
        return self.base.to_position if self.base else 0


def _summarise(row: DialogSummary, owner: str) -> Mapping[str, Any] | None:
    """Make a leased summary and store it, with one call of a model between two transactions.

    Returns:
        None when it is stored; else the columns with which the row ends: cancelled where a newer summary covers as much, failed where
        the call failed or the summary was refused, pending (to be tried again) where the one before changed during the call.

    Raises:
        LeaseLost: Another worker has the row.
    """
    base = newest_summary(row.agent, row.channel)
    if base is not None and base.to_position >= row.to_position:
        return {"status": Status.CANCELLED, "error": f"summary {base.pk} covers as much"}
    material = _gather(row, base)
    reply = complete(_request(row, material), deadline=settings.LLM_EVALUATION_DEADLINE)
    if not reply.ok:
        return {"status": Status.FAILED, "error": f"{reply.status}: {reply.error}"[:1000]}
    chosen: list[Quote] = reply.value
    if not chosen:
        return {"status": Status.FAILED, "error": "refused: it is empty"}
    chosen = _with_a_new_sentence(chosen, material, agent=row.agent.display_name)
    must_keys = {quote.key for quote in material.must}
    quotes = [*material.notes, *fitting(chosen, must_keys, since=material.since)]
    with updating(row.agent, row.channel) as state:
        is_outdated = newest_summary(row.agent, row.channel) != base  # a person, or another worker, was faster
        if is_outdated:
            return {"status": Status.PENDING}
        prefetch_related_objects([state], "entries")
        quotes = _with_pinned(without_removed(quotes, state), state, material.to_position)
        text = compose(quotes)
        window_from = _last_before_window(messages_of(row.channel)) + 1
        why = refusal(text, to_position=material.to_position, window_from=window_from, held=pinned(state))
        if why:
            return {"status": Status.FAILED, "error": f"refused: {why}"[:1000]}
        _store(row, owner, material, text=text, quotes=quotes, heuristic=is_heuristic(reply.model))
        drop_summarised(state, [quote.key for quote in quotes])
    return None


def _gather(row: DialogSummary, base: DialogSummary | None) -> SummaryMaterial:
    """Collect what a summary is made from: the quotes of the one before, the messages since, and what is pinned.

    At most `MOST_MESSAGES` are read, so the summary may end before the message that the row asks for.

    Args:
        base: The summary before; None for a conversation's first.
    """
    since = base.to_position if base else 0
    new_messages = messages_of(row.channel).filter(position__gt=since, position__lte=row.to_position)
    order = "position" if base else "-position"  # the first summary of a long conversation reads its last messages
    messages = sorted(new_messages.order_by(order)[:MOST_MESSAGES], key=lambda message: message.position)
    to_position = messages[-1].position if messages else row.to_position
    from_position = messages[0].position if messages else row.to_position
    if base is not None:
        from_position = base.from_position

    state = state_of(row.agent, row.channel)
    must = [quote for quote in _quotes_to_hold(state) if quote.position <= to_position]
    base_quotes = without_removed(quotes_of(base), state) if base else []
    base_sentences = [quote for quote in base_quotes if quote.part != "note"]
    return SummaryMaterial(
        base=base,
        from_position=from_position,
        to_position=to_position,
        notes=[quote for quote in base_quotes if quote.part == "note"],
        choice=without_removed(candidates(base_sentences, messages, must), state),
        must=must,
    )


def _with_a_new_sentence(chosen: list[Quote], material: SummaryMaterial, *, agent: str) -> list[Quote]:
    """Return what was chosen; where it is all old, with the sentence of the new messages that the rules choose first."""
    if any(quote.position > material.since for quote in chosen):
        return chosen
    new_sentences = [quote for quote in material.choice if quote.position > material.since]
    by_rules = _quotes_by_number(choose(new_sentences, must=(), agent=agent), new_sentences, agent)
    return [*chosen, *by_rules[:1]]


def _with_pinned(quotes: list[Quote], state: DialogState, to_position: int) -> list[Quote]:
    """Return the quotes and what else is pinned of the messages up to a position: people may have pinned more during the call."""
    keys = {quote.key for quote in quotes}
    missing = [quote for quote in _quotes_to_hold(state) if quote.position <= to_position and quote.key not in keys]
    return quotes + missing


def _store(
    row: DialogSummary, owner: str, material: SummaryMaterial, *, text: str, quotes: Sequence[Quote], heuristic: bool
) -> None:
    """Store a finished summary in its row; where it could not read all messages, queue one for the rest.

    Args:
        heuristic: Made by rules, without a model.

    Raises:
        LeaseLost: Another worker has the row.
    """
    wanted_to_position = row.to_position
    same_position = DialogSummary.objects.filter(
        agent=row.agent, channel=row.channel, to_position=material.to_position, origin=row.origin
    )
    same_position.exclude(pk=row.pk).delete()  # one that failed there, for there is one row for each position
    is_stored = row.finish(
        owner=owner,
        status=Status.COMPLETED,
        text=text,
        quotes=[quote.model_dump() for quote in quotes],
        from_position=material.from_position,
        to_position=material.to_position,
        heuristic=heuristic,
    )
    if not is_stored:
        raise LeaseLost(f"summary {row.pk} is not held by {owner} any more")
    if material.to_position < wanted_to_position:
        rest = DialogSummary(
            agent=row.agent,
            channel=row.channel,
            from_position=material.from_position,
            to_position=wanted_to_position,
        )
        DialogSummary.objects.bulk_create([rest], ignore_conflicts=True)


def messages_of(channel: Channel) -> QuerySet[Message]:
    """Return the messages of a channel, as `agents.turn.prompt.recent_messages` reads them."""
    messages = Message.objects.filter(channel=channel).select_related("agent", "user")
    return messages if channel.synthetic else messages.filter(synthetic=False)


def several_people_talk(channel: Channel) -> bool:
    """Return whether more than one person talked in a channel: then preferences of the conversation are not applied."""
    people = messages_of(channel).filter(agent=None).order_by().values_list("user", "outsider").distinct()
    return len(people[:2]) > 1


def _last_before_window(messages: QuerySet[Message]) -> int:
    """Return the position of the last message before the window; 0 when all are in it."""
    size = settings.SWARM_WINDOW
    positions = messages.order_by("-position").values_list("position", flat=True)
    return next(iter(positions[size : size + 1]), 0)


def _quotes_to_hold(state: DialogState) -> list[Quote]:
    """Return the facts, assumptions and decisions that are pinned, or stay only until a summary holds them, as quotes of one."""
    quotes: list[Quote] = []
    for entry in entries(state, *PART_OF_KIND):
        if entry.pinned or entry.leaving:
            part = PART_OF_KIND[entry.kind]
            quotes.append(Quote(part=part, position=entry.position, who=entry.author, quote=entry.quote))
    return quotes


# -- choosing sentences
def candidates(base_quotes: Iterable[Quote], messages: Iterable[Message], must: Iterable[Quote]) -> list[Quote]:
    """Return what a summary may be made of, by position: the last one's quotes, what must stand in it, each sentence said since.

    The same sentence of a message stands there once, in the part that `must` gives it, else in that of the last summary.
    """
    by_key = {quote.key: quote for quote in base_quotes}
    for message in messages:
        for sentence in split_sentences(message.text):
            quote = Quote(position=message.position, who=message.author_name, quote=shortened(sentence))
            by_key.setdefault(quote.key, quote)
    for quote in must:
        by_key[quote.key] = quote
    return sorted(by_key.values(), key=lambda quote: quote.position)


def fitting(
    chosen: Sequence[Quote], must: set[QuoteKey], *, room: int = SUMMARY_CHARACTERS, since: int | None = None
) -> list[Quote]:
    """Return those of the chosen quotes, in their order, that fit into a summary; what must stand in it, and notes, always do.

    What one author says again in the same words stands there once. A quote that is too long is left out; shorter ones after it may fit.

    Args:
        must: Keys of the quotes that have to stand in it; they take none of the room.
        room: Characters for the others.
        since: The first sentence from after this position comes before all others: else old ones that tell more could leave no room
            for it. None: the order stays.
    """
    if since is not None:
        chosen = _first_new_one_ahead(chosen, since)
    fitted: list[Quote] = []
    seen: set[tuple[str, str]] = set()  # author and folded words
    for quote in chosen:
        words = (quote.who, folded(quote.quote))
        if quote.key not in must and quote.part != "note":
            size = len(as_quote(quote.quote, quote.who, quote.position)) + len(", ")
            if size > room or words in seen:
                continue
            room -= size
        seen.add(words)
        fitted.append(quote)
    return fitted


def _first_new_one_ahead(chosen: Sequence[Quote], since: int) -> list[Quote]:
    """Return the quotes, the first of them that was said after a position moved to the beginning; a pending question is not moved."""
    for quote in chosen:
        if quote.position > since and quote.part != "pending":
            return [quote, *(other for other in chosen if other != quote)]
    return list(chosen)


class SentenceNumbers(BaseModel):
    """Numbers of sentences by part of a summary, as a model answers."""

    model_config = ConfigDict(extra="ignore")

    wants: list[int] = []
    discussed: list[int] = []
    decided: list[int] = []
    pending: list[int] = []


CHOSEN_PARTS = tuple(SentenceNumbers.model_fields)
_SCHEMA = object_schema({name: {"type": "array", "items": {"type": "integer"}} for name in CHOSEN_PARTS})


def _request(row: DialogSummary, material: SummaryMaterial) -> LLMRequest:
    """Return the request for the numbers of the sentences to choose; its answer is parsed to quotes by `_quotes_by_number`.

    The sentences are numbered from 1; those that have to stand in the summary are named by their numbers, too.
    """
    choice = material.choice
    agent = row.agent.display_name
    nonce = new_nonce()
    must_keys = {quote.key for quote in material.must}
    must_numbers = [number for number, quote in enumerate(choice, 1) if quote.key in must_keys]
    lines = [f"{number}. {as_quote(quote.quote, quote.who, quote.position)}" for number, quote in enumerate(choice, 1)]
    text = render_prompt(
        "swarm/sentences",
        sentences=fence("SENTENCES", "\n".join(lines), nonce),
        pinned=", ".join(map(str, must_numbers)),
    )
    return LLMRequest(
        role="actor",
        task="swarm_summary",
        model=row.agent.model_id,
        system=(Block(render_prompt("swarm/summary", characters=SUMMARY_CHARACTERS), cache=True),),
        turns=(Turn("user", (Block(text),)),),
        schema=_SCHEMA,
        parse=lambda answer: _quotes_by_number(answer, choice, agent),
        example={"wants": [1], "discussed": [4, 2], "decided": [7], "pending": []},
        reask=True,
        max_tokens=MAX_TOKENS,
        retries=settings.LLM_EVALUATION_RETRIES,
        nonce=nonce,
        facts={"sentences": [quote.model_dump() for quote in choice], "pinned": must_numbers, "agent": agent},
        label=Label(purpose="swarm", mechanism="summary", agent_id=row.agent_id, work_id=f"summary:{row.pk}"),
    )


def _quotes_by_number(answer: Any, choice: Sequence[Quote], agent: str) -> list[Quote]:
    """Return the sentences of these numbers, each in one part, in the order of importance: what is discussed comes last.

    What the agent says is no wish of the person, and a question is no decision: these are discussed.

    Args:
        answer: Numbers by part, as in `SentenceNumbers`; the first sentence is number 1.
        agent: The agent's name, as in `Quote.who`.

    Raises:
        InvalidAnswer: There is no sentence of a number.
        ValidationError: The answer is something else.
    """
    numbers = SentenceNumbers.model_validate(answer)
    chosen: dict[int, Quote] = {}
    parts: tuple[Part, ...] = ("wants", "decided", "pending", "discussed")
    for part in parts:
        for number in getattr(numbers, part):
            if not 1 <= number <= len(choice):
                raise InvalidAnswer(f"{part}: there is no sentence {number}; allowed: 1 to {len(choice)}")
            quote = choice[number - 1]
            is_no_wish = part == "wants" and quote.who == agent
            is_no_decision = part == "decided" and only_asks(quote.quote)
            its_part = "discussed" if is_no_wish or is_no_decision else part
            chosen.setdefault(number, quote.model_copy(update={"part": its_part}))
    return list(chosen.values())


# -- offline
MOST_WANTED = 2  # wishes that the rules choose
MOST_DECIDED = 6  # decisions that they choose
LEAST_REPEATED = 0.6  # a sentence comes last when this share of its words stands in others
SHORTEST_TELLING = 4  # words; shorter sentences tell little

_STATES_WISH = re.compile(
    r"(?i)\b(?:i|we)(?:'d| would)? (?:want|need|wish|hope|plan|like) to\b|\bmy goal\b|\b(?:trying|looking) (?:to|for)\b"
)
_STATES_DECISION = re.compile(
    r"(?i)\b(?:decided|agreed|booked|chose|settled on|let's|(?:i|we)(?:'ll| will)|(?:i'm|i am|we're|we are) going (?:to|with|for))\b"
)
_DENIES = re.compile(r"(?i)\b(?:not|never|nobody|no one)\b|n[\u2019']t\b")
_NAME_IN_SENTENCE = re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+")


def offline(request: LLMRequest) -> Mapping[str, Any]:
    """Choose by rules (responder for the task ``swarm_summary``)."""
    facts = request.facts
    sentences = [Quote(**quote) for quote in facts["sentences"]]
    return choose(sentences, facts["pinned"], agent=facts["agent"])


def choose(choice: Sequence[Quote], must: Sequence[int], *, agent: str) -> dict[str, list[int]]:
    """Return numbers of sentences by part: what must be there, what the person wants, what was decided, and the rest.

    The rest is ordered by how much each sentence tells; then come the wishes and decisions beyond `MOST_WANTED` and `MOST_DECIDED`,
    and last the sentences that repeat others. Pending is at most one question: of the agent, in the last message.

    Args:
        must: Numbers of sentences that are chosen in any case, in the part that they have. The first sentence is number 1.
        agent: The agent's name, as in `Quote.who`.
    """
    numbers: dict[str, list[int]] = {part: [] for part in CHOSEN_PARTS}
    for number in must:
        numbers[choice[number - 1].part].append(number)
    last_position = max((quote.position for quote in choice), default=0)
    repeated: list[int] = []
    words_so_far: set[str] = set()
    for number in _most_telling_first(choice, without=must):
        quote = choice[number - 1]
        words = vocabulary([quote.quote])
        if quote.quote.endswith("?") and quote.position == last_position and quote.who == agent:
            numbers["pending"] = [number]
        elif len(words & words_so_far) >= LEAST_REPEATED * len(words):
            repeated.append(number)
        else:
            words_so_far |= words
            numbers[_part_of(quote, agent)].append(number)
    numbers["wants"].sort(reverse=True)  # the newest wishes
    for part, most in (("wants", MOST_WANTED), ("decided", MOST_DECIDED)):
        numbers["discussed"] += numbers[part][most:]
        del numbers[part][most:]
    numbers["discussed"] += repeated
    return numbers


def _most_telling_first(choice: Sequence[Quote], *, without: Sequence[int]) -> list[int]:
    """Return the numbers of the sentences but for some, by how much they tell; of equal ones the newer first."""
    numbers = [number for number in range(1, len(choice) + 1) if number not in without]

    def rank(number: int) -> tuple[float, int]:
        quote = choice[number - 1]
        return _information_in(quote.quote), quote.position

    return sorted(numbers, key=rank, reverse=True)


def _part_of(quote: Quote, agent: str) -> str:
    """Return where a sentence belongs: a wish of the person, a decision, or what was discussed."""
    text = quote.quote
    if quote.who != agent and not text.endswith("?") and _STATES_WISH.search(text):
        return "wants"
    if _STATES_DECISION.search(text) and not only_asks(text) and not _DENIES.search(text):
        return "decided"
    return "discussed"


def _information_in(sentence: str) -> float:
    """Return how much a sentence tells for its length: telling words, a number and names count, questions and a few words little.

    Names are words with a capital inside the sentence. The root of the length favours short sentences, but not the shortest.
    """
    words = tokenize(sentence)
    worth = 0.3 * min(12, len(vocabulary([sentence])))
    if any(char.isdigit() for word in words for char in word):
        worth += 2.0
    worth += min(2, len(_NAME_IN_SENTENCE.findall(sentence)))
    if sentence.endswith("?"):
        worth -= 3.0
    if len(words) < SHORTEST_TELLING:
        worth -= 3.0
    return worth / math.sqrt(len(sentence) + 30)
