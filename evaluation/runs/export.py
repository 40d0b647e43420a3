"""Scores as rows for other tools: one row per message and proposition, with everything needed to trace a number back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any

from django.db.models import QuerySet

from agents.kit.text.tables import csv_lines, json_lines
from evaluation.models import EvaluationScore

COLUMNS = (
    *("evaluation_run", "agent", "dimension", "proposition_id", "claim", "inverted", "weight"),
    *("channel", "message", "sent_at", "text", "status", "score", "raw_score", "flaws", "evidence"),
    *("confidence", "reason", "reasoning", "justification", "judge", "served_model", "is_baseline"),
    *("persona_digest", "proposition_digest", "window", "where", "seed", "tags", "judged_at"),
    *("procedure", "repeat", "first_score", "count", "compared_with", "compared_text", "history", "history_where"),
)
OF_RUN = (
    *("is_baseline", "persona_digest", "proposition_digest", "window", "where", "seed"),
    *("procedure", "history", "history_where"),
)
TEXTS = frozenset({"text", "compared_text", "flaws", "reason", "reasoning", "justification"})  # what quotes messages


def score_rows(scores: QuerySet[EvaluationScore]) -> Iterator[dict[str, Any]]:
    """The rows, in order of run, dimension and message; read in portions."""
    related = ("evaluation_run__agent", "evaluation_run__channel", "message__channel", "compared_with")
    unread = (f"evaluation_run__agent__{text}" for text in ("system_prompt", "sample_lines", "description"))
    rows = scores.select_related(*related).defer(*unread)
    for score in rows.order_by("evaluation_run_id", "dimension", "message_id", "pk").iterator(chunk_size=1000):
        run, message, earlier = score.evaluation_run, score.message, score.compared_with
        channel = message.channel if message else run.channel
        special = {
            "evaluation_run": run.pk,
            "agent": run.agent.slug if run.agent else None,
            "channel": channel.slug if channel else None,
            "message": message.external_id if message else None,
            "sent_at": message.sent_at.isoformat() if message and message.sent_at else None,
            "text": (score.context_snippet if run.swaps else message.text) if message else None,
            "tags": message.tags if message else {},
            "judge": score.judge or run.judge,
            "judged_at": score.judged_at.isoformat() if score.judged_at else None,
            "compared_with": earlier.external_id if earlier else None,
            "compared_text": earlier.text if earlier else None,
        }
        yield {
            name: special[name] if name in special else getattr(run if name in OF_RUN else score, name)
            for name in COLUMNS
        }


def write_jsonl(scores: QuerySet[EvaluationScore], out: IO[str]) -> int:
    """Write one JSON object per line; returns the number of rows."""
    return _written(json_lines(score_rows(scores)), out)


def write_csv(scores: QuerySet[EvaluationScore], out: IO[str], columns: Sequence[str] = COLUMNS) -> int:
    """Write CSV with a header, safe against spreadsheet formulas; lists as JSON. Returns the number of rows."""
    return _written(csv_lines(score_rows(scores), columns), out) - 1


def _written(lines: Iterator[str], out: IO[str]) -> int:
    count = 0
    for line in lines:
        out.write(line)
        count += 1
    return count
