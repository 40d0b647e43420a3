"""Read labels from files and write them: CSV with a header, or a JSON object a line. An import is all or nothing; templates are blind."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal

from django.db import transaction
from django.db.models import QuerySet
from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from agents.kit.files.json_input import json_lines
from agents.kit.files.source import FileError, Source
from agents.kit.text.wording import counted
from agents.transcripts.readers.csv_table import csv_rows, escape, unescape
from evaluation.calibration.labels import (
    checked_annotator,
    checked_note,
    drawn_ids,
    save_label,
    why_not_labelled,
)
from evaluation.calibration.models import LabelSet, ScoreLabel
from evaluation.calibration.shown import blind_text
from evaluation.models import EvaluationScore

CANNOT_TELL = "cannot tell"
READ_COLUMNS = ("score", "annotator", "value", "note", "blind")
JUDGEMENT_COLUMNS = ("score", "run", "dimension", "proposition", "channel", "message", "claim")
LABEL_COLUMNS = (*JUDGEMENT_COLUMNS, "annotator", "value", "note", "blind", "judge", "procedure", "judge_score")
TEMPLATE_COLUMNS = (*JUDGEMENT_COLUMNS, "shown", "annotator", "value", "note")
MOST_PROBLEMS = 20
ALLOWED = {
    "score": "the number of a score",
    "value": f"0 to 9, “{CANNOT_TELL}”, or empty for not labelled yet",
    "blind": "true, false",
}
ROWS_AT_ONCE = 500  # read from the database


@dataclass(frozen=True, slots=True)
class LabelProblem:
    """Something wrong with a label file: at which line (0: the file itself) and column, the value there, and why or what is allowed."""

    line: int
    reason: str
    column: str = ""
    value: object = ""

    def sentence(self, path: str) -> str:
        """Return e.g. ``labels.csv, line 3, column value: '12': allowed: 0 to 9, …``."""
        location = path
        if self.line:
            location += f", line {self.line}"
        if self.column:
            location += f", column {self.column}"
        value = f"{str(self.value)[:60]!r}: " if self.value != "" else ""
        return f"{location}: {value}{self.reason}"


class LabelFileError(Exception):
    """A label file of which nothing was stored; the text names every problem with its line, column and what is allowed."""

    def __init__(self, path: str, problems: Sequence[LabelProblem]) -> None:
        in_order = sorted(problems, key=lambda problem: problem.line)
        lines = [problem.sentence(path) for problem in in_order[:MOST_PROBLEMS]]
        more = len(in_order) - MOST_PROBLEMS
        if more > 0:
            lines.append(f"… and {counted(more, 'more problem')}")
        super().__init__("\n".join(lines))


# -- rows
class LabelRow(BaseModel):
    """One label of a file; other columns, as a template has them, are not read, and empty cells count as left out."""

    line: int
    score: Annotated[int, Field(gt=0, lt=2**63)]
    annotator: Annotated[str, AfterValidator(checked_annotator), Field(validate_default=True)] = ""
    value: Literal["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "cannot tell"]
    note: Annotated[str, AfterValidator(checked_note)] = ""
    blind: bool = True

    @model_validator(mode="before")
    @classmethod
    def _stripped(cls, cells: dict[str, Any]) -> dict[str, Any]:
        """Return the cells as texts without white space around them, and without empty ones; the value in lower case.

        `_read_row` has passed over rows without a value, so there is one.
        """
        filled: dict[str, Any] = {}
        for name, cell in cells.items():
            text = (cell if isinstance(cell, str) else json.dumps(cell)).strip()
            if text and cell is not None:
                filled[name] = text
        filled["value"] = filled["value"].casefold()
        return filled

    @property
    def number(self) -> int | None:
        """Return 0 to 9, or None for cannot tell."""
        return None if self.value == CANNOT_TELL else int(self.value)


@dataclass(slots=True)
class _ReadFile:
    """The rows of a label file, the number of rows without a value yet, and what is wrong with the others."""

    rows: list[LabelRow] = field(default_factory=list)
    problems: list[LabelProblem] = field(default_factory=list)
    empty: int = 0


def _read(path: Path, annotator: str) -> _ReadFile:
    """Read a label file; rows that cannot be used are in the `problems` of the result.

    Args:
        annotator: Of rows that name none.

    Raises:
        LabelFileError: The file cannot be read.
    """
    read = _ReadFile()
    try:
        source = Source(path)
        lines = json_lines(source) if is_json(path) else _csv_cells(source)
        for line, cells in lines:
            _read_row(read, line, cells, annotator)
    except FileError as error:
        raise LabelFileError(error.path, [*read.problems, LabelProblem(error.line, error.reason)]) from None
    return read


def _read_row(read: _ReadFile, line: int, cells: Any, annotator: str) -> None:
    """Add a row of the file to what was read: as a label, as one without a value yet, or as its problems.

    Args:
        cells: By column; of a JSON line whatever stands there.
        annotator: Of a row that names none.
    """
    if not isinstance(cells, dict):
        read.problems.append(LabelProblem(line, "allowed: one JSON object per line", value=cells))
        return
    if cells.get("value") is None or not str(cells["value"]).strip():
        read.empty += 1
        return
    try:
        row = LabelRow(**{**cells, "line": line, "annotator": cells.get("annotator") or annotator})
    except ValidationError as error:
        read.problems += [_cell_problem(line, dict(item)) for item in error.errors()]
    else:
        read.rows.append(row)


def is_json(path: Path) -> bool:
    """Return whether a file's name says that it holds JSON lines."""
    return path.suffix.lower() in (".jsonl", ".ndjson", ".json")


def _cell_problem(line: int, item: dict[str, Any]) -> LabelProblem:
    """Return an error of pydantic about a cell as a problem of the file, where possible with what is allowed instead of its words."""
    column = str(item["loc"][0]) if item["loc"] else ""
    if item["type"] == "missing":  # only the score can be: the others have defaults, or were there
        return LabelProblem(line, "empty; name the judgement by its number", column)
    if column in ALLOWED:
        return LabelProblem(line, f"allowed: {ALLOWED[column]}", column, item["input"])
    reason = str(item["msg"]).removeprefix("Value error, ")
    if column == "annotator" and not item["input"]:
        reason += "; or add --annotator NAME"
    return LabelProblem(line, reason, column, item["input"])


def _csv_cells(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a CSV file that are not empty, with their lines, as cells by column.

    Raises:
        FileError: There is no header, or not the columns that are needed.
    """
    rows = ((line, cells) for line, cells in csv_rows(source) if any(cell.strip() for cell in cells))
    line, first_row = next(rows, (0, []))
    header = [cell.strip().casefold() for cell in first_row]
    problem = _header_problem(header)
    if problem:
        raise FileError(source.name, line, problem)
    for line, cells in rows:
        yield line, {name: unescape(cell) for name, cell in zip(header, cells, strict=True)}


def _header_problem(header: Sequence[str]) -> str:
    """Say what is wrong with the columns of a file; empty when nothing is. Further columns are allowed."""
    if not header:
        return f"no header line; columns: {', '.join(READ_COLUMNS)}"
    problem = ""
    if "value" not in header or "score" not in header:
        problem = "columns score and value are needed"
    for name in READ_COLUMNS:
        if header.count(name) > 1:
            problem = f"column {name} stands twice"
            break
    if not problem:
        return ""
    return f"{problem}; the file has: {', '.join(header)}; read are: {', '.join(READ_COLUMNS)}"


# -- import
@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import: labels `added`, `replaced`, already there (`unchanged`), rows without a value (`empty`)."""

    path: str
    added: int
    replaced: int
    unchanged: int
    empty: int

    def __str__(self) -> str:
        """Return e.g. ``labels.csv: 12 added, 3 rows without a value, not labelled yet``; what is 0 is left out."""
        rows = "row" if self.empty == 1 else "rows"
        counts = (
            (self.added, "added"),
            (self.replaced, "replaced"),
            (self.unchanged, "already there"),
            (self.empty, f"{rows} without a value, not labelled yet"),
        )
        texts = [f"{count:,} {what}" for count, what in counts if count]
        return f"{self.path}: {', '.join(texts) or 'no labels'}"


def import_labels(path: Path, *, annotator: str = "", replace: bool = False) -> Imported:
    """Store the labels of a file, all of them or none.

    Args:
        path: CSV with a header, or (``.jsonl``) one JSON object per line: score (its number), annotator, value, note, blind.
        annotator: Of rows that name none.
        replace: Labels of the file take the place of stored ones by the same annotator that differ; else these are problems.

    Raises:
        LabelFileError: With every problem: file, line, column, value, allowed. Nothing was stored.
    """
    read = _read(path, annotator)
    scores = EvaluationScore.objects.select_related("evaluation_run").in_bulk({row.score for row in read.rows})
    stored = {
        (label.evaluation_score_id, label.annotator): label
        for label in ScoreLabel.objects.filter(evaluation_score__in=scores, withdrawn=False)
    }
    first_rows: dict[tuple[int, str], LabelRow] = {}  # by judgement and annotator, who may be in the file twice
    done: Counter[str] = Counter()
    with transaction.atomic():
        for row in read.rows:
            key = (row.score, row.annotator)
            score = scores.get(row.score)
            label = stored.get(key)
            first_row = first_rows.setdefault(key, row)
            problem = _row_problem(row, score, label, first_row, replace=replace)
            if problem is not None:
                read.problems.append(problem)
            elif first_row is row and score is not None:  # a row that repeats an earlier one is passed over
                done[_effect(row, label)] += 1
                save_label(score=score, annotator=row.annotator, value=row.number, note=row.note, blind=row.blind)
        if read.problems:  # which undoes what was stored
            raise LabelFileError(str(path), read.problems)
    return Imported(str(path), done["added"], done["replaced"], done["unchanged"], read.empty)


def _row_problem(
    row: LabelRow, score: EvaluationScore | None, label: ScoreLabel | None, first_row: LabelRow, *, replace: bool
) -> LabelProblem | None:
    """Return why a row cannot be stored; None when it can, or need not.

    Args:
        score: The judgement it is about; None: there is none of that number.
        label: What is stored of the same judgement by the same annotator; None: nothing.
        first_row: The first row of the file about the same judgement by the same annotator.
    """
    why_not = "there is no such score" if score is None else why_not_labelled(score)
    if why_not:
        return LabelProblem(row.line, why_not, "score", row.score)
    if (first_row.value, first_row.note) != (row.value, row.note):
        reason = f"line {first_row.line} says something else of the same judgement"
        return LabelProblem(row.line, reason, "value", row.value)
    if first_row is not row or label is None or replace or _effect(row, label) == "unchanged":
        return None
    difference = "another note"
    if label.value != row.number:
        difference = f"{CANNOT_TELL if label.value is None else label.value} is stored"
    reason = f"{difference} by {row.annotator}; --replace lets this file win"
    return LabelProblem(row.line, reason, "value", row.value)


def _effect(row: LabelRow, label: ScoreLabel | None) -> Literal["added", "replaced", "unchanged"]:
    """Return what storing a row does, where this label is stored already."""
    if label is None:
        return "added"
    return "unchanged" if (label.value, label.note) == (row.number, row.note) else "replaced"


# -- export
def export_labels(labels: QuerySet[ScoreLabel], out: IO[str], *, as_json: bool = False) -> int:
    """Write labels beside what the judge gave; `import_labels` reads the file. Returns the number of rows."""
    related = ("evaluation_score__evaluation_run", "evaluation_score__message__channel")
    labels = labels.filter(withdrawn=False).select_related(*related).order_by("evaluation_score", "annotator")
    rows = (_label_cells(label) for label in labels.iterator(chunk_size=ROWS_AT_ONCE))
    return _write(LABEL_COLUMNS, rows, out, as_json=as_json)


def _label_cells(label: ScoreLabel) -> dict[str, Any]:
    """Return a label as cells by column (`LABEL_COLUMNS`), with the judge and its raw score."""
    score = label.evaluation_score
    return {
        **_judgement_cells(score),
        "annotator": label.annotator,
        "value": CANNOT_TELL if label.value is None else label.value,
        "note": label.note,
        "blind": label.blind,
        "judge": score.evaluation_run.judge,
        "procedure": score.evaluation_run.procedure,
        "judge_score": score.raw_score,
    }


def export_template(label_set: LabelSet, out: IO[str], *, annotator: str = "", as_json: bool = False) -> int:
    """Write what a label set drew, to be filled in: in the order of the draw, without the judge's scores."""
    return _write(TEMPLATE_COLUMNS, _template_rows(label_set, annotator), out, as_json=as_json)


def _template_rows(label_set: LabelSet, annotator: str) -> Iterator[dict[str, Any]]:
    """Yield the judgements of a set in the order drawn, as cells by column (`TEMPLATE_COLUMNS`), with empty value and note."""
    ids = drawn_ids(label_set)
    related = (
        "evaluation_run__agent",
        "evaluation_run__channel",
        "message__channel",
        "message__agent",
        "compared_with",
    )
    for start in range(0, len(ids), ROWS_AT_ONCE):
        some_ids = ids[start : start + ROWS_AT_ONCE]
        scores = EvaluationScore.objects.select_related(*related).in_bulk(some_ids)
        for pk in some_ids:
            score = scores[pk]
            text = blind_text(score)
            yield {**_judgement_cells(score), "shown": text, "annotator": annotator, "value": "", "note": ""}


def _judgement_cells(score: EvaluationScore) -> dict[str, Any]:
    """Return what names a judgement in a file; channel and message are empty where a window is judged."""
    message = score.message
    return {
        "score": score.pk,
        "run": score.evaluation_run_id,
        "dimension": score.dimension,
        "proposition": score.proposition_id,
        "channel": message.channel.slug if message else "",
        "message": message.external_id if message else "",
        "claim": score.claim,
    }


def _write(columns: Sequence[str], rows: Iterable[dict[str, Any]], out: IO[str], *, as_json: bool) -> int:
    """Write rows as JSON lines or as CSV with a header; return their number.

    In CSV a text that a spreadsheet would take for a formula is escaped.
    """
    count = 0
    if as_json:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
        return count
    writer = csv.writer(out, lineterminator="\r\n")  # so that a lone CR in a text is quoted, too
    writer.writerow(columns)
    for row in rows:
        cells = [row[name] for name in columns]
        writer.writerow([escape(cell) if isinstance(cell, str) else cell for cell in cells])
        count += 1
    return count
