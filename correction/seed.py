"""The part of `manage.py seed` that is about correction; `SEED_STEPS` names it."""

from __future__ import annotations

from collections.abc import Sequence

from agents.models import Agent
from correction.configure import ensure_rows


def seed_configs(agents: Sequence[Agent]) -> str:
    """The defaults row and a row per example agent, all empty: every mechanism is off (AC-7.3.2, AC-7.3.9).

    Returns:
        A sentence on what was done.
    """
    made = ensure_rows(agents=agents, reason="example data")
    return f"Correction: {made} configurations added, {len(agents) + 1 - made} there already."
