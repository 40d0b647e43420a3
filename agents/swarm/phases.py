"""The default swarm with its ten phases, shipped in ``phases.yaml`` and stored as rows that people edit; and checks of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings

from agents.models import Agent, Swarm, SwarmPhase
from agents.swarm.assign import SwarmRefused, check_names, check_values, ensure_swarm
from agents.swarm.intents import intents

FILE = Path(__file__).with_name("phases.yaml")
# Polishers that may put another answer in the place of a draft.
SAFETY, RECOVERY = "safety-and-refusal", "error-recovery"
TEMPLATES = ("calibration", "message", "guidance", "answer", "polish", "draft", "memory", "summary", "sentences")


def problems(path: Path = FILE) -> Iterator[str]:
    """What is wrong with the shipped swarm, and with the templates that stages and summaries render; for ``manage.py check``."""
    try:
        check_values(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError) as error:
        yield f"{path.name} cannot be read: {error}"
    except SwarmRefused as refused:
        yield f"{path.name}: {refused}"
    for name in TEMPLATES:
        template = settings.BASE_DIR / "templates" / "prompts" / "swarm" / f"{name}.md"
        if not template.is_file() or not template.read_text(encoding="utf-8").strip():
            yield f"{template.name} is missing or empty"


def problems_of_rows() -> Iterator[str]:
    """What is wrong with the stored swarms. It reads no column that a later version could add: `migrate` asks, too."""
    empty = SwarmPhase.objects.filter(prompt__regex=r"^\s*$")
    for swarm, phase in empty.values_list("swarm__name", "name").order_by("swarm__name", "name"):
        yield f"swarm {swarm}: the prompt of its phase {phase} is empty; allowed: what the phase is asked to do"
    for name, *given in Swarm.objects.filter(enabled=True).values_list("name", "intents", "tools").order_by("name"):
        for field, names, allowed in zip(
            ("intents", "tools"), given, (intents(), sorted(settings.TURN_TOOLS)), strict=True
        ):
            try:
                check_names(field, names, allowed)
            except SwarmRefused as refused:
                yield f"swarm {name}: {refused}"


@cache
def default_swarm() -> dict[str, Any]:
    """The shipped swarm as `save_swarm` takes it."""
    values: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return values


def ensure_default_swarm() -> Swarm:
    """The default swarm, stored with its phases if it is not there. What people changed stays as it is; no agent is assigned."""
    return ensure_swarm(default_swarm())


def seed_swarm(agents: Sequence[Agent]) -> str:
    """Store the default swarm; the example agents stay without one."""
    swarm = ensure_default_swarm()
    return f"Swarm {swarm.name}: {swarm.phases.count()} phases, {swarm.agents.count()} agents."
