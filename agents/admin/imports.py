"""Imports in the console: upload a transcript, choose on one page how it is read, let a worker import it, undo that."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.files import File
from django.core.files.base import ContentFile
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.import_forms import ImportForm, suggested_agents
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.site import ReadOnlyAdmin, console_action, console_page
from agents.kit.work.worker import alive
from agents.models import Agent, Channel, Import
from agents.personas.persona import Outcome
from agents.personas.reader import SUFFIXES
from agents.transcripts.imports import personas
from agents.transcripts.imports.jobs import NotNow, cancel, discard, may_import, preview, submit, undo, upload
from agents.transcripts.imports.uploads import files_were_too_large, is_stored
from agents.transcripts.readers import FORMATS

PAGES = "admin/agents/import/"
UNREAD = "Why is shown to the user who uploaded it, and to those who may view messages."
MOST_SAID = 20  # personas
MOST_UNFOLDED = 3  # personas of a preview that stand there in full
MOST_PREVIEWED = 1024 * 1024  # bytes of personas that the page of the preview holds; more are imported at once
_OUTCOMES = {
    Outcome.CREATED: "new",
    Outcome.UPDATED: "changed",
    Outcome.UNCHANGED: "as in the file already",
    Outcome.KEPT_EDITED: "stays as it is: edited here, or not from an import",
}
_NOTES = {
    "undated": "messages without a time",
    "system_prompts": "system prompts, which are not messages",
    "other_author": "are stored under another author and keep it; with another name of the channel they are imported for this one",
    "replaced_characters": "characters that cannot be stored, replaced by U+FFFD",
    "cut_texts": "texts cut for their length",
    "replies_without_parent": "replies whose parent is not there",
}


@admin.register(Import)
class ImportAdmin(ReadOnlyAdmin[Import]):
    """Users who may add messages may upload transcripts; only the uploader decides what is done with them."""

    list_select_related = ("created_by",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_import(user_of(request)) or personas.may_import(user_of(request))

    def has_view_permission(self, request: HttpRequest, obj: Import | None = None) -> bool:
        own = self.has_add_permission(request) and (obj is None or obj.created_by_id == request.user.pk)
        return super().has_view_permission(request, obj) or own

    def get_queryset(self, request: HttpRequest) -> QuerySet[Import]:
        rows = super().get_queryset(request)
        if request.resolver_match is not None and request.resolver_match.url_name == "agents_import_changelist":
            rows = rows.defer("contents", "choices", "result", "error")
        return rows if super().has_view_permission(request) else rows.filter(created_by=user_of(request))

    @admin.display(description="state", ordering="status")
    def state(self, job: Import) -> SafeString:
        if job.undoing and job.status in Import.OPEN:
            return display.badge("being undone", "info")
        words: dict[str, tuple[str, display.Tone]] = {
            Import.WAITING: ("waits for your choices", "accent"),
            Import.Status.PENDING: ("waits for a worker", "plain"),
            Import.Status.RUNNING: ("being imported", "info"),
            Import.Status.COMPLETED: ("imported", "good"),
            Import.Status.FAILED: ("cannot be imported as it is", "warning"),
            Import.UNDONE: ("undone", "plain"),
        }
        return display.badge(
            *words.get(job.status, (job.get_status_display(), display.STATUS_TONES.get(job.status, "plain")))
        )

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A form for a transcript, which becomes an import, or for personas, which are imported at once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        user, problem, most = user_of(request), "", filesizeformat(settings.IMPORT_MOST_BYTES)
        files: list[File[bytes]] = [file for file in request.FILES.getlist("files") if file.size]
        if request.method == "POST":
            try:
                files += _held_files(request)
                if files_were_too_large(request):
                    raise NotNow(f"larger than {most} together; use manage.py import_transcript, or upload it in parts")
                if not files:
                    raise NotNow("choose at least one file that is not empty")
                if "preview" in request.POST and sum(file.size for file in files) <= MOST_PREVIEWED:
                    return self._preview_personas(request, files)
                if "personas" in request.POST or "preview" in request.POST:
                    return self._import_personas(request, files)
                if not may_import(user):
                    raise NotNow("uploading messages needs the permission agents.add_message")
                if len(files) > 1:
                    raise NotNow("upload one transcript at a time: each becomes an import of its own")
                job = upload(upload=files[0], user=user)
            except (NotNow, personas.NotImported) as refused:
                problem = f"Nothing was stored: {refused}."
            else:
                self.log_addition(request, job, "uploaded")
                return HttpResponseRedirect(self.url("change", job))
        return self.page(
            request,
            f"{PAGES}upload.html",
            "Import",
            problem=problem,
            most_bytes=settings.IMPORT_MOST_BYTES,
            most=most,
            keep_days=f"{settings.IMPORT_KEEP_DAYS:g}",
            formats=[form.label for form in FORMATS.values()],
            persona_endings=", ".join(SUFFIXES),
            transcripts=may_import(user),
            personas=personas.may_import(user),
        )

    def _preview_personas(self, request: HttpRequest, files: Sequence[File[bytes]]) -> HttpResponse:
        """What importing them would do; the button carries it out with the same files, which the page holds."""
        reset, held = "reset" in request.POST, []
        rows = personas.preview_uploaded(files, user=user_of(request), reset=reset)
        show = display.block if len(rows) <= MOST_UNFOLDED else display.folded
        for file in files:
            file.seek(0)
            held.append((file.name, b64encode(file.read()).decode("ascii")))
        return self.page(
            request,
            f"{PAGES}personas.html",
            "Import personas",
            rows=[
                (result.agent, _OUTCOMES[result.outcome], result.changed, show(persona))
                for result, persona in rows[:MOST_SAID]
            ],
            more=max(0, len(rows) - MOST_SAID),
            held=held,
            reset=reset,
            number=sum(1 for result, _ in rows if result.outcome in (Outcome.CREATED, Outcome.UPDATED)),
        )

    def _import_personas(self, request: HttpRequest, files: Sequence[File[bytes]]) -> HttpResponse:
        results = personas.import_uploaded(files, user=user_of(request), reset="reset" in request.POST)
        for result in results[:MOST_SAID]:
            tone = messages.WARNING if result.outcome == Outcome.KEPT_EDITED else messages.SUCCESS
            text = format_html("{}: {}", display.visible(result.agent.display_name), _OUTCOMES[result.outcome])
            if result.outcome == Outcome.CREATED and may_import(user_of(request)):
                text = format_html("{}. {}", text, display.link(self.url("add"), "Import its conversations"))
            self.message_user(request, text, tone)
        if len(results) > MOST_SAID:
            self.message_user(request, f"{len(results) - MOST_SAID} more personas were imported.", messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:agents_agent_changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Where an import is, its form, and what it stored."""
        return self._show(request, self._visible(request, int(object_id) if object_id.isdecimal() else 0))

    def _show(self, request: HttpRequest, job: Import, form: ImportForm | None = None) -> HttpResponse:
        user = user_of(request)
        mine, may_add = job.created_by_id == user.pk, self.has_add_permission(request)
        stored_file = job.status in Import.EDITABLE and is_stored(job)
        can_edit = stored_file and mine and may_add
        may_read = mine or user.has_perm("agents.view_message")
        read_as = FORMATS.get(job.contents.get("format", ""))
        context = {
            "job": job,
            "state": self.state(job),
            "format": read_as.label if read_as else "not recognised",
            "error": job.error if may_read or not job.error else UNREAD,  # it may quote the file
            "progress": _progress(job),
            "may_add": may_add,
            "mine": mine,
            "is_stored": stored_file,
            "can_edit": can_edit,
            "can_cancel": job.status in Import.OPEN and (mine or user.is_superuser),
            "can_undo": mine and may_add and bool(job.stored) and job.status not in (*Import.OPEN, Import.UNDONE),
            "urls": {name: self.url(name, job) for name in ("choose", "cancel", "discard", "undo")},
        }
        if can_edit:
            context |= {"form": form or ImportForm(None, job=job), "suggested": suggested_agents()}
        if job.status in Import.EDITABLE and "new" in job.contents:
            contents = job.contents
            context["contents"] = _shown(job, may_read=may_read)
            context["tagged"] = [name for field, name in job.choices["columns"].items() if field.startswith("tags.")]
            context["can_import"] = (
                can_edit and not contents["refusal"] and (contents["new"] or not contents["complete"])
            )
        if job.result:
            context["result"] = _result(job)
            context["panels"] = self.get_panels(request, job) if job.stored else []
        return self.page(request, f"{PAGES}page.html", f"Import {job.pk}", **context)

    @console_page("<int:pk>/choose/", post=True)
    def choose_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the form (POST): import the file, or look into it again with other choices."""
        job = self._own(request, pk)
        form = ImportForm(request.POST, job=job)
        if not form.is_valid():
            return self._show(request, job, form)
        try:
            if "import" in request.POST:
                submit(job, form.options)
                self.log_change(request, job, "import pressed")
            else:
                preview(job, form.options)
        except NotNow as problem:
            self.message_user(request, f"Nothing was done: {problem}.", messages.ERROR)
        return HttpResponseRedirect(self.url("change", job))

    @console_action("cancel")
    def cancel_view(self, request: HttpRequest, row: Import) -> str:
        return self._decide(request, row, cancel, "is cancelled. What was stored stays.", or_superuser=True)

    @console_action("discard")
    def discard_view(self, request: HttpRequest, row: Import) -> str:
        return self._decide(request, row, discard, "is discarded: its file is deleted.")

    @console_action("undo")
    def undo_view(self, request: HttpRequest, row: Import) -> str:
        return self._decide(request, row, undo, "is being undone by a worker.")

    def _decide(
        self, request: HttpRequest, job: Import, carry_out: Callable[[Import], None], done: str, **who: bool
    ) -> str:
        self._own(request, job.pk, **who)
        try:
            carry_out(job)
        except NotNow as problem:
            raise ValueError(str(problem)) from None
        return f"Import {job.pk} {done}"

    @console_page("<int:pk>/progress/")
    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Its progress, for the page that asks every two seconds whether anything changed."""
        job = self._visible(request, pk)
        return JsonResponse({"status": job.status, "doing": job.doing, "done": job.done})

    def _visible(self, request: HttpRequest, pk: int) -> Import:
        job = self.get_queryset(request).filter(pk=pk).first() if self.has_view_permission(request) else None
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            raise Http404(f"There is no import {pk}.")
        return job

    def _own(self, request: HttpRequest, pk: int, *, or_superuser: bool = False) -> Import:
        """The import, if this user uploaded it: it is imported with their permissions."""
        job = self._visible(request, pk)
        if job.created_by_id != request.user.pk and not (or_superuser and user_of(request).is_superuser):
            raise PermissionDenied
        if not self.has_add_permission(request):
            raise PermissionDenied
        return job


def _held_files(request: HttpRequest) -> list[File[bytes]]:
    """The files that the page of a preview holds."""
    names, contents = (request.POST.getlist(field) for field in ("name", "content"))
    try:
        return [ContentFile(b64decode(content), name) for name, content in zip(names, contents, strict=True)]
    except ValueError:
        raise NotNow("what the page of the preview held came back damaged; choose the files again") from None


def _progress(job: Import) -> dict[str, Any] | None:
    if job.status not in Import.OPEN:
        return None
    return {
        "url": reverse("admin:agents_import_progress", args=[job.pk]),
        "waits": job.status == Import.Status.PENDING,
        "no_worker": job.status == Import.Status.PENDING and not alive().exists(),
        "doing": job.doing or ("Deleting" if job.undoing else "Importing"),
        "done": job.done,
        "total": job.total,
        "share": f"{min(100, 100 * job.done // job.total)} %" if job.total else "",
        "counts": job.doing in ("Importing", "Comparing", "Deleting"),
    }


def _shown(job: Import, *, may_read: bool) -> dict[str, Any]:
    """What the file holds, with links to what is here already."""
    contents = job.contents
    links = _channel_links(dict(contents["channels"]))
    return {
        **contents,
        "duplicates": contents["messages"] - contents["new"],
        "notes": [*(contents.get("warnings", ()) if may_read else ()), *_notes(contents)],
        "channels": [(slug, links.get(slug), count) for slug, count in contents["channels"]],
        "sample": contents.get("sample", ()) if may_read else (),
    }


def _result(job: Import) -> dict[str, Any]:
    """What was imported, with links to it."""
    result = job.result
    links = _channel_links(result["channels"])
    return {
        **result,
        "channels": [links.get(slug, display.isolated(slug)) for slug in result["channels"]],
        "more_channels": max(0, result["channels_total"] - len(result["channels"])),
        "speaking": list(Agent.objects.filter(slug__in=result["spoke"])),
        "notes": _notes(result),
        "there": max(0, result["imported"] + result["duplicates"] - job.stored) if job.stored else 0,
    }


def _notes(report: Mapping[str, Any]) -> list[str]:
    """What else a report says, one sentence each."""
    skipped = [f"{count:,} skipped: {reason}" for reason, count in report["skipped_by_reason"].items()]
    sent = [f"sent from {_span(report)}"] if report.get("first_sent_at") else []
    return (
        list(report.get("warnings", ()))
        + sent
        + skipped
        + [f"{report[key]:,} {words}" for key, words in _NOTES.items() if report.get(key)]
    )


def _span(report: Mapping[str, Any]) -> str:
    ends = (datetime.fromisoformat(report[key]) for key in ("first_sent_at", "last_sent_at"))
    return " to ".join(date_format(timezone.localtime(at), "j M Y, H:i") for at in ends)


def _channel_links(slugs: Collection[str]) -> dict[str, SafeString]:
    """Links to the channels that exist, by slug."""
    return {
        channel.slug: display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)
        for channel in Channel.objects.filter(slug__in=slugs)
    }
