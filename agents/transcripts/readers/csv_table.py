"""CSV with a header line: any, with a column map, or our own export, exactly."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from unicodedata import normalize

from agents.kit.files.json_input import Row, parse
from agents.kit.files.source import MAX_LINE, FileError, Source
from agents.kit.text.tags import TAG_KEY
from agents.transcripts.readers.chat import SYSTEM_ROLES
from agents.transcripts.readers.plumbline import AUTHORS, MESSAGE_KEYS, message_of
from agents.transcripts.records import Guess, NotThere, OptionError, Record, Skipped, SourceMessage

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
    "channel": (
        *("channel", "conversation_id", "conversation", "dialogue_id", "dialog_id", "chat_id", "thread_id"),
        *("session_id", "room", "ticket_id", "kanal", "gespräch", "gesprächs_id", "unterhaltung", "raum"),
    ),
    "role": ("role", "rolle"),
}
# Names of columns that hold a conversation where their values say so: there are several, and they come again.
CONVERSATION = re.compile(
    r"(.+_)?(ticket|case|session|call|thread|chat|dialog|dialogue|conversation|vorgang|fall|sitzung|anruf|gespräch|verlauf)"
    r"s?_?(id|no|nr|num|number|nummer|key|ref)?\.?"
)
YES_NO = {"", "0", "1", "yes", "no", "y", "n", "true", "false", "ja", "nein"}
LOOKED_AT = 2_000  # rows, for the values of such a column
TAGS = ("build", "version", "release", "model", "prompt", "variant", "locale")  # columns that are usually of this kind
DELIMITERS = ",;\t|"
_GUARDED = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")
csv.field_size_limit(MAX_LINE)


def read_csv(source: Source, columns: Mapping[str, str]) -> Iterator[Record]:
    """Read CSV. Columns that the map does not name are recognised by their usual names."""
    rows = csv_rows(source)
    line, header = next(rows, (1, []))
    names = [name.strip() for name in header]
    if tuple(names) == MESSAGE_KEYS and not columns:
        yield from (_exported(source, line, dict(zip(names, cells, strict=True))) for line, cells in rows)
        return
    places = column_map(names, columns)
    if "channel" not in columns and "channel" not in places:
        found = _conversation_column(source, names, places)
        if found is not None:
            places["channel"] = found
            yield Guess(
                f"Each value of the column {names[found]!r} is read as a conversation of its own. If the file is one "
                "conversation: --columns channel=",
                line,
            )
    for field in ("text", "speaker"):
        if field not in places and not (field == "speaker" and "role" in places):
            raise FileError(
                source.name,
                line,
                f"no column for {field!r} among {', '.join(names) or 'none'}; say which: --columns {field}=COLUMN",
            )
    unused = [name for place, name in enumerate(names) if name and place not in places.values()]
    if "sent_at" not in places and unused:
        read = ", ".join(f"{field}={names[place]}" for field, place in places.items())
        shown = ", ".join(unused[:20])
        yield Guess(
            f"No column holds the time of a message as far as the names say. Read: {read}; not used: {shown}. If one of these "
            "is the time: --columns sent_at=COLUMN",
            line,
        )
    for line, cells in rows:
        yield _message(source, line, {field: cells[place] for field, place in places.items()})


def looks_like_csv(head: str) -> bool:
    """Return whether the first line names a column of texts and one of speakers or roles."""
    first = head.splitlines()[0]
    names = [name.strip().strip('"') for name in first.split(delimiter(first))]
    columns = column_map(names, {})
    return len(names) > 1 and "text" in columns and ("speaker" in columns or "role" in columns)


def usual_tags(header: list[str]) -> dict[str, str]:
    """Return the columns of a CSV file that are usually tags, as `columns` of `ReadOptions`; none for our own export, which has tags."""
    places = column_map(header, {})
    if tuple(header) == MESSAGE_KEYS:
        return {}
    free = [name for place, name in enumerate(header) if place not in places.values()]
    return {f"tags.{tag}": name for name in free if (tag := usual_tag(name))}


def usual_tag(column: str) -> str:
    """Return the key under which a column of this name is usually stored as a tag; empty when it has another name."""
    key = column.lower()
    return key if key in TAGS else ""


def header_of(source: Source) -> list[str]:
    """Return the columns of a CSV file."""
    first = next(iter(source.lines()), (0, ""))[1]
    return [name.strip() for name in next(csv.reader([first], delimiter=delimiter(first)), [])]


def column_map(names: list[str], wished: Mapping[str, str]) -> dict[str, int]:
    """Return which field stands in which column: as wished, else by the usual names.

    Raises:
        OptionError: A wished field or column does not exist. An empty column means that none holds the field.
    """
    known = {_plain(name): place for place, name in reversed(list(enumerate(names)))}
    places: dict[str, int] = {}
    for field, column in wished.items():
        if field not in FIELDS and not (field.startswith("tags.") and TAG_KEY.fullmatch(field[5:])):
            raise OptionError(f"--columns: unknown field {field!r}; allowed: {', '.join(FIELDS)}, tags.NAME")
        if not column:
            continue
        if _plain(column) not in known:
            raise NotThere(f"--columns: no column {column!r}; the file has: {', '.join(names)}")
        places[field] = known[_plain(column)]
    for field, usual in FIELDS.items():
        place = next((known[name] for name in usual if name in known and known[name] not in places.values()), None)
        if field not in places and field not in wished and place is not None:
            places[field] = place
    return places


def _conversation_column(source: Source, names: list[str], places: Mapping[str, int]) -> int | None:
    """Return the column whose name and values, in the first rows, are those of conversations; None where there is none."""
    for place, name in enumerate(names):
        if place in places.values() or not CONVERSATION.fullmatch(_plain(name)):
            continue
        rows = islice(csv_rows(source), 1, LOOKED_AT + 1)
        values = [cells[place].strip() for _, cells in rows]
        different = set(values)
        if 1 < len(different) < len(values) and not {value.casefold() for value in different} <= YES_NO:
            return place
    return None


def _plain(name: str) -> str:
    return normalize("NFC", name).strip().lower().replace(" ", "_").replace("-", "_")


def csv_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """Yield (line it begins on, cells), all as long as the header."""
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
    row = Row({field: cell for field, cell in cells.items() if cell.strip()}, path=source.name, line=line)
    role = row.text("role").strip()
    speaker, channel = row.text("speaker").strip() or role, row.text("channel").strip()
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
        channel=f"{source.stem}-{channel}" if channel.isdecimal() else channel,  # a number alone names nothing
        tags={field[5:]: value for field, value in row.value.items() if field.startswith("tags.")},
    )


def _exported(source: Source, line: int, cells: dict[str, str]) -> Record:
    """Return a row of our own export as a message: formula guards are undone, tags and payload are JSON."""
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
