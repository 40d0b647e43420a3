"""System checks of turns: their settings, their stages and the tools that swarms offer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from agents.kit.capability import app_missing_for, declared
from agents.kit.checks import Numbers, too_small

NUMBERS: Numbers = {
    "TURN_STEP_DEADLINE": (1, "seconds for one model call of an agent"),
    "TURN_MAX_REPLY_DEPTH": (0, "replies of agents to agents in a direct message; 0 = none"),
}
PHASES = ("received", "prepare", "review", "committed", "finish")  # of a turn, see agents/turn/pipeline.py


@register("plumbline")
def check_turn_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Check that the numbers for turns are in range."""
    return too_small(NUMBERS)


@register("plumbline")
def check_pipeline(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield an error for each stage of `TURN_PIPELINE` that cannot be made, is of an app that is not installed, or has no method of one."""
    for path in settings.TURN_PIPELINE:
        if missing := app_missing_for(path):
            problem = f"is part of {missing}: that app is not in INSTALLED_APPS"
            hint = "Take the path out, or install the app."
            yield Error(f"TURN_PIPELINE names {path!r}, which {problem}.", hint=hint, id="agents.E006")
            continue
        try:
            stage = import_string(path)()
        except Exception as error:  # noqa: BLE001 (an import can raise anything; the check names it, without a traceback on every command)
            problem = f"cannot be loaded: {type(error).__name__}: {error}"
        else:
            if any(callable(getattr(stage, phase, None)) for phase in PHASES):
                continue
            problem = "has none of the methods of a stage"
        hint = f"Correct the path, or take it out. A stage is a class without arguments that has any of: {', '.join(PHASES)}."
        yield Error(f"TURN_PIPELINE names {path!r}, which {problem}.", hint=hint, id="agents.E006")


@register("plumbline")
def check_tools(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield an error for each tool that an app offers to agents (`turn_tools`) and that cannot be loaded or is no `Tool`."""
    from agents.turn.tools import Tool

    for name, path in declared("turn_tools").items():
        try:
            tool = import_string(path)
        except ImportError as error:
            problem = f"cannot be loaded: {error}"
        else:
            if isinstance(tool, type) and issubclass(tool, Tool):
                continue
            problem = "is no subclass of agents.turn.tools.Tool"
        hint = "Correct the path in `turn_tools` of the app, or take the tool out."
        yield Error(f"The tool {name!r} is {path!r}, which {problem}.", hint=hint, id="agents.E008")
