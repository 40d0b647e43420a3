"""System checks of interventions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string


@register("plumbline")
def nudge_files_are_valid(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Return an error (correction.E001) for each problem of the nudge files; none where all can be used."""
    from agents.kit.commands import printable
    from correction.interventions.nudges import NudgeError, load_nudges

    try:
        load_nudges()
    except NudgeError as error:
        hint = "Correct the file; those in correction/interventions/nudges/ show the format. NUDGE_DIRS names folders of yours."
        return [Error(printable(str(problem)), hint=hint, id="correction.E001") for problem in error.problems]
    return []


@register("plumbline")
def functions_of_interventions_can_be_used(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """Return an error (correction.E002) for each path of `INTERVENTION_FUNCTIONS` and `INTERVENTION_BATCHES` that cannot be used."""
    from correction.interventions.functions import function_problems

    hint = "Name functions as module.function, in modules that Python can import; docs/how-to/steer.md has an example."
    problems = {("INTERVENTION_FUNCTIONS", path): problem for path, problem in function_problems().items()}
    for path in settings.INTERVENTION_BATCHES:
        try:
            if not callable(import_string(path)):
                problems["INTERVENTION_BATCHES", path] = "it is not callable"
        except Exception as error:  # noqa: BLE001 (whatever a team's module raises when it is imported)
            problems["INTERVENTION_BATCHES", path] = f"{type(error).__name__}: {error}"
    return [
        Error(f"{name}: {path!r} cannot be used: {problem}.", hint=hint, id="correction.E002")
        for (name, path), problem in problems.items()
    ]
