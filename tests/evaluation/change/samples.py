"""Measurements as values, for tests that need no database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evaluation.change.change import ChangeResult, mean_of
from evaluation.change.comparison import Comparison
from evaluation.change.measured import MeasuredDimension, MeasuredProposition
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
    digests: Mapping[str, str] | None = None,
    **fields: Any,
) -> Measurement:
    """A measurement whose scores follow from its observations."""

    def one(proposition: str, rows: Sequence[Observation]) -> MeasuredProposition:
        return MeasuredProposition(
            score=mean_of(rows), observations=tuple(rows), digest=(digests or {}).get(proposition, "same")
        )

    dimensions = {
        d: MeasuredDimension(
            score=mean_of(o for rows in by.values() for o in rows),
            propositions={p: one(p, rows) for p, rows in by.items()},
        )
        for d, by in (judged or {}).items()
    }
    given = {"target": "ada", "judge": LLM, "procedure": "plumbline", "dimensions": dimensions}
    return Measurement(name=name, **{**given, **fields})


def adherence(scores: Scores, *, first: int = 1, unit: str = "message", **fields: Any) -> Measurement:
    """A measurement of one adherence proposition."""
    return measurement({"adherence": {"voice": of(scores, first=first, unit=unit)}}, **fields)


def only(comparison: Comparison) -> ChangeResult:
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
            d: {"score": of.score, "propositions": {p: one.score for p, one in of.propositions.items()}}
            for d, of in found.dimensions.items()
        },
        "observations": observations_json(found),
    }
