"""Label files as rows: CSV or JSON lines, every problem with its line, column, value and what is allowed."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.transcripts.json_input import json_lines
from agents.transcripts.readers.csv_table import delimiter, unescape
from agents.transcripts.records import TranscriptError
from agents.transcripts.source import Source
from evaluation.calibration.labels import checked_annotator, checked_note
from evaluation.wording import counted

CANNOT_TELL = "cannot tell"
COLUMNS = ("score", "run", "dimension", "proposition", "channel", "message", "annotator", "value", "note", "blind")
MOST_PROBLEMS = 50
MANY = 4  # problems of one kind are told in one line
NO_ANNOTATOR = "rows name no annotator: add --annotator NAME"
VALUES = f"0 to 9, “{CANNOT_TELL}”, or empty for not labelled yet"


@dataclass(frozen=True, slots=True)
class LabelProblem:
    """What is wrong at a place of a label file; line 0 = the file as a whole. `of_many`: how several of the kind are told at once."""

    path: str
    line: int
    column: str
    value: str
    reason: str
    of_many: str = ""

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        column = f", column {self.column}" if self.column else ""
        value = f"{self.value[:60]!r}: " if self.value else ""
        return f"{self.path}{line}{column}: {value}{self.reason}"


class LabelFileError(Exception):
    """A label file of which nothing was stored; `problems` lists what is wrong with it."""

    def __init__(self, problems: Sequence[LabelProblem]) -> None:
        self.problems = list(problems)
        many = {kind: n for kind, n in Counter(p.of_many for p in self.problems).items() if kind and n >= MANY}
        first = {kind: next(p for p in self.problems if p.of_many == kind) for kind in many}
        shown = [f"{first[kind].path}: {n:,} {kind} (the first: line {first[kind].line})" for kind, n in many.items()]
        others = [problem for problem in self.problems if problem.of_many not in many]
        shown += [str(problem) for problem in others[:MOST_PROBLEMS]]
        if len(others) > MOST_PROBLEMS:
            shown.append(f"… and {counted(len(others) - MOST_PROBLEMS, 'more problem')}")
        super().__init__("\n".join(shown))


@dataclass(frozen=True, slots=True)
class Place:
    """Which judgement a row names: its id, or run, proposition and message; dimension and channel where those are not enough."""

    score: int | None = None
    run: int | None = None
    dimension: str = ""
    proposition: str = ""
    channel: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class LabelRow:
    """One label of a file. `value` None: it cannot be told."""

    line: int
    place: Place
    annotator: str
    value: int | None
    note: str
    blind: bool


@dataclass(slots=True)
class LabelRows:
    """The rows of a file. `empty` counts those without a value: not labelled yet."""

    rows: list[LabelRow] = field(default_factory=list)
    empty: int = 0
    problems: list[LabelProblem] = field(default_factory=list)


def read_rows(path: Path, *, annotator: str = "") -> LabelRows:
    """Read a file of labels.

    Args:
        path: CSV with a header, or one JSON object per line.
        annotator: For rows that name none.

    Raises:
        LabelFileError: The file as a whole cannot be read.
    """
    found = LabelRows()
    try:
        source = Source(path)
        read = json_lines if _is_json(source) else _csv_rows
        for line, row in read(source):
            _Reading(found, source.name, line, annotator).row(row)
    except TranscriptError as error:
        raise LabelFileError([*found.problems, LabelProblem(error.path, error.line, "", "", error.reason)]) from None
    return found


def _is_json(source: Source) -> bool:
    suffix = source.path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        return False
    return suffix in (".jsonl", ".ndjson", ".json") or source.head(1024).lstrip().startswith("{")


def _csv_rows(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    reader = csv.reader((text for _, text in source.raw_lines()), delimiter=delimiter(source.head(8192)), strict=True)
    header: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise TranscriptError(source.name, line, f"not valid CSV: {error}") from None
        if cells is None:
            if not header:
                raise TranscriptError(source.name, 0, f"no header line; columns: {', '.join(COLUMNS)}")
            return
        if not any(cells):
            continue
        if not header:
            header = _header(source.name, line, cells)
            continue
        if len(cells) != len(header):
            raise TranscriptError(source.name, line, f"{len(cells)} columns where the header has {len(header)}")
        yield line, {name: unescape(cell) for name, cell in zip(header, cells, strict=True)}


def _header(path: str, line: int, cells: list[str]) -> list[str]:
    names = [cell.strip().casefold() for cell in cells]
    twice = [name for name in dict.fromkeys(names) if name in COLUMNS and names.count(name) > 1]
    named = "score" in names or {"run", "proposition"} <= set(names)
    if twice or "value" not in names or not named:
        why = (
            f"column {twice[0]} stands twice"
            if twice
            else "columns value, and score or run with proposition, are needed"
        )
        raise TranscriptError(path, line, f"{why}; the file has: {', '.join(names)}; read are: {', '.join(COLUMNS)}")
    return names


class _Problem(Exception):
    """A cell that cannot be used."""

    def __init__(self, column: str, value: object, reason: str, of_many: str = "") -> None:
        self.column, self.value, self.reason = column, "" if value is None else str(value), reason
        self.of_many = of_many


@dataclass(slots=True)
class _Reading:
    """One row on its way in."""

    found: LabelRows
    path: str
    line: int
    annotator: str

    def row(self, cells: Any) -> None:
        try:
            if not isinstance(cells, dict):
                raise _Problem("", cells, "allowed: one JSON object per line")
            if _is_empty(cells.get("value")):
                self.found.empty += 1
                return
            self.found.rows.append(
                LabelRow(
                    line=self.line,
                    place=self._place(cells),
                    annotator=self._annotator(cells),
                    value=_value(cells["value"]),
                    note=self._text(cells, "note", checked_note),
                    blind=_flag(cells.get("blind")),
                )
            )
        except _Problem as problem:
            self.found.problems.append(
                LabelProblem(self.path, self.line, problem.column, problem.value, problem.reason, problem.of_many)
            )

    def _annotator(self, cells: dict[str, Any]) -> str:
        try:
            return self._text(cells, "annotator", checked_annotator, self.annotator)
        except _Problem as problem:
            if _is_empty(cells.get("annotator")) and not self.annotator:
                raise _Problem("annotator", None, f"{problem.reason}; or add --annotator NAME", NO_ANNOTATOR) from None
            raise

    def _place(self, cells: dict[str, Any]) -> Place:
        score, run = _number(cells, "score"), _number(cells, "run")
        if score is not None:
            return Place(score=score)
        names = ("dimension", "proposition", "channel", "message")
        dimension, proposition, channel, message = (self._text(cells, name, str.strip) for name in names)
        if run is None or not proposition:
            raise _Problem("score", None, "empty; name the judgement by score, or by run, proposition and message")
        return Place(None, run, dimension, proposition, channel, message)

    def _text(self, cells: dict[str, Any], column: str, check: Callable[[str], str], default: str = "") -> str:
        value = cells.get(column)
        if value is not None and not isinstance(value, str):
            raise _Problem(column, value, "allowed: a text")
        try:
            return check(value or default)
        except ValueError as error:
            raise _Problem(column, None, str(error)) from None


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _value(value: Any) -> int | None:
    text = value.strip().casefold() if isinstance(value, str) else value
    if text == CANNOT_TELL:
        return None
    if isinstance(text, str) and len(text) == 1 and text in "0123456789":
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool) and 0 <= text <= 9:
        return text
    raise _Problem("value", value, f"allowed: {VALUES}")


def _number(cells: dict[str, Any], column: str) -> int | None:
    value = cells.get(column)
    if _is_empty(value):
        return None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool) and 0 < text < 2**63:
        return text
    raise _Problem(column, value, "allowed: the number of " + ("a score" if column == "score" else "an evaluation"))


def _flag(value: Any) -> bool:
    if _is_empty(value) or value is True or str(value).strip().casefold() == "true":
        return True
    if value is False or str(value).strip().casefold() == "false":
        return False
    raise _Problem("blind", value, "allowed: true, false")
