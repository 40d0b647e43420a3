"""System checks of measuring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning, register
from django.utils.module_loading import import_string

from agents.kit.capability import declared_one


@register("plumbline")
def proposition_files_are_valid(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """evaluation.W001: a proposition file cannot be used. Only what needs it fails."""
    from agents.kit.commands import printable
    from evaluation.propositions.files import file_problems

    hint = "Correct the file; `manage.py check_propositions` checks again, docs/how-to/write-propositions.md describes the format."
    return [Warning(printable(str(problem)), hint=hint, id="evaluation.W001") for problem in file_problems()]


@register("plumbline")
def preconditions_can_be_used(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """evaluation.E001: a path of `PROPOSITION_PRECONDITIONS` cannot be used."""
    from evaluation.propositions.preconditions import precondition_problems

    hint = "Name functions as module.function, in modules that Python can import; docs/how-to/write-propositions.md has an example."
    return [
        Error(f"PROPOSITION_PRECONDITIONS: {path!r} cannot be used: {problem}.", hint=hint, id="evaluation.E001")
        for path, problem in precondition_problems().items()
    ]


@register("plumbline")
def budget_watcher_is_there(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """evaluation.E002: what an app declares as `evaluation_budget` cannot be called."""
    path = declared_one("evaluation_budget")
    try:
        if not path or callable(import_string(path)):
            return []
        problem = "it is not callable"
    except ImportError as error:
        problem = str(error)
    hint = (
        "Name a callable that takes agent and judge and returns why to pause, or leave it empty: then nothing pauses."
    )
    return [Error(f"evaluation_budget is {path!r}: {problem}.", hint=hint, id="evaluation.E002")]
