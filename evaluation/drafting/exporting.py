"""An agent's propositions as one file, to be kept in a team's repository or given to another installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from evaluation.drafting.library import head_of, listed, moved, written_as
from evaluation.drafting.writing import items
from evaluation.propositions.files import LoadedFile


def exported(owner: str, dimension: str, level: str, *, drafts: bool = False, files: Sequence[LoadedFile]) -> str:
    """A proposition file of what is asked of one agent itself, without that of every agent; empty when there is nothing.

    Args:
        owner: The agent's slug, or ``_default``.
        dimension: Its id.
        level: ``evaluation`` or ``action``.
        drafts: Also what waits, was rejected or retired, each with the switches that say so.
        files: What `load_all` returned.

    Raises:
        CannotWrite: A file cannot be read.
    """
    head, entries = head_of(dimension, owner, level), []
    for one in listed(owner, files=files):
        entry = one.entry
        if (entry.dimension, entry.level) == (dimension, level) and (drafts or entry.proposition.active):
            said, source = written_as(entry)
            entries.append(moved(said, level=level, source=source, target=head))
    return as_file(head, entries) if entries else ""


def as_file(head: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> str:
    """The text of a proposition file."""
    top = yaml.safe_dump(dict(head), allow_unicode=True, sort_keys=False)
    return f"{top}propositions:\n{items(entries, '', indent=2)}"
