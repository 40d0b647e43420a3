"""The linear model: weights of hashed features, read from a small file, in plain Python."""

from __future__ import annotations

import base64
import json
import math
import zlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from correction.behavior.clear_forms import clear_form
from correction.behavior.features import GROUPS, Features, features, parts
from correction.behavior.lexicon import DATA

WEIGHTS = DATA / "weights.json"
MOST_PARTS = 40
Level = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What the model makes of a message.

    Attributes:
        has_request: Whether it asks the one who is addressed to behave differently.
        probability: Calibrated, 0 to 1, that it does.
        confidence: How sure the answer is, whichever it is.
        form: The pattern it fits (`clear_forms`); empty where the model alone decides.
    """

    has_request: bool
    probability: float
    confidence: Level
    form: str = ""


@dataclass(frozen=True, slots=True)
class Model:
    """Weights and what makes probabilities and levels of their sum.

    Attributes:
        bias: Of the sum.
        groups: Per group of features the quantised weights and the size of one step.
        slope, shift: Of the calibration: probability = 1 ÷ (1 + exp(−(slope · sum + shift))).
        threshold: Least probability of a request.
        levels: Least probability of a request found with high and with medium confidence, and most of one denied so.
    """

    bias: float
    groups: dict[str, tuple[array[int], float]]
    slope: float
    shift: float
    threshold: float
    levels: dict[str, tuple[float, float]]

    def sum_of(self, found: Features) -> float:
        """The weighted sum: per group, the mean-like Σ weight ÷ √n over its n features."""
        total = self.bias
        for group, (weights, step) in self.groups.items():
            if buckets := found[group]:
                total += step * sum(map(weights.__getitem__, buckets)) / math.sqrt(len(buckets))
        return total

    def probability(self, pieces: list[str]) -> float:
        """That a message holds a request: of its parts (`features.parts`), the most probable."""
        return self.calibrated(max(self.sum_of(features(piece)) for piece in _ends_of(pieces)))

    def calibrated(self, total: float) -> float:
        return 1 / (1 + math.exp(-max(-500.0, min(500.0, self.slope * total + self.shift))))

    def find(self, text: str) -> Finding:
        """Judge a message. Never raises, whatever the text; takes bounded time."""
        pieces = parts(text)
        probability = self.probability(pieces)
        form = next(filter(None, (clear_form(piece) for piece in _ends_of(pieces))), "")
        if form:  # the levels of the model do not hold for what it would have missed: of the patterns only that they are mostly right
            surely = probability >= self.levels["high"][0]
            return Finding(True, probability, "high" if surely else "medium", form)
        return Finding(probability >= self.threshold, probability, self.level(probability))

    def level(self, probability: float) -> Level:
        asked = probability >= self.threshold
        for name in ("high", "medium"):
            found_from, denied_to = self.levels[name]
            if (probability >= found_from) if asked else (probability <= denied_to):
                return "high" if name == "high" else "medium"
        return "low"


def _ends_of(pieces: list[str]) -> list[str]:
    """Of very many parts those at both ends."""
    half = MOST_PARTS // 2
    return pieces if len(pieces) <= MOST_PARTS else pieces[:half] + pieces[-half:]


def packed(weights: array[int]) -> str:
    """Weights as text."""
    return base64.b64encode(zlib.compress(weights.tobytes(), 9)).decode()


def from_document(document: dict[str, Any]) -> Model:
    """The model of a weights file.

    Raises:
        ValueError: The file was made for other features.
    """
    if document["buckets"] != GROUPS:
        raise ValueError(f"weights for {document['buckets']}; the features are {GROUPS}: train_behavior_detector")
    groups = {}
    for name, group in document["groups"].items():
        weights = array("b")
        weights.frombytes(zlib.decompress(base64.b64decode(group["weights"])))
        groups[name] = (weights, float(group["step"]))
    return Model(
        bias=document["bias"],
        groups=groups,
        slope=document["calibration"]["slope"],
        shift=document["calibration"]["shift"],
        threshold=document["threshold"],
        levels={name: (pair[0], pair[1]) for name, pair in document["levels"].items()},
    )


@lru_cache(maxsize=1)
def model() -> Model:
    """The model of the repository, read once per process."""
    return from_document(json.loads(WEIGHTS.read_text(encoding="utf-8")))
