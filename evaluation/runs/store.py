"""Store judgements in few statements, and find those whose call failed: they are worth another try."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import connection, models, transaction
from django.db.models import Count, Q
from django.utils import timezone

from agents.work.outages import OUTAGE, outlasting
from evaluation.judge.questions import RULE_JUDGE, Verdict
from evaluation.models import ChannelShare, EvaluationRun, EvaluationScore, PatternTimeout

if TYPE_CHECKING:
    from evaluation.judge.questions import Question

FAILURES = ("timeout", "rate_limited", "unavailable", "rejected")  # of the call, not of the answer
CALL_FAILED = Q(status="unscored", cause__in=FAILURES)


def reopen_failed(run: EvaluationRun) -> int:
    """Make items whose call failed pending again, so that taking the run up judges them; returns how many."""
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=run)
    reopened = failed.update(status="pending", reason="", cause="", call=None, judged_at=None)
    if reopened and run.series_points is not None:  # its series looks at it again when it has ended
        EvaluationRun.objects.filter(pk=run.pk).update(series_points=None)
    return reopened


def failed_call(run: EvaluationRun) -> str:
    """Why one of the run's calls failed; empty when none did."""
    failed = EvaluationScore.objects.filter(CALL_FAILED, evaluation_run=run)
    return failed.values_list("reason", flat=True).first() or ""


def judge_answered(run: EvaluationRun) -> bool:
    """Whether the judge answered any call: what rules and preconditions settle needs no judge."""
    return EvaluationScore.objects.filter(evaluation_run=run, judge=run.judge).exclude(CALL_FAILED).exists()


ANSWERED = ~CALL_FAILED & ~Q(judge__in=["", RULE_JUDGE])  # by the judge, be it that it cannot tell
# What asking again cannot help: a key that is refused, a model or an address that does not exist.
_MISCONFIGURED = re.compile(
    r"rejected: (HTTP 40[134]:|HTTP 400:.*(\bmodel\b.*(not|invalid|unknown|exist)|(invalid|unknown) model)|.*is the base URL right)",
    re.IGNORECASE,
)


def unanswered(runs: Sequence[EvaluationRun]) -> set[tuple[int, str]]:
    """Run and dimension where the judge was asked and answered nothing: what rules score there is no score of this judge."""
    if not runs:
        return set()
    rows = EvaluationScore.objects.filter(evaluation_run__in=[run.pk for run in runs]).order_by()
    found = rows.values("evaluation_run", "dimension").annotate(
        failed=Count("pk", filter=CALL_FAILED), answered=Count("pk", filter=ANSWERED)
    )
    return set(found.filter(failed__gt=0, answered=0).values_list("evaluation_run", "dimension"))


def refusal(runs: Iterable[EvaluationRun]) -> str:
    """Why the judge refused every question of these runs, and would again: key, model or address are wrong; else empty."""
    keys = {run.pk for run in runs}
    keys.update(ChannelShare.objects.filter(agent_run__in=keys).values_list("channel_run", flat=True))
    rows = EvaluationScore.objects.filter(evaluation_run__in=keys)
    reasons = list(rows.filter(CALL_FAILED).order_by().values_list("reason", flat=True).distinct())
    if not reasons or not all(map(_MISCONFIGURED.match, reasons)) or rows.filter(ANSWERED).exists():
        return ""
    return f"the judge answered nothing: {reasons[0]}"


Rows = Sequence[models.Model]


def insert_values(like: models.Model, names: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
    """Insert rows that are like a new one of their model but for some columns, without making an instance of each.

    Args:
        like: What all rows have in common; it is not stored itself.
        names: The columns in which they differ, by attribute (``message_id``).
        values: Per row the values of these.

    Raises:
        IntegrityError: A constraint does not let a row in; none is then inserted.
    """
    meta = like._meta
    differing = [next(field for field in meta.concrete_fields if field.attname == name) for name in names]
    common = [field for field in meta.concrete_fields if not field.primary_key and field not in differing]
    shared = [field.get_db_prep_save(getattr(like, field.attname), connection) for field in common]
    prepares = [_prepared(field) for field in differing]
    rows = [
        [*shared, *(prepare(value) if prepare else value for prepare, value in zip(prepares, row, strict=True))]
        for row in values
    ]
    if rows:
        columns = ", ".join(map(_column, [*common, *differing]))
        places = ", ".join(["%s"] * len(rows[0]))
        _execute(f"INSERT INTO {_table(meta)} ({columns}) VALUES ({places})", rows)  # noqa: S608


def update_rows(rows: Rows, names: Sequence[str], *, where: str = "") -> int:
    """Write these fields of stored rows of one model.

    Args:
        rows: The rows.
        names: Of the fields.
        where: A condition in SQL, without values, that a row must fulfil in the database to be written.

    Returns:
        How many of the rows were there.

    Raises:
        IntegrityError: A constraint does not allow a value; nothing is then changed.
    """
    if not rows:
        return 0
    statement, fields = _update(type(rows[0]), tuple(names), where, connection.vendor)
    return _many(statement, rows, fields)


@lru_cache(maxsize=64)  # by vendor: each quotes names in its own way
def _update(model: type[models.Model], names: tuple[str, ...], where: str, vendor: str) -> tuple[str, list[Any]]:
    """The statement, and the fields whose values it takes."""
    meta = model._meta
    fields: list[Any] = [meta.get_field(name) for name in names]
    values = ", ".join(f"{_column(field)} = %s" for field in fields)
    statement = f"UPDATE {_table(meta)} SET {values} WHERE {_column(meta.pk)} = %s"  # noqa: S608
    return statement + (f" AND {where}" if where else ""), [*fields, meta.pk]


def _many(statement: str, rows: Rows, fields: Sequence[Any]) -> int:
    getters = [(field.attname, _prepared(field)) for field in fields]
    values = [
        [prepare(getattr(row, name)) if prepare else getattr(row, name) for name, prepare in getters] for row in rows
    ]
    return _execute(statement, values)


def _execute(statement: str, values: Sequence[Sequence[Any]]) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(statement, values)
        return int(cursor.rowcount)


_AS_IT_IS = (models.CharField, models.TextField, models.IntegerField, models.FloatField, models.ForeignKey)


def _prepared(field: Any) -> Callable[[Any], Any] | None:
    """What makes a value of this field fit the database; None where it does as it is."""
    if isinstance(field, _AS_IT_IS):
        return None
    last: list[Any] = []  # rows of one answer have the same time, and mostly the same empty lists

    def prepare(value: Any) -> Any:
        if value and not isinstance(value, datetime):
            return field.get_db_prep_save(value, connection)
        if not last or type(last[0]) is not type(value) or last[0] != value:
            last[:] = [value, field.get_db_prep_save(value, connection)]
        return last[1]

    return prepare


def _table(meta: Any) -> str:
    return str(connection.ops.quote_name(meta.db_table))


def _column(field: Any) -> str:
    return str(connection.ops.quote_name(field.column))


logger = logging.getLogger(__name__)

SNIPPET_CHARACTERS = 240
_SAVED = (
    *("status", "score", "raw_score", "first_score", "count", "recommendations", "flaws", "evidence"),
    *("reasoning", "justification", "confidence", "reason", "cause"),
    *("context_snippet", "claim", "judge", "served_model", "call", "judged_at"),
)


def save_verdicts(rows: Sequence[EvaluationScore], verdicts: Sequence[Verdict], question: Question | None) -> bool:
    """Store verdicts in one short statement, each once: one that another worker stored meanwhile stays as it is.

    Args:
        rows: The judgements.
        verdicts: One for each.
        question: What was asked; None for what needed no judge.

    Returns:
        Whether all were still to be stored: False when the run was deleted, or somebody else has it now.
    """
    now = timezone.now()
    claims = (
        dict(zip((p.id for p in question.propositions), question.claims().values(), strict=True)) if question else {}
    )
    snippet = _shown(question) if question else ""
    for row, verdict in zip(rows, verdicts, strict=True):
        row.status, row.score, row.raw_score = verdict.status, verdict.value, verdict.raw_value
        row.first_score = verdict.first_value
        row.recommendations = row.recommendations or verdict.recommendations
        row.flaws, row.evidence = list(verdict.flaws), verdict.evidence
        row.reasoning, row.justification, row.confidence = verdict.reasoning, verdict.justification, verdict.confidence
        row.reason, row.cause = verdict.reason, verdict.cause
        row.judge, row.served_model = verdict.judge, verdict.served_model
        row.call_id, row.judged_at = verdict.call, now
        row.claim = claims.get(row.proposition_id, row.claim)
        row.context_snippet = snippet if question else _one_line(row.message.text if row.message is not None else "")
    tries = 0

    def write() -> int:
        nonlocal tries
        tries += 1
        return update_rows(rows, _SAVED, where="status = 'pending'")

    if outlasting(write) == len(rows):
        try:
            PatternTimeout.count((row.dimension, row.proposition_id, row.reason) for row in rows)
        except OUTAGE as error:  # the verdicts are stored: a count is not worth the evaluation
            logger.warning("patterns that took too long are not counted: %s", error)
        return True
    # What the database did before its connection was lost was done, though nobody was told.
    mine = EvaluationScore.objects.filter(pk__in=[row.pk for row in rows], judged_at=now)
    return tries > 1 and mine.count() == len(rows)


def _shown(question: Question) -> str:
    """The start of what was judged."""
    texts = question.context.judged_texts()
    return _one_line(" / ".join(texts[-3:]) if question.context.message is None else (texts[0] if texts else ""))


def _one_line(text: str) -> str:
    text = " ".join(text.split()).replace("\x00", "\ufffd")
    return text if len(text) <= SNIPPET_CHARACTERS else text[: SNIPPET_CHARACTERS - 1] + "…"
