"""Measurements as values, for tests that need no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.change.change import Change, mean_of
from evaluation.change.comparison import Comparison
from evaluation.change.measurement_files import observations_json
from evaluation.change.measurements import Measurement
from evaluation.statistics.bootstrap import Observation

LLM, OFFLINE = "claude-haiku-5-5", "offline:lexical-1"
Scores = Sequence[float]


def of(scores: Scores, *, unit: str = "message", first: int = 1, weight: float = 1.0) -> tuple[Observation, ...]:
    """One observation per score, each of a message (situation, channel, repeat) of its own."""
    return tuple(Observation(float(s), weight, f"{unit}:{n}") for n, s in enumerate(scores, first))


def measurement(
    judged: Mapping[str, Mapping[str, Sequence[Observation]]] | None = None,
    /,
    *,
    name: str = "measurement",
    **fields: Any,
) -> Measurement:
    """A measurement whose scores follow from its observations."""
    found = {d: {p: tuple(rows) for p, rows in by.items()} for d, by in (judged or {}).items()}
    given = {
        "target": "ada",
        "judge": LLM,
        "procedure": "plumbline",
        "scores": {d: mean_of(o for rows in by.values() for o in rows) for d, by in found.items()},
        "proposition_scores": {d: {p: mean_of(rows) for p, rows in by.items()} for d, by in found.items()},
        "observations": {d: {p: rows for p, rows in by.items() if rows} for d, by in found.items()},
        "digests": {d: dict.fromkeys(by, "same") for d, by in found.items()},
    }
    return Measurement(name=name, **{**given, **fields})


def adherence(scores: Scores, *, first: int = 1, unit: str = "message", **fields: Any) -> Measurement:
    """A measurement of one adherence proposition."""
    return measurement({"adherence": {"voice": of(scores, first=first, unit=unit)}}, **fields)


def only(comparison: Comparison) -> Change:
    """The change of its one dimension."""
    (change,) = comparison.dimensions
    return change


def run_json(found: Measurement) -> dict[str, Any]:
    """A measurement as one of the `runs` of a file that `measurements_of_file` reads."""
    return {
        "agent": found.target,
        "judge": found.judge,
        "procedure": found.procedure,
        "persona_digest": found.persona_digest,
        "dimensions": {
            d: {"score": score, "propositions": dict(found.proposition_scores.get(d, {}))}
            for d, score in found.scores.items()
        },
        "observations": observations_json(found),
    }
