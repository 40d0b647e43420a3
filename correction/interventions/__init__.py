"""Interventions (S-7.1): dormant until their preconditions hold, then they add a nudge to the prompt of one turn.

`prepare` is the stage. The names of the specification are here, for code that makes interventions of its own.
"""

from correction.interventions.builtin import anti_convergence, interventions_for, problems_of, variety
from correction.interventions.evaluate import Evaluation, evaluate_interventions, prepare
from correction.interventions.functions import (
    FUNCTIONS,
    Finding,
    InterventionContext,
    NamedFunction,
    Parameters,
    known_functions,
    named,
)
from correction.interventions.intervention import (
    Effect,
    FunctionalPrecondition,
    Intervention,
    InterventionBatch,
    PreconditionResult,
    PromptModification,
    PropositionalPrecondition,
    TextualPrecondition,
)
from correction.interventions.nudges import NudgeType, nudge_effect, text_effect

__all__ = [
    "FUNCTIONS",
    "Effect",
    "Evaluation",
    "Finding",
    "FunctionalPrecondition",
    "Intervention",
    "InterventionBatch",
    "InterventionContext",
    "NamedFunction",
    "NudgeType",
    "Parameters",
    "PreconditionResult",
    "PromptModification",
    "PropositionalPrecondition",
    "TextualPrecondition",
    "anti_convergence",
    "evaluate_interventions",
    "interventions_for",
    "known_functions",
    "named",
    "nudge_effect",
    "prepare",
    "problems_of",
    "text_effect",
    "variety",
]
