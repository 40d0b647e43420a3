"""Propositions in the console: what is asked of each agent, and drafts, beside the persona's own words, to be accepted or rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from agents.console import display
from agents.models import Agent
from agents.persona import render_persona
from evaluation.admin.display import dimension_badge
from evaluation.admin.draft_cards import card_of, checked_by, claim_of, marks_of, page_url
from evaluation.admin.proposition_pages import PAGES, PropositionPages, drafts_url, name_of, read_files
from evaluation.drafting.decisions import CannotDecide, Decision, DraftEntry, all_entries, decide
from evaluation.drafting.library import Listed, listed
from evaluation.drafting.saving import CannotSave, retire
from evaluation.models import PropositionDraft
from evaluation.pattern_timeouts import timeouts_of
from evaluation.propositions.files import DEFAULT, LoadedFile, PropositionError, propositions_for
from evaluation.propositions.traits import SOURCE as TRAIT
from evaluation.propositions.traits import with_traits

__all__ = ["drafts_url"]
STATES = ("waiting", "accepted", "rejected", "retired")
HEADINGS = {"accepted": "In use"}
MOST_AGENTS = 50  # without propositions of their own, that are listed
_Act = Callable[[str, str], object]  # mark and owner
_ACTS: dict[str, tuple[_Act, str]] = {
    "accept": (
        lambda mark, owner: decide(mark=mark, decision=Decision.ACCEPT),
        "is accepted: it is judged from the next evaluation on",
    ),
    "reject": (
        lambda mark, owner: decide(mark=mark, decision=Decision.REJECT),
        "is rejected, and will not be proposed again",
    ),
    "undo": (lambda mark, owner: decide(mark=mark, decision=Decision.UNDO), "waits again, as a draft"),
    "retire": (
        lambda mark, owner: retire(mark=mark, owner=owner),
        "is retired: the next evaluation does not ask it, and its scores stay",
    ),
    "restore": (
        lambda mark, owner: retire(mark=mark, owner=owner, back=True),
        "is in use again, from the next evaluation on",
    ),
}


@admin.register(PropositionDraft)
class PropositionDraftAdmin(PropositionPages):
    """There are no rows: the list is of agents with propositions, and the page of one "object" is that of an agent, by its slug."""

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Who has propositions of its own, and how many wait."""
        self.allow(request)
        search = request.GET.get("q", "").strip()[:100]
        files, problems = read_files()
        found = all_entries(files)
        counts = Counter((entry.owner, entry.state) for entry in found)
        owners = sorted({entry.owner for entry in found}, key=lambda owner: (-counts[owner, "waiting"], owner))
        agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=owners)}
        rows = [
            {
                "name": name_of(owner, agents.get(owner)),
                "url": drafts_url(owner),
                "counts": [(counts[owner, state], f"{drafts_url(owner)}?show={state}") for state in STATES],
            }
            for owner in owners
            if search.lower() in f"{owner} {agents[owner].display_name if owner in agents else ''}".lower()
        ]
        others = Agent.objects.exclude(slug__in=owners).filter(is_active=True)
        if search:
            others = others.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
        return self.page(
            request,
            f"{PAGES}overview.html",
            "Propositions",
            rows=rows,
            states=[HEADINGS.get(state, state.capitalize()) for state in STATES],
            problems=problems,
            search=search,
            others=[(display.agent_chip(agent), drafts_url(agent.slug)) for agent in others[:MOST_AGENTS]],
            most=MOST_AGENTS,
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The propositions about one agent; its buttons decide."""
        self.allow(request, change=request.method == "POST")
        owner = unquote(object_id)
        if request.method == "POST":
            return self._decide(request, owner)
        files, problems = read_files()
        about = listed(owner, files=files)
        agent = Agent.objects.filter(slug=owner).prefetch_related("traits").first()
        if not about and not problems and agent is None and owner != DEFAULT:
            raise Http404(f"There are no drafts about {owner!r}, nor is there such an agent.")
        chosen = request.GET.get("show", "")
        counts = Counter(one.entry.state for one in about)
        persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else None
        order = sorted(about, key=lambda one: STATES.index(one.entry.state))
        shown = [one for one in order if chosen not in STATES or one.entry.state == chosen]
        slow = timeouts_of(one.entry.proposition.id for one in shown)
        return self.page(
            request,
            f"{PAGES}agent.html",
            f"{agent or owner}: propositions",
            name=name_of(owner, agent),
            cards=[
                card_of(
                    one,
                    persona,
                    agent.display_name if agent else "",
                    slow.get((one.entry.dimension, one.entry.proposition.id), ()),
                )
                for one in shown
            ],
            tabs=_tabs(counts, chosen),
            chosen=chosen if chosen in STATES else "",
            traits=_of_traits(agent, files) if agent is not None and not problems else [],
            everybody=_of_everybody(about, files) if owner != DEFAULT else [],
            everybody_url=drafts_url(DEFAULT),
            exports=_exports(owner, about),
            problems=problems,
            may_change=self.has_change_permission(request),
            new_url=page_url("new", owner),
            agent_slug=agent.slug if agent else "",
            overview_url=reverse("admin:evaluation_propositiondraft_changelist"),
            history_url=reverse("admin:evaluation_propositiondraft_history", args=[quote(owner)]),
        )

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Who decided what about the propositions of one agent."""
        self.allow(request)
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
        """``accept=MARK``, ``reject=MARK``, ``undo=MARK``, ``retire=MARK`` or ``restore=MARK``."""
        pressed = [(name, request.POST[name]) for name in _ACTS if name in request.POST]
        if len(pressed) != 1:
            raise Http404(f"One button at a time: {', '.join(_ACTS)}.")
        [(name, mark)] = pressed
        carry_out, done = _ACTS[name]
        anchor = ""
        try:
            with transaction.atomic():  # the entry first: nothing is decided without one
                entry = _seen(mark, owner)
                anchor = f"#draft-{entry.proposition.id}"
                self.note(request, owner, entry.proposition.id, f"{name}: {entry.proposition.claim} ({entry.path})")
                carry_out(mark, owner)
        except (CannotDecide, CannotSave) as problem:
            self.message_user(request, str(problem), messages.ERROR)
        except PropositionError as problem:
            self.message_user(request, f"Proposition files cannot be used: {problem}", messages.ERROR)
        else:
            self.message_user(request, f"{entry.proposition.id} {done}.", messages.SUCCESS)
        return HttpResponseRedirect(drafts_url(owner) + anchor)


def _seen(mark: str, owner: str) -> DraftEntry:
    entry = next((e for e in all_entries() if e.mark == mark and e.owner == owner), None)
    if entry is None:
        raise CannotDecide("This draft was changed, decided or taken out since the page was opened. Look at it again.")
    return entry


def _tabs(counts: Counter[str], chosen: str) -> list[dict[str, Any]]:
    """Links that narrow the page to one state, where there are several."""
    if len(counts) < 2:
        return []
    named = [("", "All", counts.total())]
    named += [(state, HEADINGS.get(state, state.capitalize()), counts[state]) for state in STATES if counts[state]]
    return [
        {"url": f"?show={s}" if s else "?", "label": label, "count": n, "is_on": s == chosen} for s, label, n in named
    ]


def _of_traits(agent: Agent, files: Sequence[LoadedFile]) -> list[dict[str, Any]]:
    """The automatic claims: of the traits that no file speaks of."""
    own = propositions_for(agent_slug=agent.slug, dimension="adherence", files=files, seeded=agent.seeded)
    found = with_traits(own, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
    return [
        {
            "id": p.id,
            "claim": claim_of(p.claim, agent.display_name),
            "how": "once over the window" if p.over_window else "message by message",
        }
        for p in found
        if p.source == TRAIT
    ]


def _of_everybody(about: Sequence[Listed], files: Sequence[LoadedFile]) -> list[dict[str, Any]]:
    """What is asked of every agent, and not replaced or taken out by one of this agent's own."""
    own = {
        (one.entry.dimension, one.entry.level, one.entry.proposition.id)
        for one in about
        if one.entry.state in ("accepted", "retired")
    }
    rows = []
    for one in listed(DEFAULT, files=files):
        entry = one.entry
        of_agents = entry.proposition.target_type == "agent"
        if of_agents and entry.proposition.active and (entry.dimension, entry.level, entry.proposition.id) not in own:
            rows.append({
                "id": entry.proposition.id,
                "claim": display.visible(entry.proposition.claim),
                "marks": format_html("{} {}", dimension_badge(entry.dimension), marks_of(entry))
                if entry.dimension == "adherence"
                else marks_of(entry),
                "checked_by": checked_by(entry),
            })  # fmt: skip
    return rows


def _exports(owner: str, about: Sequence[Listed]) -> list[tuple[str, str]]:
    """A file per dimension and level: label and address."""
    kinds = sorted({(one.entry.dimension, one.entry.level) for one in about if one.entry.proposition.active})
    return [
        (
            dimension.replace("_", " ") + (", about drafts" if level == "action" else ""),
            page_url("export", owner, dimension=dimension, level=level),
        )
        for dimension, level in kinds
    ]
