"""Sides as JSON: what a run prints of its judgements, and reading such a file as a baseline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.comparison.values import Side
from evaluation.models import COUNTED, Method
from evaluation.propositions.yaml_files import dotted, in_words, location_of
from evaluation.runs.coverage import TOO_LITTLE, Share
from evaluation.scorers import SCORERS
from evaluation.statistics.bootstrap import Observation

Score = Annotated[float, Field(ge=0, le=9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # a score or a count; which of them, its dimension says


class UnreadableSides(ValueError):
    """A file that is no measurement; says which field is wrong and what is allowed."""


def observations_json(side: Side) -> dict[str, Any]:
    """The judgements behind a side, per dimension and proposition, compact: the mean of the repeats per message.

    `scores` is by what was judged (``message:KEY``, ``situation:ID``, ``channel:SLUG``, ``repeat:N``), a list where there are several.
    `weight` is the proposition's; where what was judged counts differently (channels, by the agent's messages), `weights` stand
    beside. `judged` counts the messages that the judge could have scored. `digest` tells whether the proposition is still the same.
    """
    return {
        dimension: {
            name: _of_proposition(
                rows, side.digests.get(dimension, {}).get(name, ""), side.by_message.get(dimension, {}).get(name)
            )
            for name, rows in sorted(by_proposition.items())
        }
        for dimension, by_proposition in side.observations.items()
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


def side_json(side: Side) -> dict[str, Any]:
    """A side as one of the `runs` of a file that `sides_of_file` reads."""
    names = {d: "count" if d in side.counted else "score" for d in side.scores}
    return {
        **({"channel": side.target[1:]} if side.target.startswith("#") else {"agent": side.target}),
        "evaluation_run": side.evaluation_run,
        "judge": side.judge,
        "procedure": side.procedure,
        "persona_digest": side.persona_digest,
        "dimensions": {
            d: {
                names[d]: score,
                "scored": side.judged.get(d, 0) - side.unscored.get(d, 0),
                "unscored": side.unscored.get(d, 0),
                "coverage": share.rounded if (share := side.share(d)) else None,
                **({"reason": side.reasons[d]} if d in side.reasons else {}),
                "propositions": dict(side.proposition_scores.get(d, {})),
            }
            for d, score in side.scores.items()
        },
        "observations": observations_json(side),
    }


class _Judged(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    digest: str = ""
    weight: Weight = 1.0
    weights: dict[str, Weight] = Field(default_factory=dict)
    judged: Count | None = None
    scores: dict[str, Figure | list[Figure]]


class _Dimension(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    score: Score | None = None
    count: Count | None = None
    scored: Count = 0
    trivial: Count = 0
    unscored: Count = 0
    reason: str = ""
    propositions: dict[str, Figure | None] = Field(default_factory=dict)


class _Run(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

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
        for text in self._names():
            if not text.isprintable():
                raise ValueError(f"{text[:60]!r} holds control characters; allowed: one line of visible text")
        for name in (*self.dimensions, *self.observations):
            if name not in SCORERS:
                raise ValueError(f"unknown dimension {name!r}; allowed: {', '.join(SCORERS)}")
        for dimension, by_proposition in self.observations.items():
            for name, judged in by_proposition.items() if dimension not in COUNTED else ():
                for key, value in judged.scores.items():
                    if any(v > 9 for v in _listed(value)):
                        raise ValueError(f"observations.{dimension}.{name}.scores[{key}] is {value}; allowed: 0 to 9")
        for dimension, found in self.dimensions.items():
            for name, score in found.propositions.items() if dimension not in COUNTED else ():
                if score is not None and score > 9:
                    raise ValueError(f"dimensions.{dimension}.propositions.{name} is {score}; allowed: 0 to 9")
        return self

    def _names(self) -> list[str]:
        """What is shown to people."""
        rows = [self.agent or "", self.channel or "", self.judge, self.procedure]
        asked = [name for found in self.dimensions.values() for name in found.propositions]
        return [*rows, *asked, *(name for by_proposition in self.observations.values() for name in by_proposition)]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    judge: str = Field(pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    runs: list[_Run]
    channels: list[_Run] = Field(default_factory=list)


def sides_of_file(path: Path | str) -> dict[str, Side]:
    """The measurements in a file that ``capture_baseline --json`` (or ``evaluate --json``) printed, by target.

    Args:
        path: The file, UTF-8. Without `observations` its scores still serve: they are then taken as exact.

    Returns:
        By slug; channels by ``#slug``. Runs that are not completed are left out.

    Raises:
        UnreadableSides: It cannot be read, or is not such a file; names the file, the field and what is allowed.
    """
    file = Path(path)
    document = _parsed(file, _read(file))
    sides: dict[str, Side] = {}
    for run in (*document.runs, *document.channels):
        if run.status != "completed":
            continue
        side = _side(run, run.judge or document.judge, str(path))
        if side.target in sides:
            raise UnreadableSides(f"{path}: {side.target} stands twice; allowed: one run of each agent or channel")
        sides[side.target] = side
    return sides


def _read(path: Path) -> Any:
    def no_number(name: str) -> NoReturn:
        raise ValueError(f"{name} is not allowed; allowed: finite numbers")

    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=no_number)
    except OSError as error:
        raise UnreadableSides(f"{path}: {error.strerror}") from None
    except RecursionError:
        raise UnreadableSides(f"{path}: nested too deeply") from None
    except ValueError as error:  # also what is no UTF-8
        raise UnreadableSides(f"{path}: not valid JSON: {error}") from None


def _parsed(path: Path, data: Any) -> _File:
    if not isinstance(data, dict):
        raise UnreadableSides(f"{path}: expected an object with judge and runs, as capture_baseline --json prints it")
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        problems = [
            f"{path}: {dotted(location_of(dict(e))) or 'the file'}: {in_words(dict(e), ())}" for e in error.errors()
        ]
        raise UnreadableSides("\n".join(dict.fromkeys(problems[:10]))) from None


def _side(run: _Run, judge: str, name: str) -> Side:
    observations = {
        d: {p: _observations(judged) for p, judged in by.items() if judged.scores}
        for d, by in run.observations.items()
        if d in run.dimensions
    }
    return Side(
        name=name,
        target=run.agent or f"#{run.channel}",
        judge=judge,
        procedure=run.procedure,
        persona_digest=run.persona_digest,
        scores={d: found.count if d in COUNTED else found.score for d, found in run.dimensions.items()},
        proposition_scores={d: dict(found.propositions) for d, found in run.dimensions.items()},
        observations={d: by for d, by in observations.items() if by},
        counted=frozenset(d for d in run.dimensions if d in COUNTED),
        unscored={d: found.unscored for d, found in run.dimensions.items()},
        judged={d: found.scored + found.trivial + found.unscored for d, found in run.dimensions.items()},
        simulated="simulated" in run.procedure.split("+"),
        by_message={d: _shares(by) for d, by in run.observations.items() if d in run.dimensions},
        shares={d: _shares(by) for d, by in run.observations.items() if d in run.dimensions},
        reasons={d: found.reason for d, found in run.dimensions.items() if found.reason.startswith(TOO_LITTLE)},
        digests=_digests(run.observations),
    )


def _observations(judged: _Judged) -> tuple[Observation, ...]:
    return tuple(
        Observation(float(value), judged.weights.get(key, judged.weight), key)
        for key, values in judged.scores.items()
        for value in _listed(values)
    )


def _shares(judged: Mapping[str, _Judged]) -> dict[str, Share]:
    """How much was scored, where the file says of how many."""
    found = {}
    for name, of_one in judged.items():
        scored = sum(len(_listed(values)) for values in of_one.scores.values())
        if of_one.judged is not None and scored <= of_one.judged:
            found[name] = Share(scored, of_one.judged)
    return found


def _digests(observations: Mapping[str, Mapping[str, _Judged]]) -> dict[str, dict[str, str]]:
    return {d: found for d, by in observations.items() if (found := {p: j.digest for p, j in by.items() if j.digest})}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
