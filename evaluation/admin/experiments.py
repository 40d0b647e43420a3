"""Experiments in the console: the list, the report of one, and going on or stopping."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.commands import Cell
from agents.console import display
from agents.console.logs import LogAdmin
from agents.console.panels import table
from agents.console.site import console_action
from agents.models import Channel
from evaluation.experiments.play import cancel, go_on
from evaluation.experiments.report import ExperimentReport, report
from evaluation.experiments.tables import headline, tables
from evaluation.models import Experiment

PLAYING = "evaluation.change_experiment"
TONES: dict[str, display.Tone] = {"good": "good", "better": "good", "bad": "bad", "warning": "warning"}


@admin.register(Experiment)
class ExperimentAdmin(LogAdmin[Experiment]):
    list_select_related = ("created_by",)
    state = display.column("state", lambda one: display.badge(one.state, "good" if one.report else "plain"))

    def get_panels(self, request: HttpRequest, obj: Experiment) -> list[SafeString]:
        shown = report(obj)
        may_change = request.user.has_perm(PLAYING) and obj.cancelled_at is None
        context: dict[str, Any] = {
            "shown": shown,
            "lines": list(headline(shown)),
            "tables": [
                (
                    title,
                    table(
                        [head.removeprefix(">") for head in heads], [list(map(_cell, row)) for row in rows], label=title
                    ),
                )
                for title, heads, rows in tables(shown)
            ],
            "conversations": _conversations(shown),
            "urls": {name: self.url(name, obj) for name in ("cancel", "resume")},
            "may_cancel": may_change and obj.measured_at is None,
            "may_resume": may_change and bool(shown.unfinished),
        }
        return [
            render_to_string("admin/evaluation/experiment.html", context, request),
            *super().get_panels(request, obj),
        ]

    @console_action("cancel", PLAYING)
    def cancel_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"Experiment {cancel(row).pk} is cancelled. What was said stays."

    @console_action("resume", PLAYING)
    def resume_view(self, request: HttpRequest, row: Experiment) -> str:
        return f"{go_on(row)} conversations are queued; the worker (manage.py work) plays them."


def _cell(cell: Cell) -> object:
    value, emphasis = cell if isinstance(cell, tuple) else (cell, "")
    if emphasis:
        return display.badge(value, TONES.get(emphasis, "plain"))
    return display.count(value) if isinstance(value, int | None) else display.visible(value)


def _conversations(shown: ExperimentReport) -> list[SafeString]:
    """Links to the conversations that speak most for and against."""
    slugs = {slug for one in (*shown.most_for, *shown.most_against) for slug in (*one.treatment, *one.control)}
    return [
        display.page_of(channel, channel.slug) for channel in Channel.objects.filter(slug__in=slugs).order_by("slug")
    ]
