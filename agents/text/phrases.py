"""The longest phrases that messages share: n-grams that overlap, put together again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from agents.text.ngrams import Ngram, ngrams_of

LONGEST_PHRASE = 12  # words; what is longer is cut, for a list of phrases is to be read
CANDIDATES = 50  # phrases whose messages are counted, those shared by most pairs of messages first


def shared_phrases(messages: Sequence[Sequence[str]], *, n: int = 3, limit: int = 10) -> list[tuple[str, int]]:
    """Phrases of at least `n` words that stand in two messages or more, each as long as it is shared.

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
    grams = [ngrams_of(words, n) for words in messages]
    found: Counter[tuple[str, ...]] = Counter()
    for other in range(1, len(messages)):
        places = dict(
            zip(reversed(grams[other]), range(len(grams[other]) - 1, -1, -1), strict=True)
        )  # the first place stays
        for one in range(other):
            found.update({run[:LONGEST_PHRASE] for run in _common_runs(messages[one], grams[one], places, n)})
    likely = sorted(found, key=lambda phrase: (-found[phrase], -len(phrase), phrase))[:CANDIDATES]
    texts = [f" {' '.join(words)} " for words in messages]
    counted = {phrase: sum(f" {' '.join(phrase)} " in text for text in texts) for phrase in likely}
    ordered = sorted(counted.items(), key=lambda item: (-item[1], -len(item[0]), item[0]))
    kept: list[tuple[str, int]] = []
    for phrase, count in ordered:
        inside = f" {' '.join(phrase)} "
        # What comes earlier has as many messages or more; what is longer with fewer says something of its own.
        if not any(inside in f" {other} " for other, _ in kept):
            kept.append((inside.strip(), count))
        if len(kept) == limit:
            break
    return kept


def _common_runs(
    words: Sequence[str], grams: Sequence[Ngram], elsewhere: dict[Ngram, int], n: int
) -> list[tuple[str, ...]]:
    """The longest stretches of a message that stand in another one word for word, where `elsewhere` says the n-grams are."""
    shared = [(place, other) for place, other in enumerate(map(elsewhere.get, grams)) if other is not None]
    runs: list[tuple[str, ...]] = []
    start = 0
    for index in range(1, len(shared) + 1):
        if index < len(shared):
            (before, other_before), (place, other) = shared[index - 1], shared[index]
            if place == before + 1 and other == other_before + 1:
                continue
        runs.append(tuple(words[shared[start][0] : shared[index - 1][0] + n]))
        start = index
    return runs
