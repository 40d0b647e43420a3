"""Raw scores that others published, compared as ours are. The paper behind TinyTroupe (arXiv:2507.09788) gives its Table 1 so.

The file is ``{"sets": {SET: {EXPERIMENT: {"metrics": {METRIC: {"treatment": [5, null], "control": [6, 8]}}}}}}``. A score that is null is
missing; scores left out of the lists are counted in ``missing_treatment`` and ``missing_control`` beside them. Other keys are passed over.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evaluation.dimensions import Dimension
from evaluation.experiments.compare import Measure, Row, Values, as_arm, describe

MOST_BYTES = 50_000_000
NO_CONVERSATIONS = "the file does not say which scores are of one conversation"


Missing = Annotated[int, Field(ge=0)]


class _Metric(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    treatment: list[float | None]
    control: list[float | None]
    missing_treatment: Missing = 0
    missing_control: Missing = 0

    def values(self, arm: Literal["treatment", "control"]) -> Values:
        """Return the scores of an arm, each as an environment of its own, and how many are missing: null, or counted beside the list."""
        scores = self.control
        missing = self.missing_control
        if arm == "treatment":
            scores = self.treatment
            missing = self.missing_treatment
        present = [score for score in scores if score is not None]
        return Values(arm, as_arm(present), missing + len(scores) - len(present))


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


class PublishedReport(BaseModel):
    """All rows of a file. `version`: of this form."""

    version: Literal[1] = 1
    rows: list[PublishedRow]


class Figure(BaseModel):
    """One row of the paper's Table 1: means, standard deviations and numbers of scores, the difference, p of Welch's test."""

    model_config = ConfigDict(frozen=True)

    treatment: float
    treatment_sd: float
    treatment_n: int
    control: float
    control_sd: float
    control_n: int
    delta: float
    p: float


@cache
def figures() -> dict[str, dict[str, Figure]]:
    """Return the paper's own figures by experiment (``exp-1``) and dimension."""
    content = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
    figures_by_experiment: dict[str, dict[str, Figure]] = {}
    for experiment, rows in content.items():
        figures_by_experiment[experiment] = {dimension: Figure.model_validate(row) for dimension, row in rows.items()}
    return figures_by_experiment


def read_published(path: Path) -> PublishedReport:
    """Compare treatment and control of every metric in a file; no score has a conversation there, so no p is clustered.

    Raises:
        ValueError: The file cannot be used; says where and why.
        OSError: It cannot be read.
    """
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES:,} bytes")
    content = _read_file(path)
    rows = []
    for set_name, experiments in content.sets.items():
        for experiment, published in experiments.items():
            for metric, scores in published.metrics.items():
                rows.append(PublishedRow(set=set_name, experiment=experiment, row=_compared(metric, scores)))
    return PublishedReport(rows=rows)


def _read_file(path: Path) -> _File:
    """Return the content of a file.

    Raises:
        ValueError: It is no JSON, or not of this form; names the first place that is wrong, e.g. ``sets.a.exp-1.metrics``.
        OSError: It cannot be read.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path.name} is no JSON: {error}") from None
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path.name}: {field}: {first['msg']}") from None


def _compared(metric: str, scores: _Metric) -> Row:
    """Compare the scores of one metric; there is no verdict, for the file does not say which are of one conversation."""
    label = str(dict(Dimension.choices).get(metric, metric))
    measure = Measure(id=metric, label=label, unit="scores")
    row = describe(measure, scores.values("treatment"), scores.values("control"))
    return row if row.why else row.model_copy(update={"why": NO_CONVERSATIONS})
