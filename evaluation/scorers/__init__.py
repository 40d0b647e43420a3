"""One scorer per dimension: which judgements it needs, and what the judge is shown for each. Runs do the rest."""

from __future__ import annotations

from types import ModuleType

from evaluation.scorers import adherence, consistency, convergence, fluency, ideas_quantity

SCORERS: dict[str, ModuleType] = {
    "adherence": adherence,
    "fluency": fluency,
    "consistency": consistency,
    "convergence": convergence,
    "ideas_quantity": ideas_quantity,
}
