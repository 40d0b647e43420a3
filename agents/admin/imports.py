"""Imports in the console: upload files of any kind, answer what they do not say for certain, let a worker import them, undo that."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from django.conf import settings
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.files import File
from django.core.files.base import ContentFile
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.import_forms import ImportForm, suggested_agents
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.filters import whole_number
from agents.kit.console.site import ReadOnlyAdmin, console_action, console_page
from agents.kit.text.wording import time_text
from agents.kit.work.worker import alive
from agents.models import Agent, Channel, Import
from agents.personas.persona import Outcome, UpsertResult
from agents.personas.reader import SUFFIXES
from agents.transcripts.importer import ReadOptions, count_notes
from agents.transcripts.imports import personas
from agents.transcripts.imports.jobs import (
    MOST_UNFINISHED,
    NotNow,
    answer,
    cancel,
    check_room,
    discard,
    may_import,
    preview,
    stored_of,
    submit,
    undo,
    upload,
)
from agents.transcripts.imports.questions import open_question, questions_of
from agents.transcripts.imports.recognise import sort_files
from agents.transcripts.imports.uploads import files_were_too_large, is_stored, plain_name
from agents.transcripts.readers import FORMATS

PAGES = "admin/agents/import/"
HIDDEN_ERROR = "Why is shown to the user who uploaded it, and to those who may view messages."
MOST_SAID = 20  # personas that are named; the others are counted
MOST_UNFOLDED = 3  # personas of a preview that stand there in full
MOST_PREVIEWED = 1024 * 1024  # bytes of personas that the page of the preview holds; more are imported at once
_OUTCOMES = {
    Outcome.CREATED: "new",
    Outcome.UPDATED: "changed",
    Outcome.UNCHANGED: "as in the file already",
    Outcome.KEPT_EDITED: "stays as it is: edited here, or not from an import",
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
        """Return a badge with what happens to an import; one that is being undone has the statuses of work, too."""
        if job.undoing and job.status in Import.OPEN:
            return display.badge("being undone", "info")
        labels: dict[str, tuple[str, display.Tone]] = {
            Import.WAITING: ("waits for your choices", "accent"),
            Import.Status.PENDING: ("waits for a worker", "plain"),
            Import.Status.RUNNING: ("being imported", "info"),
            Import.Status.COMPLETED: ("imported", "good"),
            Import.Status.FAILED: ("cannot be imported as it is", "warning"),
            Import.UNDONE: ("undone", "plain"),
        }
        if job.status not in labels:
            return display.status_badge(job)
        label, tone = labels[job.status]
        return display.badge(label, tone)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the form for files of any kind; POST takes it: transcripts become imports, personas are previewed."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        user = user_of(request)
        problem = ""
        if request.method == "POST":
            try:
                return self._take_files(request)
            except (NotNow, personas.NotImported) as refused:
                problem = f"Nothing was stored: {refused}."
        return self.page(
            request,
            f"{PAGES}upload.html",
            "Import",
            problem=problem,
            most_bytes=settings.IMPORT_MOST_BYTES,
            most=filesizeformat(settings.IMPORT_MOST_BYTES),
            jobs=self._imports_to_go_on_with(request),
            keep_days=f"{settings.IMPORT_KEEP_DAYS:g}",
            formats=[form.label for form in FORMATS.values()],
            read_as=request.POST.get("read_as", ""),
            persona_endings=", ".join(SUFFIXES),
            transcripts=may_import(user),
            personas=personas.may_import(user),
        )

    def _take_files(self, request: HttpRequest) -> HttpResponse:
        """Take the files of the form, or those that the preview of personas holds when its button is pressed.

        Empty files are left out. Transcripts become an import each; the first is shown, after the preview of personas if there are any:
        agents have to be there before their messages are. Personas of more than 1 MB are imported without a preview, whose page could
        not hold them. Nothing is stored where a file is refused.

        Raises:
            NotNow, NotImported: They are refused, or the user may not upload them.
        """
        if "personas" in request.POST:
            return self._import_personas(request, _files_held_by_preview(request), self._imports_to_go_on_with(request))
        if files_were_too_large(request):
            most = filesizeformat(settings.IMPORT_MOST_BYTES)
            raise NotNow(f"larger than {most} together; use manage.py import_transcript, or upload it in parts")
        uploaded: list[File[bytes]] = [file for file in request.FILES.getlist("files") if file.size]
        if not uploaded:
            raise NotNow("choose at least one file that is not empty")
        user = user_of(request)
        files = sort_files(uploaded, read_as=request.POST.get("read_as", ""))
        if files.transcripts and not may_import(user):
            names = ", ".join(plain_name(file.name or "") for file in files.transcripts[:3])
            raise NotNow(f"uploading messages ({names}) needs the permission agents.add_message")
        check_room(user=user, files=len(files.transcripts))
        previews = None
        if files.personas:
            previews = personas.preview_uploaded(files.personas, user=user, reset=False)
        jobs = self._imports_to_go_on_with(request)
        for file in files.transcripts:
            job = upload(upload=file, user=user)
            self.log_addition(request, job, "uploaded")
            jobs.append(job)
        if previews is None:
            return HttpResponseRedirect(self.url("change", jobs[-len(files.transcripts)]))
        if sum(file.size for file in files.personas) > MOST_PREVIEWED:
            return self._import_personas(request, files.personas, jobs)
        return self._show_preview(request, files.personas, previews, jobs)

    def _imports_to_go_on_with(self, request: HttpRequest) -> list[Import]:
        """Return the imports that wait for personas, as the form holds them: uploaded together with these, or in need of them."""
        parameters = request.POST if request.method == "POST" else request.GET
        keys = [key for key in parameters.getlist("import") if key.isdecimal() and len(key) < 19]
        return list(stored_of(user_of(request)).filter(pk__in=keys[:MOST_UNFINISHED], status__in=Import.EDITABLE))

    def _show_preview(
        self,
        request: HttpRequest,
        files: Sequence[File[bytes]],
        previews: Sequence[tuple[UpsertResult, str]],
        jobs: Sequence[Import],
    ) -> HttpResponse:
        """Show what importing personas would do; the button carries it out with the same files, which the page holds.

        At most 20 personas are shown and the others counted; up to three stand there in full, more are folded.
        """
        show_persona = display.block if len(previews) <= MOST_UNFOLDED else display.folded
        rows = []
        for result, persona in previews[:MOST_SAID]:
            rows.append((result.agent, _OUTCOMES[result.outcome], result.changed, show_persona(persona)))
        changing = (Outcome.CREATED, Outcome.UPDATED)
        files_sent = []
        for file in files:
            file.seek(0)
            files_sent.append((file.name, b64encode(file.read()).decode("ascii")))
        return self.page(
            request,
            f"{PAGES}personas.html",
            "Import personas",
            rows=rows,
            more=max(0, len(previews) - MOST_SAID),
            held=files_sent,
            jobs=jobs,
            number=sum(result.outcome in changing for result, _ in previews),
            kept=sum(result.outcome == Outcome.KEPT_EDITED for result, _ in previews),
        )

    def _import_personas(
        self, request: HttpRequest, files: Sequence[File[bytes]], jobs: Sequence[Import]
    ) -> HttpResponse:
        """Import personas, and tell the user what became of each: of 20 by name, of more how many.

        Leads to the first of the imports that were uploaded with them, whose speakers are recognised again; without one to the list of
        agents. Personas that were edited here stay as they are, unless ``reset`` is chosen.

        Raises:
            NotImported: They cannot be read, or the user may not import them; nothing is imported.
        """
        results = personas.import_uploaded(files, user=user_of(request), reset="reset" in request.POST)
        for result in results[:MOST_SAID]:
            tone = messages.WARNING if result.outcome == Outcome.KEPT_EDITED else messages.SUCCESS
            text = format_html("{}: {}", display.visible(result.agent.display_name), _OUTCOMES[result.outcome])
            if result.outcome == Outcome.CREATED and not jobs and may_import(user_of(request)):
                text = format_html("{}. {}", text, display.link(self.url("add"), "Import its conversations"))
            self.message_user(request, text, tone)
        if len(results) > MOST_SAID:
            self.message_user(request, f"{len(results) - MOST_SAID} more personas were imported.", messages.SUCCESS)
        for job in jobs:
            with suppress(NotNow):  # it was begun or discarded meanwhile
                preview(job, ReadOptions(**job.choices))
        if jobs:
            return HttpResponseRedirect(self.url("change", jobs[0]))
        return HttpResponseRedirect(reverse("admin:agents_agent_changelist"))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show how far an import is, its form, and what it stored."""
        key = whole_number(object_id) or 0
        return self._show(request, self._visible(request, key))

    def _show(self, request: HttpRequest, job: Import, form: ImportForm | None = None) -> HttpResponse:
        """Show the page of an import, with what the user may do and see of it.

        Its uploader decides, while the file is stored; the error and what was said in the file, which may be private, are for them and for
        those who may view messages.

        Args:
            form: One that was refused, to be shown with its errors; None = the stored choices.
        """
        user = user_of(request)
        is_own = job.created_by_id == user.pk
        may_add = self.has_add_permission(request)
        may_read = is_own or user.has_perm("agents.view_message")
        is_open = job.status in Import.OPEN
        is_editable = job.status in Import.EDITABLE
        has_file = is_editable and is_stored(job)
        can_edit = has_file and is_own and may_add
        read_as = FORMATS.get(job.contents.get("format", ""))
        context: dict[str, Any] = {
            "job": job,
            "state": self.state(job),
            "format": read_as.label if read_as else "not recognised",
            "error": job.error if may_read or not job.error else HIDDEN_ERROR,  # it may quote the file
            "progress": _progress(job),
            "may_add": may_add,
            "is_own": is_own,
            "is_stored": has_file,
            "can_edit": can_edit,
            "can_cancel": is_open and (is_own or user.is_superuser),
            "can_undo": is_own and may_add and bool(job.stored) and not is_open and job.status != Import.UNDONE,
            "urls": {name: self.url(name, job) for name in ("answer", "choose", "cancel", "discard", "undo")},
        }
        if is_own and may_add:
            context["waiting"] = list(stored_of(user).filter(status__in=Import.EDITABLE).exclude(pk=job.pk))
        if can_edit:
            context["form"] = form or ImportForm(None, job=job)
            context["suggested"] = suggested_agents()
            context["may_import_personas"] = personas.may_import(user)
            context |= _questions_shown(job, request.GET.get("question", ""))
        if is_editable and "new" in job.contents:
            context |= _contents_shown(job, may_read=may_read)
            has_new_messages = job.contents["new"] or not job.contents["complete"]
            context["can_import"] = can_edit and not job.contents["refusal"] and has_new_messages
        if job.result:
            context["result"] = _result_shown(job)
            context["panels"] = self.get_panels(request, job) if job.stored else []
        return self.page(request, f"{PAGES}page.html", f"Import {job.pk}", **context)

    @console_page("<int:pk>/answer/", post=True)
    def answer_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the answer to a question about the file, or import it as it is read now (POST)."""
        job = self._own(request, pk)
        try:
            if "import" in request.POST:
                submit(job, ReadOptions(**job.choices))
                self.log_change(request, job, "import pressed")
            else:
                # Names of speakers and columns are sent as parts of a URL are: they may hold any character.
                values = [unquote(value) for value in request.POST.getlist("answer")]
                answer(job, question_id=unquote(request.POST.get("question", "")), values=values)
        except NotNow as problem:
            self.message_user(request, f"Nothing was done: {problem}.", messages.ERROR)
        return HttpResponseRedirect(self.url("change", job))

    @console_page("<int:pk>/choose/", post=True)
    def choose_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the form of all settings (POST): look into the file again with them; shown again where a choice is impossible."""
        job = self._own(request, pk)
        form = ImportForm(request.POST, job=job)
        if not form.is_valid():
            self.message_user(request, "Nothing was changed: see what is wrong among the settings.", messages.ERROR)
            return self._show(request, job, form)
        try:
            preview(job, form.options, answers=form.answers)
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
        """Carry out a decision of the user who uploaded the import; return what the page says of it.

        Args:
            done: What the page says after ``Import 12``.
            who: ``or_superuser=True`` lets a superuser decide, too.

        Raises:
            ValueError: It cannot be done now; says why.
            PermissionDenied, Http404: See `_own`.
        """
        self._own(request, job.pk, **who)
        try:
            carry_out(job)
        except NotNow as problem:
            raise ValueError(str(problem)) from None
        return f"Import {job.pk} {done}"

    @console_page("<int:pk>/progress/")
    def progress_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Answer the page, which asks every two seconds whether anything changed."""
        job = self._visible(request, pk)
        return JsonResponse({"status": job.status, "doing": job.doing, "done": job.done})

    def _visible(self, request: HttpRequest, pk: int) -> Import:
        """Return the import with this key, if the user may view it.

        Raises:
            PermissionDenied: They may view no imports, or not this one.
            Http404: There is none that they could view.
        """
        job = self.get_queryset(request).filter(pk=pk).first() if self.has_view_permission(request) else None
        if not self.has_view_permission(request, job):
            raise PermissionDenied
        if job is None:
            raise Http404(f"There is no import {pk}.")
        return job

    def _own(self, request: HttpRequest, pk: int, *, or_superuser: bool = False) -> Import:
        """Return the import, if this user uploaded it: it is imported with their permissions.

        Raises:
            PermissionDenied: They did not (nor is a superuser allowed and they are one), or may not upload anything any more.
            Http404: There is none that they could view.
        """
        job = self._visible(request, pk)
        is_own = job.created_by_id == request.user.pk
        is_allowed_superuser = or_superuser and user_of(request).is_superuser
        if not is_own and not is_allowed_superuser:
            raise PermissionDenied
        if not self.has_add_permission(request):
            raise PermissionDenied
        return job


def _questions_shown(job: Import, question_id: str) -> dict[str, Any]:
    """Return the question that is asked now, those before it, which can be answered again, and how many are open.

    Args:
        question_id: The question that the user wants to answer again.
    """
    questions = questions_of(job)
    current = next((question for question in questions if question.id == question_id), open_question(questions))
    settled = [question for question in questions if not question.is_open and question is not current]
    before = questions[: questions.index(current)] if current else []
    return {
        "question": current,
        "settled": settled,
        "back": before[-1] if before else None,
        "open": sum(question.is_open for question in questions),
    }


def _files_held_by_preview(request: HttpRequest) -> list[File[bytes]]:
    """Return the files that the page of a preview holds, as its button sends them."""
    names = request.POST.getlist("name")
    contents = request.POST.getlist("content")
    try:
        return [ContentFile(b64decode(content), name) for name, content in zip(names, contents, strict=True)]
    except ValueError:
        raise NotNow("what the page of the preview held came back damaged; choose the files again") from None


def _progress(job: Import) -> dict[str, Any] | None:
    """Return what the page shows of work on an import; None while there is none."""
    if job.status not in Import.OPEN:
        return None
    is_waiting = job.status == Import.Status.PENDING
    share = ""
    if job.total:
        share = f"{min(100, 100 * job.done // job.total)} %"
    return {
        "url": reverse("admin:agents_import_progress", args=[job.pk]),
        "waits": is_waiting,
        "no_worker": is_waiting and not alive().exists(),
        "doing": job.doing or ("Deleting" if job.undoing else "Importing"),
        "done": job.done,
        "total": job.total,
        "share": share,
        "counts": job.doing in ("Importing", "Comparing", "Deleting"),  # of these `done` and `total` are messages
    }


def _contents_shown(job: Import, *, may_read: bool) -> dict[str, Any]:
    """Return what the page shows of the file: its contents, with links to channels that are here, and columns stored as tags.

    Args:
        may_read: Whether the user may read what was said in it; else the sample is left out.
    """
    contents = job.contents
    links = _channel_links(dict(contents["channels"]))
    warnings = contents.get("warnings", ()) if may_read else ()
    page_contents = {
        **contents,
        "duplicates": contents["messages"] - contents["new"],
        "warnings": warnings,
        "notes": _notes(contents),
        "channels": [(slug, links.get(slug), count) for slug, count in contents["channels"]],
        "sample": contents.get("sample", ()) if may_read else (),
    }
    tagged = [name for field, name in job.choices["columns"].items() if field.startswith("tags.")]
    return {"contents": page_contents, "tagged": tagged}


def _result_shown(job: Import) -> dict[str, Any]:
    """Return what was imported, with links to it."""
    result = job.result
    links = _channel_links(result["channels"])
    there_before = 0
    if job.stored:
        # What an earlier try of this import stored is among the duplicates, and yet was not there before. Without `stored` (nothing
        # was new, or it is undone) the page says nothing of this number.
        there_before = max(0, result["imported"] + result["duplicates"] - job.stored)
    return {
        **result,
        "channels": [links.get(slug, display.isolated(slug)) for slug in result["channels"]],
        "more_channels": max(0, result["channels_total"] - len(result["channels"])),
        "speaking": list(Agent.objects.filter(slug__in=result["spoke"])),
        "notes": _notes(result),
        "there": there_before,
    }


def _notes(report: Mapping[str, Any]) -> list[str]:
    """Return what else a report says, one sentence each, such as ``12 skipped: no text``; nothing for what did not happen.

    Warnings are not among them: they can quote the file, which only those may read who may view messages.
    """
    notes: list[str] = []
    if report.get("first_sent_at"):
        notes.append(f"sent from {_moment_text(report['first_sent_at'])} to {_moment_text(report['last_sent_at'])}")
    for reason, count in report["skipped_by_reason"].items():
        notes.append(f"{count:,} skipped: {reason}{_at_lines(report.get('skipped_lines', {}).get(reason, ()), count)}")
    return notes + count_notes(report)


def _at_lines(lines: Sequence[int], count: int) -> str:
    """Return where in the file skipped entries are, as far as that is known: `count` is how many there are."""
    if not lines:
        return ""
    more = ", …" if count > len(lines) else ""
    return f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}{more})"


def _moment_text(iso: str) -> str:
    return time_text(datetime.fromisoformat(iso))


def _channel_links(slugs: Collection[str]) -> dict[str, SafeString]:
    """Return links to the channels that exist, by slug."""
    links = {}
    for channel in Channel.objects.filter(slug__in=slugs):
        url = reverse("admin:agents_channel_transcript", args=[channel.pk])
        links[channel.slug] = display.link(url, channel)
    return links
