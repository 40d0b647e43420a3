"""Measurements as JSON: the judgements that a run prints, and reading such a file as a baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.change.measurements import Measurement
from evaluation.models import COUNTED, Method
from evaluation.propositions.files import dotted, in_words, location_of
from evaluation.runs.summary import TOO_LITTLE, Share
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation

Score = Annotated[float, Field(ge=0, le=9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a score or a count; which of them, its dimension says


class UnreadableFile(ValueError):
    """A file that is no measurement; says which field is wrong and what is allowed."""


def observations_json(measurement: Measurement) -> dict[str, Any]:
    """The judgements behind a measurement, per dimension and proposition, compact: the mean of the repeats per message.

    `scores` is by what was judged (``message:KEY``, ``situation:ID``, ``channel:SLUG``, ``repeat:N``), a list where there are several.
    `weight` is the proposition's; where what was judged counts differently (channels, by the agent's messages), `weights` has each.
    `judged` counts the messages that the judge could have scored. `digest` tells whether the proposition is still the same.
    """
    return {
        dimension: {
            name: _of_proposition(
                rows,
                measurement.digests.get(dimension, {}).get(name, ""),
                measurement.by_message.get(dimension, {}).get(name),
            )
            for name, rows in sorted(by_proposition.items())
        }
        for dimension, by_proposition in measurement.observations.items()
        if by_proposition
    }


def _of_proposition(rows: Sequence[Observation], digest: str, share: Share | None) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for row in rows:
        value = round(row.value, 4)
        value = int(value) if value == int(value) else value
        key = str(row.cluster)
        scores[key] = value if key not in scores else [*_listed(scores[key]), value]
    weights = {str(row.cluster): round(row.weight, 6) for row in rows}
    same = len(set(weights.values())) == 1
    return {
        **({"digest": digest} if digest else {}),
        **({"weight": next(iter(weights.values()))} if same else {"weights": weights}),
        **({"judged": share.asked} if share else {}),
        "scores": dict(sorted(scores.items())),
    }


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Judged(_Strict):
    digest: str = ""
    weight: Weight = 1.0
    weights: dict[str, Weight] = Field(default_factory=dict)
    judged: Count | None = None
    scores: dict[str, Figure | list[Figure]]

    @property
    def observations(self) -> tuple[Observation, ...]:
        return tuple(
            Observation(float(value), self.weights.get(key, self.weight), key)
            for key, values in self.scores.items()
            for value in _listed(values)
        )


class _Dimension(_Strict):
    score: Score | None = None
    count: Count | None = None
    scored: Count = 0
    trivial: Count = 0
    unscored: Count = 0
    reason: str = ""
    propositions: dict[str, Figure | None] = Field(default_factory=dict)


class _Run(_Strict):
    agent: str | None = None
    channel: str | None = None
    judge: str = ""
    procedure: str = Method.PLUMBLINE.value
    persona_digest: str = ""
    status: str = "completed"
    dimensions: dict[str, _Dimension]
    observations: dict[str, dict[str, _Judged]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> _Run:
        if not (self.agent or self.channel):
            raise ValueError("names no target; allowed: agent or channel, a slug")
        asked = [name for dimension in self.dimensions.values() for name in dimension.propositions]
        judged = [name for by_proposition in self.observations.values() for name in by_proposition]
        for text in (self.agent or "", self.channel or "", self.judge, self.procedure, *asked, *judged):
            if not text.isprintable():
                raise ValueError(f"{text[:60]!r} holds control characters; allowed: one line of visible text")
        for name in (*self.dimensions, *self.observations):
            if name not in SCORERS:
                raise ValueError(f"unknown dimension {name!r}; allowed: {', '.join(SCORERS)}")
        for name, by_proposition in self.observations.items():
            for proposition, of_one in by_proposition.items() if name not in COUNTED else ():
                for key, value in of_one.scores.items():
                    if any(v > 9 for v in _listed(value)):
                        raise ValueError(f"observations.{name}.{proposition}.scores[{key}] is {value}; allowed: 0 to 9")
        for name, dimension in self.dimensions.items():
            for proposition, score in dimension.propositions.items() if name not in COUNTED else ():
                if score is not None and score > 9:
                    raise ValueError(f"dimensions.{name}.propositions.{proposition} is {score}; allowed: 0 to 9")
        return self


class _File(_Strict):
    judge: str = Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    runs: list[_Run]
    channels: list[_Run] = Field(default_factory=list)


def measurements_of_file(path: Path | str) -> dict[str, Measurement]:
    """The measurements in a file that ``capture_baseline --json`` (or ``evaluate --json``) printed, by target.

    Args:
        path: The file, UTF-8. Without `observations` its scores still serve: they are then taken as exact.

    Returns:
        By slug; channels by ``#slug``. Runs that are not completed are left out.

    Raises:
        UnreadableFile: It cannot be read, or is not such a file; names the file, the field and what is allowed.
    """
    data = _read(Path(path))
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path}: expected an object with judge and runs, as capture_baseline --json prints it")
    try:
        document = _File.model_validate(data)
    except ValidationError as error:
        problems = [
            f"{path}: {dotted(location_of(dict(e))) or 'the file'}: {in_words(dict(e), ())}" for e in error.errors()
        ]
        raise UnreadableFile("\n".join(dict.fromkeys(problems[:10]))) from None
    measurements: dict[str, Measurement] = {}
    for run in (*document.runs, *document.channels):
        if run.status != "completed":
            continue
        measurement = _measurement(run, run.judge or document.judge, str(path))
        if measurement.target in measurements:
            raise UnreadableFile(
                f"{path}: {measurement.target} stands twice; allowed: one run of each agent or channel"
            )
        measurements[measurement.target] = measurement
    return measurements


def _read(path: Path) -> Any:
    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not allowed; allowed: finite numbers")

    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=no_number)
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UnreadableFile(f"{path}: nested too deeply") from None
    except ValueError as error:  # also what is no UTF-8
        raise UnreadableFile(f"{path}: not valid JSON: {error}") from None


def _measurement(run: _Run, judge: str, name: str) -> Measurement:
    judged = {d: by for d, by in run.observations.items() if d in run.dimensions}
    observations = {d: {p: one.observations for p, one in by.items() if one.scores} for d, by in judged.items()}
    digests = {d: {p: one.digest for p, one in by.items() if one.digest} for d, by in run.observations.items()}
    return Measurement(
        name=name,
        target=run.agent or f"#{run.channel}",
        judge=judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        scores={d: row.count if d in COUNTED else row.score for d, row in run.dimensions.items()},
        proposition_scores={d: dict(row.propositions) for d, row in run.dimensions.items()},
        observations={d: by for d, by in observations.items() if by},
        counted=frozenset(d for d in run.dimensions if d in COUNTED),
        unscored={d: row.unscored for d, row in run.dimensions.items()},
        judged={d: row.scored + row.trivial + row.unscored for d, row in run.dimensions.items()},
        shares={d: _shares(by) for d, by in judged.items()},
        by_message={d: _shares(by) for d, by in judged.items()},
        reasons={d: row.reason for d, row in run.dimensions.items() if row.reason.startswith(TOO_LITTLE)},
        digests={d: by for d, by in digests.items() if by},
    )


def _shares(judged: Mapping[str, _Judged]) -> dict[str, Share]:
    """How much was scored, where the file says of how many."""
    shares = {}
    for name, of_one in judged.items():
        scored = len(of_one.observations)
        if of_one.judged is not None and scored <= of_one.judged:
            shares[name] = Share(scored, of_one.judged)
    return shares


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
