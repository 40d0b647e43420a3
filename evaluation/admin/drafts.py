"""Proposition drafts in the console: what was proposed from a persona, beside the persona's own words, to be accepted or rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from agents.admin import display
from agents.admin.access import user_of
from agents.adminsite import ModelAdmin
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.draft_cards import card_of
from evaluation.drafting.decisions import CannotDecide, Decision, DraftEntry, decide, entries, entry_marked
from evaluation.models import PropositionDraft
from evaluation.proposition_files import DEFAULT, PropositionError

PAGES = "admin/evaluation/drafts/"
STATES = ("waiting", "accepted", "rejected")
_DONE = {
    Decision.ACCEPT: "is accepted: it is judged from the next evaluation on",
    Decision.REJECT: "is rejected, and will not be proposed again",
    Decision.UNDO: "waits again, as a draft",
}


@admin.register(PropositionDraft)
class PropositionDraftAdmin(ModelAdmin[PropositionDraft]):
    """There are no rows: the list is of agents with drafts, and the page of one "object" is that of an agent, by its slug."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: PropositionDraft | None = None) -> bool:
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Who has drafts, and how many wait."""
        self._allow(request)
        found, problems = _read()
        counts = Counter((entry.owner, entry.state) for entry in found)
        owners = sorted({entry.owner for entry in found}, key=lambda owner: (-counts[owner, "waiting"], owner))
        agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=owners)}
        rows = [
            {
                "name": _name(owner, agents.get(owner)),
                "url": drafts_url(owner),
                "counts": [counts[owner, state] for state in STATES],
            }
            for owner in owners
        ]
        return self.page(
            request, f"{PAGES}overview.html", "Proposition drafts", rows=rows, states=STATES, problems=problems
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The drafts about one agent; its buttons decide."""
        self._allow(request, change=request.method == "POST")
        owner = unquote(object_id)
        if request.method == "POST":
            return self._decide(request, owner)
        found, problems = _read()
        about = [entry for entry in found if entry.owner == owner]
        if not about and not problems:
            raise Http404(f"There are no drafts about {owner!r}.")
        agent = Agent.objects.filter(slug=owner).first()
        persona = (
            render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent is not None else None
        )
        order = sorted(about, key=lambda entry: STATES.index(entry.state))
        return self.page(
            request,
            f"{PAGES}agent.html",
            f"{agent or owner}: proposition drafts",
            name=_name(owner, agent),
            cards=[card_of(entry, persona) for entry in order],
            problems=problems,
            may_change=self.has_change_permission(request),
            overview_url=reverse("admin:evaluation_propositiondraft_changelist"),
        )

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Who decided what about the drafts of one agent."""
        self._allow(request)
        content_type = ContentType.objects.get_for_model(PropositionDraft)
        logged = LogEntry.objects.filter(content_type=content_type, object_id=unquote(object_id)).select_related("user")
        rows = [
            {
                "at": display.moment(e.action_time),
                "user": str(e.user),
                "what": e.object_repr,
                "said": e.get_change_message(),
            }
            for e in logged.order_by("-action_time", "-pk")[:200]
        ]
        owner = unquote(object_id)
        return self.page(
            request, f"{PAGES}history.html", f"{owner}: decisions", rows=rows, owner=owner, drafts_url=drafts_url(owner)
        )

    def _decide(self, request: HttpRequest, owner: str) -> HttpResponse:
        """``accept=MARK``, ``reject=MARK`` or ``undo=MARK``."""
        pressed = [(decision, request.POST[decision.value]) for decision in Decision if decision.value in request.POST]
        if len(pressed) != 1:
            raise Http404("One button at a time: accept, reject or undo.")
        [(decision, mark)] = pressed
        anchor = ""
        try:
            with transaction.atomic():  # the entry first: nothing is decided without one
                entry = entry_marked(mark, entries())
                anchor = f"#draft-{entry.proposition.id}"
                self._note(request, entry, decision)
                decide(mark=mark, decision=decision)
        except CannotDecide as problem:
            self.message_user(request, str(problem), messages.ERROR)
        except PropositionError as problem:
            self.message_user(request, f"Proposition files cannot be used: {problem}", messages.ERROR)
        else:
            self.message_user(request, f"{entry.proposition.id} {_DONE[decision]}.", messages.SUCCESS)
        return HttpResponseRedirect(drafts_url(owner) + anchor)

    def _note(self, request: HttpRequest, entry: DraftEntry, decision: Decision) -> None:
        LogEntry.objects.create(
            user=user_of(request),
            content_type=ContentType.objects.get_for_model(PropositionDraft),
            object_id=entry.owner,
            object_repr=entry.proposition.id[:200],
            action_flag=CHANGE,
            change_message=f"{decision.value}: {entry.proposition.claim} ({entry.path})",
        )

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied


def drafts_url(owner: str) -> str:
    """The page of an agent's drafts."""
    return reverse("admin:evaluation_propositiondraft_change", args=[quote(owner)])


def _read() -> tuple[Sequence[DraftEntry], Sequence[str]]:
    """The drafts, or why they cannot be read."""
    try:
        return entries(), ()
    except PropositionError as error:
        return (), [str(problem) for problem in error.problems]


def _name(owner: str, agent: Agent | None) -> Any:
    if agent is not None:
        return display.agent_chip(agent)
    return display.isolated("every agent" if owner == DEFAULT else owner)
