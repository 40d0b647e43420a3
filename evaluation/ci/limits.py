"""What a build is held to: thresholds, the size of a regression, and how much may stay unjudged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from evaluation.models import COUNTED
from evaluation.scorers import SCORERS
from evaluation.statistics.difference import MARGIN

EVERY = ""  # the threshold of every dimension that is scored 0 to 9
OVERALL = "overall"
HIGHEST = 9.0
REGRESSION_DELTA = 0.5
MAX_UNSCORED = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a build fail.

    Attributes:
        thresholds: Least score by dimension id; `OVERALL` for the overall score, `EVERY` for each dimension without one of its own.
        regression_delta: A fall of this many points, if it is sure, is a regression.
        margin: A change within ± this many points is none.
        max_unscored: Share of what the judge could have judged that may stay unjudged, per agent and dimension, 0 to 1.
        strict: Whether "cannot tell yet" and a missing baseline end with 2.
    """

    thresholds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    regression_delta: float = REGRESSION_DELTA
    margin: float = MARGIN
    max_unscored: float = MAX_UNSCORED
    strict: bool = False

    def __post_init__(self) -> None:
        for name in ("regression_delta", "margin"):
            value = getattr(self, name)
            if not (math.isfinite(value) and 0 < value <= HIGHEST):
                raise ValueError(f"--{name.replace('_', '-')} {value:g}: allowed: above 0, at most 9")
        if not 0 <= self.max_unscored <= 1:
            raise ValueError(f"--max-unscored {self.max_unscored:g}: allowed: 0 to 1, e.g. 0.2 or 20%")

    def threshold(self, dimension: str) -> float | None:
        """The least score a dimension must have; a bare number says nothing about counts."""
        if dimension in self.thresholds or dimension in COUNTED or dimension == OVERALL:
            return self.thresholds.get(dimension)
        return self.thresholds.get(EVERY)

    def check_dimensions(self, measured: Sequence[str]) -> None:
        """Refuse a threshold for what is not measured: it would never fail.

        Raises:
            ValueError: Names the dimension and those measured.
        """
        for name in self.thresholds:
            if name not in (*measured, OVERALL, EVERY):
                raise ValueError(f"--threshold {name}: not among the dimensions measured: {', '.join(measured)}")


def parse_thresholds(text: str) -> dict[str, float]:
    """Read ``5`` (each dimension that is scored), or ``adherence=6,fluency=4``, or both; ``overall=6`` is for the overall score.

    Raises:
        ValueError: Names the value and what is allowed.
    """
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, number = (piece.strip() for piece in part.rpartition("="))
        if equals and name not in (*SCORERS, OVERALL):
            raise ValueError(f"--threshold {part!r}: no dimension {name!r}; allowed: {', '.join((*SCORERS, OVERALL))}")
        if name in found:
            raise ValueError(f"--threshold {text!r}: {name or 'a number for all'} is given twice")
        found[name] = _number(part, number, counted=name in COUNTED)
    return found


def _number(part: str, text: str, *, counted: bool) -> float:
    allowed = "a number from 0" if counted else "a number from 0 to 9"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (value >= 0 and (math.isfinite(value) if counted else value <= HIGHEST)):
        raise ValueError(f"--threshold {part!r}: allowed: {allowed}, e.g. 5 or adherence=6,fluency=4")
    return value


def parse_share(text: str) -> float:
    """Read ``0.2`` or ``20%``.

    Raises:
        ValueError: It is neither.
    """
    try:
        return float(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        raise ValueError(f"--max-unscored {text!r}: allowed: 0 to 1, e.g. 0.2 or 20%") from None
