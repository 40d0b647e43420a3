"""How speakers use words: figures per speaker, and how alike two of them are. No model call (AC-6.4.1 to AC-6.4.3)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt

from agents.text.tokens import split_sentences, tokenize


@dataclass(frozen=True, slots=True)
class VocabularyStatistics:
    """How one speaker writes.

    Attributes:
        messages, words: How much there is to go by.
        unique_word_ratio: Different words / words, 0 to 1; falls as a text grows, so only like amounts compare.
        average_sentence_length: In words.
        punctuation_density: Punctuation marks per character that is no space, 0 to 1.
    """

    messages: int
    words: int
    unique_word_ratio: float
    average_sentence_length: float
    punctuation_density: float


@dataclass(frozen=True, slots=True)
class PairSimilarity:
    """How alike two speakers' words are: 0 (not one in common) to 1 (the same words equally often)."""

    first: str
    second: str
    similarity: float


def vocabulary_statistics(messages: Sequence[str]) -> VocabularyStatistics:
    """The figures of one speaker's messages; all 0 when there is no word."""
    words = [word for message in messages for word in tokenize(message)]
    sentences = sum(len(split_sentences(message)) for message in messages)
    return VocabularyStatistics(
        messages=len(messages),
        words=len(words),
        unique_word_ratio=round(len(set(words)) / len(words), 4) if words else 0.0,
        average_sentence_length=round(len(words) / sentences, 2) if sentences else 0.0,
        punctuation_density=round(punctuation_density(messages), 4),
    )


def punctuation_density(messages: Iterable[str]) -> float:
    """Punctuation marks of any script per character that is no space, 0 to 1; 0 for empty texts."""
    counts = Counter("".join(messages))
    characters = sum(number for char, number in counts.items() if not char.isspace())
    marks = sum(number for char, number in counts.items() if unicodedata.category(char).startswith("P"))
    return marks / characters if characters else 0.0


def word_counts(messages: Iterable[str]) -> Counter[str]:
    """How often each word occurs."""
    return Counter(word for message in messages for word in tokenize(message))


def vocabulary_similarity(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """The Bhattacharyya coefficient of two word distributions: ``sum(sqrt(p * q))`` over the words of both.

    Bhattacharyya, Bulletin of the Calcutta Mathematical Society 35 (1943). Frequent words do not drown the rest, as in a cosine.

    Returns:
        0.0 (no word in common, or one of them empty) to 1.0 (equal shares).
    """
    total = sqrt(sum(a.values()) * sum(b.values()))
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    # fsum-like order independence: words are added in the order of the alphabet, so that (a, b) and (b, a) agree to the bit.
    return min(1.0, sum(sqrt(small[w] * large[w]) for w in sorted(small) if w in large) / total) if total else 0.0


def pairwise_similarity(texts: Mapping[str, Sequence[str]]) -> list[PairSimilarity]:
    """How alike every two speakers are, most alike first, then by name.

    Args:
        texts: What each speaker said.
    """
    counts = {name: word_counts(messages) for name, messages in sorted(texts.items())}
    pairs = [
        PairSimilarity(a, b, round(vocabulary_similarity(counts[a], counts[b]), 4)) for a, b in combinations(counts, 2)
    ]
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))
