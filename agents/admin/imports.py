"""Imports in the console: files are handed in, checked, agreed to, and imported by a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.access import user_of
from agents.admin.import_pages import format_name, forms_of, outcome, page_context, size_of, state_badge, steps_of
from agents.adminsite import ReadOnlyAdmin
from agents.imports.choices import Choices, choices_of, may_import_personas, may_import_transcripts
from agents.imports.control import NotNow, agree, cancel, check_again, discard, hand_in, try_again
from agents.imports.receiving import files_were_too_large
from agents.models import Import
from agents.personas_io.reader import SUFFIXES

PAGES = "admin/agents/import/"
_ACTS: dict[str, tuple[Callable[[Import], None], str]] = {
    "cancel": (cancel, "is cancelled. What was stored stays."),
    "again": (try_again, "waits for a worker, which stores what is not stored yet."),
    "discard": (discard, "is discarded: its files are gone."),
}


@admin.register(Import)
class ImportAdmin(ReadOnlyAdmin[Import]):
    """Whoever may add messages or change agents may hand files in; what is done with them, only who handed them in decides."""

    list_display = ("name", "what", "state", "came_of_it", "handed_in_by")
    list_display_links = ("name",)
    list_filter = ("kind", "step", "status")
    list_select_related = ("created_by",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may_import_transcripts(user_of(request)) or may_import_personas(user_of(request))

    def has_view_permission(self, request: HttpRequest, obj: Import | None = None) -> bool:
        own = self.has_add_permission(request) and (obj is None or obj.created_by_id == request.user.pk)
        return super().has_view_permission(request, obj) or own

    def get_queryset(self, request: HttpRequest) -> QuerySet[Import]:
        rows = super().get_queryset(request).prefetch_related("files")
        if self._is_list(request):
            rows = rows.defer("found", "choices", "result", "error")
        return rows if super().has_view_permission(request) else rows.filter(created_by=user_of(request))

    @staticmethod
    def _is_list(request: HttpRequest) -> bool:
        found = request.resolver_match
        return found is not None and found.url_name == "agents_import_changelist"

    def get_urls(self) -> list[URLPattern]:
        views: list[tuple[str, Callable[..., HttpResponse], dict[str, Any]]] = [
            ("choose", self.choose_view, {}),
            ("progress", self.progress_view, {}),
            *((act, self.act_view, {"act": act}) for act in _ACTS),
        ]
        own = [
            path(f"<int:pk>/{name}/", self.admin_site.admin_view(view), kwargs=more, name=f"agents_import_{name}")
            for name, view, more in views
        ]
        return [*own, *super().get_urls()]

    @admin.display(description="import", ordering="pk")
    def name(self, job: Import) -> SafeString:
        return display.lines(f"#{job.pk}", display.moment(job.created_at))

    @admin.display(description="files")
    def what(self, job: Import) -> SafeString:
        files = list(job.files.all())
        names = ", ".join(file.name for file in files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
        told = f"{format_name(job)}, {size_of(sum(file.size for file in files))}"
        return display.lines(display.isolated(names) if names else display.EMPTY, told)

    @admin.display(description="state", ordering="status")
    def state(self, job: Import) -> SafeString:
        return state_badge(job)

    @admin.display(description="came of it")
    def came_of_it(self, job: Import) -> str | SafeString:
        return outcome(job) or display.EMPTY

    @admin.display(description="handed in by")
    def handed_in_by(self, job: Import) -> SafeString:
        return display.isolated(job.created_by) if job.created_by else display.EMPTY

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A form for files."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        problem = ""
        if request.method == "POST":
            uploads = [file for file in request.FILES.getlist("files") if file.size]
            problem = self._wrong_with(request, uploads)
            if not problem:
                try:
                    job = hand_in(uploads=uploads, user=user_of(request))
                except NotNow as refused:
                    problem = f"Nothing was kept: {refused}."
                else:
                    self.log_addition(request, job, f"handed in {len(uploads)} file{'s' * (len(uploads) > 1)}")
                    return HttpResponseRedirect(_page_url(job))
        return self.page(
            request,
            f"{PAGES}hand_in.html",
            "Import",
            steps=steps_of(None),
            problem=problem,
            most_bytes=settings.IMPORT_MOST_BYTES,
            most=size_of(settings.IMPORT_MOST_BYTES),
            keep_days=f"{settings.IMPORT_KEEP_DAYS:g}",
            persona_endings=", ".join(SUFFIXES),
            transcripts=may_import_transcripts(user_of(request)),
            personas=may_import_personas(user_of(request)),
        )

    def _wrong_with(self, request: HttpRequest, uploads: list[Any]) -> str:
        if files_were_too_large(request):
            return (
                f"The files are larger than {size_of(settings.IMPORT_MOST_BYTES)} together and were not kept. Import larger ones "
                "with manage.py import_transcript, or hand them in in parts."
            )
        if not uploads:
            return "Choose at least one file that is not empty."
        return ""

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Where an import stands, and what can be done about it."""
        job = self._found(request, int(object_id) if object_id.isdecimal() else 0)
        return self._show(request, job)

    def _show(self, request: HttpRequest, job: Import, **more: Any) -> HttpResponse:
        context = page_context(job, user=user_of(request), **more)
        context["may_add"] = self.has_add_permission(request)
        return self.page(request, f"{PAGES}page.html", f"Import {job.pk}", **context)

    def choose_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the choices: have the files checked with them, or, where nothing else is chosen, imported (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        job = self._own(request, pk)
        before, choices = choices_of(job.choices), None
        if job.kind == Import.Kind.PERSONAS and request.POST.get("format", "personas") in ("personas", "auto"):
            choices = Choices(format=request.POST.get("format", before.format), reset="reset" in request.POST)
        else:
            bound = forms_of(job, before, user_of(request), request.POST)
            speakers = bound.get("speakers")
            valid = [bound["options"].is_valid(), speakers is None or speakers.is_valid()]
            if not all(valid):
                return self._show(request, job, bound=bound)
            who = (speakers.agents, speakers.made) if speakers else ({}, {})
            if "without_agents" in request.POST:  # what is only proposed for the speakers does not count then
                who = (before.agents, before.made)
            choices = bound["options"].chosen(*who)
        return self._decide(request, job, choices, changed=choices != before)

    def _decide(self, request: HttpRequest, job: Import, choices: Choices, *, changed: bool) -> HttpResponse:
        try:
            if "import" in request.POST and not changed:
                agree(job, without_agents="without_agents" in request.POST)
                self.log_change(request, job, "import pressed")
            else:
                check_again(job, choices)
                if "import" in request.POST:
                    text = "You changed choices, so the files were checked with them first. Look at what they do, then import."
                    self.message_user(request, text, messages.WARNING)
        except NotNow as problem:
            self.message_user(request, f"Nothing was done: {problem}.", messages.ERROR)
        return HttpResponseRedirect(_page_url(job))

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Cancel, try again or discard (POST)."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        job = self._own(request, pk, or_superuser=act == "cancel")
        carry_out, done = _ACTS[act]
        try:
            carry_out(job)
        except NotNow as problem:
            self.message_user(request, f"Nothing was done: {problem}.", messages.ERROR)
        else:
            self.log_change(request, job, f"{act} pressed")
            self.message_user(request, f"Import {pk} {done}", messages.SUCCESS)
        return HttpResponseRedirect(_page_url(job))

    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """How far it is, for the page that asks every two seconds whether anything changed."""
        job = self._found(request, pk)
        return JsonResponse({"step": job.step, "status": job.status, "doing": job.doing, "done": job.done})

    def _found(self, request: HttpRequest, pk: int) -> Import:
        job = self.get_queryset(request).filter(pk=pk).first() if self.has_view_permission(request) else None
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            raise Http404(f"There is no import {pk}.")
        return job

    def _own(self, request: HttpRequest, pk: int, *, or_superuser: bool = False) -> Import:
        """The import, if whoever asks handed it in: it is imported with their permissions."""
        job = self._found(request, pk)
        if job.created_by_id != request.user.pk and not (or_superuser and user_of(request).is_superuser):
            raise PermissionDenied
        if not self.has_add_permission(request):
            raise PermissionDenied
        return job


def _page_url(job: Import) -> str:
    return reverse("admin:agents_import_change", args=[job.pk])
