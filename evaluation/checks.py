"""System checks of the evaluation floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, register

from evaluation.proposition_files import PropositionError, load_all


@register()
def proposition_files_are_valid(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """evaluation.E001: a proposition file cannot be used."""
    try:
        load_all()
    except PropositionError as error:
        hint = (
            "Mend the file; `manage.py check_propositions` checks again, propositions/README.md describes the format."
        )
        return [Error(str(problem), hint=hint, id="evaluation.E001") for problem in error.problems]
    return []
