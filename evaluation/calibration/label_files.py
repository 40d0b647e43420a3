"""Labels from files and to files: CSV with a header, or one JSON object per line. An import is all or nothing; templates are blind."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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
COLUMNS = ("score", "annotator", "value", "note", "blind")
_PLACE = ("score", "run", "dimension", "proposition", "channel", "message", "claim")
LABEL_COLUMNS = (*_PLACE, "annotator", "value", "note", "blind", "judge", "procedure", "judge_score")
TEMPLATE_COLUMNS = (*_PLACE, "shown", "annotator", "value", "note")
MOST_PROBLEMS = 20
ALLOWED = {
    "score": "the number of a score",
    "value": f"0 to 9, “{CANNOT_TELL}”, or empty for not labelled yet",
    "blind": "true, false",
}
_AT_ONCE = 500


class LabelFileError(Exception):
    """A label file of which nothing was stored; the text names every problem with its line, column and what is allowed."""

    def __init__(self, path: str, problems: Sequence[tuple[int, str]]) -> None:
        shown = [f"{path}{text}" for _, text in sorted(problems, key=lambda problem: problem[0])]
        if len(shown) > MOST_PROBLEMS:
            shown[MOST_PROBLEMS:] = [f"… and {counted(len(shown) - MOST_PROBLEMS, 'more problem')}"]
        super().__init__("\n".join(shown))


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
        texts = {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in cells.items()}
        filled = {name: text.strip() for name, text in texts.items() if text.strip() and cells[name] is not None}
        return filled | {"value": filled["value"].casefold()}

    @property
    def number(self) -> int | None:
        """0 to 9; None: cannot tell."""
        return None if self.value == CANNOT_TELL else int(self.value)


Problems = list[tuple[int, str]]  # line (0: the file itself), and the rest of the sentence that begins with the path


def _at(line: int, reason: str, column: str = "", value: object = "") -> tuple[int, str]:
    shown = f"{str(value)[:60]!r}: " if value != "" else ""
    return line, f"{f', line {line}' if line else ''}{f', column {column}' if column else ''}: {shown}{reason}"


def _read(path: Path, annotator: str) -> tuple[list[LabelRow], int, Problems]:
    """Return the rows of a file, how many have no value yet, and what is wrong with the others.

    Raises:
        LabelFileError: The file cannot be read.
    """
    rows: list[LabelRow] = []
    problems: Problems = []
    empty = 0
    try:
        source = Source(path)
        for line, cells in json_lines(source) if is_json(path) else _csv_cells(source):
            if not isinstance(cells, dict):
                problems.append(_at(line, "allowed: one JSON object per line", value=cells))
            elif cells.get("value") is None or not str(cells["value"]).strip():
                empty += 1
            else:
                try:
                    rows.append(LabelRow(**{**cells, "line": line, "annotator": cells.get("annotator") or annotator}))
                except ValidationError as error:
                    problems += [_problem(line, dict(item)) for item in error.errors()]
    except FileError as error:
        raise LabelFileError(error.path, [*problems, _at(error.line, error.reason)]) from None
    return rows, empty, problems


def is_json(path: Path) -> bool:
    """Whether a file's name says that it holds JSON lines."""
    return path.suffix.lower() in (".jsonl", ".ndjson", ".json")


def _problem(line: int, item: dict[str, Any]) -> tuple[int, str]:
    column = str(item["loc"][0]) if item["loc"] else ""
    if item["type"] == "missing":
        return _at(line, "empty; name the judgement by its number", column)
    if column in ALLOWED:
        return _at(line, f"allowed: {ALLOWED[column]}", column, item["input"])
    hint = "; or add --annotator NAME" if column == "annotator" and not item["input"] else ""
    return _at(line, str(item["msg"]).removeprefix("Value error, ") + hint, column)


def _csv_cells(source: Source) -> Iterator[tuple[int, dict[str, str]]]:
    rows = ((line, cells) for line, cells in csv_rows(source) if any(cell.strip() for cell in cells))
    line, first = next(rows, (0, []))
    header = [cell.strip().casefold() for cell in first]
    why = "" if header else f"no header line; columns: {', '.join(COLUMNS)}"
    if header and not {"value", "score"} <= set(header):
        why = "columns score and value are needed"
    if twice := next((name for name in COLUMNS if header.count(name) > 1), ""):
        why = f"column {twice} stands twice"
    if why:
        has = f"; the file has: {', '.join(header)}; read are: {', '.join(COLUMNS)}" if header else ""
        raise FileError(source.name, line, why + has)
    for line, cells in rows:
        yield line, {name: unescape(cell) for name, cell in zip(header, cells, strict=True)}


# -- import
@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did: labels `added`, `replaced`, already there (`unchanged`), rows without a value (`empty`)."""

    path: str
    added: int
    replaced: int
    unchanged: int
    empty: int

    def __str__(self) -> str:
        parts = [(self.added, "added"), (self.replaced, "replaced"), (self.unchanged, "already there")]
        parts.append((self.empty, f"{'row' if self.empty == 1 else 'rows'} without a value, not labelled yet"))
        return f"{self.path}: " + (", ".join(f"{n:,} {what}" for n, what in parts if n) or "no labels")


def import_labels(path: Path, *, annotator: str = "", replace: bool = False) -> Imported:
    """Store the labels of a file, all of them or none.

    Args:
        path: CSV with a header, or (``.jsonl``) one JSON object per line: score (its number), annotator, value, note.

    Raises:
        LabelFileError: With every problem: file, line, column, value, allowed. Nothing was stored.
    """
    rows, empty, problems = _read(path, annotator)
    scores = EvaluationScore.objects.select_related("evaluation_run").in_bulk({row.score for row in rows})
    labels = ScoreLabel.objects.filter(evaluation_score__in=scores, withdrawn=False)
    stored = {(label.evaluation_score_id, label.annotator): (label.value, label.note) for label in labels}
    wanted: dict[tuple[int, str], LabelRow] = {}
    done: Counter[str] = Counter()
    with transaction.atomic():
        for row in rows:
            place, label = (row.score, row.annotator), (row.number, row.note)
            score, before = scores.get(row.score), wanted.setdefault(place, row)
            if why := why_not_labelled(score) if score else "there is no such score":
                problems.append(_at(row.line, why, "score", row.score))
            elif (before.value, before.note) != (row.value, row.note):
                reason = f"line {before.line} says something else of the same judgement"
                problems.append(_at(row.line, reason, "value", row.value))
            elif before is not row:
                continue
            elif place in stored and stored[place] != label and not replace:
                value = CANNOT_TELL if stored[place][0] is None else stored[place][0]
                what = "another note" if stored[place][0] == row.number else f"{value} is stored"
                reason = f"{what} by {row.annotator}; --replace lets this file win"
                problems.append(_at(row.line, reason, "value", row.value))
            elif score is not None:
                done["unchanged" if stored.get(place) == label else "replaced" if place in stored else "added"] += 1
                save_label(score=score, annotator=row.annotator, value=row.number, note=row.note, blind=row.blind)
        if problems:
            raise LabelFileError(str(path), problems)
    return Imported(str(path), done["added"], done["replaced"], done["unchanged"], empty)


# -- export
def export_labels(labels: QuerySet[ScoreLabel], out: IO[str], *, as_json: bool = False) -> int:
    """Write labels beside what the judge gave; `import_labels` reads the file. Returns the number of rows."""
    related = ("evaluation_score__evaluation_run", "evaluation_score__message__channel")
    labels = labels.filter(withdrawn=False).select_related(*related).order_by("evaluation_score", "annotator")
    rows = (
        {
            **_place_of(label.evaluation_score),
            "annotator": label.annotator,
            "value": CANNOT_TELL if label.value is None else label.value,
            "note": label.note,
            "blind": label.blind,
            "judge": label.evaluation_score.evaluation_run.judge,
            "procedure": label.evaluation_score.evaluation_run.procedure,
            "judge_score": label.evaluation_score.raw_score,
        }
        for label in labels.iterator(chunk_size=_AT_ONCE)
    )
    return _write(LABEL_COLUMNS, rows, out, as_json)


def export_template(label_set: LabelSet, out: IO[str], *, annotator: str = "", as_json: bool = False) -> int:
    """Write what a label set drew, to be filled in: in the order of the draw, without the judge's scores."""
    return _write(TEMPLATE_COLUMNS, _template_rows(label_set, annotator), out, as_json)


def _template_rows(label_set: LabelSet, annotator: str) -> Iterator[dict[str, Any]]:
    ids = drawn_ids(label_set)
    related = (
        "evaluation_run__agent",
        "evaluation_run__channel",
        "message__channel",
        "message__agent",
        "compared_with",
    )
    for start in range(0, len(ids), _AT_ONCE):
        scores = EvaluationScore.objects.select_related(*related).in_bulk(ids[start : start + _AT_ONCE])
        for pk in ids[start : start + _AT_ONCE]:
            score = scores[pk]
            yield {**_place_of(score), "shown": blind_text(score), "annotator": annotator, "value": "", "note": ""}


def _place_of(score: EvaluationScore) -> dict[str, Any]:
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


def _write(columns: Sequence[str], rows: Iterable[dict[str, Any]], out: IO[str], as_json: bool) -> int:
    writer = csv.writer(out, lineterminator="\r\n")  # so that a lone CR in a text is quoted, too
    count = 0
    if not as_json:
        writer.writerow(columns)
    for count, row in enumerate(rows, 1):  # noqa: B007 (returned)
        if as_json:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            writer.writerow([escape(cell) if isinstance(cell := row[name], str) else cell for name in columns])
    return count
