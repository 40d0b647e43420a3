"""How a message was judged, shown beside it in its conversation."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, F, Window
from django.db.models.functions import DenseRank
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.panels import table
from agents.models import Message
from evaluation.admin.display import dimension_badge, evaluation_link, judge_badge, verdict
from evaluation.models import EvaluationScore

SHOWN = 5  # scores of a message; the lowest


def judgement_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """For the transcript: the scores of each message in its newest evaluation, lowest first. One query for a page."""
    mine: dict[str, Any] = {"partition_by": [F("message_id")]}
    newest = (
        EvaluationScore.objects.filter(message__in=messages)
        .exclude(status=EvaluationScore.Status.PENDING)
        .annotate(
            of_message=Window(Count("pk"), **mine),
            age=Window(DenseRank(), order_by=F("evaluation_run_id").desc(), **mine),
        )
        .filter(age=1)
        .order_by("message_id", F("score").asc(nulls_last=True), "pk")
        .defer("flaws", "recommendations", "context_snippet", "claim")
    )
    by_message: dict[int, list[Any]] = {}
    for score in newest:
        if score.message_id is not None:
            by_message.setdefault(score.message_id, []).append(score)
    return {pk: _note(pk, scores) for pk, scores in by_message.items()}


def _note(message: int, scores: list[Any]) -> SafeString:
    scored = [score for score in scores if score.status == EvaluationScore.Status.SCORED and score.score is not None]
    total = scores[0].of_message
    all_words = "1 score" if total == 1 else f"{total:,} scores"
    rows = [
        (
            format_html("{} {}", display.page_of(score, score.proposition_id), dimension_badge(score.dimension)),
            verdict(score),
            judge_badge(score.judge),
            display.folded(score.reason or score.justification or score.reasoning, 80),
        )
        for score in scores[:SHOWN]
    ]
    context = {
        "message": message,
        "lowest": scored[0].score if scored else None,
        "scored": len(scored),
        "table": table(("Proposition", "Score", "Judge", "Why"), rows, label="Scores"),
        "left_out": max(0, len(scores) - SHOWN),
        "run": evaluation_link(scores[0].evaluation_run_id),
        "all": display.link(display.list_url(EvaluationScore, message=message), all_words),
    }
    return render_to_string("admin/evaluation/score_note.html", context)
