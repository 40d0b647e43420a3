"""Who wrote a text? Names are masked, so that only the voice is left, and texts are compared by their runs of characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        """The text, NFC-normalised, with every name replaced."""
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


def character_similarities(texts: Sequence[str]) -> NDArray[np.float32]:
    """The cosine similarity of every two texts by their character 2- to 4-grams.

    Counts are damped (log(1 + count)) and weighted by rarity (idf); n-grams are hashed into 8,192 buckets, the same in every process.
    Case and punctuation count, for they are part of a voice. Memory: 32 KB per text, and 4 bytes per pair.

    Returns:
        Shape (texts, texts), 0 to 1, 1 on the diagonal (0 for a text without any n-gram that others lack).
    """
    import numpy as np

    counts = np.zeros((len(texts), BUCKETS), dtype=np.float32)
    for row, text in enumerate(texts):
        counts[row] = np.bincount(_buckets(text), minlength=BUCKETS)
    np.log1p(counts, out=counts)
    rarity = np.log((1 + len(texts)) / (1 + np.count_nonzero(counts, axis=0)))
    counts *= rarity.astype(np.float32)
    counts /= np.maximum(np.sqrt(np.einsum("ij,ij->i", counts, counts))[:, None], 1e-9)
    return counts @ counts.T


def _buckets(text: str) -> NDArray[np.intp]:
    """The bucket of each n-gram of a text, ends counted as a space."""
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
