"""Training the offline detector: logistic regression with an L2 penalty, solved exactly, so that the same data give the same weights."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from correction.behavior.features import GROUPS, features, whole
from correction.behavior.lexicon import DATA, lexicon_digest
from correction.behavior.linear import packed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from scipy.sparse import csr_matrix

    Floats = NDArray[np.float64]

TRAINING = (DATA / "training.jsonl", DATA / "training_more.jsonl")
FOLDS, KIND_FOLDS = 5, 6
PENALTY = 0.05
SCALES = {"characters": 1.0, "words": 1.0, "kinds": 1.5}
NEWTON_STEPS = 50
TOLERANCE, ROUGH = 1e-10, 1e-6  # of the loss, relative; the rough one while cross-validating
MOST_FALSE_POSITIVES = 0.03  # of the non-requests, cross-validated by kind: where the threshold is set
RIGHT = {"high": 0.97, "medium": 0.9}  # share of right answers, cross-validated, that a level of confidence asks for
FEWEST = 30  # answers that a share is measured on
STEPS = 127  # of a quantised weight


@dataclass(frozen=True, slots=True)
class Example:
    """A labelled sentence."""

    text: str
    request: bool
    kind: str = ""
    language: str = ""


def read_examples(paths: Sequence[Path] = TRAINING) -> list[Example]:
    """The training sentences, each text once, in an order that does not depend on the files' order."""
    found: dict[str, Example] = {}
    for path in paths:
        if not path.exists():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.strip():
                row = json.loads(line)
                found.setdefault(
                    row["text"], Example(row["text"], row["request"], row.get("kind", ""), row.get("language", ""))
                )
    return sorted(found.values(), key=lambda example: _place(example.text))


def _place(text: str) -> str:
    """Mixes the order: the fold of a sentence depends on nothing but its text."""
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
    return csr_matrix((np.array(values), np.array(columns), np.array(starts)), shape=shape)


def dual_weights(kernel: Floats, targets: Floats, penalty: float, tolerance: float = TOLERANCE) -> Floats:
    """The coefficients of the examples that minimise Σ log(1 + exp(−y f)) + penalty ÷ 2 · ‖w‖², f = kernel · coefficients.

    Newton's method with halved steps where the loss would rise (Rasmussen & Williams, "Gaussian Processes for Machine Learning", 2006,
    algorithm 3.1; Jaakkola & Haussler 1999 for the dual of logistic regression). Its solution is unique and reached to rounding.

    Args:
        kernel: Products of every two examples, shape (n, n).
        targets: 1.0 request, 0.0 none.
        penalty: > 0.
        tolerance: Of the loss, relative, at which it ends.
    """
    import numpy as np
    from scipy.sparse.linalg import LinearOperator, cg

    scaled = kernel / penalty
    alpha = np.zeros(len(targets))

    def loss(a: Floats) -> float:
        f = scaled @ a
        return float(np.sum(np.logaddexp(0.0, f) - targets * f) + 0.5 * a @ f)

    now = loss(alpha)
    for _ in range(NEWTON_STEPS):
        f = scaled @ alpha
        p = 1 / (1 + np.exp(-f))
        curve = np.maximum(p * (1 - p), 1e-12)
        root = np.sqrt(curve)
        b = curve * f + targets - p
        system = LinearOperator(
            scaled.shape, matvec=lambda v, root=root: v + root * (scaled @ (root * v)), dtype=np.float64
        )
        wanted = b - root * cg(system, root * (scaled @ b), rtol=min(1e-4, tolerance * 100), maxiter=1_000)[0]
        step = 1.0
        while (then := loss(alpha + step * (wanted - alpha))) > now and step > 1e-4:
            step /= 2
        alpha = alpha + step * (wanted - alpha)
        if now - then < tolerance * max(1.0, abs(now)):
            break
        now = then
    return alpha / penalty


def places_by_kind(examples: Sequence[Example]) -> list[int]:
    """Folds that keep sentences of one kind together, so that each is judged by a model that has never seen its kind.

    People ask in ways nobody thought of, so this says more about what will come than folds drawn at random do.
    """
    return [
        int(_place(f"{example.request} {example.kind}")[:8], 16) % KIND_FOLDS if example.kind else KIND_FOLDS
        for example in examples
    ]


def cross_validated(kernel: Floats, targets: Floats, places: Sequence[int] | None = None) -> Floats:
    """The sum of each example from a model that was trained without its fold; by default of `FOLDS` drawn at random."""
    import numpy as np

    folds = np.arange(len(targets)) % FOLDS if places is None else np.asarray(places)
    sums = np.zeros(len(targets))
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        alpha = dual_weights(kernel[np.ix_(kept, kept)], targets[kept], PENALTY, ROUGH)
        sums[held] = kernel[np.ix_(held, kept)] @ alpha
    return sums


def calibration(sums: Floats, targets: Floats) -> tuple[float, float]:
    """Slope and shift that make probabilities of cross-validated sums (Platt 1999, with his prior)."""
    import numpy as np
    from scipy.optimize import minimize

    asked, denied = float(targets.sum()), float(len(targets) - targets.sum())
    goal = np.where(targets == 1, (asked + 1) / (asked + 2), 1 / (denied + 2))

    def loss(pair: Floats) -> float:
        f = pair[0] * sums + pair[1]
        return float(np.sum(np.logaddexp(0.0, f) - goal * f))

    found = minimize(loss, np.array([1.0, 0.0]), method="BFGS").x
    return round(float(found[0]), 3), round(float(found[1]), 3)


def cut_for(scores: Floats, right: Floats, share: float, *, least: float) -> float:
    """The smallest score from which on at least `share` of the answers are right; 1.01, which no probability reaches, if there is none."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    shares = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    good = [i for i in range(FEWEST - 1, len(order)) if shares[i] >= share and scores[order[i]] >= least]
    return round(float(scores[order[max(good)]]), 4) if good else 1.01


def train(examples: Sequence[Example]) -> tuple[dict[str, Any], Floats]:
    """The document of a weights file, and the probability of each example, cross-validated at random."""
    import numpy as np

    targets = np.array([float(example.request) for example in examples])
    x = matrix([whole(example.text) for example in examples])
    kernel = (x @ x.T).toarray()
    sums = cross_validated(kernel, targets, places_by_kind(examples))
    slope, shift = calibration(sums, targets)
    probabilities = 1 / (1 + np.exp(-(slope * sums + shift)))
    denied = np.sort(probabilities[targets == 0])[::-1]
    threshold = round(float(denied[int(MOST_FALSE_POSITIVES * len(denied))]) + 1e-4, 4)
    levels = {
        name: [
            cut_for(probabilities, targets, share, least=threshold),
            round(1 - cut_for(1 - probabilities, 1 - targets, share, least=1 - threshold), 4),
        ]
        for name, share in RIGHT.items()
    }
    weights = x.T @ dual_weights(kernel, targets, PENALTY)
    return {
        "made_by": "manage.py train_behavior_detector",
        "data": digest_of(examples),
        "lexicon": lexicon_digest(),
        "examples": {"requests": int(targets.sum()), "others": int(len(targets) - targets.sum())},
        "buckets": GROUPS,
        "bias": round(float(weights[-1]), 4),
        "calibration": {"slope": slope, "shift": shift},
        "threshold": threshold,
        "levels": levels,
        "groups": _quantised(weights),
    }, 1 / (1 + np.exp(-(slope * cross_validated(kernel, targets) + shift)))


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
