"""Comparing two weights files: the solver's last digits depend on the machine, so only what exceeds rounding counts."""

from __future__ import annotations

from typing import Any

from correction.behavior.linear import from_document

FIGURE_TOLERANCE = 0.01  # of bias, threshold, calibration and levels


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What two weights files disagree on beyond rounding: a weight by more than a quantisation step, another figure by more than 0.01."""
    found = [name for name in ("data", "lexicon", "examples", "buckets") if one[name] != other[name]]
    found += [name for name in ("bias", "threshold") if abs(one[name] - other[name]) > FIGURE_TOLERANCE]
    found += [
        f"calibration {name}"
        for name, value in one["calibration"].items()
        if abs(value - other["calibration"][name]) > FIGURE_TOLERANCE
    ]
    found += [
        f"level {name}"
        for name, cuts in one["levels"].items()
        if any(abs(a - b) > FIGURE_TOLERANCE for a, b in zip(cuts, other["levels"][name], strict=True))
    ]
    if "buckets" in found:
        return found
    mine, others = from_document(one).groups, from_document(other).groups
    for name, (weights, step) in mine.items():
        theirs, their_step = others[name]
        most = 1.001 * max(step, their_step)
        if any(abs(a * step - b * their_step) > most for a, b in zip(weights, theirs, strict=True)):
            found.append(f"weights of {name}")
    return found
