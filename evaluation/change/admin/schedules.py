"""What a schedule measured, and the alerts it raised that nobody acknowledged, in the console's list and pages of schedules."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.console import display
from agents.kit.console.panels import table
from evaluation.admin.display import evaluation_link, judge_badge, overall_meter
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule
from evaluation.runs.schedules import overlap_note
from evaluation.runs.summary import dimension_scores, shares_of, total

RUNS_SHOWN = 20


def fill_unseen(schedules: list[Any]) -> None:
    """Count the new alerts of each."""
    new = DriftAlert.objects.filter(schedule__in=schedules, acknowledged_at=None).order_by().values_list("schedule")
    unseen = dict(new.annotate(n=Count("pk")))
    for schedule in schedules:
        schedule.unseen = unseen.get(schedule.pk, 0)


@admin.display(description="new alerts")
def new_alerts(schedule: Any) -> SafeString | str:
    if not schedule.unseen:
        return display.EMPTY
    url = display.list_url(DriftAlert, schedule__id__exact=schedule.pk, acknowledged_at__isempty=1)
    return display.link(url, schedule.unseen)


def measured_panel(request: HttpRequest, schedule: EvaluationSchedule) -> SafeString:
    """The newest evaluations of agents it asked for."""
    schedule = EvaluationSchedule.objects.get(pk=schedule.pk)  # a form that was refused has put what was typed into it
    newest = schedule.runs.filter(agent__isnull=False).select_related("agent").order_by("-created_at", "-pk")
    runs = list(newest[:RUNS_SHOWN])
    shares, scores = shares_of([run.pk for run in runs]), dimension_scores(runs)
    judges = {run.judge for run in runs}
    rows = [
        (
            display.lines(evaluation_link(run.pk), display.moment(run.created_at)),
            agent_chip(run.agent),
            display.status_badge(run),
            overall_meter(run.overall_score, scores.get(run.pk, {}), share=total(shares[run.pk].values())),
            *([judge_badge(run.judge)] if len(judges) > 1 else []),
        )
        for run in runs
    ]
    heads = ("Evaluation", "Agent", "Status", "Overall score", *(["Judge"] if len(judges) > 1 else []))
    context = {
        "table": table(heads, rows, label="What it measured"),
        "judge": judge_badge(*judges) if len(judges) == 1 else "",
        "fired": display.moment(schedule.last_fired_at),
        "outcome": display.visible(schedule.last_outcome) if schedule.last_outcome else "",
        "note": overlap_note(schedule),
        "runs_url": display.list_url(EvaluationRun, schedule__id__exact=schedule.pk),
        "alerts_url": display.list_url(DriftAlert, schedule__id__exact=schedule.pk),
    }
    return render_to_string("admin/change/drift/history.html", context)
