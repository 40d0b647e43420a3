"""Self-consistency (S-6.2): does the agent still sound like itself? Pairs of now and before, the persona withheld."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import log
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from agents.kit.text.authors import NameMask, Voice, learn_voice, own_voice
from agents.kit.text.tokens import tokenize
from agents.kit.text.wording import counted
from agents.models import Agent, Message
from evaluation.scorers.context import Context, Event, Window
from evaluation.scorers.foils import load_foils
from evaluation.scorers.reading import read_plain_messages
from evaluation.scorers.selection import synthetic_only
from evaluation.scorers.subjects import Halves, Item, Subject

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

SAID_BEFORE = 2  # messages of the channel shown before each message of a pair
NEAR = 8  # positions looked at before a message
READ_AHEAD = 50  # messages that share a query

MOST_PAIRS = 10
POOL = 500  # most earlier messages of a channel that are looked at, drawn with the seed: any history costs the same


def find_pairs(halves: Halves, *, seed: int) -> list[tuple[int, int]]:
    """Return up to ten pairs of ids: messages of now drawn with the seed, each with the nearest of its channel's history, none used twice.

    Nearness is the share of words two messages have in common, rare words counting more (weighted Jaccard, weights
    ``log((1 + n) / df)`` over the channel's pool). Of equally near messages the latest is chosen.
    """
    channel_of = halves.channel_of
    history: dict[int, list[int]] = defaultdict(list)
    for pk in halves.history:
        history[channel_of[pk]].append(pk)
    comparable = [pk for pk in halves.current if channel_of[pk] in history]
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    current: dict[int, list[int]] = defaultdict(list)
    for pk in _draw(comparable, MOST_PAIRS, rng):
        current[channel_of[pk]].append(pk)
    pools = {channel: _draw(history[channel], POOL, rng) for channel in current}
    words = _words_of([*chain(*current.values()), *chain(*pools.values())])  # at most 10 and 10 times POOL
    pairs: list[tuple[int, int]] = []
    for channel, keys in current.items():
        pairs += _match(keys, pools[channel], words)
    return sorted(pairs, key=lambda pair: halves.current.index(pair[0]))


def _draw(keys: list[int], most: int, rng: random.Random) -> list[int]:
    """Draw at most so many at random, in their order."""
    if len(keys) <= most:
        return keys
    return [keys[index] for index in sorted(rng.sample(range(len(keys)), most))]


def _words_of(keys: Sequence[int]) -> dict[int, frozenset[str]]:
    """Return the words of messages, by primary key."""
    texts = Message.objects.filter(pk__in=keys).order_by().values_list("pk", "text")
    return {pk: frozenset(tokenize(text)) for pk, text in texts}


def _match(current: list[int], pool: list[int], words: Mapping[int, frozenset[str]]) -> list[tuple[int, int]]:
    """Pair each current message with the nearest of the pool, each of which is used once; without more of them the rest stays unpaired.

    Nearness is the share of words in common, by weight: see `find_pairs`. A word that is not in the pool weighs most.
    """
    frequency: Counter[str] = Counter()
    for pk in pool:
        frequency.update(words[pk])
    weights = {word: log((1 + len(pool)) / count) for word, count in frequency.items()}
    weight_of_unknown = log(1 + len(pool))

    def total_weight(group: frozenset[str]) -> float:
        # Sorted, because the last digits of a sum depend on the order.
        return sum(weights.get(word, weight_of_unknown) for word in sorted(group))

    def nearness(pk: int, other: int) -> float:
        all_words = total_weight(words[pk] | words[other])
        if not all_words:
            return 0.0
        return total_weight(words[pk] & words[other]) / all_words

    unused = list(pool)
    pairs: list[tuple[int, int]] = []
    for pk in current:
        if not unused:
            break
        # Of equally near ones the latest, which has the highest index.
        nearest = max(range(len(unused)), key=lambda index: (nearness(pk, unused[index]), index))
        pairs.append((pk, unused.pop(nearest)))
    return pairs


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Plan every proposition on every pair (AC-6.2.3, AC-6.2.4); with no pair once each, to say why it cannot be judged (AC-6.2.6).

    Nothing where the agent says nothing in the window.
    """
    halves = subject.halves()
    if not halves.current:
        return []
    pairs = find_pairs(halves, seed=subject.seed)
    if not pairs:
        return [Item(proposition) for proposition in propositions]
    items: list[Item] = []
    for current, earlier in pairs:
        items += [Item(proposition, current, earlier) for proposition in propositions]
    return items


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """Return the two messages, each after what was said just before it; never the persona (AC-6.2.4).

    The voice is measured only for the offline judge; a model is not shown it.

    Raises:
        ValueError: One of the two messages is missing.
    """
    if message is None or earlier is None:
        raise ValueError("consistency is judged pair by pair")
    before = _moment(subject, earlier)
    now = _moment(subject, message)
    measured = None
    if subject.heuristic:
        measured = {"voice": _measure_voice(now.events[-1].text, subject)}
    return Context(
        agent_name=subject.agent.display_name,
        pair=(before, now),
        channel_name=str(message.channel),
        measured=measured,
    )


# -- the voice, for the offline judge
# Earlier messages of the agent: fewer do not tell own messages from swapped ones (`make bench`, section voice).
LEAST_OWN = 10
LEAST_EACH = 5  # messages of another speaker that make a voice
# Other speakers: against one outsider, or stock voices alone, all that a model writes looks like its own.
LEAST_VOICES = 2
MOST_OWN = 200  # newest messages of the agent
MOST_HEARD = 100  # newest messages of others in each channel
MOST_CHANNELS = 20
MOST_CHARACTERS = 2_000  # of a message


@dataclass(frozen=True, slots=True)
class Voices:
    """The voice of an agent before the window, against the other speakers of its channels. Without a `voice`, `why` there is none."""

    voice: Voice | None
    mask: NameMask
    beside: str = ""
    why: str = ""


def _measure_voice(text: str, subject: Subject) -> dict[str, Any]:
    """Measure how likely the agent said this. The voices are learned with the first text, and kept in `subject`.

    Returns:
        ``own`` (0 to 1) with what that rests on, or ``why`` it cannot be said. ``odd`` names up to three features of style in which the
        text lies at least two spreads from the agent's mean.
    """
    if subject.voices is None:
        subject.voices = _learn_voices(subject)
    voices = subject.voices
    if voices.voice is None:
        return {"why": voices.why}
    own, deviations = own_voice(_masked(text, voices.mask), voices.voice)
    unusual = [name for name, spreads in deviations.items() if spreads >= 2]
    return {
        "own": own,
        "odd": unusual[:3],
        "messages": voices.voice.messages,
        "others": voices.voice.others,
        "beside": voices.beside,
    }


Speaker = tuple[int | None, str]  # an agent's id, or None and the name of an outsider


def _learn_voices(subject: Subject) -> Voices:
    """Learn the agent's voice from its newest earlier messages, and the others' from what was said in the same channels until then.

    Others are agents and outsiders with at least five messages. Where fewer than two of them are agents, foils join them: people write
    unlike any agent.

    Returns:
        Without a voice, with the reason, for fewer than ten messages of the agent, for no other agent and fewer than two outsiders, and
        where its messages cannot be distinguished from those of the others.
    """
    history = subject.halves().history[-MOST_OWN:]
    messages = list(Message.objects.filter(pk__in=history).order_by("pk").values_list("text", "channel", "position"))
    own = [text[:MOST_CHARACTERS] for text, _, _ in messages]
    # What is tested is not learned from. Of a swapped text that was deleted (None) nothing is left.
    tested = {(text or "")[:MOST_CHARACTERS] for text in subject.swapped.values()}
    texts_by_speaker = _texts_of_others(subject, [(channel, position) for _, channel, position in messages], tested)
    mask = _name_mask(subject, texts_by_speaker)
    if len(own) < LEAST_OWN:
        why = f"a voice shows across at least {LEAST_OWN} earlier messages, there {'is' if len(own) == 1 else 'are'} {len(own)}"
        return Voices(None, mask, why=why)
    others = {speaker: texts for speaker, texts in texts_by_speaker.items() if len(texts) >= LEAST_EACH}
    agents = sum(agent is not None for agent, _ in others)
    if not agents and len(others) < LEAST_VOICES:
        return Voices(None, mask, why=_why_no_others(len(others)))
    stock: list[list[str]] = []
    if agents < LEAST_VOICES:
        stock = _stock_voices(tested)
    beside = _name_others(agents=agents, outsiders=len(others) - agents, stock=len(stock))
    masked_own = [_masked(text, mask) for text in own]
    masked_others: list[list[str]] = []
    for texts in (*others.values(), *stock):
        masked_others.append([_masked(text, mask) for text in texts])
    voice = learn_voice(masked_own, masked_others)
    if voice is None:
        why = f"the agent's earlier messages cannot be distinguished from those of {beside} by how they are written"
        return Voices(None, mask, beside, why)
    return Voices(voice, mask, beside)


def _why_no_others(outsiders: int) -> str:
    """Return why an agent has no voice, where no other agent and too few outsiders speak."""
    others = "only 1 outsider has so many" if outsiders else "nobody has so many"
    return (
        f"a voice is distinguished from another agent's, or from {LEAST_VOICES} other speakers', with {LEAST_EACH} earlier messages each "
        f"in the agent's channels; here {others}"
    )


def _texts_of_others(
    subject: Subject, positions: Sequence[tuple[int, int]], tested: Collection[str]
) -> dict[Speaker, list[str]]:
    """Return what others said in the agent's busiest channels before its last message there, by who said it.

    Of each of up to 20 channels the newest 100 messages, cut to 2,000 characters. Simulated speech is not among it, unless the tags of the
    history name a conversation.

    Args:
        positions: Channel and position of the agent's messages.
        tested: Texts to leave out.
    """
    last_position: dict[int, int] = {}
    for channel, position in positions:
        last_position[channel] = max(position, last_position.get(channel, 0))
    busiest = Counter(channel for channel, _ in positions).most_common(MOST_CHANNELS)
    by_speaker: dict[Speaker, list[str]] = defaultdict(list)
    for channel, _ in busiest:
        messages = Message.objects.filter(channel=channel, position__lt=last_position[channel], text__regex=r"\S")
        messages = messages.filter(**synthetic_only(subject.history_where, simulated=False)).order_by("-position")
        for message in read_plain_messages(messages.exclude(agent=subject.agent)[:MOST_HEARD]):
            text = message.text[:MOST_CHARACTERS]
            if text not in tested:
                outsider = "" if message.agent_id else message.author_name
                by_speaker[message.agent_id, outsider].append(text)
    return by_speaker


def _name_mask(subject: Subject, speakers: Iterable[Speaker]) -> NameMask:
    """Return the mask of the names of all who speak: they would give a speaker away."""
    keys = [subject.agent.pk]
    names: list[str] = []
    for agent, outsider in speakers:
        if agent:
            keys.append(agent)
        names.append(outsider)
    agent_names: list[str] = []
    for slug, display_name in Agent.objects.filter(pk__in=keys).values_list("slug", "display_name"):
        agent_names += [slug, display_name]
    return NameMask([*agent_names, *names])


def _stock_voices(tested: Collection[str]) -> list[list[str]]:
    """Return the texts of the foils without those that are tested; not of foils that then have too few to make a voice."""
    stock: list[list[str]] = []
    for texts in load_foils().values():
        usable = [text for text in texts if text not in tested]
        if len(usable) >= LEAST_EACH:
            stock.append(usable)
    return stock


def _name_others(*, agents: int, outsiders: int, stock: int) -> str:
    """Say how many voices of each kind the agent's is compared with, e.g. ``1 other agent and 4 stock voices``."""
    parts: list[str] = []
    if agents:
        parts.append(counted(agents, "other agent"))
    if outsiders:
        parts.append(counted(outsiders, "outsider"))
    if stock:
        parts.append(counted(stock, "stock voice"))
    return " and ".join(parts)


def _masked(text: str, mask: NameMask) -> str:
    return " ".join(mask(text[:MOST_CHARACTERS]).split())


# -- what is shown


def read_ahead(subject: Subject, messages: Iterable[Message]) -> None:
    """Read what was said just before each of up to 50 messages in one query, where `context` would ask for each.

    It is kept in `subject.before`, as events. The other messages, and those before which something was deleted, are left to `context`.
    """
    next_messages = [message for message in messages if message.pk not in subject.before][:READ_AHEAD]
    if not next_messages:
        return
    positions: dict[int, set[int]] = {}
    for message in next_messages:
        positions.setdefault(message.channel_id, set()).update(range(message.position - NEAR, message.position))
    near = Q()
    for channel, looked_at in positions.items():
        near |= Q(channel=channel, position__in=sorted(looked_at))
    kind = synthetic_only(subject.where, subject.simulated)
    neighbours = read_plain_messages(Message.objects.filter(near, **kind).order_by("position"))
    for message in next_messages:
        just_before = [
            neighbour
            for neighbour in neighbours
            if neighbour.channel_id == message.channel_id and 0 < message.position - neighbour.position <= NEAR
        ]
        # Else something was deleted: `context` looks further.
        if len(just_before) >= SAID_BEFORE or message.position <= NEAR:
            subject.before[message.pk] = tuple(subject.event(neighbour) for neighbour in just_before[-SAID_BEFORE:])


def _moment(subject: Subject, message: Message) -> Window:
    """Return a message after the two messages that were said just before it in its channel; as many as there are."""
    before = subject.before.get(message.pk)
    if before is None:
        earlier = Message.objects.filter(
            channel=message.channel_id, position__lt=message.position, synthetic=message.synthetic
        )
        newest = read_plain_messages(earlier.order_by("-position")[:SAID_BEFORE])
        before = tuple(subject.event(neighbour) for neighbour in reversed(newest))
    own = Event("action", subject.agent.display_name, message.text)
    return Window((*before, own), 0, ())


def not_evaluable(subject: Subject) -> str:
    """Return why nothing can be judged for this dimension; empty when it can. A beginner has no past to be true to (AC-6.2.6)."""
    halves = subject.halves()
    if not halves.current:
        return subject.why_silent()
    if not halves.history and subject.simulated:
        return "not evaluable: what was simulated has no past"
    if not halves.history:
        return "not evaluable: the agent said nothing before this window that it could be compared with"
    past = {halves.channel_of[pk] for pk in halves.history}
    if not any(halves.channel_of[pk] in past for pk in halves.current):
        return "not evaluable: no channel has messages of the agent both in the window and in its history"
    return ""
