"""Labels from files and to files: all or nothing, repeats change nothing, templates are blind."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from django.db import transaction
from django.db.models import QuerySet

from agents.transcripts.readers.csv_table import escape
from evaluation.calibration.label_rows import (
    CANNOT_TELL,
    LabelFileError,
    LabelProblem,
    LabelRow,
    Place,
    read_rows,
)
from evaluation.calibration.labels import why_not_labelled
from evaluation.calibration.population import drawn_ids
from evaluation.calibration.shown import blind_text
from evaluation.calibration.stored import Key, key_of, mark_changed
from evaluation.models import EvaluationScore, LabelSet, ScoreLabel

__all__ = ["Imported", "LabelFileError", "export_labels", "export_template", "import_labels"]

_PLACE = ("score", "run", "dimension", "proposition", "channel", "message", "claim")
LABEL_COLUMNS = (*_PLACE, "annotator", "value", "note", "blind", "judge", "procedure", "judge_score")
TEMPLATE_COLUMNS = (*_PLACE, "shown", "annotator", "value", "note")
DIFFERS = "rows differ from stored labels: --replace lets this file win"
_AT_ONCE = 500


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
    read = read_rows(path, annotator=annotator)
    name, problems = str(path), read.problems
    scores = _scores(read.rows, name, problems)
    with transaction.atomic():
        wanted = _wanted(read.rows, scores, name, problems)
        stored = _stored(wanted)
        added, replaced, unchanged = [], [], 0
        for (pk, who), row in wanted.items():
            label = stored.get((pk, who))
            if label is None:
                added.append(_label(scores[row.place], row))
            elif not label.withdrawn and (label.value, label.note) == (row.value, row.note):
                unchanged += 1
            elif label.withdrawn or replace:
                replaced.append(_replaced(label, row))
            else:
                given = CANNOT_TELL if label.value is None else label.value
                what = "another note" if label.value == row.value else f"{given} is stored"
                why = f"{what} by {who}; --replace lets this file win"
                problems.append(_at(name, row, "value", why, of_many=DIFFERS))
        if problems:
            raise LabelFileError(sorted(problems, key=lambda problem: problem.line))
        ScoreLabel.objects.bulk_create(added, batch_size=_AT_ONCE)
        for label in replaced:
            label.save()
        keys = tuple(sorted({key_of(label.evaluation_score) for label in (*added, *replaced)}))
        mark_changed(keys)
    return Imported(name, len(added), len(replaced), unchanged, read.empty, keys)


def _at(path: str, row: LabelRow, column: str, reason: str, of_many: str = "") -> LabelProblem:
    value = {"value": CANNOT_TELL if row.value is None else str(row.value), "score": str(row.place.score or "")}
    return LabelProblem(path, row.line, column, value.get(column, ""), reason, of_many)


def _scores(rows: Sequence[LabelRow], path: str, problems: list[LabelProblem]) -> dict[Place, EvaluationScore]:
    """The judgements that the rows name; what names none, or several, becomes a problem."""
    places = {row.place: row for row in reversed(rows)}
    ids: dict[Place, int] = {place: place.score for place in places if place.score is not None}
    for place, found in _looked_up([place for place in places if place.score is None]).items():
        if len(found) == 1:
            ids[place] = found[0]
        else:
            told = "none" if not found else f"{len(found)}; add dimension or channel, or name it by score"
            named = f"run {place.run}, {place.proposition}, message {place.message or '(none)'}"
            problems.append(LabelProblem(path, places[place].line, "run", named, f"judgements of that kind: {told}"))
    wanted = sorted(set(ids.values()))
    scores: dict[int, EvaluationScore] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        scores |= EvaluationScore.objects.select_related("evaluation_run").in_bulk(wanted[start : start + _AT_ONCE])
    usable: dict[Place, EvaluationScore] = {}
    for place, pk in ids.items():
        score, row = scores.get(pk), places[place]
        if score is None:
            problems.append(_at(path, row, "score", "there is no such score"))
        elif why := why_not_labelled(score):
            problems.append(LabelProblem(path, row.line, "score", str(pk), why))
        else:
            usable[place] = score
    return usable


def _looked_up(places: Sequence[Place]) -> dict[Place, list[int]]:
    """Ids of the judgements that fit run, proposition, message and what else is given; of repeats the first."""
    runs = {place.run for place in places}
    rows = EvaluationScore.objects.filter(evaluation_run__in=runs, repeat=1).order_by("pk")
    fields = ("pk", "evaluation_run", "proposition_id", "dimension", "message__external_id", "message__channel__slug")
    by_name: dict[tuple[Any, ...], list[tuple[int, str, str]]] = {}
    for pk, run, proposition, dimension, message, channel in rows.values_list(*fields) if runs else ():
        by_name.setdefault((run, proposition, message or ""), []).append((pk, dimension, channel or ""))
    return {
        place: [
            pk
            for pk, dimension, channel in by_name.get((place.run, place.proposition, place.message), [])
            if place.dimension in ("", dimension) and place.channel in ("", channel)
        ]
        for place in places
    }


def _wanted(
    rows: Sequence[LabelRow], scores: dict[Place, EvaluationScore], path: str, problems: list[LabelProblem]
) -> dict[tuple[int, str], LabelRow]:
    """The file's labels by judgement and annotator, each once."""
    wanted: dict[tuple[int, str], LabelRow] = {}
    for row in rows:
        if row.place not in scores:
            continue
        before = wanted.setdefault((scores[row.place].pk, row.annotator), row)
        if (before.value, before.note) != (row.value, row.note):
            problems.append(_at(path, row, "value", f"line {before.line} says something else of the same judgement"))
    return wanted


def _stored(wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], ScoreLabel]:
    ids = sorted({pk for pk, _ in wanted})
    found: dict[tuple[int, str], ScoreLabel] = {}
    for start in range(0, len(ids), _AT_ONCE):
        labels = ScoreLabel.objects.filter(evaluation_score__in=ids[start : start + _AT_ONCE])
        for label in labels.select_related("evaluation_score__evaluation_run"):
            found[label.evaluation_score_id, label.annotator] = label
    return found


def _label(score: EvaluationScore, row: LabelRow) -> ScoreLabel:
    return ScoreLabel(evaluation_score=score, annotator=row.annotator, value=row.value, note=row.note, blind=row.blind)


def _replaced(label: ScoreLabel, row: LabelRow) -> ScoreLabel:
    """In the console the judge's score was shown after the label: what replaces it was not given blind."""
    label.blind = row.blind and label.blind and label.user_id is None
    label.value, label.note, label.withdrawn = row.value, row.note, False
    return label


def export_labels(labels: QuerySet[ScoreLabel], out: IO[str], *, as_json: bool = False) -> int:
    """Write labels beside what the judge gave; `import_labels` reads the file. Returns the number of rows."""
    related = ("evaluation_score__evaluation_run", "evaluation_score__message__channel")
    rows = labels.filter(withdrawn=False).select_related(*related).order_by("evaluation_score", "annotator")
    return _write(LABEL_COLUMNS, (_label_row(label) for label in rows.iterator(chunk_size=_AT_ONCE)), out, as_json)


def export_template(label_set: LabelSet, out: IO[str], *, annotator: str = "", as_json: bool = False) -> int:
    """Write what a label set drew, for somebody to fill in: in the order of the draw, without the judge's scores."""
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
            yield {**_place_row(score), "shown": blind_text(score), "annotator": annotator, "value": "", "note": ""}


def _place_row(score: EvaluationScore) -> dict[str, Any]:
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


def _label_row(label: ScoreLabel) -> dict[str, Any]:
    score = label.evaluation_score
    return {
        **_place_row(score),
        "annotator": label.annotator,
        "value": CANNOT_TELL if label.value is None else label.value,
        "note": label.note,
        "blind": label.blind,
        "judge": score.evaluation_run.judge,
        "procedure": score.evaluation_run.procedure,
        "judge_score": score.raw_score,
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
