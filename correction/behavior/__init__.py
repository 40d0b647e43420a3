"""Requests of people that an agent behave differently: found in what they write, decided by rules, applied visibly and reversibly.

Public is what settings name (`work_one`, `resume_paused`); for doors `applying` (decide, revert), `detect` (look without changing) and
`policy`. `tiers` asks, `rules` says what becomes of a trait, `settling` ends a worker's part.
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
