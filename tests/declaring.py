"""What the installed apps declare (`agents.kit.capability`), replaced for one test."""

from __future__ import annotations

from typing import Any

import pytest

from agents.kit.capability import capabilities


def declare(patch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Have one app declare `value` under `name`, and no other app anything.

    Args:
        name: Of the attribute, such as ``turn_tools``.
    """
    first, *others = capabilities()
    for app in others:
        patch.setattr(app, name, type(value)(), raising=False)
    patch.setattr(first, name, value, raising=False)
