from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register


class CorrectionConfig(AppConfig):
    name = "correction"
    verbose_name = "Correcting"


@register("plumbline")
def nudge_files_are_valid(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """correction.E001: a nudge file cannot be used."""
    from correction.interventions.nudges import NudgeError, load_nudges

    try:
        load_nudges()
    except NudgeError as error:
        hint = "Correct the file; those in correction/interventions/nudges/ show the format. NUDGE_DIRS names folders of yours."
        return [Error(str(problem), hint=hint, id="correction.E001") for problem in error.problems]
    return []
