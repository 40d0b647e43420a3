"""Sums by hour, day and month, kept beside the raw rows: made by `rolling`, read by `reading`, compared by `verifying`."""

from agents.rollups.families import Family, Rolled, Table
from agents.rollups.reading import read
from agents.rollups.rolling import mark_hours_stale, mark_stale, may_be_closed, prunable_before, roll_up
from agents.rollups.verifying import Checked, Difference, verify

__all__ = [
    "Checked",
    "Difference",
    "Family",
    "Rolled",
    "Table",
    "mark_hours_stale",
    "mark_stale",
    "may_be_closed",
    "prunable_before",
    "read",
    "roll_up",
    "verify",
]
