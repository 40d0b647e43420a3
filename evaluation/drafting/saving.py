"""Saving a proposition that somebody wrote or changed: in the file it stands in, or in the team's folder in the place of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from evaluation.drafting.decisions import DraftEntry, all_entries, still_stands
from evaluation.drafting.edits import CannotEdit
from evaluation.drafting.entry_edits import with_entry
from evaluation.drafting.library import HEAD, file_name, head_of, moved, origin_of, written_as
from evaluation.drafting.replacing import CannotWrite, read_bytes, replace_file
from evaluation.drafting.writing import appended, default_folder, items, parse
from evaluation.propositions.files import DEFAULT, LoadedFile, load_all, proposition_dirs, resolved_file, shared_ids_of
from evaluation.propositions.schema import PropositionFile
from evaluation.propositions.yaml_files import in_words, location_of

CHANGED = "It was changed or taken out since the page was opened. Look at it again."
NO_FOLDER = "No folder for propositions of your own is set: name one in PROPOSITION_DIRS, or export the YAML."
RETIRED = {"active": False, "retired": True}


class CannotSave(Exception):
    """Why nothing was saved. `errors` says per field what is wrong; under the empty name what no field is to blame for."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{name}: {text}" if name else text for name, text in self.errors.items()))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proposition is saved: `replaces` says that the file gets it in the place of one of ours."""

    path: Path
    replaces: bool = False
    in_place: bool = False


def place_for(*, owner: str, dimension: str, level: str, entry: DraftEntry | None = None) -> Place | None:
    """Where it would be saved; None where there is no folder of a team's.

    A proposition of a team's folder, and a draft wherever it is, is changed where it stands.
    """
    if entry is not None and (origin_of(entry.path) == "team" or entry.state == "waiting" or entry.proposition.quote):
        return Place(entry.path, in_place=True)
    folder = default_folder()
    if folder is None or Path(owner).name != owner or owner.startswith("."):
        return None
    return Place(folder / dimension / file_name(owner, level), replaces=entry is not None)


def save_proposition(
    *,
    owner: str,
    dimension: str,
    level: str,
    entry: Mapping[str, Any],
    mark: str = "",
    files: Sequence[LoadedFile] | None = None,
) -> Path:
    """Store a proposition as it is written in a file, new or in the place of another one.

    Args:
        owner: Slug of the agent it is about, or ``_default``.
        dimension: Its dimension's id.
        level: ``evaluation`` or ``action``.
        entry: All its fields, as they stand in a file.
        mark: Of the proposition that is changed, as the person saw it; empty for a new one.
        files: What `load_all` returned.

    Returns:
        The file.

    Raises:
        CannotSave: Something is not allowed, it was changed meanwhile, or the file cannot be written; nothing was changed then.
        PropositionError: Proposition files cannot be used.
    """
    loaded = load_all() if files is None else list(files)
    old = _marked(mark, owner, loaded) if mark else None
    place = place_for(owner=owner, dimension=dimension, level=level, entry=old)
    if place is None:
        raise CannotSave({"": NO_FOLDER})
    if old is None or not place.in_place:
        _refuse_taken(str(entry.get("id", "")), place, owner, dimension, level, old, loaded)
    elif old.proposition.id != entry.get("id"):
        raise CannotSave({"id": f"the id of {old.proposition.id} stays: scores are stored under it"})
    try:
        before = read_bytes(place.path)
        if old is not None and not still_stands(before if old.path == place.path else read_bytes(old.path), old):
            raise CannotSave({"": CHANGED})  # a save landed since the files were read
        text = _text(place, before, dict(entry), old, head_of(dimension, owner, level), level)
        _refuse_unusable(place.path, text, loaded)
        replace_file(place.path, text.encode(), expected=before)
    except (CannotEdit, CannotWrite) as problem:
        raise CannotSave({"": f"Nothing was changed: {problem}."}) from None
    return place.path


def retire(*, mark: str, owner: str, back: bool = False, files: Sequence[LoadedFile] | None = None) -> DraftEntry:
    """Have a proposition no longer judged, or (`back`) judged again; what was scored under it stays.

    Raises:
        CannotSave, PropositionError: As for `save_proposition`.
    """
    loaded = load_all() if files is None else list(files)
    old = _marked(mark, owner, loaded)
    if old.state != ("retired" if back else "accepted"):
        raise CannotSave({"": f"{old.proposition.id} is {old.state}: nothing was changed."})
    try:
        entry = written_as(old)[0]
    except CannotWrite as problem:
        raise CannotSave({"": str(problem)}) from None
    entry = {name: value for name, value in entry.items() if name not in RETIRED} if back else {**entry, **RETIRED}
    save_proposition(
        owner=owner,
        dimension=old.dimension,
        level=old.level,
        entry={**entry, "active": True} if back else entry,
        mark=mark,
        files=loaded,
    )
    return old


def checked(
    *,
    owner: str,
    dimension: str,
    level: str,
    entry: Mapping[str, Any],
    head: Mapping[str, Any] | None = None,
) -> PropositionFile:
    """An entry as the loader would read it, in a file of its own.

    Args:
        owner, dimension, level, entry: As for `save_proposition`.
        head: What its file says of all its propositions.

    Raises:
        CannotSave: It is not valid; says per field what is allowed.
    """
    data = {**head_of(dimension, owner, level), **(head or {}), "propositions": [dict(entry)]}
    return _validated(data)


def _marked(mark: str, owner: str, loaded: Sequence[LoadedFile]) -> DraftEntry:
    found = next((e for e in all_entries(loaded) if e.mark == mark and e.owner == owner), None)
    if found is None:
        raise CannotSave({"": CHANGED})
    return found


def _refuse_taken(
    wanted: str,
    place: Place,
    owner: str,
    dimension: str,
    level: str,
    old: DraftEntry | None,
    loaded: Sequence[LoadedFile],
) -> None:
    """A new id is nobody's; what replaces one of ours bears its id."""
    for other in all_entries(loaded):
        same = (other.dimension, other.level) == (dimension, level) and owner in (other.owner, DEFAULT)
        is_it = old is not None and other.mark == old.mark
        concerns = same or ((other.dimension, other.level) == (dimension, level) and other.owner == DEFAULT)
        if concerns and other.proposition.id == wanted and not is_it:
            raise CannotSave({"id": f"{wanted} is in use in {other.path}; change that one, or take another id"})
    if old is not None and old.proposition.id != wanted:
        raise CannotSave({"id": f"what stands in the place of {old.proposition.id} bears its id"})


def _text(
    place: Place, before: bytes | None, entry: dict[str, Any], old: DraftEntry | None, head: dict[str, Any], level: str
) -> str:
    """The file's text with the proposition in it.

    Raises:
        CannotEdit, CannotWrite: It cannot be put there.
    """
    try:
        text = before.decode() if before is not None else ""
    except UnicodeDecodeError:
        raise CannotEdit(f"{place.path} is not UTF-8") from None
    if place.in_place and old is not None:
        return with_entry(text, old.proposition.id, entry)
    target = _head(text, place.path) if before is not None else head
    if old is not None:
        entry = moved(entry, level=level, source=written_as(old)[1], target=target)
    if before is None:
        top = yaml.safe_dump(head, allow_unicode=True, sort_keys=False)
        return f"{top}propositions:\n{items([entry], '', indent=2)}"
    return appended(place.path, before, [entry], "")


def _head(text: str, path: Path) -> dict[str, Any]:
    try:
        data = parse(text)[1]
    except ValueError as error:
        raise CannotWrite(f"{path} cannot be added to: {error}") from None
    return {name: data[name] for name in HEAD if name in data}


def _refuse_unusable(path: Path, text: str, loaded: Sequence[LoadedFile]) -> None:
    """What the loader would say of the file and of all files together."""
    node, data = parse(text)
    parsed = _validated({"dimension": path.parent.name, **data})
    new = resolved_file(path, parsed, node)
    problems = shared_ids_of((*(f for f in loaded if f.path != path), new), tuple(proposition_dirs()))
    if problems:
        raise CannotSave({"id": str(problems[0].message)})


def _validated(data: Mapping[str, Any]) -> PropositionFile:
    """The file, if the loader takes it."""
    try:
        return PropositionFile.model_validate(data)
    except ValidationError as error:
        raise CannotSave(_by_field([dict(item) for item in error.errors()])) from None


def _by_field(problems: Sequence[dict[str, Any]]) -> dict[str, str]:
    """The problems by the innermost field they are about; those of a combination of fields under the empty name."""
    found: dict[str, str] = {}
    for item in problems:
        inside = [part for part in location_of(item)[2:] if isinstance(part, str)]
        name = inside[-1] if inside else ""
        found[name] = "; ".join(filter(None, (found.get(name, ""), in_words(item, []))))
    return found
