"""How people write, without any model call: figures of one text, words of a speaker, how alike speakers are (AC-6.4.1 to AC-6.4.3)."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import log1p, sqrt
from statistics import fmean

from agents.kit.text.tokens import has_emoji, split_sentences, tokenize

# Each feature with the smallest spread that is believed: who never used an exclamation mark in ten messages may use one yet.
FEATURES: Mapping[str, float] = {
    "length": 0.35,  # log(1 + words)
    "sentence length": 0.35,  # log(1 + words per sentence)
    "word length": 0.5,  # characters per word
    "exclamation marks": 0.25,  # per sentence
    "question marks": 0.25,  # per sentence
    "commas": 0.4,  # per sentence
    "capitals": 0.04,  # share of the letters
    "lower-case start": 0.3,  # 1 or 0
    "emoji": 0.3,  # 1 or 0
}
Style = tuple[float, ...]


def style_of(text: str) -> Style:
    """Return the figures of one text, in the order of `FEATURES`; all 0 for a text without a letter or digit."""
    words = tokenize(text)
    if not words:
        return (0.0,) * len(FEATURES)
    sentences = max(1, len(split_sentences(text)))
    letters = [char for char in text if char.isalpha()]

    def per_sentence(marks: str) -> float:
        return sum(text.count(mark) for mark in marks) / sentences

    return (
        log1p(len(words)),
        log1p(len(words) / sentences),
        sum(map(len, words)) / len(words),
        per_sentence("!！"),
        per_sentence("?？؟"),
        per_sentence(",，、،"),
        sum(char.isupper() for char in letters) / max(1, len(letters)),
        float(bool(letters) and letters[0].islower()),
        float(has_emoji(text)),
    )


# Words that say nothing of a subject: articles, pronouns, auxiliaries, prepositions, conjunctions, filler. Words of agreement
# ("yes", "agree", "great") are no stop words: who only agrees shares them.
STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are aren't as at be because been before being below between both but by can
    can't could couldn't did didn't do does doesn't doing don't down during each few for from further get gets getting got had hadn't
    has hasn't have haven't having he he'd he'll he's her here here's hers herself him himself his how how's i i'd i'll i'm i've if in
    into is isn't it it'd it'll it's its itself just let's like me more most my myself of off oh on once only or other our ours
    ourselves out over own really same she she'd she'll she's should shouldn't so some such than that that'd that'll that's the their
    theirs them themselves then there there's these they they'd they'll they're they've this those through to too um under until up us
    very was wasn't we we'd we'll we're we've well were weren't what what's when when's where where's which while who who's whom why
    will with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
    """.split()  # noqa: SIM905 (a hundred quotation marks do not help a reader)
)
FEWEST_WORDS = 3  # a speaker of fewer words has no vocabulary to compare: "Yes." is part of every one


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """Return the content words of some texts: no stop words or numbers, without inflection (``plans``, ``planned``: ``plan``)."""
    words = {word for text in texts for word in tokenize(text)}
    return frozenset(stem(word) for word in words if word not in STOP_WORDS and not word.isdigit())


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return an English word without its commonest endings: ``plan`` for "plans", "planned" and "planning", ``hop`` for "hoping".

    Case-folded words are expected; those without such an ending stay. What is left need not be a word, only equal for equal words.
    """
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 3 and word.endswith("s") and word[-2] not in "sui'":
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            word = word[:-1] if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz" else word
            break
    while len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    return word


def vocabulary_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of the smaller vocabulary that the larger one holds, too: 0 (nothing shared, or one is empty) to 1.

    Measured by the smaller one (the overlap coefficient, not Jaccard's), so that a short message that only echoes a long one counts
    as the echo it is.
    """
    smaller = min(len(a), len(b))
    return len(a & b) / smaller if smaller else 0.0


def pairwise_vocabulary_similarity(texts_by_speaker: Mapping[str, Iterable[str]]) -> float | None:
    """Return how alike the vocabularies of several speakers are: the mean overlap over all pairs of speakers.

    Args:
        texts_by_speaker: What each one said. Speakers with fewer than 3 content words are left out.

    Returns:
        0 (no two share a word) to 1 (each pair shares all), or None where fewer than two speakers can be compared.
    """
    vocabularies = [words for words in map(vocabulary, texts_by_speaker.values()) if len(words) >= FEWEST_WORDS]
    overlaps = [vocabulary_overlap(a, b) for a, b in combinations(vocabularies, 2)]
    return sum(overlaps) / len(overlaps) if overlaps else None


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
    """Return the figures of one speaker's messages; those of words are 0 when there is no word."""
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
    """Return the share of punctuation marks of any script among characters that are no spaces, 0 to 1; 0 for empty texts."""
    counts = Counter("".join(messages))
    characters = sum(number for char, number in counts.items() if not char.isspace())
    marks = sum(number for char, number in counts.items() if unicodedata.category(char).startswith("P"))
    return marks / characters if characters else 0.0


def word_counts(messages: Iterable[str]) -> Counter[str]:
    """Return how often each word occurs."""
    return Counter(word for message in messages for word in tokenize(message))


def vocabulary_similarity(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """Return the Bhattacharyya coefficient of two word distributions: ``sum(sqrt(p * q))`` over the words of both.

    Bhattacharyya, Bulletin of the Calcutta Mathematical Society 35 (1943). Frequent words do not drown the rest, as in a cosine.

    Returns:
        0.0 (no word in common, or one of them empty) to 1.0 (equal shares).
    """
    total = sqrt(sum(a.values()) * sum(b.values()))
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    # Sums of floats depend on their order: words are added in the order of the alphabet, so that (a, b) and (b, a) agree to the bit.
    return min(1.0, sum(sqrt(small[w] * large[w]) for w in sorted(small) if w in large) / total) if total else 0.0


def pairwise_similarity(texts: Mapping[str, Sequence[str]]) -> list[PairSimilarity]:
    """Return how alike every two speakers are, most alike first, then by name.

    Args:
        texts: What each speaker said.
    """
    counts = {name: word_counts(messages) for name, messages in sorted(texts.items())}
    pairs = [
        PairSimilarity(a, b, round(vocabulary_similarity(counts[a], counts[b]), 4)) for a, b in combinations(counts, 2)
    ]
    return sorted(pairs, key=lambda pair: (-pair.similarity, pair.first, pair.second))


Line = tuple[str, str]  # speaker, text


@dataclass(frozen=True, slots=True)
class Distinctness:
    """How distinct the voices of a conversation are.

    Both figures are about 0 when lines of one speaker are no more alike than lines of different ones, as when the lines were dealt
    out at random, whatever the number of lines; 1 is the most there can be. Slightly negative values are chance.

    Attributes:
        vocabulary: ``1 - between / within``, from the mean similarity of the words of two lines.
        style: Share of the variance of the style figures that lies between speakers, corrected for chance (adjusted R², mean over
            the features that vary).
        lines, speakers: How much it goes by.
    """

    vocabulary: float
    style: float
    lines: int
    speakers: int


def voice_distinctness(lines: Sequence[Line]) -> Distinctness | None:
    """Return how distinct the voices are, from the lines of speakers with at least two of them; None for fewer than two such speakers.

    The counts are those of these lines and speakers.
    """
    spoken = Counter(speaker for speaker, _ in lines)
    several = [(speaker, text) for speaker, text in lines if spoken[speaker] >= 2]
    speakers = {speaker for speaker, _ in several}
    if len(speakers) < 2:
        return None
    return Distinctness(
        round(_vocabulary_distinctness(several), 4), round(_style_distinctness(several), 4), len(several), len(speakers)
    )


def _vocabulary_distinctness(lines: Sequence[Line]) -> float:
    """Return 1 minus how alike the words of two speakers' lines are, relative to two lines of one speaker; about 0 where it is the same.

    Means over all pairs of lines do not depend on how many there are, so that long conversations compare with short ones. 0 where no
    speaker used a word in two lines.
    """
    counted = [(speaker, word_counts([text])) for speaker, text in lines]
    within, between = [0.0, 0], [0.0, 0]  # sum of the similarities, and number of the pairs
    for (a, words_a), (b, words_b) in combinations(counted, 2):
        entry = within if a == b else between
        entry[0] += vocabulary_similarity(words_a, words_b)
        entry[1] += 1
    if not within[0]:
        return 0.0  # nothing to compare with
    return 1 - (between[0] / between[1]) / (within[0] / within[1])


def _style_distinctness(lines: Sequence[Line]) -> float:
    """Return the share of the variance of style between speakers (adjusted R²), mean over the features that vary; 0 where none does.

    About 0, also negative, for speakers who write alike; 0 where no speaker has two lines.
    """
    figures: dict[str, list[tuple[float, ...]]] = {}
    for speaker, text in lines:
        figures.setdefault(speaker, []).append(style_of(text))
    everything = [figure for group in figures.values() for figure in group]
    if len(everything) <= len(figures):
        return 0.0
    shares = []
    for feature in range(len(everything[0])):
        total = _squares([figure[feature] for figure in everything])
        if total < 1e-9:
            continue  # all do the same
        inside = sum(_squares([figure[feature] for figure in group]) for group in figures.values())
        shares.append(1 - (inside / (len(everything) - len(figures))) / (total / (len(everything) - 1)))
    return fmean(shares) if shares else 0.0


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
