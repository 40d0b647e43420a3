"""What a build is held to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from evaluation.models import COUNTED
from evaluation.scorers import SCORERS
from evaluation.statistics.difference import MARGIN

ALL_DIMENSIONS = ""  # the key of the threshold for every dimension that is scored 0 to 9
OVERALL = "overall"
HIGHEST_SCORE = 9.0
REGRESSION_DELTA = 0.5
MAX_UNSCORED = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What makes a build fail.

    Attributes:
        thresholds: Least score by dimension id; `OVERALL` for the overall score, `ALL_DIMENSIONS` for each without one of its own.
        regression_delta: A significant fall of this many points is a regression.
        margin: A change within ± this many points is none.
        max_unscored: Share of what the judge could have judged that may stay unjudged, per agent and dimension, 0 to 1.
        strict: Whether "cannot tell yet", a score on one side only and a missing baseline end with 2.
        require_passport: Whether a judge that is not shown to be usable in each dimension ends with 2.
    """

    thresholds: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    regression_delta: float = REGRESSION_DELTA
    margin: float = MARGIN
    max_unscored: float = MAX_UNSCORED
    strict: bool = False
    require_passport: bool = False

    def __post_init__(self) -> None:
        """Refuse limits that make no sense."""
        for name in ("regression_delta", "margin"):
            points = getattr(self, name)
            if not (math.isfinite(points) and 0 < points <= HIGHEST_SCORE):
                raise ValueError(f"--{name.replace('_', '-')} {points:g}: allowed: above 0, at most 9")
        if not 0 <= self.max_unscored <= 1:
            raise ValueError(f"--max-unscored {self.max_unscored:g}: allowed: 0 to 1, e.g. 0.2 or 20%")

    def threshold(self, dimension: str) -> float | None:
        """Return the least score that a dimension must have; None where it needs none."""
        if dimension in self.thresholds:
            return self.thresholds[dimension]
        # A bare number is on the scale of 0 to 9: it says nothing about counts, and the overall score has a threshold of its own.
        if dimension in COUNTED or dimension == OVERALL:
            return None
        return self.thresholds.get(ALL_DIMENSIONS)

    def check_dimensions(self, measured: Sequence[str]) -> None:
        """Refuse a threshold for what is not measured: it would never fail.

        Raises:
            ValueError: Names the dimension and those measured.
        """
        for name in self.thresholds:
            if name not in (*measured, OVERALL, ALL_DIMENSIONS):
                raise ValueError(f"--threshold {name}: not among the dimensions measured: {', '.join(measured)}")

    def __str__(self) -> str:
        """Return the thresholds, e.g. ``5, fluency 4``; empty without any."""
        words = []
        for name in sorted(self.thresholds, key=lambda name: name != ALL_DIMENSIONS):
            words.append(f"{name} {self.thresholds[name]:g}".strip())
        return ", ".join(words)


def parse_thresholds(text: str) -> dict[str, float]:
    """Read ``5`` (each dimension that is scored), or ``adherence=6,fluency=4``, or both; ``overall=6`` is for the overall score.

    Raises:
        ValueError: Names the value and what is allowed.

    Returns:
        By dimension, `OVERALL` or, for a bare number, `ALL_DIMENSIONS`, which is the empty name; nothing for an empty text.
    """
    thresholds: dict[str, float] = {}
    for threshold in text.split(","):
        threshold = threshold.strip()
        if not threshold:
            continue
        name, equals, number = (part.strip() for part in threshold.rpartition("="))
        if equals and name not in (*SCORERS, OVERALL):
            allowed = ", ".join((*SCORERS, OVERALL))
            raise ValueError(f"--threshold {threshold!r}: no dimension {name!r}; allowed: {allowed}")
        if name in thresholds:
            raise ValueError(f"--threshold {text!r}: {name or 'a number for all'} is given twice")
        thresholds[name] = _parse_least_score(number, threshold, is_count=name in COUNTED)
    return thresholds


def _parse_least_score(number: str, threshold: str, *, is_count: bool) -> float:
    """Read the number of a threshold: a count has no upper limit, a score is at most 9."""
    highest = math.inf if is_count else HIGHEST_SCORE
    try:
        least = float(number)
    except ValueError:
        least = math.nan
    if math.isfinite(least) and 0 <= least <= highest:
        return least
    allowed = "a number from 0" if is_count else "a number from 0 to 9"
    raise ValueError(f"--threshold {threshold!r}: allowed: {allowed}, e.g. 5 or adherence=6,fluency=4")
