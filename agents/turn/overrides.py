"""What `Run.overrides` may say to this floor; everything else in them is for the stages.

========== ============================================== =========================================================
name       value                                          meaning
========== ============================================== =========================================================
stages     a list of stages' names; empty = none          only these take part, and those that are `required`
model      a model's name                                 acts instead of the agent's own model
tags       an object of texts                             tags of every message said in the turn
scene      a whole number of 0 or more                    where in its lines the offline scripted actor begins
========== ============================================== =========================================================

A value that is none of these is passed over: a turn must not die of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError

from agents.models.conversations import validate_tags


def stages_of(overrides: Mapping[str, Any]) -> frozenset[str] | None:
    """The names of the stages that take part; None = all."""
    names = overrides.get("stages")
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        return None
    return frozenset(names)


def model_of(overrides: Mapping[str, Any]) -> str:
    """The model that acts; empty = the agent's own."""
    model = overrides.get("model")
    return model if isinstance(model, str) else ""


def tags_of(overrides: Mapping[str, Any]) -> dict[str, str]:
    """Tags of what is said."""
    tags = overrides.get("tags")
    try:
        validate_tags(tags)
    except ValidationError:
        return {}
    return dict(tags) if isinstance(tags, dict) else {}


def scene_of(overrides: Mapping[str, Any]) -> int | None:
    """Where the scripted actor begins; None = it decides by itself."""
    scene = overrides.get("scene")
    return scene if isinstance(scene, int) and not isinstance(scene, bool) and scene >= 0 else None
