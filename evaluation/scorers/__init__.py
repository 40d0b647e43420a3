"""One scorer per dimension: which judgements it needs, and what the judge is shown for each. Runs do the rest."""

from __future__ import annotations

from types import ModuleType

from evaluation.scorers import adherence, fluency

SCORERS: dict[str, ModuleType] = {"adherence": adherence, "fluency": fluency}
