"""What of two sides is compared: the propositions that were asked on both, are the same, and are scored on both."""

from __future__ import annotations

from evaluation.comparison.changes import Measured
from evaluation.comparison.sides import mean_of
from evaluation.comparison.values import Side
from evaluation.statistics.bootstrap import Observation

REPEAT = "repeat:"  # the clusters of what is judged over a whole window


def asked_on_both(baseline: Side, current: Side, dimension: str) -> list[str]:
    now = current.proposition_scores.get(dimension, {})
    return [p for p in baseline.proposition_scores.get(dimension, {}) if p in now]


def reworded(baseline: Side, current: Side, dimension: str, proposition: str) -> bool:
    before, now = (side.digests.get(dimension, {}).get(proposition) for side in (baseline, current))
    return before is not None and now is not None and before != now


def only_scored_once(baseline: Side, current: Side, dimension: str) -> list[str]:
    """Propositions asked on both sides of which one side has no score."""
    if dimension in baseline.counted | current.counted:
        return []
    found = {
        p: [of_proposition(side, dimension, p).score for side in (baseline, current)]
        for p in asked_on_both(baseline, current, dimension)
    }
    return [p for p, (before, now) in found.items() if (before is None) != (now is None)]


def of_proposition(side: Side, dimension: str, name: str) -> Measured:
    score = side.proposition_scores.get(dimension, {}).get(name)
    return Measured(score=score, observations=side.observations.get(dimension, {}).get(name, ()))


def over_window(baseline: Side, current: Side, dimension: str, same: list[str]) -> list[str]:
    """Of a dimension judged message by message, the propositions judged once over the window: one judgement is no sample of messages."""
    judged = {p: [o for s in (baseline, current) for o in of_proposition(s, dimension, p).observations] for p in same}
    windows = [p for p, rows in judged.items() if rows and all(str(o.cluster).startswith(REPEAT) for o in rows)]
    return windows if any(judged[p] for p in same if p not in windows) else []


def of_dimension(baseline: Side, current: Side, dimension: str, same: list[str]) -> tuple[Measured, Measured]:
    """The dimension on both sides, by the propositions that are scored on both.

    A file may hold scores without judgements: then its propositions count as much as on the other side.
    """
    if dimension in baseline.counted | current.counted:
        return _whole(baseline, dimension), _whole(current, dimension)
    if not any(side.proposition_scores.get(dimension) for side in (baseline, current)):
        return _whole(baseline, dimension), _whole(current, dimension)  # files that name no propositions
    before, now = ([p for p in same if of_proposition(s, dimension, p).score is not None] for s in (baseline, current))
    scored = [p for p in before if p in now]
    if not before or not now:  # nothing to compare: what there is is shown
        return _of(baseline, current, dimension, before), _of(current, baseline, dimension, now)
    return _of(baseline, current, dimension, scored), _of(current, baseline, dimension, scored)


def _whole(side: Side, dimension: str) -> Measured:
    rows = side.observations.get(dimension, {}).values()
    return Measured(score=side.scores.get(dimension), observations=tuple(o for of_one in rows for o in of_one))


def _of(side: Side, other: Side, dimension: str, names: list[str]) -> Measured:
    if set(names) == {p for p, s in side.proposition_scores.get(dimension, {}).items() if s is not None}:
        return _whole(side, dimension)
    observations = tuple(o for p in names for o in side.observations.get(dimension, {}).get(p, ()))
    if observations or not names:
        return Measured(score=mean_of(observations), observations=observations)
    weights = {p: sum(o.weight for o in other.observations.get(dimension, {}).get(p, ())) or 1.0 for p in names}
    scores = side.proposition_scores[dimension]
    return Measured(score=mean_of(Observation(scores[p] or 0.0, weights[p]) for p in names))
