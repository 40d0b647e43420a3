"""Raw scores that others published, compared as ours are. The paper behind TinyTroupe (arXiv:2507.09788) gives its Table 1 so.

The file is ``{"sets": {SET: {EXPERIMENT: {"metrics": {METRIC: {"treatment": [5, 7], "control": [6, 8]}}}}}}``; other keys are passed over.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from evaluation.dimensions import Dimension
from evaluation.experiments.compare import Measure, Row, Values, as_arm, describe

MOST_BYTES = 50_000_000


def _given(values: object) -> object:
    """Scores that are missing are dropped, as the paper does."""
    return [value for value in values if value is not None] if isinstance(values, list) else values


Scores = Annotated[list[float], BeforeValidator(_given)]


class _Metric(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    treatment: Scores
    control: Scores


class _Experiment(BaseModel):
    model_config = ConfigDict(extra="ignore")

    metrics: dict[str, _Metric]


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore")

    sets: dict[str, dict[str, _Experiment]]


class PublishedRow(BaseModel):
    """One metric of one experiment."""

    set: str
    experiment: str
    row: Row


class Figure(BaseModel):
    """One row of the paper's Table 1."""

    model_config = ConfigDict(frozen=True)

    treatment: float
    treatment_sd: float
    control: float
    control_sd: float
    delta: float
    p: float


@cache
def figures() -> dict[str, dict[str, Figure]]:
    """The paper's own figures by experiment (``exp-1``) and dimension."""
    content = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
    return {name: {d: Figure.model_validate(row) for d, row in rows.items()} for name, rows in content.items()}


def read_published(path: Path) -> list[PublishedRow]:
    """Compare treatment and control of every metric in a file; no score has an environment there, so no p is clustered.

    Raises:
        ValueError: The file cannot be used; says where and why.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES:,} bytes")
    try:
        content = _File.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path.name}: {place}: {first['msg']}") from None
        raise ValueError(f"{path.name} is no JSON: {error}") from None
    labels = dict(Dimension.choices)
    rows = []
    for name, experiments in content.sets.items():
        for experiment, one in experiments.items():
            for metric, scores in one.metrics.items():
                measure = Measure(id=metric, label=str(labels.get(metric, metric)), unit="scores")
                arms = [
                    Values(arm, as_arm(values))
                    for arm, values in (("treatment", scores.treatment), ("control", scores.control))
                ]
                row = describe(measure, *arms)
                why = "no environments in the file: each score for itself"
                row = row.model_copy(update={"why": why})
                rows.append(PublishedRow(set=name, experiment=experiment, row=row))
    return rows
