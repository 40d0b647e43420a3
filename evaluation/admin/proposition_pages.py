"""The pages behind an agent's propositions: write one, change one, try one on messages, take them home as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.console import display
from agents.console.site import ModelAdmin
from agents.models import Agent
from evaluation.admin import proposition_trial
from evaluation.admin.draft_cards import (
    can_be_tried,
    checked_by,
    checked_shortly,
    claim_of,
    marks_of,
    page_url,
    state_badge,
    timeouts_said,
)
from evaluation.admin.proposition_editing import Editing
from evaluation.drafting.decisions import DraftEntry
from evaluation.drafting.exporting import exported
from evaluation.drafting.library import entry_at
from evaluation.drafting.replacing import CannotWrite
from evaluation.drafting.saving import CannotSave
from evaluation.models import Dimension, PropositionDraft
from evaluation.pattern_timeouts import timeouts_of
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    PropositionError,
    is_example,
    load_all,
    own_agents_like_examples,
)

PAGES = "admin/evaluation/drafts/"
LEVELS = ("evaluation", "action")
MOST_AGENTS = 200  # to choose from, where a proposition is about every agent


class PropositionPages(ModelAdmin[PropositionDraft]):
    """What the pages of propositions share: who may, what is logged; and the pages of a single one."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: PropositionDraft | None = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        views = {"new": self.edit_view, "edit": self.edit_view, "try": self.try_view, "export": self.export_view}
        own = [
            path(
                f"about/<str:owner>/{name}/",
                self.admin_site.admin_view(view),
                name=f"evaluation_propositiondraft_{name}",
            )
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def edit_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """A new proposition, or with ``?at=`` one there is: saved, exported, or tried as it is typed."""
        self.allow(request, change=True)
        owner = unquote(owner)
        files, problems = read_files()
        if problems:
            return HttpResponseRedirect(drafts_url(owner))
        agent = Agent.objects.filter(slug=owner).prefetch_related("traits").first()
        if agent is None and owner != DEFAULT and not any(file.agent_id == owner for file in files):
            raise Http404(f"There is no agent {owner!r}.")
        entry = self._entry(request, owner, files) if "at" in request.GET else None
        try:
            editing = Editing(request, owner=owner, agent=agent, entry=entry, files=files)
        except CannotWrite as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(drafts_url(owner))
        context: dict[str, Any] = {}
        if request.method == "POST" and editing.is_valid():
            if "_export" in request.POST:
                return _download(editing.as_yaml(), f"{editing.form.cleaned_data['id']}.yaml")
            if "_try" in request.POST:
                self._allow_trial(request)
                context["trial"] = self._tried(request, editing.proposition(), agent)
            elif (saved := self._saved(request, editing)) is not None:
                return saved
        return self.page(
            request,
            f"{PAGES}edit.html",
            f"{agent or owner}: {'proposition' if entry else 'new proposition'}",
            name=name_of(owner, agent),
            drafts_url=drafts_url(owner),
            may_try=_may_try(request) and agent is not None,
            timeouts=_timeouts_of(entry),
            **editing.context(),
            **context,
        )

    def try_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """One proposition on ten messages: before, what it would cost; after pressing the button, what it scored."""
        self.allow(request)
        owner = unquote(owner)
        files, _ = read_files()
        entry = self._entry(request, owner, files)
        if not can_be_tried(entry):
            raise Http404(f"{entry.proposition.id} is not judged message by message.")
        agent = _whose(owner, request.GET.get("agent", ""))
        context: dict[str, Any] = {}
        if request.method == "POST":
            self._allow_trial(request)
            if agent is not None:
                context["trial"] = self._tried(request, entry.proposition, agent)
        elif agent is not None:
            context["estimate"] = proposition_trial.estimated(entry.proposition, agent)
        p = entry.proposition
        return self.page(
            request,
            f"{PAGES}try.html",
            f"Try {p.id}",
            name=name_of(owner, agent if owner != DEFAULT else None),
            claim=claim_of(p.claim, agent.display_name if agent else ""),
            marks=marks_of(entry),
            badge=state_badge(entry),
            checked_by=checked_by(entry),
            checked_shortly=checked_shortly(entry),
            timeouts=_timeouts_of(entry),
            entry=entry,
            agent=agent,
            agents=Agent.objects.filter(is_active=True)[:MOST_AGENTS] if owner == DEFAULT else (),
            at=request.GET.get("at", ""),
            may_try=_may_try(request),
            may_change=self.has_change_permission(request),
            drafts_url=drafts_url(owner),
            edit_url=page_url("edit", owner, at=request.GET.get("at", "")),
            **context,
        )

    def export_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """A proposition file of one agent, dimension and level."""
        self.allow(request)
        owner = unquote(owner)
        dimension, level = request.GET.get("dimension", "adherence"), request.GET.get("level", "evaluation")
        if dimension not in Dimension.values or level not in LEVELS:
            raise Http404(f"Allowed: dimension {', '.join(Dimension.values)}; level {', '.join(LEVELS)}.")
        files, _ = read_files()
        try:
            text = exported(owner, dimension, level, files=files, drafts=request.GET.get("drafts") == "1")
        except CannotWrite as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(drafts_url(owner))
        if not text:
            raise Http404(f"Nothing of {dimension} is asked of {owner!r} alone.")
        return _download(text, f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml")

    def allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied

    def note(self, request: HttpRequest, owner: str, proposition_id: str, said: str) -> None:
        LogEntry.objects.create(
            user=user_of(request),
            content_type=ContentType.objects.get_for_model(PropositionDraft),
            object_id=owner,
            object_repr=proposition_id[:200],
            action_flag=CHANGE,
            change_message=said,
        )

    def _allow_trial(self, request: HttpRequest) -> None:
        if not _may_try(request):
            raise PermissionDenied

    def _entry(self, request: HttpRequest, owner: str, files: Sequence[LoadedFile]) -> DraftEntry:
        entry = entry_at(request.GET.get("at", ""), owner, files=files)
        if entry is None:
            raise Http404("There is no such proposition (any more).")
        return entry

    def _saved(self, request: HttpRequest, editing: Editing) -> HttpResponse | None:
        """The way back, once it is stored; None with the reasons in the form."""
        active = "_save" in request.POST
        try:
            with transaction.atomic():  # the entry first: nothing is saved without one
                said = "saved" if active else "saved as a draft"
                self.note(request, editing.owner, editing.id, f"{said}: {editing.form.cleaned_data['claim']}")
                where = editing.save(active=active)
        except CannotSave as problem:
            editing.form.blame(problem.errors)
            return None
        state = "it is judged from the next evaluation on" if active else "it waits as a draft"
        self.message_user(
            request, f"{editing.id} is saved to {where.parent.name}/{where.name}: {state}.", messages.SUCCESS
        )
        return HttpResponseRedirect(f"{drafts_url(editing.owner)}#draft-{editing.id}")

    def _tried(self, request: HttpRequest, proposition: Any, agent: Agent | None) -> dict[str, Any] | None:
        if agent is None:
            return None
        try:
            return proposition_trial.trial_context(proposition, agent)
        except ValueError as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return None


def drafts_url(owner: str) -> str:
    """The page of an agent's propositions."""
    return reverse("admin:evaluation_propositiondraft_change", args=[quote(owner)])


def read_files() -> tuple[Sequence[LoadedFile], Sequence[str]]:
    """The proposition files, or why they cannot be read; without those of an example whose slug an agent of the team's own bears."""
    try:
        files, own = load_all(), own_agents_like_examples()
        return [file for file in files if file.agent_id not in own or not is_example(file)], ()
    except PropositionError as error:
        return (), [str(problem) for problem in error.problems]


def name_of(owner: str, agent: Agent | None) -> Any:
    """Whose they are: the agent, everybody, or a slug that no agent has."""
    if agent is not None:
        return display.agent_chip(agent)
    return display.isolated("every agent" if owner == DEFAULT else owner)


def _timeouts_of(entry: DraftEntry | None) -> list[SafeString]:
    if entry is None:
        return []
    found = timeouts_of([entry.proposition.id])
    return timeouts_said(found.get((entry.dimension, entry.proposition.id), ()), entry.proposition)


def _may_try(request: HttpRequest) -> bool:
    return request.user.has_perms(proposition_trial.PERMISSIONS)


def _whose(owner: str, chosen: str) -> Agent | None:
    """On whose messages it is tried: the agent's, or those of one that was chosen."""
    return Agent.objects.filter(slug=chosen if owner == DEFAULT else owner).prefetch_related("traits").first()


def _download(text: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{"".join(c for c in name if c.isalnum() or c in "._-")}"'
    return response
