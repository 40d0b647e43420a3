"""What the paper behind TinyTroupe (arXiv:2507.09788) reports in its Table 1, shown beside our figures of the same experiments."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict


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
