"""System checks of the settings of swarms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from agents.kit.checks import Numbers, too_small

NUMBERS: Numbers = {
    "TURN_SWARM_PRE_DEADLINE": (0.1, "seconds that calibration may add to a reply"),
    "TURN_SWARM_POST_DEADLINE": (0.1, "seconds that polishers may add to a reply"),
}
RANGES = {
    "SWARM_WINDOW": (10, 15, "the messages that an agent with a swarm is shown in full"),
    "SWARM_SUMMARY_EVERY": (3, 5, "turns between two summaries of a conversation"),
}


@register("plumbline")
def check_swarm_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Yield an error for each setting of swarms that is out of range: deadlines, window and summaries, how to polish."""
    from agents.swarm.models import Swarm

    yield from too_small(NUMBERS)
    for name, (least, most, meaning) in RANGES.items():
        if not least <= getattr(settings, name) <= most:
            hint = f"Set it to {least} to {most} ({meaning})."
            yield Error(f"{name} is {getattr(settings, name)}.", hint=hint, id="agents.E004")
    if settings.TURN_SWARM_POST not in ("", *Swarm.Executor.values):
        hint = f"Set it to one of: {', '.join(Swarm.Executor.values)}, or leave it empty."
        yield Error(f"TURN_SWARM_POST is {settings.TURN_SWARM_POST!r}.", hint=hint, id="agents.E003")
