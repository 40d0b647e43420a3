"""The history of a configuration: who changed what, when and why."""

from __future__ import annotations

from typing import Any

from agents.admin import display
from agents.models import Agent
from correction.admin.display import label_of, setting
from correction.config.configure import ConfigChange, config_history

ENTRIES = 100


def history_context(agent: Agent | None) -> dict[str, Any]:
    """The latest changes, newest first; the newest is the present state and cannot be gone back to."""
    return {
        "name": display.isolated(agent.display_name) if agent is not None else "",
        "entries": [
            _entry(change, is_present=number == 0) for number, change in enumerate(config_history(agent, limit=ENTRIES))
        ],
        "limit": ENTRIES,
    }


def _entry(change: ConfigChange, *, is_present: bool) -> dict[str, Any]:
    return {
        "id": change.history_id,
        "at": display.moment(change.at),
        "user": display.isolated(change.user) if change.user else "",
        "reason": display.visible(change.reason),
        "kind": change.kind,
        "is_present": is_present,
        "changes": [
            {"label": label_of(name), "before": _shown(name, before), "after": _shown(name, after)}
            for name, (before, after) in change.changes.items()
        ],
    }


def _shown(name: str, value: Any) -> str:
    return "inherit" if value is None else setting(name, value)
