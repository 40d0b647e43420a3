"""Change proposition files, which belong to people: comments and order stay, and a newer version is never written over."""

from __future__ import annotations

import copy
import fcntl
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from evaluation.dimensions import Dimension
from evaluation.propositions.files import (
    DEFAULT,
    Entry,
    LoadedFile,
    Loader,
    all_entries,
    entry_marked,
    in_words,
    listed,
    load_all,
    location_of,
    mark_of,
    resolved_file,
    shared_ids,
)
from evaluation.propositions.schema import WINDOW_DEFAULTS, PropositionFile, first_given

CHANGED = "It was changed or removed since the page was opened. Look at it again."
NO_FOLDER = "No folder for propositions of your own is set: name one in PROPOSITION_DIRS, or export the YAML."
HEAD = ("include_personas", "target_type", "first_n", "last_n")  # of a file; its propositions inherit them
WIDTH = 110  # columns of new entries


class CannotSave(Exception):
    """Why nothing was saved, for people. `errors` has the message per field; the empty name is for those about no field."""

    def __init__(self, errors: Mapping[str, str] | str) -> None:
        self.errors = {"": errors} if isinstance(errors, str) else dict(errors)
        super().__init__("; ".join(f"{name}: {text}" if name else text for name, text in self.errors.items()))


class Decision(StrEnum):
    """What a person decides about a proposition."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNDO = "undo"
    RETIRE = "retire"
    RESTORE = "restore"


SWITCHES: dict[Decision, tuple[tuple[str, ...], dict[str, bool]]] = {  # allowed in these states; fields it sets
    Decision.ACCEPT: (("suggested",), {"active": True}),
    Decision.REJECT: (("suggested",), {"active": False, "rejected": True}),
    Decision.UNDO: (("accepted", "rejected"), {"active": False}),
    Decision.RETIRE: (("accepted",), {"active": False, "retired": True}),
    Decision.RESTORE: (("retired",), {"active": True}),
}


# -- services
def decide(*, mark: str, owner: str, decision: Decision, files: Sequence[LoadedFile] | None = None) -> Entry:
    """Carry a decision out in the file and return the proposition as it was. What was scored under it stays.

    For the arguments and errors see `save_proposition`.
    """
    loaded = load_all() if files is None else list(files)
    entry = _as_seen(mark, owner, loaded)
    states, switches = SWITCHES[decision]
    if entry.state not in states:
        raise CannotSave(f"{entry.proposition.id} is {entry.state}: nothing was changed.")
    fields = {name: value for name, value in written_as(entry)[0].items() if name not in ("rejected", "retired")}
    save_proposition(
        owner=owner, dimension=entry.dimension, level=entry.level, entry=fields | switches, mark=mark, files=loaded
    )
    return entry


def save_proposition(
    *,
    owner: str,
    dimension: str,
    level: str,
    entry: Mapping[str, Any],
    mark: str = "",
    files: Sequence[LoadedFile] | None = None,
) -> Path:
    """Store a proposition as it is written in a file, new or instead of another one, and return the file.

    Args:
        owner: Slug of the agent it is about, or ``_default``.
        dimension: Its dimension's id.
        level: ``evaluation`` or ``action``.
        entry: All its fields, as a file has them.
        mark: Of the proposition that is changed, as the person saw it; empty for a new one.
        files: What `load_all` returned.

    Raises:
        CannotSave: Something is not allowed, it was changed meanwhile, or the file cannot be written; nothing was changed then.
        PropositionError: Proposition files cannot be used.
    """
    loaded = load_all() if files is None else list(files)
    old = _as_seen(mark, owner, loaded) if mark else None
    place = place_for(owner=owner, dimension=dimension, level=level, entry=old)
    if place is None:
        raise CannotSave(NO_FOLDER)
    if old is not None and old.proposition.id != entry.get("id"):
        raise CannotSave({"id": f"the id {old.proposition.id} stays: scores are stored under it"})
    if not place.in_place:
        _refuse_taken(dimension, level, owner, entry.get("id"), old, loaded)
    before = read_bytes(place.path)
    if old is not None and not _still_stands(before if old.path == place.path else read_bytes(old.path), old):
        raise CannotSave(CHANGED)  # another save landed since the files were read
    text = _text(place, before, dict(entry), old, head_of(dimension, owner, level), level)
    parsed = validated({"dimension": place.path.parent.name, **parse(text, place.path)})
    new = resolved_file(place.path, parsed, None)
    if problems := shared_ids((*(file for file in loaded if file.path != place.path), new)):
        raise CannotSave({"id": str(problems[0].message)})
    replace_file(place.path, text.encode(), expected=before)
    return place.path


@dataclass(frozen=True, slots=True)
class Place:
    """Where a proposition is saved: changed `in_place`, or added to the file, where `replaces` says that it overrides one of ours."""

    path: Path
    replaces: bool = False
    in_place: bool = False


def place_for(*, owner: str, dimension: str, level: str, entry: Entry | None = None) -> Place | None:
    """Return where a proposition would be saved; None where the team has no folder.

    A proposition of a team's folder, and a suggestion in any folder, is changed in its file.
    """
    if entry is not None:
        was_suggested = entry.state in ("suggested", "rejected") or bool(entry.proposition.quote)
        if was_suggested or not entry.is_shipped:
            return Place(entry.path, in_place=True)
    folder = team_folder()
    if folder is None or Path(owner).name != owner or owner.startswith("."):
        return None
    name = f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml"
    return Place(folder / dimension / name, replaces=entry is not None)


def team_folder() -> Path | None:
    """Return where new files go: the first of the team's folders; None when there is none."""
    return Path(settings.PROPOSITION_DIRS[0]) if settings.PROPOSITION_DIRS else None


def exported(owner: str, dimension: str, level: str, *, files: Sequence[LoadedFile]) -> str:
    """Return a proposition file of what is asked of one agent itself; empty when there is nothing.

    Raises:
        CannotSave: A file cannot be read.
    """
    head, entries = head_of(dimension, owner, level), []
    for entry in listed(owner, files=files):
        if (entry.dimension, entry.level) == (dimension, level) and entry.proposition.active:
            fields, source = written_as(entry)
            entries.append(_moved(fields, level=level, source=source, target=head))
    return as_file(head, entries) if entries else ""


def as_file(head: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], comment: str = "") -> str:
    """Return the text of a proposition file."""
    top = yaml.safe_dump(dict(head), allow_unicode=True, sort_keys=False)
    return f"{top}propositions:\n{_items(entries, comment, indent=2)}"


def head_of(dimension: str, owner: str, level: str) -> dict[str, Any]:
    """Return the head of a new file about one agent (or ``_default``)."""
    head: dict[str, Any] = {"dimension": dimension, "agent_id": owner}
    kind = Dimension(dimension).kind
    if kind.measured_of == "channel":
        head["target_type"] = "environment"
    if level == "action":
        head["level"] = level
    if kind.measured_of == "agent" and kind.judged_by == "window":
        head["include_personas"] = False
    return head


def written_as(entry: Entry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a proposition's fields and the head of its file, as they are written there.

    Raises:
        CannotSave: The file cannot be read, or the proposition is not in it any more.
    """
    data = parse(decoded(read_bytes(entry.path) or b"", entry.path), entry.path)
    for fields in data.get("propositions") or ():
        if isinstance(fields, dict) and fields.get("id") == entry.proposition.id:
            return dict(fields), {name: data[name] for name in HEAD if name in data}
    raise CannotSave(f"{entry.path} has no proposition {entry.proposition.id} any more")


def validated(data: Mapping[str, Any]) -> PropositionFile:
    """Return the file, if the loader accepts it.

    Raises:
        CannotSave: It is not valid; says per innermost field what is allowed, under the empty name for combinations of fields.
    """
    try:
        return PropositionFile.model_validate(data)
    except ValidationError as error:
        errors: dict[str, str] = {}
        for item in map(dict, error.errors()):
            name = next((part for part in location_of(item)[:1:-1] if isinstance(part, str)), "")
            errors[name] = "; ".join(filter(None, (errors.get(name, ""), in_words(item, []))))
        raise CannotSave(errors) from None


def _as_seen(mark: str, owner: str, loaded: Sequence[LoadedFile]) -> Entry:
    entry = entry_marked(mark, owner, files=loaded)
    if entry is None:
        raise CannotSave(CHANGED)
    return entry


def _refuse_taken(
    dimension: str, level: str, owner: str, wanted: Any, old: Entry | None, loaded: Sequence[LoadedFile]
) -> None:
    for other in all_entries(loaded):
        concerns = other.owner == owner or DEFAULT in (owner, other.owner)
        is_same = (other.dimension, other.level, other.proposition.id) == (dimension, level, wanted)
        if concerns and is_same and (old is None or other.mark != old.mark):
            raise CannotSave({"id": f"{wanted} is in use in {other.path}; change that one, or use another id"})


def _still_stands(content: bytes | None, entry: Entry) -> bool:
    """Whether a file with this content (None = it is gone) has the proposition as the person saw it."""
    try:
        data = parse(decoded(content or b"", entry.path), entry.path)
        file = resolved_file(entry.path, validated({"dimension": entry.path.parent.name, **data}), None)
    except CannotSave:
        return False
    return any(mark_of(entry.path, p) == entry.mark for p in (*file.propositions, *file.inactive))


def _text(
    place: Place, before: bytes | None, fields: dict[str, Any], old: Entry | None, head: dict[str, Any], level: str
) -> str:
    """Return the file's text with the proposition in it."""
    text = decoded(before or b"", place.path)
    if place.in_place and old is not None:
        return with_entry(text, fields, place.path)
    if before is not None:
        data = parse(text, place.path)
        head = {name: data[name] for name in HEAD if name in data}
    if old is not None:
        fields = _moved(fields, level=level, source=written_as(old)[1], target=head)
    return as_file(head, [fields]) if before is None else appended(text, [fields], place.path)


def _moved(
    fields: Mapping[str, Any], *, level: str, source: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields that mean the same in another file: what differs of the two heads is written out."""
    first_n, last_n = WINDOW_DEFAULTS[level]
    written = dict(fields)
    for name, default in (("include_personas", True), ("first_n", first_n), ("last_n", last_n)):
        meant = first_given(fields.get(name), source.get(name), default)
        if meant != first_given(fields.get(name), target.get(name), default):
            written[name] = meant
    return written


# -- text
def parse(text: str, path: Path) -> dict[Any, Any]:
    """Return a file's data, read as the loader reads it.

    Raises:
        CannotSave: It is no YAML mapping.
    """
    try:
        data = yaml.load(text, Loader=Loader)  # noqa: S506 (a safe one)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = getattr(error, "problem", None) or error
        raise CannotSave(f"{path} is not valid YAML: {problem}; edit it by hand") from None
    if not isinstance(data, dict):
        raise CannotSave(f"{path} has no mapping at its top; edit it by hand")
    return data


def with_entry(text: str, fields: Mapping[str, Any], path: Path) -> str:
    """Return the file's text with other fields in its proposition of that id, by ruamel.yaml: order and comments stay.

    A field that says the same stays as it was written, new ones come last. `fields` are all that the proposition shall have, `id` among
    them.

    Raises:
        CannotSave: There is no such proposition, or the change would reach further than it should.
    """
    wanted = copy.deepcopy(parse(text, path))
    rows = wanted.get("propositions") or []
    number = next((n for n, p in enumerate(rows) if isinstance(p, dict) and p.get("id") == fields["id"]), None)
    if number is None:
        raise CannotSave(f"{path} has no proposition {fields['id']} any more")
    old, rows[number] = rows[number], dict(fields)
    round_trip = YAML()
    round_trip.preserve_quotes, round_trip.width = True, 1_000_000
    round_trip.version = (1, 1)  # in which the loader reads: `no` is false
    out = io.StringIO()
    try:
        document = round_trip.load(text.replace("\r\n", "\n"))
        places = document["propositions"]
        margin = 0 if places.fa.flow_style() else places.lc.col
        round_trip.indent(mapping=2, sequence=margin + 2, offset=margin)
        entry = places[number]
        for name in [name for name in entry if name not in fields]:
            del entry[name]
        for name, value in fields.items():
            if name not in old or old[name] != value or type(old[name]) is not type(value):
                entry[name] = _writable(value)
        round_trip.dump(document, out)
        changed = out.getvalue().removeprefix("%YAML 1.1\n---\n")
        is_meant = parse(changed, path) == wanted
    except (CannotSave, YAMLError, KeyError):
        is_meant = False
    if not is_meant:
        raise CannotSave(f"{path}: {fields['id']} cannot be changed alone; edit the file by hand")
    if not text.endswith("\n"):
        changed = changed.removesuffix("\n")
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _writable(value: Any) -> Any:
    """Return a value that ruamel.yaml writes with escapes where it holds characters that cannot be seen."""
    if isinstance(value, dict):
        return {name: _writable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_writable(one) for one in value]
    return DoubleQuotedScalarString(value) if isinstance(value, str) and not value.isprintable() else value


def appended(text: str, entries: Sequence[Mapping[str, Any]], path: Path, comment: str = "") -> str:
    """Return the file's text with entries at its end, below a line of comment (left out when empty).

    Raises:
        CannotSave: It would not read as what was there and the entries.
    """
    data = parse(text, path)
    try:
        document = YAML().load(text)
        rows = document["propositions"]
        is_block = not rows.fa.flow_style()
        indent = rows.lc.col
    except (YAMLError, KeyError, AttributeError):
        is_block, indent = False, 0
    if not is_block:
        raise CannotSave(f"{path} cannot be added to: its propositions are no list of the form “- id: …”")
    newline = "\r\n" if "\r\n" in text else "\n"
    content = text + ("" if text.endswith(("\n", "\r")) else newline)
    content += _items(entries, comment, indent=indent).replace("\n", newline)
    wanted = {**data, "propositions": [*data["propositions"], *map(dict, entries)]}
    try:
        is_meant = parse(content, path) == wanted
    except CannotSave:
        is_meant = False
    if not is_meant:
        raise CannotSave(f"{path} cannot be added to: put “propositions” last in the file and end it with a line break")
    return content


def _items(entries: Sequence[Mapping[str, Any]], comment: str, *, indent: int) -> str:
    """Return the lines of entries."""
    margin = " " * indent
    text = yaml.safe_dump(
        [dict(entry) for entry in entries], allow_unicode=True, sort_keys=False, width=WIDTH, default_flow_style=False
    )
    lines = [*([f"# {comment}"] if comment else []), *text.rstrip("\n").split("\n")]
    return "".join(f"{margin}{line}\n" if line else "\n" for line in lines)


# -- bytes
def decoded(content: bytes, path: Path) -> str:
    """Return a file's text.

    Raises:
        CannotSave: It is not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise CannotSave(f"{path} is not UTF-8; edit it by hand") from None


def read_bytes(path: Path) -> bytes | None:
    """Return a file's content; None when there is none.

    Raises:
        CannotSave: It cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotSave(f"{path} cannot be read: {error.strerror or error}") from None


def replace_file(path: Path, content: bytes, *, expected: bytes | None) -> None:
    """Put `content` in the place of `expected` in one step; other processes that do the same wait their turn.

    A link is followed, and missing folders are made. `expected` None: there was no such file.

    Raises:
        CannotSave: The file changed since it was read, or the folder cannot be written to.
    """
    path = path.resolve()
    half = path.with_name(f".{path.name}.new")
    folder = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # the system releases it even when the process is killed
        if read_bytes(path) != expected:
            raise CannotSave(f"{path} was changed meanwhile; look at it again")
        with half.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if expected is not None:
            half.chmod(path.stat().st_mode & 0o777)
        half.replace(path)
    except OSError as error:
        raise CannotSave(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if folder is not None:
            os.close(folder)
