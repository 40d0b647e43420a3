"""CSV with a header line: any, with a column map, or our own export, exactly."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel

from agents.kit.files.json_input import Row, begins_like_json, json_values, parse, scalar_text, with_nested_keys
from agents.kit.files.source import MAX_LINE, FileError, Source
from agents.kit.text.tags import TAG_KEY
from agents.transcripts.readers.chat import SYSTEM_ROLES
from agents.transcripts.readers.conversations import (
    POSSIBLE_NAME,
    ROWS_LOOKED_AT,
    USUAL_NAMES,
    channel_of,
    comparable,
    tell_conversations_apart,
)
from agents.transcripts.readers.plumbline import AUTHORS, MESSAGE_KEYS, message_of
from agents.transcripts.records import (
    Guess,
    NotThere,
    OptionError,
    Record,
    Skipped,
    SourceMessage,
    guess_no_time,
    list_names,
)

FIELDS: dict[str, tuple[str, ...]] = {
    "speaker": (
        *("speaker", "author", "name", "username", "user", "sender", "from", "who", "agent", "character"),
        *(
            "sprecher",
            "sprecherin",
            "absender",
            "absenderin",
            "autor",
            "autorin",
            "verfasser",
            "benutzer",
            "von",
            "wer",
        ),
    ),
    "text": (
        *("text", "message", "content", "body", "msg", "utterance"),
        *("nachricht", "nachrichtentext", "inhalt", "mitteilung", "beitrag", "äußerung"),
    ),
    "sent_at": (
        *("sent_at", "timestamp", "datetime", "created_at", "time", "date", "sent", "date_sent"),
        *("zeitstempel", "zeitpunkt", "gesendet_am", "gesendet", "datum", "zeit"),
    ),
    "id": ("id", "message_id", "msg_id", "uuid", "nachrichten_id"),
    "reply_to": ("reply_to", "in_reply_to", "parent_id", "parent", "antwort_auf"),
    "channel": USUAL_NAMES,
    "role": ("role", "rolle"),
}
EXAMPLES, EXAMPLE_LENGTH = 3, 60  # values of a column, characters of one
TAGS = ("build", "version", "release", "model", "prompt", "variant", "locale")  # columns that are usually of this kind
DELIMITERS = ",;\t|"
_WITH_OTHER_LETTERS = re.compile(r"\w*[^\x00-\x7f]\w*")
_GUARDED = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
csv.field_size_limit(MAX_LINE)


def read_csv(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read CSV. Columns that the map (our field to the file's column) does not name are recognised by their usual names.

    Our own export is known by its header and read exactly, unless columns are named. What had to be assumed is yielded as a guess.

    Raises:
        FileError: A row is malformed, or there is no column of texts or of speakers.
        NotThere: A column of the map does not exist.
    """
    if source.windows_line:
        line, text = source.windows_line
        words = list_names(_WITH_OTHER_LETTERS.findall(text)[:EXAMPLES])
        yield Guess(
            f"The file is not UTF-8; it is read as Windows-1252, in which Excel saves CSV. Line {line} then has: {words}. If that is "
            "wrong, save the file as UTF-8.",
            line,
        )
    rows = csv_rows(source)
    line, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    if tuple(names) == MESSAGE_KEYS and not columns:
        for line, cells in rows:
            yield _exported(source, line, dict(zip(names, cells, strict=True)))
        return
    index_of = column_map(names, columns)
    if "channel" not in columns and "channel" not in index_of:
        conversations = _conversation_column(source, names, index_of)
        if conversations is not None:
            index_of["channel"] = conversations
            yield Guess(
                f"Each value of the column {names[conversations]!r} is read as a conversation of its own.",
                line,
                "If the file is one conversation: --columns channel=",
                question="channel",
                answer=names[conversations],
            )
    _check_columns(source, line, names, index_of)
    if "sent_at" not in index_of and "sent_at" not in columns:
        read = {field: names[index] for field, index in index_of.items()}
        yield from guess_no_time(names, read, line=line, what="column")
    for line, cells in rows:
        yield _message(source, line, {field: cells[index] for field, index in index_of.items()})


def _check_columns(source: Source, line: int, names: list[str], index_of: Mapping[str, int]) -> None:
    """Raise `FileError` where there is no column of texts, or none that says who speaks."""
    missing = ""
    if "text" not in index_of:
        missing = "text"
    elif "speaker" not in index_of and "role" not in index_of:
        missing = "speaker"
    if missing:
        raise FileError(
            source.name,
            line,
            f"no column for {missing!r} among {', '.join(names) or 'none'}",
            advice=f"say which: --columns {missing}=COLUMN",
        )


def looks_like_csv(head: str) -> bool:
    """Return whether the first line names a column of texts and one of speakers or roles."""
    first = head.splitlines()[0]
    names = [name.strip().strip('"') for name in first.split(delimiter(first))]
    columns = column_map(names, {})
    return len(names) > 1 and "text" in columns and ("speaker" in columns or "role" in columns)


def usual_columns(header: list[str]) -> dict[str, str]:
    """Return which of these columns usually hold which field, tags included, as `columns` of `ReadOptions`."""
    index_of = column_map(header, {})
    return {field: header[index] for field, index in index_of.items()} | usual_tags(header)


def usual_tags(header: list[str]) -> dict[str, str]:
    """Return the columns of a CSV file that are usually tags, as `columns` of `ReadOptions`; none for our own export, which has tags."""
    if tuple(header) == MESSAGE_KEYS:
        return {}
    index_of = column_map(header, {})
    columns: dict[str, str] = {}
    for index, name in enumerate(header):
        tag = usual_tag(name)
        if tag and index not in index_of.values():
            columns.setdefault(f"tags.{tag}", name)
    return columns


def usual_tag(column: str) -> str:
    """Return the key under which a column of this name is usually stored as a tag; empty when it has another name."""
    key = column.lower().rpartition(".")[2]  # of a key inside an object, the innermost
    return key if key in TAGS else ""


def tag_key(column: str) -> str:
    """Return a tag key made of a column's name."""
    key = re.sub(r"[^A-Za-z0-9_.-]+", "_", column).strip("_.-")[:64]
    if TAG_KEY.fullmatch(key):
        return key
    return f"column_{key}"[:64]


class Column(BaseModel):
    """The values of a column: how long they are on average, how many differ, whether one comes again, and the first that differ."""

    length: float
    different: int
    repeats: bool
    examples: list[str]


def columns_of(source: Source) -> dict[str, Column]:
    """Return what the first `ROWS_LOOKED_AT` rows hold in each column, by its name; columns without a name are left out.

    Of JSON the keys of the objects are the columns.

    Raises:
        FileError: A row is malformed.
    """
    is_json = begins_like_json(source.head().lstrip())
    rows = islice(_json_rows(source) if is_json else csv_rows(source), ROWS_LOOKED_AT + 1)
    header = next(rows, (1, []))[1]
    names = header if is_json else [name.strip() for name in header]  # keys are read exactly
    values_of: dict[str, list[str]] = {name: [] for name in names if name.strip()}
    for _, cells in rows:
        for name, cell in zip(names, cells, strict=True):
            if name in values_of and cell.strip():
                values_of[name].append(cell.strip())
    return {name: _column(values) for name, values in values_of.items()}


def _json_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of the objects as `csv_rows` does of rows: first their keys; objects, lists and null are empty."""
    names = keys_of(source)
    yield 1, names
    for line, value in json_values(source):
        if isinstance(value, dict):
            values = with_nested_keys(value)
            yield line, [scalar_text(values.get(name)) for name in names]


def keys_of(source: Source) -> list[str]:
    """Return the keys of the first `ROWS_LOOKED_AT` JSON objects in their order; a key inside an object is ``meta.build``."""
    keys: dict[str, None] = {}
    for _, value in islice(json_values(source), ROWS_LOOKED_AT):
        if isinstance(value, dict):
            keys.update(dict.fromkeys(with_nested_keys(value)))
    return list(keys)


def _column(values: list[str]) -> Column:
    different = dict.fromkeys(values)
    return Column(
        length=sum(map(len, values)) / max(1, len(values)),
        different=len(different),
        repeats=1 < len(different) < len(values),
        examples=[value[:EXAMPLE_LENGTH] for value in islice(different, EXAMPLES)],
    )


def header_of(source: Source) -> list[str]:
    """Return the columns of a CSV file."""
    first = next(iter(source.lines()), (0, ""))[1]
    return [name.strip() for name in next(csv.reader([first], delimiter=delimiter(first)), [])]


def check_fields(columns: Mapping[str, str]) -> None:
    """Raise `OptionError` where a column is named for a field that messages do not have."""
    for field in columns:
        is_tag = field.startswith("tags.") and TAG_KEY.fullmatch(field.removeprefix("tags."))
        if field not in FIELDS and not is_tag:
            raise OptionError(f"unknown field {field!r}; allowed: {', '.join(FIELDS)}, tags.NAME", option="--columns:")


def column_map(names: list[str], wished: Mapping[str, str]) -> dict[str, int]:
    """Return field to index of its column: as wished, else by the usual names; fields without a column are left out.

    Args:
        names: Of the columns, in their order; of equal ones the first counts.
        wished: Field, or ``tags.NAME``, to the name of its column; an empty name means that no column holds the field.

    Raises:
        NotThere: A wished column does not exist.
    """
    indexes: dict[str, int] = {}  # the first column of each name
    for index, name in enumerate(names):
        indexes.setdefault(comparable(name), index)
    index_of: dict[str, int] = {}
    for field, column in wished.items():
        if not column:
            continue
        if comparable(column) not in indexes:
            raise NotThere(f"no column {column!r}; the file has: {list_names(names)}", option="--columns:")
        index_of[field] = indexes[comparable(column)]
    for field, usual_names in FIELDS.items():
        if field in wished:
            continue
        free = [indexes[name] for name in usual_names if name in indexes and indexes[name] not in index_of.values()]
        if free:
            index_of[field] = free[0]
    return index_of


def _conversation_column(source: Source, names: list[str], index_of: Mapping[str, int]) -> int | None:
    """Return the first unused column whose name and values, in the first rows, are those of conversations; None where there is none."""
    for index, name in enumerate(names):
        if index in index_of.values() or not POSSIBLE_NAME.fullmatch(comparable(name)):
            continue
        rows = islice(csv_rows(source), 1, ROWS_LOOKED_AT + 1)
        if tell_conversations_apart([cells[index].strip() for _, cells in rows]):
            return index
    return None


def csv_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins on, cells) of each row, the header first; blank lines are passed over.

    Raises:
        FileError: It is no valid CSV, or a row has not as many cells as the header.
    """
    width = 0
    reader = csv.reader((text for _, text in source.raw_lines()), delimiter=delimiter(source.head(8192)), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise FileError(source.name, line, f"not valid CSV: {error}") from None
        if cells is None:
            return
        if cells and cells != [""]:
            width = width or len(cells)
            if len(cells) != width:
                raise FileError(source.name, line, f"{len(cells)} columns where the header has {width}")
            yield line, cells


def delimiter(head: str) -> str:
    """Return the delimiter that the header line has most of."""
    first = next((line for line in head.splitlines() if line.strip()), "")
    return max(DELIMITERS, key=first.count)


def _message(source: Source, line: int, cells: dict[str, str]) -> Record:
    """Return a row as a message; skipped where it has no text.

    Args:
        cells: By our field.

    Raises:
        FileError: It has neither speaker nor role, or its time cannot be read.
    """
    row = Row({field: cell for field, cell in cells.items() if cell.strip()}, path=source.name, line=line)
    role = row.text("role").strip()
    speaker = row.text("speaker").strip() or role
    if not row.has("text"):
        return Skipped("empty message", line)
    if not speaker:
        row.fail("the row has a text but no speaker")
    return SourceMessage(
        speaker=speaker,
        role=role,
        kind="system" if role in SYSTEM_ROLES else "named",
        text=row.text("text"),
        line=line,
        source_id=row.text("id").strip(),
        sent_at=row.time("sent_at"),
        parent_source_id=row.text("reply_to").strip(),
        channel=channel_of(row.text("channel"), source),
        tags={field.removeprefix("tags."): value for field, value in row.value.items() if field.startswith("tags.")},
    )


def _exported(source: Source, line: int, cells: dict[str, str]) -> Record:
    """Return a row of our own export as a message: formula guards are undone, tags, payload and synthetic are JSON.

    Raises:
        FileError: A cell is malformed, or it has not exactly one author.
    """
    plain: dict[str, Any] = {name: unescape(cell) for name, cell in cells.items()}
    for name in ("tags", "payload", "synthetic"):
        plain[name] = parse(plain[name] or "null", path=source.name, line=line)
    row = Row(
        {name: value for name, value in plain.items() if value != "" or name == "text"},
        path=source.name,
        line=line,
        what="a row",
    )
    authors = [kind for kind in AUTHORS if row.has(kind)]
    if len(authors) != 1:
        row.fail("a row has one author: a value in one of 'agent', 'user', 'outsider'")
    return message_of(row, authors[0], row.text(authors[0]))


def escape(cell: str) -> str:
    """Keep a spreadsheet from running a cell as a formula: a ``'`` before ``= + - @``, tab or CR. Reversible."""
    return "'" + cell if _GUARDED.match(cell) else cell


def unescape(cell: str) -> str:
    """Undo `escape`."""
    return cell[1:] if _ESCAPED.match(cell) else cell
