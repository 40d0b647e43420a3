"""One scorer per dimension: which judgements it needs, and what the judge is shown for each. Runs do the rest.

The module of a dimension has the dimension's id as its name; `Dimension` is the list of them.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from evaluation.models import Dimension

SCORERS: dict[str, ModuleType] = {d: import_module(f"evaluation.scorers.{d}") for d in Dimension.values}
