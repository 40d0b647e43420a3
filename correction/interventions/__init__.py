"""Interventions (S-7.1): dormant until their preconditions hold, then they add a nudge to the prompt of one turn.

`evaluate.prepare` is the stage. Here are the names for code that makes interventions of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = ("functions", "intervention", "nudges")


def __getattr__(name: str) -> Any:
    """Import a name when it is first asked for: Django imports this package before there are models."""
    if name in __all__:
        for module in _MODULES:
            imported = import_module(f"{__name__}.{module}")
            if hasattr(imported, name):
                return getattr(imported, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
