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
from evaluation.propositions.entries import Entry, all_entries, entry_marked, mark_of
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    Loader,
    in_words,
    load_all,
    location_of,
    resolved_file,
    shared_ids,
)
from evaluation.propositions.schema import WINDOW_DEFAULTS, PropositionFile, first_given

CHANGED = "It was changed or removed since the page was opened. Look at it again."
NO_FOLDER = "No folder for propositions of your own is set: name one in PROPOSITION_DIRS, or export the YAML."
HEAD_FIELDS = ("include_personas", "target_type", "first_n", "last_n")  # of a file; its propositions inherit them
LINE_WIDTH = 110  # columns of new entries


class CannotSave(Exception):
    """Nothing was saved; says why, for people. `errors` has the message per field; the empty name is for those about no field."""

    def __init__(self, errors: Mapping[str, str] | str) -> None:
        self.errors = {"": errors} if isinstance(errors, str) else dict(errors)
        super().__init__("; ".join(f"{name}: {text}" if name else text for name, text in self.errors.items()))


class Decision(StrEnum):
    """A decision of a person about a proposition."""

    ACCEPT = "accept"
    REJECT = "reject"
    UNDO = "undo"
    RETIRE = "retire"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class _DecisionRule:
    """The rule of a decision: the states it is allowed in, and the fields it sets in the file."""

    allowed_states: tuple[str, ...]
    fields: Mapping[str, bool]


DECISION_RULES: Mapping[Decision, _DecisionRule] = {
    Decision.ACCEPT: _DecisionRule(("suggested",), {"active": True}),
    Decision.REJECT: _DecisionRule(("suggested",), {"active": False, "rejected": True}),
    Decision.UNDO: _DecisionRule(("accepted", "rejected"), {"active": False}),
    Decision.RETIRE: _DecisionRule(("accepted",), {"active": False, "retired": True}),
    Decision.RESTORE: _DecisionRule(("retired",), {"active": True}),
}


# -- services
def decide(*, mark: str, owner: str, decision: Decision, files: Sequence[LoadedFile] | None = None) -> Entry:
    """Carry a decision out in the file and return the proposition as it was. What was scored under it stays.

    Args:
        mark: Of the proposition as the person saw it.
        owner: Slug of the agent it is about, or ``_default``.
        files: What `load_all` returned; None: read now.

    Raises:
        CannotSave: Its state does not allow this decision, it was changed meanwhile, or the file cannot be written; nothing was changed.
        PropositionError: Proposition files cannot be used.
    """
    loaded = load_all() if files is None else list(files)
    entry = _find_as_seen(mark, owner, loaded)
    rule = DECISION_RULES[decision]
    if entry.state not in rule.allowed_states:
        raise CannotSave(f"{entry.proposition.id} is {entry.state}: nothing was changed.")
    fields = written_as(entry).fields
    fields.pop("rejected", None)
    fields.pop("retired", None)
    fields.update(rule.fields)
    save_proposition(owner=owner, dimension=entry.dimension, level=entry.level, entry=fields, mark=mark, files=loaded)
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
        files: What `load_all` returned; None: read now.

    Raises:
        CannotSave: Something is not allowed, it was changed meanwhile, or the file cannot be written; nothing was changed then.
        PropositionError: Proposition files cannot be used.
    """
    loaded = load_all() if files is None else list(files)
    old = _find_as_seen(mark, owner, loaded) if mark else None
    place = place_for(owner=owner, dimension=dimension, level=level, entry=old)
    if place is None:
        raise CannotSave(NO_FOLDER)
    if old is not None and old.proposition.id != entry.get("id"):
        raise CannotSave({"id": f"the id {old.proposition.id} stays: scores are stored under it"})
    if not place.in_place:  # added to a file, where another one may have the id
        _refuse_id_in_use(dimension, level, owner, entry.get("id"), old, loaded)
    before = read_bytes(place.path)
    if old is not None:
        old_content = before if old.path == place.path else read_bytes(old.path)
        if not _still_has_as_seen(old_content, old):
            raise CannotSave(CHANGED)  # another save landed since the files were read
    text = _new_text(place, before, dict(entry), old, head_of(dimension, owner, level), level)
    parsed = validated({"dimension": place.path.parent.name, **parse(text, place.path)})
    new_file = resolved_file(place.path, parsed, None)
    other_files = [file for file in loaded if file.path != place.path]
    problems = shared_ids((*other_files, new_file))
    if problems:
        raise CannotSave({"id": str(problems[0].message)})
    replace_file(place.path, text.encode(), expected=before)
    return place.path


@dataclass(frozen=True, slots=True)
class SavePlace:
    """The file a proposition is saved to.

    Attributes:
        in_place: It is changed where it stands in the file; else it is added at its end.
        replaces: It overrides one of ours, which stays as it is.
    """

    path: Path
    replaces: bool = False
    in_place: bool = False


def place_for(*, owner: str, dimension: str, level: str, entry: Entry | None = None) -> SavePlace | None:
    """Return where a proposition would be saved; None where the team has no folder, or the owner is no file name.

    A proposition of a team's folder, and a suggestion in any folder, is changed in its file. One of ours stays: the changed one goes to
    the team's folder and replaces it.

    Args:
        entry: The one that is changed; None for a new one.
    """
    if entry is not None:
        was_suggested = entry.state in ("suggested", "rejected") or bool(entry.proposition.quote)
        if was_suggested or not entry.is_shipped:
            return SavePlace(entry.path, in_place=True)
    folder = team_folder()
    is_file_name = Path(owner).name == owner and not owner.startswith(".")
    if folder is None or not is_file_name:
        return None
    name = f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml"
    return SavePlace(folder / dimension / name, replaces=entry is not None)


def team_folder() -> Path | None:
    """Return where new files go: the first of the team's folders; None when there is none."""
    return Path(settings.PROPOSITION_DIRS[0]) if settings.PROPOSITION_DIRS else None


def as_file(head: Mapping[str, Any], entries: Sequence[Mapping[str, Any]], comment: str = "") -> str:
    """Return the text of a proposition file."""
    top = yaml.safe_dump(dict(head), allow_unicode=True, sort_keys=False)
    return f"{top}propositions:\n{_list_items(entries, comment, indent=2)}"


def head_of(dimension: str, owner: str, level: str) -> dict[str, Any]:
    """Return the head of a new file about one agent (or ``_default``): besides these two only what differs from the defaults."""
    head: dict[str, Any] = {"dimension": dimension, "agent_id": owner}
    kind = Dimension(dimension).kind
    if kind.measured_of == "channel":
        head["target_type"] = "environment"
    if level == "action":
        head["level"] = level
    return head


@dataclass(frozen=True, slots=True)
class WrittenEntry:
    """A proposition as its file has it: its own fields, and those of the file's head that it inherits."""

    fields: dict[str, Any]
    head: dict[str, Any]


def written_as(entry: Entry) -> WrittenEntry:
    """Return a proposition as its file has it.

    Raises:
        CannotSave: The file cannot be read, or the proposition is not in it any more.
    """
    data = parse(decoded(read_bytes(entry.path) or b"", entry.path), entry.path)
    for fields in data.get("propositions") or ():
        if isinstance(fields, dict) and fields.get("id") == entry.proposition.id:
            return WrittenEntry(dict(fields), _head_fields(data))
    raise CannotSave(f"{entry.path} has no proposition {entry.proposition.id} any more")


def _head_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: data[name] for name in HEAD_FIELDS if name in data}


def validated(data: Mapping[str, Any]) -> PropositionFile:
    """Return the content of a file, if it is valid.

    Raises:
        CannotSave: It is not valid; says per innermost field what is allowed, under the empty name for combinations of fields.
    """
    try:
        return PropositionFile.model_validate(data)
    except ValidationError as error:
        errors: dict[str, str] = {}
        for item in map(dict, error.errors()):
            field = _innermost_field(item)
            text = in_words(item, [])
            errors[field] = f"{errors[field]}; {text}" if field in errors else text
        raise CannotSave(errors) from None


def _innermost_field(item: dict[str, Any]) -> str:
    """Return the innermost field of a proposition that an error of pydantic is about; empty where it is about no field."""
    place_in_proposition = location_of(item)[2:]  # without ("propositions", number)
    for part in reversed(place_in_proposition):
        if isinstance(part, str):
            return part
    return ""


def _find_as_seen(mark: str, owner: str, loaded: Sequence[LoadedFile]) -> Entry:
    """Return the proposition that looks as the person saw it.

    Raises:
        CannotSave: None does any more.
    """
    entry = entry_marked(mark, owner, files=loaded)
    if entry is None:
        raise CannotSave(CHANGED)
    return entry


def _refuse_id_in_use(
    dimension: str, level: str, owner: str, new_id: Any, old: Entry | None, loaded: Sequence[LoadedFile]
) -> None:
    """Refuse an id that another proposition of the same dimension and level has, about the same agent or about every agent.

    Args:
        new_id: The id.
        old: The proposition that is changed, which may keep its id; None for a new one.

    Raises:
        CannotSave: The id is in use.
    """
    for other in all_entries(loaded):
        if old is not None and other.mark == old.mark:
            continue
        is_asked_together = other.owner == owner or DEFAULT in (owner, other.owner)
        has_same_id = (other.dimension, other.level, other.proposition.id) == (dimension, level, new_id)
        if is_asked_together and has_same_id:
            raise CannotSave({"id": f"{new_id} is in use in {other.path}; change that one, or use another id"})


def _still_has_as_seen(content: bytes | None, entry: Entry) -> bool:
    """Return whether a file with this content (None = it is gone) has the proposition as the person saw it."""
    try:
        data = parse(decoded(content or b"", entry.path), entry.path)
        file = resolved_file(entry.path, validated({"dimension": entry.path.parent.name, **data}), None)
    except CannotSave:
        return False
    return any(mark_of(entry.path, proposition) == entry.mark for proposition in (*file.propositions, *file.inactive))


def _new_text(
    place: SavePlace, before: bytes | None, fields: dict[str, Any], old: Entry | None, head: dict[str, Any], level: str
) -> str:
    """Return the file's text with the proposition in it.

    Args:
        before: The file's content; None where there is no file yet.
        fields: All that the proposition shall have.
        old: The proposition that is changed; None for a new one.
        head: Of a new file; a file that exists keeps its own.

    Raises:
        CannotSave: The file cannot be read or changed safely.
    """
    text = decoded(before or b"", place.path)
    if place.in_place and old is not None:
        return with_entry(text, fields, place.path)
    if before is not None:
        head = _head_fields(parse(text, place.path))
    if old is not None:
        defaults = _defaults_of_heads(old.dimension, level)
        fields = _fields_under_other_head(fields, defaults, source=written_as(old).head, target=head)
    if before is None:
        return as_file(head, [fields])
    return appended(text, [fields], place.path)


def _defaults_of_heads(dimension: str, level: str) -> dict[str, Any]:
    """Return what a proposition inherits where neither it nor its file says so."""
    first_n, last_n = WINDOW_DEFAULTS[level]
    return {"include_personas": Dimension(dimension).kind.shows_persona, "first_n": first_n, "last_n": last_n}


def _fields_under_other_head(
    fields: Mapping[str, Any], defaults: Mapping[str, Any], *, source: Mapping[str, Any], target: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields that mean the same in another file: where the two heads differ, what was inherited is written out.

    Args:
        source: Head of the file the proposition is in; `target`: of the file it goes to.
    """
    written = dict(fields)
    for name, default in defaults.items():
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
        CannotSave: It is no YAML mapping, there is no such proposition, or the change would reach further than this proposition.
    """
    expected = copy.deepcopy(parse(text, path))
    rows = expected.get("propositions") or []
    number = _number_of(fields["id"], rows)
    if number is None:
        raise CannotSave(f"{path} has no proposition {fields['id']} any more")
    old_fields = rows[number]
    rows[number] = dict(fields)
    # The text is read back: it must say what was wanted and nothing else (an alias, say, would change other places, too).
    try:
        changed = _round_trip(text, number, fields, old_fields)
        is_meant = parse(changed, path) == expected
    except (CannotSave, YAMLError, KeyError):
        is_meant = False
    if not is_meant:
        raise CannotSave(f"{path}: {fields['id']} cannot be changed alone; edit the file by hand")
    if not text.endswith("\n"):
        changed = changed.removesuffix("\n")
    return changed.replace("\n", "\r\n") if "\r\n" in text else changed


def _number_of(identifier: str, rows: Sequence[Any]) -> int | None:
    for number, row in enumerate(rows):
        if isinstance(row, dict) and row.get("id") == identifier:
            return number
    return None


def _round_trip(text: str, number: int, fields: Mapping[str, Any], old_fields: Mapping[str, Any]) -> str:
    """Return a file's text with other fields in its proposition of that number, as ruamel.yaml writes it.

    Raises:
        YAMLError, KeyError: The file is not of the usual form.
    """
    round_trip = YAML()
    round_trip.preserve_quotes = True
    round_trip.width = 1_000_000  # lines stay as long as they are
    round_trip.version = (1, 1)  # in which the loader reads: `no` is false
    document = round_trip.load(text.replace("\r\n", "\n"))
    rows = document["propositions"]
    margin = 0 if rows.fa.flow_style() else rows.lc.col  # the column of the list's dashes; none in a list in brackets
    round_trip.indent(mapping=2, sequence=margin + 2, offset=margin)
    entry = rows[number]
    for name in list(entry):
        if name not in fields:
            del entry[name]
    for name, value in fields.items():
        # The type counts, too: 1 equals True.
        is_same = name in old_fields and old_fields[name] == value and type(old_fields[name]) is type(value)
        if not is_same:
            entry[name] = _writable(value)
    out = io.StringIO()
    round_trip.dump(document, out)
    return out.getvalue().removeprefix("%YAML 1.1\n---\n")


def _writable(value: Any) -> Any:
    """Return a value that ruamel.yaml writes with escapes where it holds characters that cannot be seen."""
    if isinstance(value, dict):
        return {name: _writable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_writable(member) for member in value]
    if isinstance(value, str) and not value.isprintable():
        return DoubleQuotedScalarString(value)
    return value


def appended(text: str, entries: Sequence[Mapping[str, Any]], path: Path, comment: str = "") -> str:
    """Return the file's text with entries at its end, below a line of comment (left out when empty), in the file's line ends and indent.

    Raises:
        CannotSave: It is no YAML mapping, its propositions are no list with a dash for each, or it would not read as what was there and the
            entries.
    """
    data = parse(text, path)
    indent = _block_indent(text)
    if indent is None:
        raise CannotSave(f"{path} cannot be added to: its propositions are no list of the form “- id: …”")
    newline = "\r\n" if "\r\n" in text else "\n"
    content = text if text.endswith(("\n", "\r")) else text + newline
    content += _list_items(entries, comment, indent=indent).replace("\n", newline)
    expected = {**data, "propositions": [*data["propositions"], *map(dict, entries)]}
    try:
        is_meant = parse(content, path) == expected
    except CannotSave:
        is_meant = False
    if not is_meant:
        raise CannotSave(f"{path} cannot be added to: put “propositions” last in the file and end it with a line break")
    return content


def _block_indent(text: str) -> int | None:
    """Return the column of the file's propositions; None where they are not a list with an item a line."""
    try:
        rows = YAML().load(text)["propositions"]
        return None if rows.fa.flow_style() else int(rows.lc.col)
    except (YAMLError, KeyError, AttributeError):
        return None


def _list_items(entries: Sequence[Mapping[str, Any]], comment: str, *, indent: int) -> str:
    """Return entries as items of a YAML list, each line indented by so many columns, below a line of comment (left out when empty)."""
    margin = " " * indent
    text = yaml.safe_dump(
        [dict(entry) for entry in entries],
        allow_unicode=True,
        sort_keys=False,
        width=LINE_WIDTH,
        default_flow_style=False,
    )
    lines = text.rstrip("\n").split("\n")
    if comment:
        lines.insert(0, f"# {comment}")
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

    A link is followed, missing folders are made, and a file keeps its permissions. `expected` None: there was no such file.

    Raises:
        CannotSave: The file changed since it was read, or the folder cannot be written to.
    """
    path = path.resolve()
    # Written beside it and then renamed, which is one step: nobody ever reads half a file.
    new_path = path.with_name(f".{path.name}.new")
    folder = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)  # the system releases it even when the process is killed
        if read_bytes(path) != expected:
            raise CannotSave(f"{path} was changed meanwhile; look at it again")
        with new_path.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if expected is not None:
            new_path.chmod(path.stat().st_mode & 0o777)
        new_path.replace(path)
    except OSError as error:
        raise CannotSave(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if folder is not None:
            os.close(folder)
