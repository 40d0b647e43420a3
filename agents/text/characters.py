"""How alike texts are in their runs of characters: what is known to tell authors apart in any language and script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
