"""The changes that were stored: a list to filter, and each with what it rests on."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.logs import LogAdmin
from agents.kit.text.wording import interval_text, signed
from evaluation.admin.display import TONES, evaluation_link, judged_by
from evaluation.change.models import Change
from evaluation.change.sentences import numbers_of
from evaluation.wording import p_text


@admin.register(Change)
class ChangeAdmin(LogAdmin[Change]):
    list_select_related = ("agent",)
    judge_mark = display.column("judge", judged_by, ordering="judge")
    scores = display.column("baseline → then", lambda change: numbers_of(change.result))
    difference = display.column("points", lambda change: signed(change.result.shown_points), ordering="points")
    chance = display.column("p (Holm)", lambda change: "–" if change.p is None else p_text(change.p), ordering="p")
    interval = display.column("95 % interval", lambda change: interval_text(change.result.interval))
    judged = display.column(
        "judged, baseline · then", lambda change: f"{change.baseline_n:,} · {change.n:,}", ordering="n"
    )
    baseline_evaluation = display.column("baseline", lambda change: evaluation_link(change.baseline_run_id))
    evaluation = display.column("evaluation", lambda change: evaluation_link(change.evaluation_run_id))

    @admin.display(description="verdict", ordering="verdict")
    def outcome(self, change: Change) -> SafeString:
        """Return the verdict, with its reason. A changed count has no tone: more ideas are neither good nor bad."""
        result = change.result
        tone = "plain" if result.counted else TONES[result.verdict]
        return display.badge(result.verdict, tone, result.reason)
