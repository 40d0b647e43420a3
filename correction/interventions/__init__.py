"""Interventions (S-7.1): dormant until their preconditions hold, then they add a nudge to the prompt of one turn.

`evaluate.prepare` is the stage. Here are the names for code that makes interventions of its own.
"""

from correction.interventions.functions import Finding, InterventionContext, Parameters
from correction.interventions.intervention import (
    FunctionalPrecondition,
    Intervention,
    InterventionBatch,
    PromptModification,
    PropositionalPrecondition,
    TextualPrecondition,
)
from correction.interventions.nudges import text_effect

__all__ = [
    "Finding",
    "FunctionalPrecondition",
    "Intervention",
    "InterventionBatch",
    "InterventionContext",
    "Parameters",
    "PromptModification",
    "PropositionalPrecondition",
    "TextualPrecondition",
    "text_effect",
]
