"""N-grams, repetition and the longest phrases that messages share, without any model call (AC-6.3.1, AC-6.3.2, AC-6.3.7)."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import chain
from math import comb

from agents.kit.text.tokens import tokenize

Ngram = tuple[str, ...]


def extract_ngrams(text: str, n: int) -> list[Ngram]:
    """Return the n-grams of a text in order, with repeats; empty when it has fewer than `n` words.

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}; an n-gram has at least 1 word")
    return ngrams_of(tokenize(text), n)


def ngrams_of(words: Sequence[str], n: int) -> list[Ngram]:
    """Return the n-grams of a text that is split into words already."""
    return list(zip(*(words[start:] for start in range(n)), strict=False))


def comparable_ngrams(text: str, n: int) -> list[Ngram]:
    """Return the n-grams by which messages are compared: of a text of fewer than `n` words all of it, so that identical ones are alike.

    Returns:
        Empty for a blank text only.
    """
    if not text.strip():
        return []
    ngrams = extract_ngrams(text, n)
    if ngrams:
        return ngrams
    words = tokenize(text) or [text.strip()]  # of signs alone the text itself
    return [tuple(words)]


def compute_overlap(ngrams_a: Iterable[Ngram], ngrams_b: Iterable[Ngram]) -> float:
    """Return the Jaccard overlap of the types of two n-gram collections, 0 (nothing shared, or both empty) to 1 (equal)."""
    a, b = set(ngrams_a), set(ngrams_b)
    return len(a & b) / len(a | b) if a or b else 0.0


def recurring_ngrams(messages: Sequence[Sequence[Ngram]]) -> tuple[float, dict[Ngram, int]]:
    """Return the share of n-gram tokens whose type occurs in at least two of the messages, and those types.

    Args:
        messages: The n-grams of each message.

    Returns:
        The share, 0 to 1, and for each recurring n-gram the number of messages it occurs in.
    """
    seen: set[Ngram] = set()
    recurring: set[Ngram] = set()
    for types in map(set, messages):
        recurring |= seen & types
        seen |= types
    counts: Counter[Ngram] = Counter()
    for grams in messages:
        counts.update(recurring.intersection(grams))
    total = sum(map(len, messages))
    hits = sum(map(recurring.__contains__, chain.from_iterable(messages)))
    return (hits / total if total else 0.0), dict(counts)


AMONG = 5  # messages that are drawn


def typical_recurrence(messages: Sequence[Sequence[Ngram]]) -> tuple[float, list[float]]:
    """Return the share of n-gram tokens that recur among five of the messages, on average over all ways to draw five.

    All are drawn where there are fewer. The more messages, the more recurs in any of them; this share is the same for ten and for a
    hundred that repeat alike (rarefaction: Hurlbert, Ecology 52, 1971).

    Args:
        messages: The n-grams of each message.

    Returns:
        The share, 0 to 1, and for each message the share without it (empty for fewer than three messages).
    """
    holding: Counter[Ngram] = Counter()  # number of messages that hold each
    tokens: Counter[Ngram] = Counter()
    for grams in messages:
        holding.update(set(grams))
        tokens.update(grams)
    by_holding: Counter[int] = Counter()  # tokens of all n-grams that so many messages hold
    for gram, count in tokens.items():
        by_holding[holding[gram]] += count
    share = _recurring(by_holding, len(messages))
    if len(messages) < 3:
        return share, []
    without = []
    for grams in messages:
        # Without this message each of its n-grams is held by one message less, and occurs less often by its count here.
        left = Counter(by_holding)
        for gram, count in Counter(grams).items():
            left[holding[gram]] -= tokens[gram]
            left[holding[gram] - 1] += tokens[gram] - count
        without.append(_recurring(left, len(messages) - 1))
    return share, without


def _recurring(by_holding: Mapping[int, int], messages: int) -> float:
    """Return the share of tokens that recur, on average over all ways to draw `AMONG` of the messages.

    A token recurs unless none of the other messages drawn with its own is among those that hold it: that has the probability
    ``comb(messages - held, others) / ways``. 0 for fewer than two messages.

    Args:
        by_holding: Number of tokens by how many messages hold their n-gram.
    """
    others = min(AMONG, messages) - 1
    total = sum(by_holding.values())
    if others < 1 or not total:
        return 0.0
    ways = comb(messages - 1, others)
    hits = sum(
        count * (1 - comb(messages - holders, others) / ways)
        for holders, count in by_holding.items()
        if holders > 1 and count
    )
    return hits / total


def compute_corpus_repetition(messages: Sequence[str], n: int = 3) -> float:
    """Return how repetitive a set of messages is: the share of n-gram tokens whose type occurs in at least two of them (AC-6.3.2).

    A message of fewer than `n` words counts as one n-gram.

    Returns:
        0.0 (nothing recurs, or fewer than two messages) to 1.0 (all say the same: five identical messages).
    """
    return recurring_ngrams([comparable_ngrams(message, n) for message in messages])[0]


def repeated_ngrams(messages: Sequence[str], n: int = 3, limit: int = 20) -> list[tuple[str, int]]:
    """Return the n-grams that occur in at least two messages, as (phrase, number of messages), most frequent first."""
    return most_frequent(recurring_ngrams([comparable_ngrams(message, n) for message in messages])[1], limit)


def most_frequent(counts: Mapping[Ngram, int], limit: int) -> list[tuple[str, int]]:
    """Return the first `limit` n-grams as phrases with their counts, most frequent first, then by the alphabet."""
    first = nsmallest(limit, counts.items(), key=lambda item: (-item[1], item[0]))
    return [(" ".join(gram), count) for gram, count in first]


def compression_gain(messages: Sequence[str]) -> float:
    """Return the share of bytes saved by compressing the messages together instead of one by one, 0 to 1.

    Catches near copies whose n-grams differ. Ordinary English chat of a hundred short messages gains some 0.3 to 0.45, mostly from the
    compressor's fixed costs and common words, so only what lies above that says something.
    """
    if len(messages) < 2:
        return 0.0
    apart = sum(len(zlib.compress(message.encode(), 9)) for message in messages)
    together = len(zlib.compress("\n".join(messages).encode(), 9))
    return min(1.0, max(0.0, 1 - together / apart))


@dataclass(frozen=True, slots=True)
class RepetitionStatistics:
    """How a set of messages repeats itself; shares are 0 to 1."""

    messages: int
    trigram_repetition: float
    fivegram_repetition: float
    compression_gain: float
    repeated_phrases: tuple[tuple[str, int], ...]


def repetition_statistics(messages: Sequence[str]) -> RepetitionStatistics:
    """Return the statistics a fluency judge gets as evidence beside the messages (AC-6.3.3)."""
    return RepetitionStatistics(
        messages=len(messages),
        trigram_repetition=round(compute_corpus_repetition(messages, 3), 4),
        fivegram_repetition=round(compute_corpus_repetition(messages, 5), 4),
        compression_gain=round(compression_gain(messages), 4),
        repeated_phrases=tuple(repeated_ngrams(messages, 3, 10)),
    )


LONGEST_PHRASE = 12  # words; what is longer is cut, for a list of phrases is to be read
CANDIDATES = 50  # phrases whose messages are counted, those shared by most pairs of messages first


def shared_phrases(messages: Sequence[Sequence[str]], *, n: int = 3, limit: int = 10) -> list[tuple[str, int]]:
    """Return the phrases of at least `n` words that stand in two messages or more, each as long as it is shared.

    A phrase that is part of a longer one is left out unless more messages hold it. Takes time in proportion to the length of the
    messages, whatever they say: of an n-gram that stands twice in one message, its first place counts.

    Args:
        messages: The words of each message.
        n: Fewest words of a phrase.
        limit: Most phrases returned.

    Returns:
        (phrase, number of messages that hold it): what most messages share first, then the longest, then by the alphabet. A phrase
        of more than 12 words is cut there.
    """
    pairs_with = _pairs_of_messages_with(messages, n)
    candidates = sorted(pairs_with, key=lambda phrase: (-pairs_with[phrase], -len(phrase), phrase))[:CANDIDATES]
    texts = [f" {' '.join(words)} " for words in messages]
    messages_with = {phrase: sum(f" {' '.join(phrase)} " in text for text in texts) for phrase in candidates}
    phrases: list[tuple[str, int]] = []
    for phrase in sorted(candidates, key=lambda phrase: (-messages_with[phrase], -len(phrase), phrase)):
        text = " ".join(phrase)
        # Phrases in the list already stand in as many messages or more, so a part of one says nothing new.
        if any(f" {text} " in f" {longer} " for longer, _ in phrases):
            continue
        phrases.append((text, messages_with[phrase]))
        if len(phrases) == limit:
            break
    return phrases


def _pairs_of_messages_with(messages: Sequence[Sequence[str]], n: int) -> Counter[Ngram]:
    """Return for each phrase of at least `n` words how many pairs of messages share it; each is as long as a pair shares it, at most
    LONGEST_PHRASE words."""
    grams_of = [ngrams_of(words, n) for words in messages]
    pairs: Counter[Ngram] = Counter()
    for later in range(1, len(messages)):
        first_position: dict[Ngram, int] = {}
        for position, gram in enumerate(grams_of[later]):
            first_position.setdefault(gram, position)
        for earlier in range(later):
            runs = _common_runs(messages[earlier], grams_of[earlier], first_position, n)
            pairs.update({run[:LONGEST_PHRASE] for run in runs})
    return pairs


def _common_runs(
    words: Sequence[str], grams: Sequence[Ngram], elsewhere: dict[Ngram, int], n: int
) -> list[tuple[str, ...]]:
    """Return the longest stretches of a message, of `n` words or more, that stand in another one word for word.

    Args:
        elsewhere: Where each n-gram of the other message stands first.
    """
    shared = [(position, other) for position, other in enumerate(map(elsewhere.get, grams)) if other is not None]
    runs: list[tuple[str, ...]] = []
    start = 0
    for index in range(1, len(shared) + 1):
        if index < len(shared):
            (before, other_before), (position, other) = shared[index - 1], shared[index]
            if position == before + 1 and other == other_before + 1:  # the next word is shared, too
                continue
        runs.append(tuple(words[shared[start][0] : shared[index - 1][0] + n]))
        start = index
    return runs
