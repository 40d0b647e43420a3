"""Imports in the console: upload files, choose on one page how they are read, let a worker import them, correct or undo that."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils.dateparse import parse_datetime
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from agents.admin.access import user_of
from agents.admin.import_forms import FORMAT_NAMES, AuthorForm, ImportForm, suggested_agents
from agents.console import display
from agents.console.site import ReadOnlyAdmin
from agents.imports.jobs import NotNow, authors_of, cancel, discard, preview, reassign, submit, undo, upload
from agents.imports.reading import Choices, may_import_personas, may_import_transcripts, may_make_speakers
from agents.imports.uploads import are_kept, files_were_too_large
from agents.models import Agent, Channel, Import
from agents.persona import Outcome
from agents.personas_io.reader import SUFFIXES
from agents.work.worker import alive

PAGES = "admin/agents/import/"
UNREAD = "Why is shown to the user who uploaded it, and to those who may view messages."
MOST_AUTHORS = 100
_ACTS: dict[str, tuple[Callable[[Import], None], str]] = {
    "cancel": (cancel, "is cancelled. What was stored stays."),
    "discard": (discard, "is discarded: its files are deleted."),
    "undo": (undo, "is being undone by a worker."),
}
_OUTCOMES: dict[str, display.Tone] = {
    "created": "good",
    "updated": "info",
    "unchanged": "plain",
    "kept_edited": "warning",
}
_WHY = {Outcome.KEPT_EDITED: "the persona was edited here or does not come from an import: it stays as it is"}
_NOTES = {
    "system_prompts": "system prompts, which are not messages",
    "other_author": "are stored under another author and keep it; with another name of the channel they are imported for this one",
    "replaced_characters": "characters that cannot be stored, replaced by U+FFFD",
    "cut_texts": "texts cut for their length",
    "replies_without_parent": "replies whose parent is not there",
}


@admin.register(Import)
class ImportAdmin(ReadOnlyAdmin[Import]):
    """Users who may add messages or change agents may upload files; only the uploader decides what is done with them."""

    list_select_related = ("created_by",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return may_import_transcripts(user_of(request)) or may_import_personas(user_of(request))

    def has_view_permission(self, request: HttpRequest, obj: Import | None = None) -> bool:
        own = self.has_add_permission(request) and (obj is None or obj.created_by_id == request.user.pk)
        return super().has_view_permission(request, obj) or own

    def get_queryset(self, request: HttpRequest) -> QuerySet[Import]:
        rows = super().get_queryset(request).prefetch_related("files")
        if request.resolver_match is not None and request.resolver_match.url_name == "agents_import_changelist":
            rows = rows.defer("contents", "choices", "result", "error")
        return rows if super().has_view_permission(request) else rows.filter(created_by=user_of(request))

    def get_urls(self) -> list[URLPattern]:
        views: dict[str, tuple[Callable[..., HttpResponse], dict[str, Any]]] = {
            "progress": (self.progress_view, {}),
            "choose": (require_POST(self.choose_view), {}),
            "author": (require_POST(self.author_view), {}),
            **{act: (require_POST(self.act_view), {"act": act}) for act in _ACTS},
        }
        own = [
            path(f"<int:pk>/{name}/", self.admin_site.admin_view(view), kwargs=more, name=f"agents_import_{name}")
            for name, (view, more) in views.items()
        ]
        return [*own, *super().get_urls()]

    @admin.display(description="import", ordering="pk")
    def name(self, job: Import) -> SafeString:
        return display.lines(f"#{job.pk}", display.moment(job.created_at))

    @admin.display(description="files")
    def what(self, job: Import) -> SafeString:
        files = list(job.files.all())
        names = ", ".join(file.name for file in files[:2]) + (f" and {len(files) - 2} more" if len(files) > 2 else "")
        size = filesizeformat(sum(file.size for file in files))
        return display.lines(display.isolated(names) if names else display.EMPTY, f"{job.get_kind_display()}, {size}")

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

    @admin.display(description="outcome")
    def outcome(self, job: Import) -> str | SafeString:
        if not job.stored:
            return display.EMPTY
        what, done = ("message", "stored") if job.kind == Import.Kind.TRANSCRIPT else ("agent", "made or changed")
        return f"{job.stored:,} {what}{'' if job.stored == 1 else 's'} {done}"

    @admin.display(description="uploaded by")
    def uploaded_by(self, job: Import) -> SafeString:
        return display.isolated(job.created_by) if job.created_by else display.EMPTY

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """A form for files."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        problem, most = "", filesizeformat(settings.IMPORT_MOST_BYTES)
        if request.method == "POST":
            uploads = [file for file in request.FILES.getlist("files") if file.size]
            if files_were_too_large(request):
                problem = (
                    f"The files are larger than {most} together and were not stored. Import larger ones with "
                    "manage.py import_transcript, or upload them in parts."
                )
            elif not uploads:
                problem = "Choose at least one file that is not empty."
            else:
                try:
                    job = upload(uploads=uploads, user=user_of(request))
                except NotNow as refused:
                    problem = f"Nothing was stored: {refused}."
                else:
                    self.log_addition(request, job, f"uploaded {len(uploads)} file{'s' * (len(uploads) > 1)}")
                    return HttpResponseRedirect(_page_url(job))
        return self.page(
            request,
            f"{PAGES}upload.html",
            "Import",
            problem=problem,
            most_bytes=settings.IMPORT_MOST_BYTES,
            most=most,
            keep_days=f"{settings.IMPORT_KEEP_DAYS:g}",
            persona_endings=", ".join(SUFFIXES),
            transcripts=may_import_transcripts(user_of(request)),
            personas=may_import_personas(user_of(request)),
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Where an import is, its form, and what it stored."""
        return self._show(request, self._visible(request, int(object_id) if object_id.isdecimal() else 0))

    def _show(self, request: HttpRequest, job: Import, form: ImportForm | None = None) -> HttpResponse:
        user = user_of(request)
        mine, may_add = job.created_by_id == user.pk, self.has_add_permission(request)
        are_stored = job.status in Import.EDITABLE and are_kept(job)
        can_edit = are_stored and mine and may_add
        may_read = mine or user.has_perm("agents.view_message")
        can_undo = mine and may_add and bool(job.stored) and job.status not in (*Import.OPEN, Import.UNDONE)
        context = {
            "job": job,
            "state": self.state(job),
            "outcome": self.outcome(job) if job.stored else "",
            "files": job.files.all()[:50],
            "format": FORMAT_NAMES.get(job.contents.get("format", ""), job.get_kind_display()),
            "personas": job.kind == Import.Kind.PERSONAS,
            "error": job.error if may_read or not job.error else UNREAD,  # it may quote the file
            "problem": job.contents.get("problem") if may_read and job.status == Import.Status.FAILED else None,
            "progress": _progress(job),
            "may_add": may_add,
            "mine": mine,
            "are_stored": are_stored,
            "can_edit": can_edit,
            "can_cancel": job.status in Import.OPEN and (mine or user.is_superuser),
            "can_undo": can_undo,
            "urls": {name: _url(job, name) for name in ("choose", "author", *_ACTS)},
        }
        if can_edit:
            context["form"] = form or ImportForm(None, job=job, may_make=may_make_speakers(user))
        if job.status in Import.EDITABLE and "new" in job.contents:
            context["contents"] = _shown(job, may_read=may_read)
            context["can_import"] = can_edit and _importable(job)
        if job.result:
            context["result"] = _result(job)
        if can_undo and job.kind == Import.Kind.TRANSCRIPT:
            context["authors"] = _authors(job)
        if can_edit or "authors" in context:
            context["suggested"] = suggested_agents()
        return self.page(request, f"{PAGES}page.html", f"Import {job.pk}", **context)

    def choose_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Take the form (POST): import the files, or look into them again with other choices."""
        job = self._own(request, pk)
        form = ImportForm(request.POST, job=job, may_make=may_make_speakers(user_of(request)))
        if not form.is_valid():
            return self._show(request, job, form)
        try:
            if "import" in request.POST:
                submit(job, form.choices)
                self.log_change(request, job, "import pressed")
            else:
                preview(job, form.choices)
        except NotNow as problem:
            self.message_user(request, f"Nothing was done: {problem}.", messages.ERROR)
        return HttpResponseRedirect(_page_url(job))

    def author_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Give the messages of one author another author (POST)."""
        job, form = self._own(request, pk), AuthorForm(request.POST)
        try:
            given = form.cleaned_data if form.is_valid() else {}
            author = next((row for row in authors_of(job) if _author_key(row) == given.get("author")), None)
            slug = given.get("agent", "")
            agent = Agent.objects.filter(slug=slug).first() if slug else None
            if author is None:
                raise NotNow("this import has no messages of that author any more")
            if slug and agent is None:
                raise NotNow(f"there is no agent {slug!r}; allowed: an agent's id (slug)")
            which = {key: author[key] for key in ("agent_id", "user_id", "outsider")}
            number = reassign(job, author=which, agent=agent, outsider=given["outsider"].strip(), user=user_of(request))
        except NotNow as problem:
            self.message_user(request, f"Nothing was changed: {problem}.", messages.ERROR)
        else:
            name = agent.slug if agent else given["outsider"].strip()
            self.log_change(request, job, f"{number} messages given to {name}")
            self.message_user(request, f"{number:,} messages are by {display.visible(name)} now.", messages.SUCCESS)
        return HttpResponseRedirect(_page_url(job))

    def act_view(self, request: HttpRequest, pk: int, act: str) -> HttpResponse:
        """Cancel, discard or undo (POST)."""
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


def _url(job: Import, name: str) -> str:
    return reverse(f"admin:agents_import_{name}", args=[job.pk])


def _page_url(job: Import) -> str:
    return reverse("admin:agents_import_change", args=[job.pk])


def _author_key(row: Mapping[str, Any]) -> str:
    return json.dumps([row["agent_id"], row["user_id"], row["outsider"]])


def _progress(job: Import) -> dict[str, Any] | None:
    if job.status not in Import.OPEN:
        return None
    return {
        "url": _url(job, "progress"),
        "waits": job.status == Import.Status.PENDING,
        "no_worker": job.status == Import.Status.PENDING and not alive().exists(),
        "doing": job.doing or ("Deleting" if job.undoing else "Importing"),
        "done": job.done,
        "total": job.total,
        "share": f"{min(100, 100 * job.done // job.total)} %" if job.total else "",
        "counts": job.doing in ("Importing", "Comparing", "Deleting"),
    }


def _importable(job: Import) -> bool:
    """Whether importing could store anything, as far as the files were read."""
    contents = job.contents
    if job.kind == Import.Kind.PERSONAS:
        return bool(contents["new"] or contents.get("unread"))
    return bool(contents["new"] or not contents["complete"]) and not contents["refusal"]


def _shown(job: Import, *, may_read: bool) -> dict[str, Any]:
    """What the files hold, with links to what is here already."""
    contents, choices = job.contents, Choices.of(job)
    if job.kind == Import.Kind.PERSONAS:
        return {**contents, "rows": _personas(contents), "may_read": may_read}
    links = _channel_links(dict(contents["channels"]))
    return {
        **contents,
        "duplicates": contents["messages"] - contents["new"],
        "notes": _notes(contents),
        "likely": contents["likely"] and not choices.agents,
        "channels": [(slug, links.get(slug), count) for slug, count in contents["channels"]],
        "sample": _sample(contents["sample"], choices) if may_read and "sample" in contents else [],
    }


def _result(job: Import) -> dict[str, Any]:
    """What was imported, with links to it."""
    result = job.result
    if job.kind == Import.Kind.PERSONAS:
        return {**result, "rows": _personas(result)}
    links = _channel_links(result["channels"])
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=(*result["spoke"], *result["agents"]))}
    return {
        **result,
        "channels": [links.get(slug, display.isolated(slug)) for slug in result["channels"]],
        "more_channels": max(0, result["channels_total"] - len(result["channels"])),
        "speaking": [agents[slug] for slug in result["spoke"] if slug in agents],
        "made": [agents[slug] for slug in result["agents"] if slug in agents],
        "notes": _notes(result),
        "there": max(0, result["imported"] + result["duplicates"] - job.stored) if job.stored else 0,
    }


def _notes(report: Mapping[str, Any]) -> list[str]:
    """What else a report says, one sentence each."""
    skipped = [f"{count:,} skipped: {reason}" for reason, count in report["skipped_by_reason"].items()]
    return skipped + [f"{report[key]:,} {words}" for key, words in _NOTES.items() if report.get(key)]


def _authors(job: Import) -> list[dict[str, Any]]:
    """The authors of the imported messages, each with a form that gives them another."""
    rows = authors_of(job)[:MOST_AUTHORS]
    agents = Agent.objects.in_bulk([row["agent_id"] for row in rows if row["agent_id"]])
    users = User.objects.in_bulk([row["user_id"] for row in rows if row["user_id"]])
    return [
        {
            **row,
            "agent": agents.get(row["agent_id"]),
            "name": users.get(row["user_id"]) or row["outsider"],
            "form": AuthorForm(auto_id=False, initial={"author": _author_key(row), "outsider": row["outsider"]}),
        }
        for row in rows
    ]


def _sample(sample: list[dict[str, Any]], choices: Choices) -> list[dict[str, Any]]:
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in={row["slug"] for row in sample})}
    lines = []
    for row in sample:
        agent, new = agents.get(row["slug"]), choices.made.get(row["outsider"])
        author = agent or new
        name = author.display_name if author else row["outsider"] or "a user"
        lines.append(
            {
                "avatar": display.avatar(name, agent.avatar_color if agent else ""),
                "name": name,
                "is": "agent" if agent else "new agent" if new else "",
                "text": row["text"],
                "sent": parse_datetime(row["sent_at"]) if row["sent_at"] else None,
            }
        )
    return lines


def _personas(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    agents = {a.slug: a for a in Agent.objects.filter(slug__in=[row["slug"] for row in report["personas"]])}
    return [
        {
            **row,
            "agent": agents.get(row["slug"]),
            "badge": display.badge(
                str(row["outcome"]).replace("_", " "), _OUTCOMES[row["outcome"]], _WHY.get(row["outcome"], "")
            ),
        }
        for row in report["personas"]
    ]


def _channel_links(slugs: Collection[str]) -> dict[str, SafeString]:
    """Links to the channels that exist, by slug."""
    return {
        channel.slug: display.link(reverse("admin:agents_channel_transcript", args=[channel.pk]), channel)
        for channel in Channel.objects.filter(slug__in=slugs)
    }
