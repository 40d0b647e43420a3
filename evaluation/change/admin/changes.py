"""The changes that were stored: a list to filter, and each with what it rests on."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.logs import LogAdmin
from agents.kit.text.wording import interval_text, signed
from evaluation.admin.display import TONES, evaluation_link, judged_by
from evaluation.change.models import Change
from evaluation.change.overview import numbers_of


@admin.register(Change)
class ChangeAdmin(LogAdmin[Change]):
    list_select_related = ("agent",)
    judge_mark = display.column("judge", judged_by, ordering="judge")
    scores = display.column("baseline → then", lambda row: numbers_of(row.result))
    difference = display.column("points", lambda row: signed(row.points), ordering="points")
    chance = display.column("p (Holm)", lambda row: "–" if row.p is None else f"{row.p:.2g}", ordering="p")
    interval = display.column("95 % interval", lambda row: interval_text(row.result.interval))
    judged = display.column("judged, baseline · then", lambda row: f"{row.baseline_n:,} · {row.n:,}", ordering="n")
    baseline_evaluation = display.column("baseline", lambda row: evaluation_link(row.baseline_run_id))
    evaluation = display.column("evaluation", lambda row: evaluation_link(row.evaluation_run_id))

    @admin.display(description="verdict", ordering="verdict")
    def outcome(self, row: Change) -> SafeString:
        result = row.result
        return display.badge(result.verdict, "plain" if result.counted else TONES[result.verdict], result.reason)
