"""Find single propositions in their files, for people who look at them, decide on them and change them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from django.conf import settings

from evaluation.propositions.files import DEFAULT, LoadedFile, folder_of, load_all, proposition_dirs
from evaluation.propositions.schema import AGENT_NAME, Proposition

LONGEST_NAME = 60  # characters of an id behind the agent's slug


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
        return self.proposition.state

    @property
    def is_shipped(self) -> bool:
        return folder_of(self.path) == Path(settings.PROPOSITIONS_DIR)

    @property
    def key(self) -> str:
        """Return its name in an address: the number of its folder, its file there and its id."""
        folder = folder_of(self.path)
        folders = proposition_dirs()
        number = folders.index(folder) if folder in folders else 0
        file = self.path.relative_to(folder) if self.path.is_relative_to(folder) else Path(self.path.name)
        return f"{number}/{file.as_posix()}:{self.proposition.id}"


def all_entries(files: Sequence[LoadedFile] | None = None) -> list[Entry]:
    """Return every proposition of every file (default: of `load_all`), in their order: first a file's active ones, then the others.

    Files that cannot be used have none.

    Raises:
        PropositionError: A folder does not exist.
    """
    entries = []
    for file in load_all() if files is None else files:
        for proposition in (*file.propositions, *file.inactive):
            entries.append(
                Entry(
                    path=file.path,
                    owner=file.agent_id,
                    dimension=file.dimension,
                    level=file.level,
                    proposition=proposition,
                    mark=mark_of(file.path, proposition),
                )
            )
    return entries


def listed(owner: str, *, files: Sequence[LoadedFile]) -> list[Entry]:
    """Return the propositions about one agent (or ``_default``), of every state and level, in the order of their files.

    One of ours that a team's replaces (equal id, dimension and level; both accepted or retired) is not listed itself but as `replaces` of
    the other one. Suggestions and rejected ones replace nothing.
    """
    merged: dict[object, Entry] = {}
    for entry in all_entries(files):
        if entry.owner != owner:
            continue
        identity: object = entry.key
        if entry.state in ("accepted", "retired"):  # then a later folder's replaces one of the same id
            identity = (entry.dimension, entry.level, entry.proposition.id)
        merged[identity] = replace(entry, replaces=merged.pop(identity, None))
    return list(merged.values())


def entry_at(key: str, owner: str, *, files: Sequence[LoadedFile]) -> Entry | None:
    """Return the proposition of that key, None where there is none; never one of a file that is not among those that are read."""
    return next((entry for entry in all_entries(files) if entry.owner == owner and entry.key == key), None)


def entry_marked(mark: str, owner: str, *, files: Sequence[LoadedFile] | None = None) -> Entry | None:
    """Return the proposition as a person saw it; None where none looks like that any more."""
    return next((entry for entry in all_entries(files) if entry.mark == mark and entry.owner == owner), None)


def mark_of(path: Path, proposition: Proposition) -> str:
    """Return a digest of all that a person sees of a proposition in a file."""
    state = [
        str(path),
        proposition.fingerprint(),
        proposition.recommendations,
        proposition.quote,
        proposition.active,
        proposition.rejected,
        proposition.retired,
        proposition.trait,
        proposition.trait_stopped,
    ]
    return hashlib.sha256(json.dumps(state, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


def free_id(owner: str, text: str, *, in_use: Collection[str]) -> str:
    """Return ``<agent>-<text in small letters>``, with a number (from 2) where that id is in use.

    Without the agent for the defaults. Long slugs and texts are cut (40 and 60 characters); one of which nothing is left in Latin letters
    and digits becomes ``agent`` or ``proposition``.
    """
    prefix = ""
    if owner != DEFAULT:
        agent = slugified(owner)[:40].strip("-") or "agent"
        prefix = f"{agent}-"
    words = slugified(text.replace(AGENT_NAME, " ")).removeprefix(prefix)[:LONGEST_NAME].strip("-")
    proposal = prefix + (words or "proposition")
    identifier = proposal
    number = 1
    while identifier in in_use:
        number += 1
        identifier = f"{proposal}-{number}"
    return identifier


def slugified(text: str) -> str:
    """Return lower-case letters and digits, everything else as one hyphen."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
