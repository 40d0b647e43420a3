"""Self-consistency (S-6.2): does the agent still sound like itself? Pairs of now and before, the persona withheld."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

from django.db.models import Q

from agents.kit.text.authors import NameMask, Voice, learn_voice, own_voice
from agents.kit.text.tokens import tokenize
from agents.kit.text.wording import counted
from agents.models import Agent, Message
from evaluation.scorers.foils import load_foils
from evaluation.scorers.subjects import Context, Event, Halves, Item, Subject, Window, said, synthetic_only

if TYPE_CHECKING:
    from evaluation.propositions.schema import Proposition

SAID_BEFORE = 2  # messages of the channel shown before each message of a pair
NEAR, READ_AHEAD = 8, 50  # positions looked at before a message; messages that share a query


MOST_PAIRS = 10
POOL = 500  # most earlier messages of a channel that are looked at, drawn with the seed: any history costs the same


def find_pairs(halves: Halves, *, seed: int) -> list[tuple[int, int]]:
    """Up to ten pairs of ids: messages of now drawn with the seed, each with the nearest of its channel's history, none used twice.

    Nearness is the share of words two messages have in common, rare words counting more (weighted Jaccard, weights
    ``log((1 + n) / df)`` over the channel's pool). Of equally near messages the latest is chosen.
    """
    channel_of = halves.channel_of
    pools: dict[int, list[int]] = defaultdict(list)
    for pk in halves.history:
        pools[channel_of[pk]].append(pk)
    comparable = [pk for pk in halves.current if channel_of[pk] in pools]
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    drawn = _drawn(comparable, MOST_PAIRS, rng)
    by_channel: dict[int, list[int]] = defaultdict(list)
    for pk in drawn:
        by_channel[channel_of[pk]].append(pk)
    pools = {channel: _drawn(pools[channel], POOL, rng) for channel in by_channel}
    needed = [*drawn, *(pk for pool in pools.values() for pk in pool)]  # at most 10 and 10 times POOL
    texts = Message.objects.filter(pk__in=needed).order_by().values_list("pk", "text")
    words = {pk: frozenset(tokenize(text)) for pk, text in texts}
    pairs = [pair for channel, current in by_channel.items() for pair in _match(current, pools[channel], words)]
    return sorted(pairs, key=lambda pair: halves.current.index(pair[0]))


def _drawn(ids: list[int], most: int, rng: random.Random) -> list[int]:
    if len(ids) <= most:
        return ids
    return [ids[i] for i in sorted(rng.sample(range(len(ids)), most))]


def _match(current: list[int], pool: list[int], words: Mapping[int, frozenset[str]]) -> list[tuple[int, int]]:
    frequency = Counter(word for pk in pool for word in words[pk])
    weight = {word: log((1 + len(pool)) / count) for word, count in frequency.items()}
    rarest = log(1 + len(pool))
    left, pairs = dict.fromkeys(pool), []

    def nearness(a: frozenset[str], b: frozenset[str]) -> float:
        shared, all_words = (sum(weight.get(word, rarest) for word in sorted(group)) for group in (a & b, a | b))
        return shared / all_words if all_words else 0.0

    for pk in current:
        if not left:
            break
        _, _, nearest = max((nearness(words[pk], words[other]), place, other) for place, other in enumerate(left))
        left.pop(nearest)
        pairs.append((pk, nearest))
    return pairs


def plan(subject: Subject, propositions: Sequence[Proposition]) -> list[Item]:
    """Every proposition on every pair (AC-6.2.3, AC-6.2.4); with no pair once each, to say why it cannot be judged (AC-6.2.6)."""
    halves = subject.halves()
    pairs = find_pairs(halves, seed=subject.seed)
    if not pairs:
        return [Item(proposition) for proposition in propositions] if halves.current else []
    return [Item(p, current, earlier) for current, earlier in pairs for p in propositions]


def context(
    subject: Subject, proposition: Proposition, message: Message | None, earlier: Message | None = None
) -> Context:
    """The two messages, each after what was said just before it; never the persona (AC-6.2.4)."""
    if message is None or earlier is None:
        raise ValueError("consistency is judged pair by pair")
    before, now = _moment(subject, earlier), _moment(subject, message)
    return Context(
        agent_name=subject.agent.display_name,
        pair=(before, now),
        channel_name=str(message.channel),
        measured={"voice": _voice_of(now.events[-1].text, subject)} if subject.heuristic else None,
    )


# -- the voice, for the offline judge
# Earlier messages of the agent: fewer do not tell own messages from swapped ones (`make bench`, section voice).
LEAST_OWN = 10
LEAST_EACH = 5  # messages of another speaker that make a voice
LEAST_VOICES = (
    2  # other speakers: against one outsider, or stock voices alone, all that a model writes looks like its own
)
MOST_OWN, MOST_HEARD, MOST_CHANNELS = 200, 100, 20  # newest messages of the agent, of each channel, and channels
MOST_CHARACTERS = 2_000  # of a message


@dataclass(frozen=True, slots=True)
class Voices:
    """How an agent spoke before the window, beside the other speakers of its channels. Without a `voice`, `why` there is none."""

    voice: Voice | None
    mask: NameMask
    beside: str = ""
    why: str = ""


def _voice_of(text: str, subject: Subject) -> dict[str, Any]:
    """How surely the agent said this: ``own`` (0 to 1) with what that rests on, or ``why`` it cannot be said."""
    heard = subject.voices = subject.voices or _hear(subject)
    if (voice := heard.voice) is None:
        return {"why": heard.why}
    own, deviations = own_voice(_masked(text, heard.mask), voice)
    odd = [name for name, spreads in deviations.items() if spreads >= 2][:3]
    return {"own": own, "odd": odd, "messages": voice.messages, "others": voice.others, "beside": heard.beside}


def _hear(subject: Subject) -> Voices:
    """Learn the agent's voice from its newest earlier messages, and the others' from what was said in the same channels until then.

    Others are agents and outsiders. Where fewer than two of them are agents, foils join them: people write unlike any agent.
    """
    history = subject.halves().history[-MOST_OWN:]
    rows = Message.objects.filter(pk__in=history).order_by("pk").values_list("text", "channel", "position")
    own = [text[:MOST_CHARACTERS] for text, _, _ in rows]
    until: dict[int, int] = {}
    for _, channel, position in rows:
        until[channel] = max(position, until.get(channel, 0))
    busiest = Counter(channel for _, channel, _ in rows).most_common(MOST_CHANNELS)
    judged = {(text or "")[:MOST_CHARACTERS] for text in subject.swapped.values()}  # what is tested is not learned from
    by_speaker: dict[tuple[int | None, str], list[str]] = defaultdict(list)  # agents by their id, others by name
    for channel, _ in busiest:
        there = Message.objects.filter(channel=channel, position__lt=until[channel], text__regex=r"\S")
        there = there.filter(**synthetic_only(subject.history_where, simulated=False)).order_by("-position")
        for message in said(there.exclude(agent=subject.agent)[:MOST_HEARD]):
            text = message.text[:MOST_CHARACTERS]
            if text not in judged:
                speaker = "" if message.agent_id else message.author_name
                by_speaker[message.agent_id, speaker].append(text)
    heard = {speaker: texts for speaker, texts in by_speaker.items() if len(texts) >= LEAST_EACH}
    agents = sum(agent is not None for agent, _ in heard)
    named = Agent.objects.filter(pk__in=[subject.agent.pk, *(agent for agent, _ in by_speaker if agent)])
    names = [name for both in named.values_list("slug", "display_name") for name in both]
    mask = NameMask([*names, *(name for _, name in by_speaker)])
    if len(own) < LEAST_OWN:
        why = f"a voice shows across at least {LEAST_OWN} earlier messages, there are {len(own)}"
        return Voices(None, mask, why=why)
    if not agents and len(heard) < LEAST_VOICES:
        why = (
            f"a voice is told apart from another agent's, or from {LEAST_VOICES} other speakers', with {LEAST_EACH} earlier messages each "
            f"in the agent's channels; here {'only 1 outsider has so many' if heard else 'nobody has so many'}"
        )
        return Voices(None, mask, why=why)
    others = [counted(agents, "other agent")] if agents else []
    if outsiders := len(heard) - agents:
        others.append(counted(outsiders, "outsider"))
    voices = list(heard.values())
    if agents < LEAST_VOICES:
        stock = [[text for text in texts if text not in judged] for texts in load_foils().values()]
        stock = [texts for texts in stock if len(texts) >= LEAST_EACH]
        voices += stock
        others += [counted(len(stock), "stock voice")] if stock else []
    beside = " and ".join(others)
    masked = [[_masked(text, mask) for text in texts] for texts in (own, *voices)]
    voice = learn_voice(masked[0], masked[1:])
    why = "" if voice else f"the agent's earlier messages cannot be told from those of {beside} by how they are written"
    return Voices(voice, mask, beside, why)


def _masked(text: str, mask: NameMask) -> str:
    return " ".join(mask(text[:MOST_CHARACTERS]).split())


# -- what is shown


def read_ahead(subject: Subject, messages: Iterable[Message]) -> None:
    """Read what was said just before each of many messages in one query, where `context` would ask for each."""
    wanted = [message for message in messages if message.pk not in subject.before][:READ_AHEAD]
    if not wanted:
        return
    positions: dict[int, set[int]] = {}
    for message in wanted:
        positions.setdefault(message.channel_id, set()).update(range(message.position - NEAR, message.position))
    near = Q()
    for channel, looked_at in positions.items():
        near |= Q(channel=channel, position__in=sorted(looked_at))
    shown = synthetic_only(subject.where, subject.simulated)
    around = said(Message.objects.filter(near, **shown).order_by("position"))
    for message in wanted:
        there = (s for s in around if s.channel_id == message.channel_id)
        near_it = [s for s in there if 0 < message.position - s.position <= NEAR]
        # Else something was deleted: `context` looks further.
        if len(near_it) >= SAID_BEFORE or message.position <= NEAR:
            subject.before[message.pk] = tuple(map(subject.event, near_it[-SAID_BEFORE:]))


def _moment(subject: Subject, message: Message) -> Window:
    before = subject.before.get(message.pk)
    if before is None:
        around = Message.objects.filter(
            channel=message.channel_id, position__lt=message.position, synthetic=message.synthetic
        )
        newest = said(around.order_by("-position")[:SAID_BEFORE])
        before = tuple(subject.event(one) for one in reversed(newest))
    own = Event("action", subject.agent.display_name, message.text)
    return Window((*before, own), 0, ())


def not_evaluable(subject: Subject) -> str:
    """Why nothing can be judged for this dimension; empty when it can. A beginner has no past to be true to (AC-6.2.6)."""
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
