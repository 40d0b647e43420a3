"""Export scores as rows for other tools: one per message and proposition, with everything needed to trace a number back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO, Any

from django.db.models import QuerySet

from agents.kit.text.tables import csv_lines, json_lines
from evaluation.models import EvaluationScore

COLUMNS = (
    *("evaluation_run", "agent", "dimension", "proposition_id", "claim", "inverted", "weight", "inclusion_weight"),
    *("channel", "message", "sent_at", "text", "status", "score", "raw_score", "flaws", "evidence"),
    *("confidence", "reason", "reasoning", "justification", "judge", "served_model", "is_baseline"),
    *("persona_digest", "proposition_digest", "window", "where", "seed", "tags", "judged_at"),
    *("procedure", "repeat", "first_score", "count", "compared_with", "compared_text", "history", "history_where"),
)
COLUMNS_OF_RUN = (
    *("is_baseline", "persona_digest", "proposition_digest", "window", "where", "seed"),
    *("procedure", "history", "history_where"),
)
TEXTS = frozenset({"text", "compared_text", "flaws", "reason", "reasoning", "justification"})  # what quotes messages


def score_rows(scores: QuerySet[EvaluationScore]) -> Iterator[dict[str, Any]]:
    """Yield the rows, in order of run, dimension and message; read in portions."""
    related = ("evaluation_run__agent", "evaluation_run__channel", "message__channel", "compared_with")
    unread = [f"evaluation_run__agent__{text}" for text in ("system_prompt", "sample_lines", "description")]
    rows = scores.select_related(*related).defer(*unread)
    for score in rows.order_by("evaluation_run_id", "dimension", "message_id", "pk").iterator(chunk_size=1000):
        yield _score_row(score)


def _score_row(score: EvaluationScore) -> dict[str, Any]:
    """Return the row of a judgement, its columns in the order of `COLUMNS`; `judge` is the run's until it is judged."""
    run = score.evaluation_run
    values: dict[str, Any] = {"evaluation_run": run.pk, "judge": score.judge or run.judge}
    values["agent"] = run.agent.slug if run.agent else None
    values["judged_at"] = _iso(score.judged_at)
    values |= _message_columns(score)
    row: dict[str, Any] = {}
    for name in COLUMNS:
        if name in values:
            row[name] = values[name]
        elif name in COLUMNS_OF_RUN:
            row[name] = getattr(run, name)
        else:
            row[name] = getattr(score, name)
    return row


def _message_columns(score: EvaluationScore) -> dict[str, Any]:
    """Return the columns about the message judged and the earlier one it is compared with.

    None where there is none, as for a whole window; ``channel`` is then the run's, None for an agent's. In the swapped half of a swap test
    ``text`` is the start of what was judged instead of the message.
    """
    run, message, earlier = score.evaluation_run, score.message, score.compared_with
    columns: dict[str, Any] = dict.fromkeys(("message", "sent_at", "text", "compared_with", "compared_text"))
    columns["tags"] = {}
    channel = run.channel
    if message:
        channel = message.channel
        columns["message"] = message.external_id
        columns["sent_at"] = _iso(message.sent_at)
        columns["text"] = score.context_snippet if run.swaps else message.text
        columns["tags"] = message.tags
    if earlier:
        columns["compared_with"] = earlier.external_id
        columns["compared_text"] = earlier.text
    columns["channel"] = channel.slug if channel else None
    return columns


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


def write_jsonl(scores: QuerySet[EvaluationScore], out: IO[str]) -> int:
    """Write one JSON object per line; return the number of rows."""
    return _write_lines(json_lines(score_rows(scores)), out)


def write_csv(scores: QuerySet[EvaluationScore], out: IO[str], columns: Sequence[str] = COLUMNS) -> int:
    """Write CSV with a header, safe against spreadsheet formulas; lists as JSON. Return the number of rows."""
    return _write_lines(csv_lines(score_rows(scores), columns), out) - 1


def _write_lines(lines: Iterator[str], out: IO[str]) -> int:
    """Write the lines; return how many there were."""
    count = 0
    for line in lines:
        out.write(line)
        count += 1
    return count
