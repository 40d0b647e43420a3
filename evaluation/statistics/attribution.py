"""Can things be attributed to their makers better than by chance? Cross-validation over blocks of time, and a permutation null."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evaluation.statistics.bootstrap import Floats

    Labels = NDArray[np.intp]

RIDGE = 1.0
MOST_AT_ONCE = 1_000_000  # numbers in a stack of permutations


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who was taken for whom.

    Attributes:
        predictions: Per thing the maker it was attributed to, from the things of all other blocks.
        recalls: Per maker the share of its things attributed to it, 0 to 1.
        balanced_accuracy: Mean of the recalls: 1 is all right, 1 ÷ makers is what guessing gives.
        null: Balanced accuracy of each permutation, sorted.
        null_recalls: Per maker its mean recall over the permutations.
        p_value: (1 + permutations as good as the truth) ÷ (1 + permutations).
    """

    predictions: tuple[int, ...]
    recalls: tuple[float, ...]
    balanced_accuracy: float
    null: tuple[float, ...]
    null_recalls: tuple[float, ...]
    p_value: float


class _Fold(NamedTuple):
    """A block left out: its things, all others, and the matrix that turns the others' labels into scores."""

    inside: Labels
    outside: Labels
    smoother: NDArray[np.float32]


def time_blocks(makers: Sequence[Hashable], blocks: int) -> list[int]:
    """The block of each thing, 0 to blocks − 1, when things in order are cut into contiguous blocks of about equal size.

    A run, neighbouring things of one maker, is never cut in two: it belongs where it starts. So long runs can leave a block empty.
    """
    blocks_of: list[int] = []
    for index, maker in enumerate(makers):
        goes_on = index > 0 and maker == makers[index - 1]
        blocks_of.append(blocks_of[-1] if goes_on else index * blocks // len(makers))
    return blocks_of


def attribute(
    similarities: NDArray[np.float32],
    makers: Sequence[int],
    blocks: Sequence[int],
    *,
    permutations: int = 999,
    seed: int = 0,
) -> Attribution:
    """Attribute each thing by what it is like, and compare with labels dealt out by chance.

    Classifier: kernel ridge regression on centred similarities (Saunders, Gammerman & Vovk, ICML 1998) with one target per maker,
    divided by the root of how much it made, so that chance favours neither who made much nor who made little; a thing goes to the
    maker with the highest score among those the other blocks know.

    Null: within each block the makers of runs (neighbouring things of one maker) are permuted (restricted permutation: Good, "Permutation,
    Parametric and Bootstrap Tests of Hypotheses", 2005). The p-value counts the truth among the permutations (Phipson & Smyth, Statistical
    Applications in Genetics and Molecular Biology 9, 2010), so it is never 0; few things allow few permutations, and p then stays large.

    Args:
        similarities: Shape (things, things), symmetric.
        makers: Shape (things,), 0 to makers − 1; each maker made something, in at least two blocks.
        blocks: Shape (things,), the block of each thing; contiguous stretches of time, at least two.

    Raises:
        ValueError: Shapes that differ, fewer than two makers or blocks, a maker in fewer than two blocks, or no permutations.
    """
    import numpy as np

    labels, places = np.asarray(makers, dtype=np.intp), np.asarray(blocks, dtype=np.intp)
    _check(similarities, labels, places, permutations)
    count = int(labels.max()) + 1
    folds = [_fold(similarities, places == block) for block in np.unique(places)]
    predictions = _predict(folds, labels[None, :], count)
    recalls = _recalls(labels[None, :], predictions, count)[0]
    rng = np.random.default_rng(seed)
    null = []
    step = max(1, MOST_AT_ONCE // (labels.size * count))
    for start in range(0, permutations, step):
        dealt = np.stack([_permuted(labels, places, rng) for _ in range(min(step, permutations - start))])
        null.append(_recalls(dealt, _predict(folds, dealt, count), count))
    null_recalls = np.concatenate(null)
    by_chance = np.sort(null_recalls.mean(axis=1))
    accuracy = float(recalls.mean())
    return Attribution(
        predictions=tuple(predictions[0].tolist()),
        recalls=tuple(recalls.tolist()),
        balanced_accuracy=accuracy,
        null=tuple(by_chance.tolist()),
        null_recalls=tuple(null_recalls.mean(axis=0).tolist()),
        p_value=float((1 + np.count_nonzero(by_chance >= accuracy - 1e-12)) / (1 + permutations)),
    )


def _check(similarities: NDArray[np.float32], labels: Labels, places: Labels, permutations: int) -> None:
    import numpy as np

    if similarities.shape != (labels.size, labels.size) or places.size != labels.size:
        raise ValueError(
            f"similarities {similarities.shape}, {labels.size} makers, {places.size} blocks: they must fit each other"
        )
    if (places[1:] < places[:-1]).any():
        raise ValueError("the blocks are not in order; each is one stretch of time")
    if permutations < 1:
        raise ValueError(f"permutations is {permutations}; allowed: 1 or more")
    if not labels.size or labels.max() < 1:
        raise ValueError("there is only one maker; attribution needs two")
    for maker in range(int(labels.max()) + 1):
        if np.unique(places[labels == maker]).size < 2:
            raise ValueError(f"maker {maker} has things in fewer than two blocks")


def _fold(similarities: NDArray[np.float32], left_out: NDArray[np.bool_]) -> _Fold:
    import numpy as np

    inside, outside = np.flatnonzero(left_out), np.flatnonzero(~left_out)
    among = similarities[np.ix_(outside, outside)].astype(np.float64)
    across = similarities[np.ix_(inside, outside)].astype(np.float64)
    means, mean = among.mean(axis=0), among.mean()
    across += mean - means - across.mean(axis=1, keepdims=True)
    among += mean - means - means[:, None]
    among[np.diag_indices_from(among)] += RIDGE
    smoother = np.linalg.solve(among, across.T).T
    return _Fold(inside, outside, smoother.astype(np.float32))


def _predict(folds: Sequence[_Fold], labels: Labels, count: int) -> Labels:
    """Predictions, shape (labelings, things), for labelings of that shape."""
    import numpy as np

    predictions = np.empty_like(labels)
    for fold in folds:
        known = labels[:, fold.outside]
        targets = (known[:, :, None] == np.arange(count)).astype(np.float32)
        sizes = targets.sum(axis=1)
        targets /= np.sqrt(np.maximum(sizes, 1))[:, None, :]
        stacked = targets.transpose(1, 0, 2).reshape(fold.outside.size, -1)
        scores = (fold.smoother @ stacked).reshape(fold.inside.size, len(labels), count)
        scores = np.where(sizes[None, :, :] > 0, scores, -np.inf)
        predictions[:, fold.inside] = scores.argmax(axis=2).T
    return predictions


def _recalls(labels: Labels, predictions: Labels, count: int) -> Floats:
    import numpy as np

    right = labels == predictions
    return np.stack(
        [np.where(labels == maker, right, False).sum(axis=1) / (labels == maker).sum(axis=1) for maker in range(count)],
        axis=1,
    )


def _permuted(labels: Labels, places: Labels, rng: np.random.Generator) -> Labels:
    """The labels with the runs of each block permuted."""
    import numpy as np

    starts = np.flatnonzero(np.r_[True, (labels[1:] != labels[:-1]) | (places[1:] != places[:-1])])
    runs, blocks = labels[starts], places[starts]
    order = np.lexsort((rng.random(runs.size), blocks))
    return np.repeat(runs[order], np.diff(np.r_[starts, labels.size]))
