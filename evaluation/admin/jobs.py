"""Jobs that a page of the console asked for: how far each is, and what came of it. Apps above have the pages that ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.module_loading import import_string
from django.utils.safestring import SafeString

from agents.kit.capability import declared
from agents.kit.console import display
from agents.kit.console.logs import LogAdmin
from agents.kit.console.site import console_page
from agents.kit.work.worker import alive
from evaluation.admin.display import evaluation_link, judge_badge
from evaluation.models import Job
from evaluation.runs.control import progress_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """What the console needs of a kind of job; the app that does such jobs names it under the kind in its `job_pages`.

    Attributes:
        asking: Name of the page that asks for one.
        permissions: What asking takes.
        result: Shows what a job did so far.
    """

    asking: str
    permissions: tuple[str, ...]
    result: Callable[[Job], SafeString]


@admin.register(Job)
class JobAdmin(LogAdmin[Job]):
    list_select_related = ("created_by",)
    state = display.column("state", lambda job: display.status_badge(job), ordering="status")

    @admin.display(description="of")
    def chosen(self, job: Job) -> SafeString | str:
        if "judge" in job.options:
            return judge_badge(job.options["judge"])
        return f"{job.total:,} agent{'' if job.total == 1 else 's'}"

    def get_panels(self, request: HttpRequest, obj: Job) -> list[SafeString]:
        is_open = obj.status in Job.OPEN
        runs = list(obj.evaluations.select_related("agent").order_by("pk"))
        progress = progress_of(runs) if is_open and runs else {}
        page: JobPage = import_string(declared("job_pages")[obj.kind])
        context = {
            "job": obj,
            "live": self.url("progress", obj) if is_open else "",
            "no_worker": is_open and not alive().exists(),
            "settled": sum(one.settled for one in progress.values()),
            "judgements": sum(one.total for one in progress.values()),
            "result": page.result(obj),
            "runs": [(evaluation_link(run.pk), display.status_badge(run)) for run in runs],
            "again": reverse(page.asking) if request.user.has_perms(page.permissions) else "",
        }
        return [render_to_string("admin/evaluation/job.html", context, request), *super().get_panels(request, obj)]

    @console_page("<int:pk>/progress/")
    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """How far it is, for the page that asks every two seconds whether anything changed."""
        job: Job = get_object_or_404(self.get_queryset(request), pk=pk)
        if not self.has_view_permission(request, job):
            return JsonResponse({}, status=403)
        runs = list(job.evaluations.all())
        settled = sum(one.settled for one in progress_of(runs).values()) if runs else 0
        return JsonResponse({"status": job.status, "done": job.done, "settled": settled})
