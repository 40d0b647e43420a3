"""What comparing adds to the pages of evaluations and schedules: the page that compares two, and the alerts of a schedule."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.site import Button, add_pages
from evaluation.change.admin.comparison import compare_page
from evaluation.change.admin.drift_overview import compare_url
from evaluation.change.models import DriftAlert
from evaluation.models import EvaluationRun, EvaluationSchedule


# -- evaluations
@admin.action(description="Compare two")
def compare(model_admin: Any, request: HttpRequest, queryset: QuerySet[EvaluationRun]) -> HttpResponse | None:
    """Lead to the comparison of two chosen evaluations."""
    keys = sorted(queryset.values_list("pk", flat=True)[:3])
    if len(keys) != 2:
        model_admin.message_user(request, "Tick two evaluations to compare, no more and no fewer.", messages.ERROR)
        return None
    return HttpResponseRedirect(compare_url(baseline=keys[0], candidate=keys[1]))


def compare_buttons(request: HttpRequest, run: EvaluationRun) -> list[Button]:
    """Return the way from an evaluation of an agent to its comparison."""
    if run.agent is None or run.is_baseline:
        return []
    url = compare_url(agent=run.agent.slug, candidate=run.pk)
    return [Button(label="compare", url=url, why="with the baseline, or with any other evaluation")]


def compare_view(request: HttpRequest) -> HttpResponse:
    """Show the comparison of any two measurements."""
    if not request.user.has_perm("evaluation.view_evaluationrun"):
        raise PermissionDenied
    run_admin: Any = admin.site.get_model_admin(EvaluationRun)
    return compare_page(run_admin, request)


def _compare_urls() -> list[URLPattern]:
    page = admin.site.admin_view(compare_view)
    return [path("evaluation/evaluationrun/compare/", page, name="evaluation_evaluationrun_compare")]


add_pages(_compare_urls)


# -- schedules
def fill_unseen(schedules: list[Any]) -> None:
    """Set `unseen` of schedules: how many of their alerts nobody acknowledged."""
    alerts = DriftAlert.objects.filter(schedule__in=schedules, acknowledged_at=None).order_by()
    unseen = dict(alerts.values_list("schedule").annotate(n=Count("pk")))
    for schedule in schedules:
        schedule.unseen = unseen.get(schedule.pk, 0)


@admin.display(description="new alerts")
def new_alerts(schedule: Any) -> SafeString | str:
    """Return how many alerts of a schedule are new, linked to them."""
    if not schedule.unseen:
        return display.EMPTY
    url = display.list_url(DriftAlert, schedule__id__exact=schedule.pk, acknowledged_at__isempty=1)
    return display.link(url, schedule.unseen)


def alerts_buttons(request: HttpRequest, schedule: EvaluationSchedule) -> list[Button]:
    """Return the way from a schedule to its alerts."""
    url = display.list_url(DriftAlert, schedule__id__exact=schedule.pk)
    return [Button(label="Its alerts", url=url)]
