"""How a text is written, in nine figures of any language, and how far a text lies from how its author usually writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log1p
from statistics import fmean, variance

from agents.text.tokens import has_emoji, split_sentences, tokenize

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
FARTHEST = 4.0  # spreads; one odd feature cannot outweigh all the others

Style = tuple[float, ...]


def style_of(text: str) -> Style:
    """The figures of one text, in the order of `FEATURES`; all 0 for a text without a letter or digit."""
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


@dataclass(frozen=True, slots=True)
class StyleProfile:
    """How somebody usually writes: mean and spread (standard deviation, at least the feature's floor) of each feature."""

    messages: int
    means: Style
    spreads: Style


def style_profile(texts: Sequence[str]) -> StyleProfile:
    """The profile of some texts.

    Raises:
        ValueError: There are fewer than two.
    """
    if len(texts) < 2:
        raise ValueError(f"a profile needs at least 2 texts, got {len(texts)}")
    columns = list(zip(*map(style_of, texts), strict=True))
    spreads = [(variance(c) + floor**2) ** 0.5 for c, floor in zip(columns, FEATURES.values(), strict=True)]
    return StyleProfile(len(texts), tuple(map(fmean, columns)), tuple(spreads))


def style_deviations(text: str, profile: StyleProfile) -> dict[str, float]:
    """How far a text lies from a profile, per feature in spreads, 0 (as usual) to 4, largest first."""
    rows = zip(FEATURES, style_of(text), profile.means, profile.spreads, strict=True)
    found = {name: min(FARTHEST, abs(value - mean) / spread) for name, value, mean, spread in rows}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def style_distance(text: str, profile: StyleProfile) -> float:
    """The mean deviation over all features: some 0.3 for a text like the others, above 0.7 for another hand. 0 to 4."""
    return fmean(style_deviations(text, profile).values())
