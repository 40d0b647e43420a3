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
        parts = {part for name in names for part in _WORD.findall(_folded(name)) if len(part) >= 2}
        attached = {part for part in parts if _ATTACHED.search(part)}
        attached |= {piece for part in attached if _HAN.fullmatch(part) for piece in (part[:2], part[-2:])}
        self._words = parts - attached
        longest_first = sorted(attached, key=lambda part: (-len(part), part))
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
        None where the author's messages cannot be told from the others' by it.
    """
    import numpy as np

    texts = [[_buckets(text) for text in of] for of in (own, *others)]
    counts = [np.bincount(np.concatenate(of), minlength=BUCKETS).astype(np.float64) for of in texts]
    mine, theirs = counts[0], np.sum(counts[1:], axis=0)
    sizes = float(mine.sum()), float(theirs.sum())

    def left_out(one: NDArray[np.intp], *, is_own: bool) -> float:
        times, share = np.bincount(one, minlength=BUCKETS)[one], int(is_own)
        own_counts, other_counts = mine[one] - share * times, theirs[one] - (1 - share) * times
        left = sizes[0] - share * one.size, sizes[1] - (1 - share) * one.size
        return float(_log_ratios(own_counts, other_counts, *left).mean())

    styles = [np.asarray([style_of(text) for text in of]) for of in (own, *others)]
    floors, n = np.asarray(list(FEATURES.values())), len(own)
    deviations = styles[0] - styles[0].mean(axis=0)
    squares = (deviations**2).sum(axis=0)
    means, spreads = styles[0].mean(axis=0), np.sqrt(squares / (n - 1) + floors**2)
    without = np.maximum(0.0, squares - deviations**2 * n / (n - 1)) / (n - 2)
    own_distances = _distances(deviations * n / (n - 1), np.sqrt(without + floors**2))
    worded = [np.asarray([left_out(one, is_own=not author) for one in of]) for author, of in enumerate(texts)]
    styled = [-own_distances, *(-_distances(of - means, spreads) for of in styles[1:])]
    wording, style = _evidence(worded), _evidence(styled)
    odds = [wording.odds(w) + style.odds(s) for w, s in zip(worded, styled, strict=True)]
    apart, spread = _apart(odds)
    if apart <= LEAST_DISTINCT * spread:
        return None
    ratios = _log_ratios(mine, theirs, *sizes)
    return Voice(len(own), sum(map(len, others)), ratios, means, spreads, wording, style)


def own_voice(text: str, voice: Voice) -> tuple[float, dict[str, float]]:
    """Return the probability that the author of a voice wrote a text and not another, where both are as likely before it is read.

    Returns:
        0 to 1, about 0.5 for what fits both; and how far each feature of style lies from the author's mean, in spreads, largest first.
    """
    import numpy as np

    grams, figures = _buckets(text), np.asarray(style_of(text))
    worded = voice.wording.odds(voice.log_ratios[grams].mean()) * grams.size / (grams.size + SHORT)
    styled = voice.style.odds(-_distances(figures - voice.means, voice.spreads))
    odds = max(-MOST_ODDS, min(MOST_ODDS, float(worded + styled)))
    deviations = dict(zip(FEATURES, (np.abs(figures - voice.means) / voice.spreads).tolist(), strict=True))
    return 1 / (1 + exp(-odds)), dict(sorted(deviations.items(), key=lambda item: -item[1]))


def _distances(deviations: Floats, spreads: Floats) -> Floats:
    import numpy as np

    distances: Floats = np.minimum(FARTHEST, np.abs(deviations) / spreads).mean(axis=-1)
    return distances


def _apart(figures: Sequence[Floats]) -> tuple[float, float]:
    """Return how far the first author's mean exceeds that of the others' means, and the spread of messages around their author's mean."""
    import numpy as np

    own, *others = figures
    spread = np.sqrt((np.var(own, ddof=1) + np.mean([np.var(of, ddof=1) for of in others])) / 2)
    return float(own.mean() - np.mean([of.mean() for of in others])), float(spread)


def _evidence(figures: Sequence[Floats]) -> Evidence:
    apart, spread = _apart(figures)
    middle = float(figures[0].mean()) - apart / 2
    return Evidence(middle, max(0.0, apart) / max(spread, LEAST_SPREAD) ** 2)


def _log_ratios(own: Floats, others: Floats, own_size: float, others_size: float) -> Floats:
    """Return, of n-grams that occur so often, the log of how much likelier the one uses each than the others."""
    import numpy as np

    together = PRIOR * (own + others + UNSEEN) / (own_size + others_size + UNSEEN * BUCKETS)
    of_all = np.log((own_size + PRIOR) / (others_size + PRIOR))
    ratios: Floats = np.log(own + together) - np.log(others + together) - of_all
    return ratios


def _buckets(text: str) -> NDArray[np.intp]:
    """Return the bucket of each n-gram of a text, ends counted as a space."""
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
