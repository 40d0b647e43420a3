"""The buttons on an evaluation's page: cancel it, have it go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse

from agents.console.logs import LogAdmin
from evaluation.models import EvaluationRun
from evaluation.runs.control import CANCELLABLE, NotPossible, can_resume, cancel_run, resume_run

PERMISSION = "evaluation.change_evaluationrun"


class Button(NamedTuple):
    """A way to act on an evaluation, as its page shows it."""

    label: str
    url: str
    says: str


_ACTS: dict[str, tuple[Callable[[EvaluationRun], EvaluationRun], str]] = {
    "cancel": (cancel_run, "is cancelled; what was judged stays"),
    "resume": (resume_run, "waits for the worker (manage.py work), which asks only what is left"),
}


class ControlledRunAdmin(LogAdmin[EvaluationRun]):
    """Evaluations are a log that nobody edits; whoever may change them can cancel one and have it go on."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.act_view)
        own = [
            path(f"<int:pk>/{name}/", view, kwargs={"act": name}, name=f"evaluation_evaluationrun_{name}")
            for name in _ACTS
        ]
        return [*own, *super().get_urls()]

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Cancel or resume; the page of the evaluation says what came of it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not request.user.has_perm(PERMISSION):
            raise PermissionDenied
        run = EvaluationRun.objects.filter(pk=pk).first()
        if run is None:
            raise Http404(f"There is no evaluation {pk}.")
        carry_out, done = _ACTS[act]
        try:
            carry_out(run)
        except NotPossible as problem:
            self.message_user(request, f"Nothing was changed: {problem}.", messages.ERROR)
        else:
            self.log_change(request, run, f"{act} pressed")
            self.message_user(request, f"Evaluation {pk} {done}.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:evaluation_evaluationrun_change", args=[pk]))


def buttons_of(request: HttpRequest, run: EvaluationRun) -> list[Button]:
    """What the user may do with an evaluation as it stands."""
    if not request.user.has_perm(PERMISSION):
        return []
    if run.status in CANCELLABLE:
        return [Button("Cancel", _url("cancel", run), "Stops it; what was judged stays, and it can go on later.")]
    if can_resume(run):
        return [
            Button("Go on", _url("resume", run), "A worker asks what is left; stored judgements are not made again.")
        ]
    return []


def _url(act: str, run: EvaluationRun) -> str:
    return reverse(f"admin:evaluation_evaluationrun_{act}", args=[run.pk])
