"""Labels from files and to files: CSV with a header, or one JSON object per line. An import is all or nothing; templates are blind."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any

from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from agents.transcripts.json_input import json_lines
from agents.transcripts.readers.csv_table import delimiter, escape, unescape
from agents.transcripts.records import TranscriptError
from agents.transcripts.source import Source
from evaluation.calibration.agreement import Key, key_of, mark_changed
from evaluation.calibration.labels import checked_annotator, checked_note, why_not_labelled
from evaluation.calibration.population import drawn_ids
from evaluation.calibration.shown import blind_text
from evaluation.models import EvaluationScore, LabelSet, ScoreLabel
from evaluation.wording import counted

CANNOT_TELL = "cannot tell"
COLUMNS = ("score", "run", "dimension", "proposition", "channel", "message", "annotator", "value", "note", "blind")
_PLACE = (*COLUMNS[:6], "claim")
LABEL_COLUMNS = (*_PLACE, "annotator", "value", "note", "blind", "judge", "procedure", "judge_score")
TEMPLATE_COLUMNS = (*_PLACE, "shown", "annotator", "value", "note")
MOST_PROBLEMS = 50
MANY = 4  # problems of one kind become one line
NO_ANNOTATOR = "rows name no annotator: add --annotator NAME"
DIFFERS = "rows differ from stored labels: --replace lets this file win"
_AT_ONCE = 500


# -- what is wrong
@dataclass(frozen=True, slots=True)
class LabelProblem:
    """What is wrong at a place of a label file; line 0: the file as a whole. `of_many`: what several of the kind are called."""

    line: int
    column: str
    value: str
    reason: str
    of_many: str = ""

    def __str__(self) -> str:
        line = f", line {self.line}" if self.line else ""
        column = f", column {self.column}" if self.column else ""
        value = f"{self.value[:60]!r}: " if self.value else ""
        return f"{line}{column}: {value}{self.reason}"


class LabelFileError(Exception):
    """A label file of which nothing was stored; `problems` lists what is wrong with it."""

    def __init__(self, path: str, problems: Sequence[LabelProblem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line)
        many = {kind: n for kind, n in Counter(p.of_many for p in problems).items() if kind and n >= MANY}
        first = {kind: next(p for p in self.problems if p.of_many == kind) for kind in many}
        shown = [f"{path}: {n:,} {kind} (the first: line {first[kind].line})" for kind, n in many.items()]
        others = [problem for problem in self.problems if problem.of_many not in many]
        shown += [f"{path}{problem}" for problem in others[:MOST_PROBLEMS]]
        if len(others) > MOST_PROBLEMS:
            shown.append(f"… and {counted(len(others) - MOST_PROBLEMS, 'more problem')}")
        super().__init__("\n".join(shown))


# -- rows
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
    raise ValueError(f"allowed: 0 to 9, “{CANNOT_TELL}”, or empty for not labelled yet")


def _id(value: Any) -> int | None:
    if _is_empty(value):
        return None
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool) and 0 < text < 2**63:
        return text
    raise ValueError("allowed: the number of a score, or of an evaluation")


def _flag(value: Any) -> bool:
    word = "true" if _is_empty(value) else str(value).strip().casefold()
    if word not in ("true", "false"):
        raise ValueError("allowed: true, false")
    return word == "true"


def _text(value: Any) -> str:
    if not isinstance(value or "", str):
        raise ValueError("allowed: a text")
    return (value or "").strip()


def _annotator(value: Any) -> str:
    name = _text(value)
    try:
        return checked_annotator(name)
    except ValueError as error:
        hint = "" if name else "; or add --annotator NAME"
        raise PydanticCustomError("annotator", "{why}", {"why": f"{error}{hint}"}) from None


def _note(value: Any) -> str:
    try:
        return checked_note(_text(value))
    except ValueError as error:
        raise PydanticCustomError("note", "{why}", {"why": str(error)}) from None


Id = Annotated[int | None, BeforeValidator(_id)]
Text = Annotated[str, BeforeValidator(_text)]


class LabelRow(BaseModel):
    """One label of a file. It names its judgement by id, or by evaluation, proposition and message; `value` None: cannot tell."""

    line: int
    score: Id = None
    run: Id = None
    dimension: Text = ""
    proposition: Text = ""
    channel: Text = ""
    message: Text = ""
    annotator: Annotated[str, BeforeValidator(_annotator), Field(validate_default=True)] = ""
    value: Annotated[int | None, BeforeValidator(_value)]
    note: Annotated[str, BeforeValidator(_note)] = ""
    blind: Annotated[bool, BeforeValidator(_flag)] = True

    @model_validator(mode="after")
    def _named(self) -> LabelRow:
        if self.score is None and (self.run is None or not self.proposition):
            raise PydanticCustomError("place", "empty; name the judgement by score, or by run, proposition and message")
        return self

    @property
    def place(self) -> tuple[Any, ...]:
        names = (self.run, self.proposition, self.message, self.dimension, self.channel)
        return (self.score,) if self.score is not None else names

    def problem(self, column: str, reason: str, of_many: str = "") -> LabelProblem:
        value = {"value": CANNOT_TELL if self.value is None else str(self.value), "score": str(self.score or "")}
        return LabelProblem(self.line, column, value.get(column, ""), reason, of_many)


def _read(path: Path, annotator: str) -> tuple[list[LabelRow], int, list[LabelProblem]]:
    """The rows of a file, how many have no value yet, and what is wrong with the others.

    Raises:
        LabelFileError: The file as a whole cannot be read.
    """
    rows: list[LabelRow] = []
    problems: list[LabelProblem] = []
    empty = 0
    try:
        source = Source(path)
        suffix = path.suffix.lower()
        is_json = suffix in (".jsonl", ".ndjson", ".json") or (
            suffix not in (".csv", ".tsv") and source.head(1024).lstrip().startswith("{")
        )
        for line, cells in json_lines(source) if is_json else _csv_rows(source):
            if not isinstance(cells, dict):
                problems.append(LabelProblem(line, "", str(cells), "allowed: one JSON object per line"))
            elif _is_empty(cells.get("value")):
                empty += 1
            else:
                try:
                    rows.append(LabelRow(**{**cells, "line": line, "annotator": cells.get("annotator") or annotator}))
                except ValidationError as error:
                    problems += [_problem(line, dict(item)) for item in error.errors()]
    except TranscriptError as error:
        raise LabelFileError(error.path, [*problems, LabelProblem(error.line, "", "", error.reason)]) from None
    return rows, empty, problems


def _problem(line: int, item: dict[str, Any]) -> LabelProblem:
    column = str(item["loc"][0]) if item["loc"] else "score"
    reason = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in ("annotator", "note", "place"):
        of_many = NO_ANNOTATOR if reason.endswith("--annotator NAME") else ""
        return LabelProblem(line, column, "", reason, of_many)
    return LabelProblem(line, column, str(item["input"]), reason)


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
            header = [cell.strip().casefold() for cell in cells]
            twice = [name for name in dict.fromkeys(header) if name in COLUMNS and header.count(name) > 1]
            if twice or "value" not in header or not ("score" in header or {"run", "proposition"} <= set(header)):
                needed = "columns value, and score or run with proposition, are needed"
                why = f"column {twice[0]} stands twice" if twice else needed
                has = f"the file has: {', '.join(header)}; read are: {', '.join(COLUMNS)}"
                raise TranscriptError(source.name, line, f"{why}; {has}")
        elif len(cells) != len(header):
            raise TranscriptError(source.name, line, f"{len(cells)} columns where the header has {len(header)}")
        else:
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
    keys: tuple[Key, ...]

    def __str__(self) -> str:
        parts = [(self.added, "added"), (self.replaced, "replaced"), (self.unchanged, "already there")]
        parts.append((self.empty, f"{'row' if self.empty == 1 else 'rows'} without a value, not labelled yet"))
        return f"{self.path}: " + (", ".join(f"{n:,} {what}" for n, what in parts if n) or "no labels")


def import_labels(path: Path, *, annotator: str = "", replace: bool = False) -> Imported:
    """Store the labels of a file, all of them or none.

    Args:
        path: CSV with a header, or one JSON object per line: score (or run, proposition and message), annotator, value, note.
        annotator: For rows that name none.
        replace: Let a label that differs from a stored one replace it.

    Raises:
        LabelFileError: With every problem: file, line, column, value, allowed. Nothing was stored.
    """
    rows, empty, problems = _read(path, annotator)
    scores = _judgements(rows, problems)
    wanted: dict[tuple[int, str], LabelRow] = {}
    for row in rows:
        if (score := scores.get(row.place)) is not None:
            before = wanted.setdefault((score.pk, row.annotator), row)
            if (before.value, before.note) != (row.value, row.note):
                problems.append(row.problem("value", f"line {before.line} says something else of the same judgement"))
    added, replaced, unchanged = [], [], 0
    with transaction.atomic():
        stored = _stored(sorted({pk for pk, _ in wanted}))
        for (pk, who), row in wanted.items():
            label = stored.get((pk, who))
            given = {"value": row.value, "note": row.note}
            if label is None:
                score = scores[row.place]
                added.append(ScoreLabel(evaluation_score=score, annotator=who, blind=row.blind, **given))
            elif not label.withdrawn and (label.value, label.note) == (row.value, row.note):
                unchanged += 1
            elif label.withdrawn or replace:
                # The console shows the judge's score after the label: what replaces that was not given blind.
                label.blind = row.blind and label.blind and label.user_id is None
                label.value, label.note, label.withdrawn = row.value, row.note, False
                replaced.append(label)
            else:
                value = CANNOT_TELL if label.value is None else label.value
                what = "another note" if label.value == row.value else f"{value} is stored"
                problems.append(row.problem("value", f"{what} by {who}; --replace lets this file win", DIFFERS))
        if problems:
            raise LabelFileError(str(path), problems)
        ScoreLabel.objects.bulk_create(added, batch_size=_AT_ONCE)
        for label in replaced:
            label.save()
        keys = tuple(sorted({key_of(label.evaluation_score) for label in (*added, *replaced)}))
        mark_changed(keys)
    return Imported(str(path), len(added), len(replaced), unchanged, empty, keys)


def _judgements(rows: Sequence[LabelRow], problems: list[LabelProblem]) -> dict[tuple[Any, ...], EvaluationScore]:
    """The judgements by the place that rows name; what names none, or several, becomes a problem."""
    places = {row.place: row for row in reversed(rows)}
    ids = {place: row.score for place, row in places.items() if row.score is not None}
    for place, matching in _looked_up([row for row in places.values() if row.score is None]).items():
        if len(matching) == 1:
            ids[place] = matching[0]
        else:
            row = places[place]
            count = "none" if not matching else f"{len(matching)}; add dimension or channel, or name it by score"
            named = f"run {row.run}, {row.proposition}, message {row.message or '(none)'}"
            problems.append(LabelProblem(row.line, "run", named, f"judgements of that kind: {count}"))
    scores = EvaluationScore.objects.select_related("evaluation_run").in_bulk(sorted(set(ids.values())))
    usable: dict[tuple[Any, ...], EvaluationScore] = {}
    for place, pk in ids.items():
        score = scores.get(pk)
        if score is None:
            problems.append(places[place].problem("score", "there is no such score"))
        elif why := why_not_labelled(score):
            problems.append(LabelProblem(places[place].line, "score", str(pk), why))
        else:
            usable[place] = score
    return usable


def _looked_up(rows: Sequence[LabelRow]) -> dict[tuple[Any, ...], list[int]]:
    """Ids of the judgements that fit run, proposition, message and what else is given; of repeats the first."""
    if not rows:
        return {}
    scores = EvaluationScore.objects.filter(evaluation_run__in={row.run for row in rows}, repeat=1).order_by("pk")
    fields = ("pk", "evaluation_run", "proposition_id", "dimension", "message__external_id", "message__channel__slug")
    by_name: dict[tuple[Any, ...], list[tuple[int, str, str]]] = defaultdict(list)
    for pk, run, proposition, dimension, message, channel in scores.values_list(*fields):
        by_name[run, proposition, message or ""].append((pk, dimension, channel or ""))
    return {
        row.place: [
            pk
            for pk, dimension, channel in by_name[row.run, row.proposition, row.message]
            if row.dimension in ("", dimension) and row.channel in ("", channel)
        ]
        for row in rows
    }


def _stored(ids: Sequence[int]) -> dict[tuple[int, str], ScoreLabel]:
    stored: dict[tuple[int, str], ScoreLabel] = {}
    for start in range(0, len(ids), _AT_ONCE):
        labels = ScoreLabel.objects.filter(evaluation_score__in=ids[start : start + _AT_ONCE])
        for label in labels.select_related("evaluation_score__evaluation_run"):
            stored[label.evaluation_score_id, label.annotator] = label
    return stored


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
