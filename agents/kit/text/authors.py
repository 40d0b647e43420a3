"""Who wrote a text? Names are masked, so that only the voice is left, and texts are compared by their runs of characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING

from agents.kit.text.voices import FEATURES, style_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


MASK = "\u25a1"  # □

_MENTION = re.compile(r"@[\w.\-]*\w")
_WORD = re.compile(r"[^\W_]+")
# Names in these scripts stand without spaces around them, or with particles and articles attached.
_HAN_OR_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_ATTACHED = re.compile(rf"[{_HAN_OR_KANA}\u0590-\u06ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\uac00-\ud7af]")
_HAN = re.compile(rf"[{_HAN_OR_KANA}]{{3,}}")


class NameMask:
    """Replaces names by □, in any case, whatever author wrote them.

    Masked are every word of two letters or more of the names given (so first and family names alone, and full names), also with a
    plural or possessive s, and every ``@mention``. In scripts that write without spaces or attach particles (Chinese, Japanese,
    Korean, Thai, Arabic, Hebrew) a name is masked wherever it stands, and of Han names of three characters or more also the first two
    and the last two. Nicknames and misspellings that were not given are not known.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Sort the words of the names: those that stand between spaces, and those whose script attaches them to others."""
        words: set[str] = set()
        for name in names:
            words.update(word for word in _WORD.findall(_folded(name)) if len(word) >= 2)
        attached: set[str] = set()
        for word in words:
            if _ATTACHED.search(word):
                attached.add(word)
                if _HAN.fullmatch(word):
                    attached.update((word[:2], word[-2:]))
        self._words = words - attached
        longest_first = sorted(attached, key=lambda word: (-len(word), word))
        self._attached = re.compile("|".join(map(re.escape, longest_first))) if attached else None

    def __call__(self, text: str) -> str:
        """Return the text, NFC-normalised, with every name replaced."""
        text = _MENTION.sub(MASK, unicodedata.normalize("NFC", text))
        if self._attached is not None:
            text = self._attached.sub(MASK, text)
        return _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match.group().casefold()
        return MASK if word in self._words or (word.endswith("s") and word[:-1] in self._words) else match.group()


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


SHORTEST, LONGEST = 2, 4
BUCKETS = 8_192
_MULTIPLIER, _FINISH = 0x100000001B3, 0xFF51AFD7ED558CCD


PRIOR = 1_000  # n-grams that a voice borrows from all voices together: it has few of its own
UNSEEN = 0.1  # of each n-gram, in all voices together
SHORT = 50  # n-grams (some 20 characters) at which a text says half of what a long one says
FARTHEST = 4.0  # spreads; one odd feature of style cannot outweigh all the others
LEAST_DISTINCT = (
    0.5  # spreads between the log odds of the author's messages and the others': less is no voice of its own
)
LEAST_SPREAD = 0.01
MOST_ODDS = 30.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a figure says of a text: `slope` (log odds per unit, 0 where it says nothing) for each unit that it lies above `middle`."""

    middle: float
    slope: float

    def odds(self, values: Floats) -> Floats:
        return self.slope * (values - self.middle)


@dataclass(frozen=True, slots=True)
class Voice:
    """How an author writes, beside how others write.

    Attributes:
        messages: The author's that it was learned from; `others` those of the others.
        log_ratios: Per bucket of n-grams the log of how much likelier the author uses it than the others.
        means, spreads: Of the author's style, per feature of `FEATURES`.
        wording: What the mean log ratio of a text says; `style` what its distance from the author's style says.
    """

    messages: int
    others: int
    log_ratios: Floats
    means: Floats
    spreads: Floats
    wording: Evidence
    style: Evidence


def learn_voice(own: Sequence[str], others: Sequence[Sequence[str]]) -> Voice | None:
    """Learn an author's voice against those of other authors, from character 2- to 4-grams and from figures of style.

    Wording is the likelihood ratio of two multinomial models of n-grams, each smoothed by both together (Dirichlet prior; Zhai and
    Lafferty, ACM TOIS 22, 2004). Style is the mean distance from the author's own style, in spreads. What messages of the author and
    of others usually get is learned from the same messages, each left out of its own model; the two are taken as normal with one
    spread, which turns each figure into log odds. They are added, as if wording and style were independent.

    Args:
        own: Messages of the author, at least three, names masked (`NameMask`).
        others: Messages of each other author, at least two of each.

    Returns:
        None where the author's messages cannot be distinguished from the others' by it.
    """
    wording = _Wording.of_messages(own, others)
    style = _Style.of_messages(own, others)
    wording_figures = wording.figures()
    style_figures = style.figures
    wording_evidence = _learn_evidence(wording_figures)
    style_evidence = _learn_evidence(style_figures)
    odds = []  # per author, of each message
    for ratios, distances in zip(wording_figures, style_figures, strict=True):
        # Arrays with a number for each message: its log odds by wording and by style are added.
        odds.append(wording_evidence.odds(ratios) + style_evidence.odds(distances))
    difference, spread = _difference_and_spread(odds)  # of the author, who comes first, from the others
    if difference <= LEAST_DISTINCT * spread:
        return None
    return Voice(
        messages=len(own),
        others=sum(map(len, others)),
        log_ratios=wording.log_ratios(),
        means=style.means,
        spreads=style.spreads,
        wording=wording_evidence,
        style=style_evidence,
    )


@dataclass(frozen=True, slots=True)
class _Wording:
    """How often each bucket of n-grams occurs in the author's messages, and in those of all others together.

    Attributes:
        messages: The buckets of each message, per author; the first author is the one whose voice is learned.
    """

    messages: list[list[NDArray[np.intp]]]
    own: Floats
    others: Floats

    @classmethod
    def of_messages(cls, own: Sequence[str], others: Sequence[Sequence[str]]) -> _Wording:
        """Count the buckets of all messages, each n-gram as often as it occurs."""
        import numpy as np

        messages = []
        counts = []
        for texts in (own, *others):
            buckets = [_buckets(text) for text in texts]
            messages.append(buckets)
            counts.append(np.bincount(np.concatenate(buckets), minlength=BUCKETS).astype(np.float64))
        return cls(messages, own=counts[0], others=np.sum(counts[1:], axis=0))

    def log_ratios(self) -> Floats:
        """Return for each bucket the log of how much likelier the author uses it than the others."""
        return _log_ratios(self.own, self.others, float(self.own.sum()), float(self.others.sum()))

    def figures(self) -> list[Floats]:
        """Return per author the mean log ratio of each message, by counts from which that message is left out."""
        import numpy as np

        figures = []
        own_size = float(self.own.sum())
        others_size = float(self.others.sum())
        for author, messages in enumerate(self.messages):
            means = []
            for buckets in messages:
                in_message = np.bincount(buckets, minlength=BUCKETS)[buckets]
                own = self.own[buckets]
                others = self.others[buckets]
                if author == 0:
                    ratios = _log_ratios(own - in_message, others, own_size - buckets.size, others_size)
                else:
                    ratios = _log_ratios(own, others - in_message, own_size, others_size - buckets.size)
                means.append(float(ratios.mean()))
            figures.append(np.asarray(means))
        return figures


@dataclass(frozen=True, slots=True)
class _Style:
    """Mean and spread of the author's figures of style, and how far each message lies from them.

    Attributes:
        figures: Per author, the author first: minus the distance of each message, in spreads.
    """

    means: Floats
    spreads: Floats
    figures: list[Floats]

    @classmethod
    def of_messages(cls, own: Sequence[str], others: Sequence[Sequence[str]]) -> _Style:
        """Measure the style of all messages; others' are compared with the author's mean and spread, as they have no part in these."""
        import numpy as np

        n = len(own)
        smallest_spreads = np.asarray(list(FEATURES.values()))  # added to each: few messages may vary little by chance
        own_styles = np.asarray([style_of(text) for text in own])
        means = own_styles.mean(axis=0)
        deviations = own_styles - means
        squares = deviations**2
        sum_of_squares = squares.sum(axis=0)
        spreads = np.sqrt(sum_of_squares / (n - 1) + smallest_spreads**2)
        # Each of the author's messages is compared with the mean and the variance of the others of theirs.
        variance_without = np.maximum(0.0, sum_of_squares - squares * n / (n - 1)) / (n - 2)
        own_distances = _distances(deviations * n / (n - 1), np.sqrt(variance_without + smallest_spreads**2))
        figures = [-own_distances]
        for texts in others:
            styles = np.asarray([style_of(text) for text in texts])
            figures.append(-_distances(styles - means, spreads))
        return cls(means, spreads, figures)


def own_voice(text: str, voice: Voice) -> tuple[float, dict[str, float]]:
    """Return the probability that the author of a voice wrote a text and not another, where both are as likely before it is read.

    The text's names must be masked as those of the voice's messages were (`NameMask`).

    Returns:
        0 to 1, about 0.5 for what fits both; and how far each feature of style lies from the author's mean, in spreads, largest first.
    """
    import numpy as np

    buckets = _buckets(text)
    style = np.asarray(style_of(text))
    weight = buckets.size / (buckets.size + SHORT)  # a short text says little by its wording
    wording_odds = voice.wording.odds(voice.log_ratios[buckets].mean()) * weight
    style_odds = voice.style.odds(-_distances(style - voice.means, voice.spreads))
    odds = float(np.clip(wording_odds + style_odds, -MOST_ODDS, MOST_ODDS))
    in_spreads = np.abs(style - voice.means) / voice.spreads
    deviations = dict(zip(FEATURES, in_spreads.tolist(), strict=True))
    return 1 / (1 + exp(-odds)), dict(sorted(deviations.items(), key=lambda item: -item[1]))


def _distances(deviations: Floats, spreads: Floats) -> Floats:
    """Return for each row of deviations their mean size in spreads, none above FARTHEST."""
    import numpy as np

    distances: Floats = np.minimum(FARTHEST, np.abs(deviations) / spreads).mean(axis=-1)
    return distances


def _difference_and_spread(figures: Sequence[Floats]) -> tuple[float, float]:
    """Return how far the first author's mean exceeds that of the others' means, and the spread of messages around their author's mean.

    Each of the other authors counts alike, however many messages there are of them.
    """
    import numpy as np

    own, *others = figures
    variance_of_others = np.mean([np.var(of_author, ddof=1) for of_author in others])
    mean_of_others = np.mean([of_author.mean() for of_author in others])
    spread = np.sqrt((np.var(own, ddof=1) + variance_of_others) / 2)
    return float(own.mean() - mean_of_others), float(spread)


def _learn_evidence(figures: Sequence[Floats]) -> Evidence:
    """Return what a figure says of a text, learned from that of each message, per author: two normal distributions of one spread.

    For those the log odds grow in a straight line, from 0 half-way between the means. A figure that is lower for the author than for
    others says nothing: its slope is 0.
    """
    difference, spread = _difference_and_spread(figures)
    middle = float(figures[0].mean()) - difference / 2
    return Evidence(middle, max(0.0, difference) / max(spread, LEAST_SPREAD) ** 2)


def _log_ratios(own: Floats, others: Floats, own_size: float, others_size: float) -> Floats:
    """Return, of n-grams that occur so often, the log of how much likelier the author uses each than the others do.

    Both are given PRIOR n-grams more, in the shares that both together have, so that one that a side never used is not impossible there.
    """
    import numpy as np

    borrowed = PRIOR * (own + others + UNSEEN) / (own_size + others_size + UNSEEN * BUCKETS)
    log_ratio_of_sizes = np.log((own_size + PRIOR) / (others_size + PRIOR))
    ratios: Floats = np.log(own + borrowed) - np.log(others + borrowed) - log_ratio_of_sizes
    return ratios


def _buckets(text: str) -> NDArray[np.intp]:
    """Return the bucket of each run of 2 to 4 characters of a text, ends counted as a space.

    The hash is written out, as Python's differs in each process and a voice may be used in another one than it was learned in.
    """
    import numpy as np

    codes = np.frombuffer(f" {text} ".encode("utf-32-le", "surrogatepass"), dtype=np.uint32).astype(np.uint64)
    hashes = []
    for n in range(SHORTEST, min(LONGEST, codes.size) + 1):
        count = codes.size - n + 1
        value = np.full(count, n, dtype=np.uint64)
        for offset in range(n):
            value = (value ^ codes[offset : offset + count]) * np.uint64(_MULTIPLIER)
            value ^= value >> np.uint64(29)
        hashes.append(value * np.uint64(_FINISH) >> np.uint64(32))
    return (np.concatenate(hashes) % np.uint64(BUCKETS)).astype(np.intp)
