"""Training the offline detector: logistic regression with an L2 penalty on hashed features and a threshold set on the training data."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from correction.behavior.calibrating import calibration, cut_for
from correction.behavior.features import GROUPS, features, whole
from correction.behavior.lexicon import DATA, lexicon_digest
from correction.behavior.linear import packed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    Floats = NDArray[np.float64]

TRAINING = tuple(sorted(DATA.glob("training*.jsonl")))
FOLDS = 5
PENALTY = 0.2
SCALES = {"characters": 1.0, "words": 1.0, "kinds": 1.5, "widest": 1.0, "wider": 1.0, "alike": 1.0, "mixed": 1.0}
FINE, ROUGH = (200, 1e-7), (60, 1e-6)  # steps at most, and change of the loss, relative, at which it ends
MOST_FALSE_POSITIVES = 0.025  # of the non-requests, cross-validated at random: where the threshold is set
RIGHT = {"high": 0.97, "medium": 0.9}  # share of right answers, cross-validated, that a level of confidence asks for
STEPS = 127  # of a quantised weight
RARITY = 6.0  # the logarithm at which a feature counts once


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled sentence."""

    text: str
    request: bool
    file: str = ""


def read_examples(paths: Sequence[Path] = TRAINING) -> list[Example]:
    """The training sentences, each text once (of the first file by name), in an order that does not depend on the files' order."""
    found: dict[str, Example] = {}
    for path in sorted(paths):
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                found.setdefault(row["text"], Example(row["text"], row["request"], path.name))
    return sorted(found.values(), key=lambda example: _place(example.text))


def _place(text: str) -> str:
    """Mixes the order of the sentences."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def matrix(pieces: Sequence[str]) -> csr_matrix:
    """A row of scaled features per part of a message, shape (parts, buckets of all groups + 1 for the bias)."""
    import numpy as np
    from scipy.sparse import csr_matrix

    columns: list[int] = []
    values: list[float] = []
    starts = [0]
    for piece in pieces:
        found, offset = features(piece), 0
        for group, buckets in GROUPS.items():
            columns += [offset + bucket for bucket in sorted(found[group])]
            values += [SCALES[group] / max(1, len(found[group])) ** 0.5] * len(found[group])
            offset += buckets
        columns.append(offset)
        values.append(1.0)
        starts.append(len(columns))
    shape = (len(pieces), sum(GROUPS.values()) + 1)
    return csr_matrix((np.array(values, np.float32), np.array(columns, np.int32), np.array(starts)), shape=shape)


def fitted(x: csr_matrix, targets: Floats, *, rough: bool = False) -> Floats:
    """The weights that minimise Σ log(1 + exp(−y f)) + penalty ÷ 2 · ‖w‖², f = x · w, from zero by L-BFGS.

    Liu & Nocedal, "On the limited memory BFGS method for large scale optimization", 1989. The minimum is unique.

    Args:
        x: A row per example, shape (n, features).
        targets: 1.0 request, 0.0 none.
        rough: End sooner, for cross-validation.
    """
    import numpy as np
    from scipy.optimize import minimize
    from scipy.special import expit

    weights = np.zeros(x.shape[1])
    used = np.flatnonzero(np.bincount(x.indices, minlength=x.shape[1]))  # the others' weights stay at zero
    x = x[:, used]
    turned = x.T.tocsr()

    def loss(w: Floats) -> tuple[float, Floats]:  # in single precision as x is: a mixed product would copy x
        f = (x @ w.astype(np.float32)).astype(np.float64)
        value = float(np.sum(np.logaddexp(0.0, f) - targets * f) + 0.5 * PENALTY * w @ w)
        return value, turned @ (expit(f) - targets).astype(np.float32) + PENALTY * w

    steps, tolerance = ROUGH if rough else FINE
    options = {"maxiter": steps, "maxfun": 2 * steps, "maxcor": 10, "ftol": tolerance, "gtol": 0.0}
    weights[used] = minimize(loss, np.zeros(len(used)), method="L-BFGS-B", jac=True, options=options).x
    return weights


def places_by_file(examples: Sequence[Example]) -> list[int]:
    """Folds that keep the sentences of a file together, the largest files first into the emptiest fold.

    Each file has its own writer and theme, and people ask in ways nobody thought of: so this says more about what will come than folds
    drawn at random do.
    """
    filled: Counter[int] = Counter()
    places: dict[str, int] = {}
    sizes = Counter(example.file for example in examples)
    for file, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        places[file] = min(range(FOLDS), key=lambda fold: filled[fold])
        filled[places[file]] += size
    return [places[example.file] for example in examples]


def rarities(x: csr_matrix) -> Floats:
    """How much each feature counts, by the logarithm of how rare it is (Spärck Jones 1972); the last, of the bias, once."""
    import numpy as np

    in_examples = np.bincount(x.indices, minlength=x.shape[1])
    found: Floats = np.log(x.shape[0] / (1.0 + in_examples)).clip(0.0) / RARITY
    found[-1] = 1.0
    return found


def weighted(x: csr_matrix, rarity: Floats) -> csr_matrix:
    """The rows with each feature as much as it counts."""
    import numpy as np
    from scipy.sparse import diags

    return (x @ diags(rarity.astype(np.float32))).tocsr()


def cross_validated(x: csr_matrix, targets: Floats, places: Sequence[int] | None = None) -> Floats:
    """The sum of each example from a model that was trained without its fold; by default of `FOLDS` drawn at random."""
    import numpy as np

    folds = np.arange(len(targets)) % FOLDS if places is None else np.asarray(places)
    sums = np.zeros(len(targets))
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        sums[held] = x[held] @ fitted(x[kept], targets[kept], rough=True)
    return sums


@dataclass(frozen=True, slots=True)
class Trained:
    """The document of a weights file, and the probability of each example from a model trained without it."""

    document: dict[str, Any]
    at_random: Floats


def train(examples: Sequence[Example]) -> Trained:
    """Train on all examples; threshold, calibration and levels are set on sums of models that had not seen the example."""
    import numpy as np
    from scipy.special import expit

    targets = np.array([float(example.request) for example in examples])
    x = matrix([whole(example.text) for example in examples])
    rarity = rarities(x)
    x = weighted(x, rarity)
    sums = cross_validated(x, targets)
    slope, shift = calibration(sums, targets)
    probabilities = expit(slope * sums + shift)
    denied = np.sort(probabilities[targets == 0])[::-1]
    threshold = round(float(denied[int(MOST_FALSE_POSITIVES * len(denied))]) + 1e-4, 4)
    weights = fitted(x, targets) * rarity
    document = {
        "made_by": "manage.py train_behavior_detector",
        "data": digest_of(examples),
        "lexicon": lexicon_digest(),
        "examples": {"requests": int(targets.sum()), "others": int(len(targets) - targets.sum())},
        "buckets": GROUPS,
        "bias": round(float(weights[-1]), 4),
        "calibration": {"slope": slope, "shift": shift},
        "threshold": threshold,
        "levels": _levels(probabilities, targets, threshold),
        "groups": _quantised(weights),
    }
    return Trained(document, probabilities)


def by_file(examples: Sequence[Example], calibrated: tuple[float, float]) -> Floats:
    """The probability of each example from a model that has seen no message of its file; with this slope and shift."""
    import numpy as np
    from scipy.special import expit

    x = matrix([whole(example.text) for example in examples])
    targets = np.array([float(example.request) for example in examples])
    sums = cross_validated(weighted(x, rarities(x)), targets, places_by_file(examples))
    return np.asarray(expit(calibrated[0] * sums + calibrated[1]))


def _levels(probabilities: Floats, targets: Floats, threshold: float) -> dict[str, list[float]]:
    """Per level of confidence, least probability of a request found and most of one denied."""
    return {
        name: [
            cut_for(probabilities, targets, share, least=threshold),
            round(1 - cut_for(1 - probabilities, 1 - targets, share, least=1 - threshold), 4),
        ]
        for name, share in RIGHT.items()
    }


def _quantised(weights: Floats) -> dict[str, Any]:
    import numpy as np

    found, offset = {}, 0
    for group, buckets in GROUPS.items():
        part = weights[offset : offset + buckets] * SCALES[group]
        step = float(f"{np.abs(part).max() / STEPS or 1.0:.4g}")
        whole_steps = np.clip(np.rint(part / step), -STEPS, STEPS).astype(np.int8)
        found[group] = {"step": step, "weights": packed(array("b", whole_steps.tobytes()))}
        offset += buckets
    return found


def digest_of(examples: Sequence[Example]) -> str:
    """SHA-256 (hex) of the texts and labels, whatever their order."""
    rows = sorted([example.text, example.request] for example in examples)
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def as_text(document: dict[str, Any]) -> str:
    """A weights file's text: the same for the same document."""
    return json.dumps(document, indent=1, sort_keys=True) + "\n"
