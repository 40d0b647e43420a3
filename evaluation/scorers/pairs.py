"""Pairs of an agent's messages from comparable contexts: the same channel, and in it the nearest in topic (AC-6.2.1 to AC-6.2.3)."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log

from agents.models import Agent, Message
from agents.text.tokens import tokenize
from evaluation.windows import BEFORE, MessageWindow, said_before, spoken_by

MOST_PAIRS = 10
POOL = 500  # most earlier messages of a channel that are looked at, drawn with the seed: any history costs the same


@dataclass(frozen=True, slots=True)
class Halves:
    """Ids of an agent's messages now and in its history, each oldest first. No message stands in both."""

    current: tuple[int, ...]
    history: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Ids of two messages to compare, and how near in topic they are, 0 to 1."""

    current: int
    earlier: int
    nearness: float


def halves(
    *,
    agent: Agent,
    window: MessageWindow,
    where: Mapping[str, str],
    history: MessageWindow,
    history_where: Mapping[str, str],
    simulated: bool = False,
) -> Halves:
    """What the agent says now, and what it said in the past it is compared with.

    ``before`` is everything before the first message of the window; where the window has no beginning (``all``, no tags) what the
    agent said is cut in the middle, the newer half is compared with the older one. The history has tags of its own
    (`history_where`, default none), so that one build can be compared with what was said before it.

    Simulated speech has no past but another simulation, named by `history_where`: never real speech.
    """
    spoken = spoken_by(agent=agent, window=window, where=where, simulated=simulated)
    current = tuple(spoken.values_list("pk", flat=True))
    if not current:
        return Halves((), ())
    if simulated and (history.spec == BEFORE or not history_where):
        return Halves(current, ())
    if history.spec == BEFORE and window.spec == "all" and not where:
        current = current[len(current) // 2 :]
        past = spoken_by(agent=agent, window=window, where=history_where)
    elif history.spec == BEFORE:
        past = said_before(Message.objects.get(pk=current[0]), agent=agent, where=history_where)
    else:
        past = spoken_by(agent=agent, window=history, where=history_where, simulated=simulated)
    now = set(current)
    return Halves(current, tuple(pk for pk in past.values_list("pk", flat=True) if pk not in now))


def can_pair(found: Halves) -> bool:
    """Whether any message of now has something of the history to stand beside; reads no texts."""
    context_of = dict(_contexts([*found.current, *found.history]))
    past = {context_of[pk] for pk in found.history}
    return any(context_of[pk] in past for pk in found.current)


def find_pairs(found: Halves, *, seed: int) -> list[Pair]:
    """Up to ten pairs: messages of now drawn with the seed, each with the nearest message of its channel's history, none used twice.

    Of simulated speech, the same line of the same situation stands for the channel.

    Nearness is the share of words two messages have in common, rare words counting more (weighted Jaccard, weights
    ``log((1 + n) / df)`` over the channel's pool). Of equally near messages the latest is taken.
    """
    channel_of = dict(_contexts([*found.current, *found.history]))
    pools: dict[str, list[int]] = defaultdict(list)
    for pk in found.history:
        pools[channel_of[pk]].append(pk)
    comparable = [pk for pk in found.current if channel_of[pk] in pools]
    rng = random.Random(seed)  # noqa: S311 (repeatable, not unpredictable)
    drawn = _drawn(comparable, MOST_PAIRS, rng)
    pairs: list[Pair] = []
    for channel in dict.fromkeys(channel_of[pk] for pk in drawn):
        pool = _drawn(pools[channel], POOL, rng)
        pairs += _match([pk for pk in drawn if channel_of[pk] == channel], pool)
    return sorted(pairs, key=lambda pair: found.current.index(pair.current))


def _drawn(ids: list[int], most: int, rng: random.Random) -> list[int]:
    if len(ids) <= most:
        return ids
    return [ids[i] for i in sorted(rng.sample(range(len(ids)), most))]


def _contexts(ids: list[int]) -> Iterable[tuple[int, str]]:
    for start in range(0, len(ids), 5000):
        rows = Message.objects.filter(pk__in=ids[start : start + 5000])
        for pk, channel, simulated in rows.values_list("pk", "channel_id", "synthetic"):
            if not simulated:
                yield pk, str(channel)
        for pk, channel, tags in rows.filter(synthetic=True).values_list("pk", "channel_id", "tags"):
            situation = tags.get("situation")
            yield pk, f"{situation}:{tags.get('turn')}" if situation else str(channel)


def _match(current: list[int], pool: list[int]) -> list[Pair]:
    texts = dict(Message.objects.filter(pk__in=[*current, *pool]).values_list("pk", "text"))
    words = {pk: frozenset(tokenize(text)) for pk, text in texts.items()}
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
        near = [(nearness(words[pk], words[other]), place, other) for place, other in enumerate(left)]
        best = max(near)
        left.pop(best[2])
        pairs.append(Pair(pk, best[2], round(best[0], 4)))
    return pairs
