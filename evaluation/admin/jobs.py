"""Jobs, which have no list: the page that asks for them shows the newest one, how far it is, and its result."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.site import add_pages
from agents.kit.work.worker import alive
from evaluation.admin.display import evaluation_link, judge_badge
from evaluation.models import Job
from evaluation.runs.control import progress_of

VIEW_JOBS = "evaluation.view_job"
PAGES = {Job.Kind.SUGGESTIONS: "admin:evaluation_job_suggest", Job.Kind.JUDGE_CHECK: "admin:evaluation_job_check"}
MOST_JOBS = 10  # of a kind, to choose from: the newest


def newest_job(request: HttpRequest, kind: Job.Kind, render_result: Callable[[Job], SafeString]) -> SafeString | str:
    """Render a job of a kind with its result and evaluations: that of ``?job=`` in the address, else the newest; with links to others.

    Empty where there is none, or the user may not see jobs.

    While it is open the page asks for its progress, and says so where no worker is there to do it.

    Args:
        render_result: Renders what the job did so far.
    """
    if not request.user.has_perm(VIEW_JOBS):
        return ""
    jobs_of_kind = Job.objects.filter(kind=kind).select_related("created_by").order_by("-pk")
    jobs = list(jobs_of_kind[:MOST_JOBS])
    if not jobs:
        return ""
    chosen = number_in(request.GET, "job")
    job = jobs[0]
    if chosen is not None:
        job = jobs_of_kind.filter(pk=chosen).first() or job
    runs = list(job.evaluations.select_related("agent").order_by("pk"))
    context = {
        "job": job,
        "judge": judge_badge(job.options["judge"]) if "judge" in job.options else "",
        "others": [(f"?job={other.pk}", other) for other in jobs if other.pk != job.pk],
        "result": render_result(job),
        "runs": [(evaluation_link(run.pk), display.status_badge(run)) for run in runs],
    }
    if job.status in Job.OPEN:
        progress = progress_of(runs).values() if runs else ()
        context["live"] = reverse("admin:evaluation_job_progress", args=[job.pk])
        context["no_worker"] = not alive().exists()
        context["settled"] = sum(run_progress.settled for run_progress in progress)
        context["judgements"] = sum(run_progress.total for run_progress in progress)
    return SafeString(render_to_string("admin/evaluation/job.html", context, request))


def job_progress(request: HttpRequest, pk: int) -> HttpResponse:
    """Answer how far a job is, for the page that asks every two seconds whether anything changed.

    ``done`` counts agents that were asked, ``settled`` judgements of its evaluations. 403 for users who may not see jobs, 404 for no job.
    """
    if not request.user.has_perm(VIEW_JOBS):
        raise PermissionDenied
    job = get_object_or_404(Job, pk=pk)
    runs = list(job.evaluations.all())
    settled = 0
    if runs:
        settled = sum(run_progress.settled for run_progress in progress_of(runs).values())
    return JsonResponse({"status": job.status, "done": job.done, "settled": settled})


def job_page(request: HttpRequest, pk: int) -> HttpResponse:
    """Lead to the page that asks for such jobs, which shows this one; 403 for users who may not see jobs, 404 for no job."""
    if not request.user.has_perm(VIEW_JOBS):
        raise PermissionDenied
    job = get_object_or_404(Job, pk=pk)
    return HttpResponseRedirect(f"{reverse(PAGES[Job.Kind(job.kind)])}?job={job.pk}")


def _urls() -> list[URLPattern]:
    return [
        path("evaluation/job/<int:pk>/change/", admin.site.admin_view(job_page), name="evaluation_job_change"),
        path("evaluation/job/<int:pk>/progress/", admin.site.admin_view(job_progress), name="evaluation_job_progress"),
    ]


add_pages(_urls)
