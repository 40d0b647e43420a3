"""Can speakers be told apart? What their lines have in common beyond what any lines of the conversation have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from agents.text.style import style_of
from agents.text.word_statistics import vocabulary_similarity, word_counts

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
    """How distinct the voices are, from the lines of speakers with at least two of them; None for fewer than two such speakers."""
    spoken = Counter(speaker for speaker, _ in lines)
    kept = [(speaker, text) for speaker, text in lines if spoken[speaker] >= 2]
    speakers = {speaker for speaker, _ in kept}
    if len(speakers) < 2:
        return None
    return Distinctness(round(_vocabulary(kept), 4), round(_style(kept), 4), len(kept), len(speakers))


def _vocabulary(lines: Sequence[Line]) -> float:
    """Mean similarity of two lines is the same for few lines and for many, so that long conversations compare with short ones."""
    counted = [(speaker, word_counts([text])) for speaker, text in lines]
    within, between = [0.0, 0], [0.0, 0]
    for (a, words_a), (b, words_b) in combinations(counted, 2):
        entry = within if a == b else between
        entry[0] += vocabulary_similarity(words_a, words_b)
        entry[1] += 1
    if not within[0]:
        return 0.0  # nobody used a word twice: nothing to tell anybody by
    return 1 - (between[0] / between[1]) / (within[0] / within[1])


def _style(lines: Sequence[Line]) -> float:
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
            continue  # everybody does the same
        inside = sum(_squares([figure[feature] for figure in group]) for group in figures.values())
        shares.append(1 - (inside / (len(everything) - len(figures))) / (total / (len(everything) - 1)))
    return fmean(shares) if shares else 0.0


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)
