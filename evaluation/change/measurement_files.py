"""Measurements as JSON: what commands print, and what a later comparison reads from such a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.change.change import mean_of
from evaluation.change.measurements import Measured, MeasuredDimension, Measurement, measurement_of
from evaluation.models import BY_MESSAGE, COUNTED, EvaluationRun, Method
from evaluation.propositions.files import dotted, in_words, location_of
from evaluation.runs.execute import Captured, run_json
from evaluation.runs.summary import TOO_LITTLE, RunSummary, Share, channels_of, total
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation


class UnreadableFile(ValueError):
    """A file that is no measurement; says which field is wrong and what is allowed."""


def as_json(judge: str, results: Sequence[Captured]) -> dict[str, Any]:
    """The object ``--json`` prints; `channels` are the channels' own runs, whose calls and cost are in none of the agents'."""
    channels = [_run_json(summary) for summary in channels_of(result.summary for result in results)]
    document = {"judge": judge, "runs": [_run_json(result.summary) for result in results]}
    return {**document, "channels": channels} if channels else document


def _run_json(summary: RunSummary) -> dict[str, Any]:
    """As `run_json`; a completed run has its `observations` (see `observations_json`), so that the file serves as a baseline later."""
    document = run_json(summary)
    if summary.run.status == EvaluationRun.Status.COMPLETED:
        document["observations"] = observations_json(measurement_of(summary.run))
    return document


def observations_json(measurement: Measurement) -> dict[str, Any]:
    """The judgements behind a measurement, per dimension and proposition, compact: the mean of the repeats per message.

    `scores` is by what was judged (``message:KEY``, ``situation:ID``, ``channel:SLUG``, ``repeat:N``), a list where there are several.
    `weight` is the proposition's; where what was judged counts differently (channels, by the agent's messages), `weights` has each.
    `judged` counts the messages that the judge could have scored, also where it scored none. `digest` tells whether the proposition is
    still the same.
    """
    document = {}
    for name, dimension in measurement.dimensions.items():
        rows = {p: _of_proposition(one) for p, one in sorted(dimension.propositions.items()) if _was_judged(one)}
        if rows:
            document[name] = rows
    return document


def _was_judged(one: Measured) -> bool:
    return bool(one.observations) or (one.by_message and one.share is not None and one.share.asked > 0)


def _of_proposition(one: Measured) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for row in one.observations:
        key, value = str(row.cluster), round(row.value, 4)
        value = int(value) if value == int(value) else value
        scores[key] = value if key not in scores else [*_listed(scores[key]), value]
    weights = {str(row.cluster): round(row.weight, 6) for row in one.observations}
    same = len(set(weights.values())) == 1
    weight = {"weight": next(iter(weights.values()))} if same else {"weights": weights}
    return {
        **({"digest": one.digest} if one.digest else {}),
        **(weight if weights else {}),
        **({"judged": one.share.asked} if one.by_message and one.share else {}),
        "scores": dict(sorted(scores.items())),
    }


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


Score = Annotated[float, Field(ge=0, le=9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a score or a count; which of them, its dimension says


class _Strict(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _FileJudgements(_Strict):
    digest: str = ""
    weight: Weight = 1.0
    weights: dict[str, Weight] = Field(default_factory=dict)
    judged: Count | None = None
    scores: dict[str, Figure | list[Figure]]

    def measured(self, score: float | None) -> Measured:
        pairs = [(key, float(value)) for key, values in self.scores.items() for value in _listed(values)]
        known = self.judged is not None and len(pairs) <= self.judged
        observations = tuple(Observation(value, self.weights.get(key, self.weight), key) for key, value in pairs)
        return Measured(
            score=mean_of(observations) if score is None else score,
            observations=observations,
            share=Share(len(pairs), self.judged or 0) if known else None,
            by_message=known,
            digest=self.digest,
        )


class _FileDimension(_Strict):
    score: Score | None = None
    count: Count | None = None
    scored: Count = 0
    unscored: Count = 0
    coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    reason: str = ""
    propositions: dict[str, Figure | None] = Field(default_factory=dict)

    def stated(self, counted: Share) -> Share | None:
        """How much was scored by its `coverage`; `counted` where that says the same, as its counts are exact."""
        if self.coverage is None or counted.rounded == self.coverage:
            return counted if counted.asked else None
        if self.coverage == 0:
            return Share(0, self.unscored)
        return Share(self.scored, round(self.scored / self.coverage))


class _FileRun(_Strict):
    agent: str | None = None
    channel: str | None = None
    judge: str = ""
    procedure: str = Method.PLUMBLINE.value
    persona_digest: str = ""
    status: str = "completed"
    dimensions: dict[str, _FileDimension]
    observations: dict[str, dict[str, _FileJudgements]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sound(self) -> _FileRun:
        if not (self.agent or self.channel):
            raise ValueError("names no target; allowed: agent or channel, a slug")
        names, figures = [self.agent or "", self.channel or "", self.judge, self.procedure], dict[str, Any]()
        for d, of in self.dimensions.items():
            names += of.propositions
            figures |= {f"dimensions.{d}.propositions.{p}": score for p, score in of.propositions.items()}
        for d, by_proposition in self.observations.items():
            names += by_proposition
            for p, one in by_proposition.items():
                figures |= {f"observations.{d}.{p}.scores[{key}]": value for key, value in one.scores.items()}
        for name in (*self.dimensions, *self.observations):
            if name not in SCORERS:
                raise ValueError(f"unknown dimension {name!r}; allowed: {', '.join(SCORERS)}")
        for text in names:
            if not text.isprintable():
                raise ValueError(f"{text[:60]!r} holds control characters; allowed: one line of visible text")
        for place, value in figures.items():
            counted = place.split(".")[1] in COUNTED
            if not counted and any(v is not None and v > 9 for v in _listed(value)):
                raise ValueError(f"{place} is {value}; allowed: 0 to 9")
        return self

    def measurement(self, judge: str, name: str) -> Measurement:
        dimensions = {}
        for d, of in self.dimensions.items():
            judged = self.observations.get(d, {})
            propositions = {p: Measured(score=score) for p, score in of.propositions.items()}
            propositions |= {p: one.measured(of.propositions.get(p)) for p, one in judged.items()}
            score = of.count if d in COUNTED else of.score
            if score is None and d not in (*COUNTED, *BY_MESSAGE):  # unscored, with a statistic that compares
                score = mean_of(o for one in propositions.values() for o in one.observations)
            by_message = [one for one in propositions.values() if one.by_message]
            messages = max((one.share.asked for one in by_message if one.share), default=0)
            scored = {o.cluster for one in by_message for o in one.observations}
            dimensions[d] = MeasuredDimension(
                score=score,
                reason=of.reason if of.reason.startswith(TOO_LITTLE) else "",
                propositions=propositions,
                messages=messages,
                unscored=max(0, messages - len(scored)),
                stated=of.stated(total(one.share for one in by_message if one.share)),
            )
        return Measurement(
            name=name,
            target=self.agent or f"#{self.channel}",
            judge=self.judge or judge,
            procedure=self.procedure,
            persona_digest=self.persona_digest,
            dimensions=dimensions,
        )


class _File(_Strict):
    judge: str = Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    runs: list[_FileRun]
    channels: list[_FileRun] = Field(default_factory=list)


def measurements_of_file(path: Path | str) -> dict[str, Measurement]:
    """The completed measurements in a file that ``capture_baseline --json`` (or ``evaluate --json``) printed, UTF-8.

    Without `observations` its scores still serve: they are then taken as exact.

    Returns:
        By slug; channels by ``#slug``.

    Raises:
        UnreadableFile: It cannot be read, or is not such a file; names the file, the field and what is allowed.
    """

    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not allowed; allowed: finite numbers")

    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"), parse_constant=no_number)
    except OSError as error:
        raise UnreadableFile(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UnreadableFile(f"{path}: nested too deeply") from None
    except ValueError as error:  # also what is no UTF-8
        raise UnreadableFile(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UnreadableFile(f"{path}: expected an object with judge and runs, as capture_baseline --json prints it")
    try:
        document = _File.model_validate(data)
    except ValidationError as error:
        rows = [dict(row) for row in error.errors()]
        problems = [f"{path}: {dotted(location_of(row)) or 'the file'}: {in_words(row, ())}" for row in rows[:10]]
        raise UnreadableFile("\n".join(dict.fromkeys(problems))) from None
    measurements: dict[str, Measurement] = {}
    for run in (*document.runs, *document.channels):
        if run.status != "completed":
            continue
        one = run.measurement(document.judge, str(path))
        if one.target in measurements:
            raise UnreadableFile(f"{path}: {one.target} stands twice; allowed: one run of each agent or channel")
        measurements[one.target] = one
    return measurements
