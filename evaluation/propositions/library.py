"""Every proposition of every file with its place: what is asked of an agent, what is suggested, what was rejected or retired."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings

from evaluation.propositions.files import DEFAULT, LoadedFile, load_all, proposition_dirs
from evaluation.propositions.schema import AGENT_NAME, Proposition

LONGEST_ID = 60  # characters behind the agent's slug


@dataclass(frozen=True, slots=True)
class Entry:
    """A proposition with its place.

    Attributes:
        owner: The agent's slug, or ``_default``.
        mark: Digest of all that a person sees of it; a different one means that it was changed.
        replaces: The proposition of ours with the same id, for one that `listed` returns; None for most.
    """

    path: Path
    owner: str
    dimension: str
    level: str
    proposition: Proposition
    mark: str
    replaces: Entry | None = None

    @property
    def state(self) -> str:
        p = self.proposition
        return "accepted" if p.active else "rejected" if p.rejected else "retired" if p.retired else "suggested"

    @property
    def is_shipped(self) -> bool:
        return folder_of(self.path) == Path(settings.PROPOSITIONS_DIR)

    @property
    def key(self) -> str:
        """Its name in an address: the number of its folder, its file there and its id."""
        folder = folder_of(self.path)
        number = next((n for n, known in enumerate(proposition_dirs()) if known == folder), 0)
        inside = self.path.relative_to(folder) if self.path.is_relative_to(folder) else Path(self.path.name)
        return f"{number}/{inside.as_posix()}:{self.proposition.id}"


def all_entries(files: Sequence[LoadedFile] | None = None) -> list[Entry]:
    """Return every proposition of every file (default: of `load_all`), in their order.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    return [
        Entry(file.path, file.agent_id, file.dimension, file.level, p, mark_of(file.path, p))
        for file in (load_all() if files is None else files)
        for p in (*file.propositions, *file.inactive)
    ]


def listed(owner: str, *, files: Sequence[LoadedFile]) -> list[Entry]:
    """Return the propositions about one agent (or ``_default``); one of ours that a team's replaces is inside its replacement."""
    merged: dict[object, Entry] = {}
    for entry in all_entries(files):
        if entry.owner == owner:
            is_used = entry.state in ("accepted", "retired")
            place = (entry.dimension, entry.level, entry.proposition.id) if is_used else entry.key
            merged[place] = replace(entry, replaces=merged.pop(place, None))
    return list(merged.values())


def entry_at(key: str, owner: str, *, files: Sequence[LoadedFile]) -> Entry | None:
    """Return the proposition of that key; never one of a file that is not among those that are read."""
    return next((e for e in all_entries(files) if e.owner == owner and e.key == key), None)


def entry_marked(mark: str, owner: str, *, files: Sequence[LoadedFile] | None = None) -> Entry | None:
    """Return the proposition as a person saw it; None where none looks like that any more."""
    return next((e for e in all_entries(files) if e.mark == mark and e.owner == owner), None)


def folder_of(path: Path) -> Path:
    """Return the folder of propositions a file is in."""
    return next((d for d in reversed(proposition_dirs()) if path.is_relative_to(d)), path.parent)


def mark_of(path: Path, p: Proposition) -> str:
    """Return a digest of all that a person sees of a proposition in a file."""
    shown = [str(path), p.fingerprint(), p.recommendations, p.quote, p.active, p.rejected, p.retired]
    shown += [p.trait, p.trait_stopped]
    return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


def free_id(owner: str, text: str, *, in_use: Collection[str]) -> str:
    """Return ``<agent>-<text in small letters>``, with a number where that id is in use."""
    prefix = "" if owner == DEFAULT else f"{slugified(owner)[:40].strip('-') or 'agent'}-"
    words = slugified(text.replace(AGENT_NAME, " ")).removeprefix(prefix)[:LONGEST_ID].strip("-") or "proposition"
    free, number = prefix + words, 1
    while free in in_use:
        number += 1
        free = f"{prefix}{words}-{number}"
    return free


def slugified(text: str) -> str:
    """Lower-case letters and digits, everything else one hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
