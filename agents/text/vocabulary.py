"""What words people use, and how much they share: pure functions without any model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

from agents.text.tokens import tokenize

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
FEWEST_WORDS = 3  # a speaker of fewer words has no vocabulary to compare: "Yes." is part of everybody's


def vocabulary(texts: Iterable[str]) -> frozenset[str]:
    """The content words of some texts: no stop words or numbers, without the endings of inflection (``plans``, ``planned``: ``plan``)."""
    words = {word for text in texts for word in tokenize(text)}
    return frozenset(stem(word) for word in words if word not in STOP_WORDS and not word.isdigit())


def stem(word: str) -> str:
    """An English word without its commonest endings; others stay as they are. A rough cut that treats equal words equally."""
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
    """The share of the smaller vocabulary that the larger one holds, too: 0 (nothing shared, or one is empty) to 1.

    Measured by the smaller one (the overlap coefficient, not Jaccard's), so that a short message that only echoes a long one counts
    as the echo it is.
    """
    smaller = min(len(a), len(b))
    return len(a & b) / smaller if smaller else 0.0


def pairwise_vocabulary_similarity(texts_by_speaker: Mapping[str, Iterable[str]]) -> float | None:
    """How alike the vocabularies of several speakers are: the mean overlap over all pairs of speakers.

    Args:
        texts_by_speaker: What each one said. Speakers with fewer than 3 content words are left out.

    Returns:
        0 (no two share a word) to 1 (each pair shares all), or None where fewer than two speakers can be compared.
    """
    known = [words for words in map(vocabulary, texts_by_speaker.values()) if len(words) >= FEWEST_WORDS]
    overlaps = [vocabulary_overlap(a, b) for a, b in combinations(known, 2)]
    return sum(overlaps) / len(overlaps) if overlaps else None
