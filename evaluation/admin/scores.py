"""The console's pages of judgements, each with its reasons, linked to the message it is about."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Count, F, Q, Window
from django.db.models.functions import DenseRank
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.transcript import transcript_url
from agents.kit.console import display
from agents.kit.console.filters import OptionFilter
from agents.kit.console.logs import LogAdmin
from agents.models import Message
from evaluation.admin.display import dimension_badge, judge_badge, target, verdict
from evaluation.models import RULE_JUDGE, EvaluationScore


class HeightFilter(OptionFilter):
    """Scores of a third of the scale; trivial ones are no scores."""

    title = "score (of 9)"
    parameter_name = "height"
    options: ClassVar = {
        name: (f"{low} to {high}", Q(status="scored", score__range=(low, high)))
        for name, low, high in (("low", 0, 3), ("middle", 4, 6), ("high", 7, 9))
    }


@admin.register(EvaluationScore)
class EvaluationScoreAdmin(LogAdmin[EvaluationScore]):
    empty_value_display = str(display.EMPTY)
    own_filters: ClassVar = {"height": HeightFilter}
    list_select_related = ("evaluation_run__agent", "evaluation_run__channel", "message", "compared_with")
    outcome = display.column("verdict", verdict, ordering="score")
    judge_mark = display.column(
        "judge", lambda score: "" if score.judge == RULE_JUDGE else judge_badge(score.judge), ordering="judge"
    )
    who = display.column("target", lambda score: target(score.evaluation_run))
    message_link = display.column("message", lambda score: _message_block(score, score.message))
    earlier_link = display.column("compared with", lambda score: _message_block(score, score.compared_with))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> EvaluationScore | None:
        score = super().get_object(request, object_id, from_field)
        if score is not None and _unread(score):
            score.blank_quotes()
        return score

    @admin.display(description="proposition", ordering="proposition_id")
    def claimed(self, score: EvaluationScore) -> SafeString:
        return display.lines(self.proposition(score), dimension_badge(score.dimension))

    @admin.display(description="proposition")
    def proposition(self, score: EvaluationScore) -> SafeString:
        url = display.list_url(EvaluationScore, proposition_id=score.proposition_id)
        hint = "an anti-pattern: its score is 9 less the judge's"
        mark = display.badge("anti-pattern", "plain", hint) if score.inverted else ""
        return format_html("{} {}", display.link(url, score.proposition_id, score.claim), mark)

    @admin.display(description="message")
    def judged(self, score: EvaluationScore) -> SafeString:
        """Show who was measured, and the start of the message judged with a link to it, and of the earlier one of a pair.

        Users who may not read messages see their numbers instead.
        """
        message, earlier = score.message, score.compared_with
        if message is not None:
            text = display.link(transcript_url(message), _quoted(score, message, 70), "in its conversation")
        else:
            over = "the whole window" if score.evaluation_run.channel_id is None else "the whole conversation"
            text = format_html('<span class="pl-subtle">{}</span>', over)
        if earlier is not None:
            earlier_link = display.link(transcript_url(earlier), _quoted(score, earlier, 50), "the earlier message")
            text = format_html('{} <span class="pl-subtle">against</span> {}', text, earlier_link)
        return format_html('<div class="pl-wide">{}</div>', display.lines(target(score.evaluation_run), text))

    @admin.display(description="why")
    def why(self, score: EvaluationScore) -> SafeString:
        if _unread(score):
            return display.EMPTY
        texts = (score.reason, score.reasoning, score.justification)
        return display.folded("\n\n".join(text for text in texts if text), 60)

    @admin.display(description="flaws")
    def flaw_list(self, score: EvaluationScore) -> SafeString:
        flaws = [(display.visible(flaw),) for flaw in score.flaws]
        return format_html_join("", "<div>• {}</div>", flaws) or display.EMPTY


def _unread(score: Any) -> bool:
    """Return whether the user may not read messages, nor what a judge quotes of them."""
    return bool(score.unread)


def _quoted(score: EvaluationScore, message: Message, most: int) -> str:
    """Return the start of a message's text, or its number for users who may not read it."""
    if _unread(score):
        return f"message {message.position}"
    return display.shortened(_judged_text(score, message), most)


def _judged_text(score: EvaluationScore, message: Message) -> str:
    """Return the text of a message, or the start of what stood in for it where that was judged."""
    if score.evaluation_run.swaps and message.pk == score.message_id:
        return f"swapped in: {score.context_snippet}"
    return message.text


def _message_block(score: EvaluationScore, message: Message | None) -> SafeString:
    """Show the text that was judged, with a link to its conversation."""
    if message is None:
        return display.EMPTY
    if _unread(score):
        return display.visible(f"message {message.position}")
    link = display.link(transcript_url(message), "Read it in its conversation")
    return format_html("{}{}", display.block(_judged_text(score, message)), link)


SCORES_SHOWN = 5  # of a message; the lowest


def judgement_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """Show, for the transcript, the scores of each message in its newest evaluation, lowest first; one query for a page.

    Messages without a judgement are left out. The number of all is that over all evaluations.
    """
    per_message: dict[str, Any] = {"partition_by": [F("message_id")]}
    newest = (
        EvaluationScore.objects.filter(message__in=messages)
        .exclude(status=EvaluationScore.Status.PENDING)
        .annotate(
            of_message=Window(Count("pk"), **per_message),
            age=Window(DenseRank(), order_by=F("evaluation_run_id").desc(), **per_message),
        )
        .filter(age=1)
        .order_by("message_id", F("score").asc(nulls_last=True), "pk")
        .defer("flaws", "recommendations", "context_snippet", "claim")
    )
    scores_by_message: dict[int, list[Any]] = {}
    for score in newest:
        if score.message_id is not None:
            scores_by_message.setdefault(score.message_id, []).append(score)
    notes: dict[int, SafeString] = {}
    for message in messages:
        if message.pk in scores_by_message:
            notes[message.pk] = _note(request, message, scores_by_message[message.pk])
    return notes


def _note(request: HttpRequest, message: Message, scores: list[Any]) -> SafeString:
    """Render the note on a message: its lowest scores in its newest evaluation.

    Args:
        scores: Of that evaluation, lowest first, those without a score last.
    """
    message_admin: Any = admin.site.get_model_admin(Message)
    scored = [score.score for score in scores if score.status == EvaluationScore.Status.SCORED]
    context = {
        "message": message.pk,
        "lowest": scored[0] if scored else None,
        "scored": len(scored),
        "scores": scores[:SCORES_SHOWN],
        "left_out": max(0, len(scores) - SCORES_SHOWN),
        "total": scores[0].of_message,
        "run": scores[0].evaluation_run_id,
        "buttons": message_admin.get_buttons(request, message),
        "all_url": display.list_url(EvaluationScore, message=message.pk),
    }
    return render_to_string("admin/evaluation/score_note.html", context)
