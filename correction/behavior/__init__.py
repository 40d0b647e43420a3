"""Requests of people that an agent behave differently: detected in what they write, decided by rules, applied visibly and reversibly.

`tiers` asks a judge (offline: `patterns`), `rules` maps the answer to a trait and decides, `applying` applies and reverts, `effects`
measures what changed, `work` and `description` are what workers do. Settings name `work_one` and `resume_paused`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["resume_paused", "work_one"]


def __getattr__(name: str) -> Any:
    """What settings name lives in `work`, whose imports nobody needs who only reads a rule."""
    if name in __all__:
        from correction.behavior import work

        return getattr(work, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
