"""What is asked of an agent, and what could be: every proposition of every file, each where it stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from django.conf import settings

from evaluation.drafting.decisions import DraftEntry, all_entries, folder_of
from evaluation.drafting.replacing import CannotWrite, read_bytes
from evaluation.drafting.writing import parse
from evaluation.propositions.files import LoadedFile, proposition_dirs
from evaluation.propositions.schema import WINDOW_DEFAULTS, first_given

Origin = Literal["shipped", "team"]
HEAD = ("include_personas", "target_type", "first_n", "last_n")  # of a file; its propositions inherit them
_OWN = ("include_personas", "first_n", "last_n")  # what a proposition can say itself


@dataclass(frozen=True, slots=True)
class Listed:
    """A proposition as it is listed.

    Attributes:
        entry: Where it stands.
        origin: Whether its folder is the shipped one.
        in_place_of: What it replaces: a proposition of ours with the same id; None for most.
    """

    entry: DraftEntry
    origin: Origin
    in_place_of: DraftEntry | None = None

    @property
    def key(self) -> str:
        return key_of(self.entry)


def listed(owner: str, *, files: Sequence[LoadedFile]) -> list[Listed]:
    """The propositions in files about one agent (or ``_default``), drafts too; what is replaced stands with what replaces it."""
    found: dict[object, Listed] = {}
    for entry in all_entries(files):
        if entry.owner != owner:
            continue
        p = entry.proposition
        counts = entry.state in ("accepted", "retired")
        place = (entry.dimension, entry.level, p.id) if counts else key_of(entry)
        before = found.pop(place, None)
        found[place] = Listed(entry, origin_of(entry.path), before.entry if before else None)
    return list(found.values())


def key_of(entry: DraftEntry) -> str:
    """A name for a proposition in an address: the number of its folder, its file there and its id."""
    folder = folder_of(entry.path)
    number = next((n for n, known in enumerate(proposition_dirs()) if known == folder), 0)
    inside = entry.path.relative_to(folder) if entry.path.is_relative_to(folder) else Path(entry.path.name)
    return f"{number}/{inside.as_posix()}:{entry.proposition.id}"


def entry_at(key: str, owner: str, *, files: Sequence[LoadedFile]) -> DraftEntry | None:
    """The proposition of that name; never a file that is not one of those that are read."""
    return next((e for e in all_entries(files) if e.owner == owner and key_of(e) == key), None)


def origin_of(path: Path) -> Origin:
    return "shipped" if folder_of(path) == Path(settings.PROPOSITIONS_DIR) else "team"


def written_as(entry: DraftEntry) -> tuple[dict[str, Any], dict[str, Any]]:
    """A proposition and the head of its file, as they are written there.

    Raises:
        CannotWrite: The file cannot be read, or the proposition is not in it any more.
    """
    content = read_bytes(entry.path)
    try:
        data = parse((content or b"").decode())[1]
    except ValueError as error:
        raise CannotWrite(f"{entry.path} cannot be read: {error}") from None
    found = [p for p in data.get("propositions") or [] if isinstance(p, dict) and p.get("id") == entry.proposition.id]
    if not found:
        raise CannotWrite(f"{entry.path} has no proposition {entry.proposition.id} any more")
    return dict(found[0]), {name: data[name] for name in HEAD if name in data}


def moved(
    entry: Mapping[str, Any], *, level: str, source: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """An entry as it must stand in another file to mean the same: what it inherited from its own is said where it differs."""
    first_n, last_n = WINDOW_DEFAULTS[level]
    defaults = {"include_personas": True, "first_n": first_n, "last_n": last_n}
    said = dict(entry)
    for name in _OWN:
        meant = first_given(entry.get(name), source.get(name), defaults[name])
        if meant != first_given(entry.get(name), target.get(name), defaults[name]):
            said[name] = meant
    return said


def file_name(owner: str, level: str) -> str:
    """The file of an agent that people write, beside the one of drafts."""
    return f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml"


def head_of(dimension: str, owner: str, level: str) -> dict[str, Any]:
    """The head of a new file about one agent."""
    head: dict[str, Any] = {"dimension": dimension, "agent_id": owner}
    if dimension in ("convergence", "ideas_quantity"):
        head["target_type"] = "environment"
    if level == "action":
        head["level"] = level
    if dimension == "fluency":
        head["include_personas"] = False
    return head


def free_id(owner: str, claim: str, *, files: Sequence[LoadedFile]) -> str:
    """An id for a new claim: ``<agent>-<its first words>``, with a number where that is taken."""
    taken = {entry.proposition.id for entry in all_entries(files)}
    words = re.findall(r"[a-z0-9]+", claim.replace("{{agent_name}}", " ").lower())[:5]
    prefix = re.sub(r"[^a-z0-9]+", "-", owner.lower()).strip("-")[:40]
    wanted = "-".join(filter(None, (prefix if owner != "_default" else "", *words)))[:80].strip("-") or "claim"
    found, number = wanted, 1
    while found in taken:
        number += 1
        found = f"{wanted}-{number}"
    return found
