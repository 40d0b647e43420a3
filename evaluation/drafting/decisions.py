"""What people decide about drafts: accept, reject, take it back. The file is the one place where it is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from evaluation.drafting.edits import CannotEdit, with_switches
from evaluation.drafting.replacing import CannotWrite, read_bytes, replace_file
from evaluation.drafting.writing import parse
from evaluation.propositions.files import DEFAULT, LoadedFile, load_all, proposition_dirs
from evaluation.propositions.schema import Proposition, PropositionFile, resolve


class Decision(StrEnum):
    """What to do with a draft."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNDO = "undo"


SWITCHES = {
    Decision.ACCEPT: {"active": True, "rejected": False},
    Decision.REJECT: {"active": False, "rejected": True},
    Decision.UNDO: {"active": False, "rejected": False},
}


class CannotDecide(Exception):
    """Why nothing was changed, for people."""


@dataclass(frozen=True, slots=True)
class DraftEntry:
    """A proposition where it stands: a draft, one that was a draft, or one that somebody wrote.

    Attributes:
        path: The file.
        owner: The agent's slug, or ``_default``.
        dimension, level: What the file is about.
        proposition: The entry.
        mark: Digest of all that a person sees of it; another one means that it was changed.
    """

    path: Path
    owner: str
    dimension: str
    level: str
    proposition: Proposition
    mark: str

    @property
    def state(self) -> str:
        p = self.proposition
        return "accepted" if p.active else "rejected" if p.rejected else "retired" if p.retired else "waiting"


def entries(files: Sequence[LoadedFile] | None = None) -> list[DraftEntry]:
    """Everything that is or was a draft: what is inactive, and what is active and says from which words it was drafted.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    return [entry for entry in all_entries(files) if not entry.proposition.active or entry.proposition.quote]


def all_entries(files: Sequence[LoadedFile] | None = None) -> list[DraftEntry]:
    """Every proposition of every file, in their order.

    Raises:
        PropositionError: Proposition files cannot be used.
    """
    found = load_all() if files is None else files
    return [
        DraftEntry(file.path, file.agent_id, file.dimension, file.level, p, mark_of(file.path, p))
        for file in found
        for p in (*file.propositions, *file.drafts)
    ]


def entry_marked(mark: str, found: Sequence[DraftEntry]) -> DraftEntry:
    """The draft a person saw.

    Raises:
        CannotDecide: There is none that looks like that now.
    """
    entry = next((e for e in found if e.mark == mark), None)
    if entry is None:
        raise CannotDecide("This draft was changed, decided or taken out since the page was opened. Look at it again.")
    return entry


def decide(*, mark: str, decision: Decision, files: Sequence[LoadedFile] | None = None) -> DraftEntry:
    """Carry a decision out in the file: one line changes.

    Args:
        mark: Of the draft as the person saw it.
        decision: What to do.
        files: What `load_all` returned.

    Returns:
        The draft as it was.

    Raises:
        CannotDecide: It is not what the person saw any more, its id is taken, or the file cannot be edited or written.
        PropositionError: Proposition files cannot be used.
    """
    loaded = load_all() if files is None else list(files)
    entry = entry_marked(mark, entries(loaded))
    if decision is Decision.ACCEPT and (other := _holder_of(entry, loaded)):
        raise CannotDecide(
            f"The id {entry.proposition.id} is in use in {other.name}: give the draft another one in {entry.path}."
        )
    try:
        _rewrite(entry, decision)
    except (CannotEdit, CannotWrite) as problem:
        raise CannotDecide(f"Nothing was changed: {problem}.") from None
    return entry


def _rewrite(entry: DraftEntry, decision: Decision) -> None:
    content = read_bytes(entry.path)
    if content is None:
        raise CannotEdit(f"{entry.path} is gone")
    try:
        text = content.decode()
        if not _stands_in(text, entry):
            raise CannotEdit(f"{entry.path} was changed meanwhile by somebody else; look at it again")
        changed = with_switches(text, entry.proposition.id, SWITCHES[decision])
        list(_read(entry.path, changed))
    except UnicodeDecodeError:
        raise CannotEdit(f"{entry.path} is not UTF-8") from None
    except ValidationError as error:
        raise CannotEdit(f"{entry.path}: {error.errors()[0]['msg']}") from None
    replace_file(entry.path, changed.encode(), expected=content)


def still_stands(content: bytes | None, entry: DraftEntry) -> bool:
    """Whether a file with this content (None = it is gone) has the proposition as the person saw it."""
    try:
        return content is not None and _stands_in(content.decode(), entry)
    except (CannotEdit, UnicodeDecodeError, ValidationError):
        return False


def _stands_in(text: str, entry: DraftEntry) -> bool:
    now = next((p for p in _read(entry.path, text) if p.id == entry.proposition.id), None)
    return now is not None and mark_of(entry.path, now) == entry.mark


def _read(path: Path, text: str) -> Iterator[Proposition]:
    try:
        data = parse(text)[1]
    except ValueError as error:
        raise CannotEdit(f"{path}: {error}") from None
    file = PropositionFile.model_validate({"dimension": path.parent.name, **data})
    return (resolve(spec, file, path.name) for spec in file.propositions)


def _holder_of(entry: DraftEntry, files: Sequence[LoadedFile]) -> Path | None:
    """The file of the same folder in which an active proposition has the draft's id already."""
    folder = folder_of(entry.path)
    for file in files:
        same = (file.dimension, file.level) == (entry.dimension, entry.level) and folder_of(file.path) == folder
        concerns = entry.owner in (file.agent_id, DEFAULT) or file.agent_id == DEFAULT
        if same and concerns and any(p.id == entry.proposition.id for p in file.propositions):
            return None if file.path == entry.path and entry.proposition.active else file.path
    return None


def folder_of(path: Path) -> Path:
    """The folder of propositions a file is in."""
    return next((d for d in reversed(proposition_dirs()) if path.is_relative_to(d)), path.parent)


def mark_of(path: Path, p: Proposition) -> str:
    """Digest of all that a person sees of a proposition in a file."""
    shown = [str(path), p.fingerprint(), p.recommendations, p.quote, p.active, p.rejected, p.retired]
    shown += [p.trait, p.trait_stopped]
    return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]
