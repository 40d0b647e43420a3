"""Storing what the judge said: an answer's judgements in one statement."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.utils import timezone

from agents.work.outages import OUTAGE, outlasting
from evaluation.bulk import update_rows
from evaluation.judge import Question
from evaluation.models import EvaluationScore
from evaluation.pattern_timeouts import count_timeouts
from evaluation.verdicts import Verdict

logger = logging.getLogger(__name__)

SNIPPET_CHARACTERS = 240
_SAVED = (
    *("status", "score", "raw_score", "first_score", "count", "recommendations", "flaws", "evidence"),
    *("reasoning", "justification", "confidence", "reason"),
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
        row.reason, row.judge, row.served_model = verdict.reason, verdict.judge, verdict.served_model
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
            count_timeouts((row.dimension, row.proposition_id, row.reason) for row in rows)
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
