"""The default swarm with its ten phases, shipped in ``phases.yaml`` and stored as rows that people edit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from agents.models import Agent
from agents.swarm.assign import ensure_swarm
from agents.swarm.models import Swarm

FILE = Path(__file__).with_name("phases.yaml")
# Polishers that may put another answer in the place of a draft.
SAFETY, RECOVERY = "safety-and-refusal", "error-recovery"


@cache
def default_swarm() -> dict[str, Any]:
    """Return the shipped swarm as `save_swarm` takes it."""
    values: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return values


def ensure_default_swarm() -> Swarm:
    """Return the default swarm, stored with its phases if it is not there. What people changed stays as it is; no agent is assigned."""
    return ensure_swarm(default_swarm())


def seed_swarm(agents: Sequence[Agent]) -> str:
    """Store the default swarm; the example agents stay without one."""
    swarm = ensure_default_swarm()
    return f"Swarm {swarm.name}: {swarm.phases.count()} phases, {swarm.agents.count()} agents."
