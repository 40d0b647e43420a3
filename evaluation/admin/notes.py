"""How a message was judged, shown beside it in its conversation."""

from __future__ import annotations

from typing import Any

from django.db.models import Count, F, Window
from django.db.models.functions import DenseRank
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.console import display
from agents.models import Message
from evaluation.admin.labels import choose_link
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
    return {pk: _note(request, pk, scores) for pk, scores in by_message.items()}


def _note(request: HttpRequest, message: int, scores: list[Any]) -> SafeString:
    scored = [score.score for score in scores if score.status == EvaluationScore.Status.SCORED]
    context = {
        "message": message,
        "lowest": scored[0] if scored else None,
        "scored": len(scored),
        "scores": scores[:SHOWN],
        "left_out": max(0, len(scores) - SHOWN),
        "total": scores[0].of_message,
        "run": scores[0].evaluation_run_id,
        "choose": choose_link(request, message=message),
        "all_url": display.list_url(EvaluationScore, message=message),
    }
    return render_to_string("admin/evaluation/score_note.html", context)
