"""Propositions in the console: what is asked of each agent, suggestions to decide on, and the pages to write, try and export them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote, unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from agents.admin.access import user_of
from agents.console import display
from agents.console.panels import table
from agents.console.site import ModelAdmin, console_page
from agents.models import Agent
from agents.persona import render_persona
from evaluation import models
from evaluation.admin.display import dimension_badge
from evaluation.admin.proposition_cards import (
    STATES,
    can_be_tried,
    card_of,
    checked_by,
    claim_of,
    estimate_sentence,
    marks_of,
    page_url,
    path_shown,
    propositions_url,
    quoted_in,
    trial_shown,
)
from evaluation.admin.proposition_form import LEVELS, Editing
from evaluation.drafting.trying import try_proposition
from evaluation.models import Dimension, PatternTimeout
from evaluation.propositions.editing import CHANGED, NO_FOLDER, CannotSave, Decision, decide, exported, place_for
from evaluation.propositions.files import (
    DEFAULT,
    FROM_A_TRAIT,
    Entry,
    LoadedFile,
    PropositionError,
    all_entries,
    entry_at,
    entry_marked,
    is_example,
    listed,
    load_all,
    own_agents_like_examples,
    propositions_for,
    with_traits,
)
from evaluation.propositions.schema import Proposition
from evaluation.scorers.subjects import parse_window

PAGES = "admin/evaluation/propositions/"
MOST_AGENTS = 200  # to choose from where a proposition is about every agent
MOST_OTHERS = 50  # agents without propositions of their own that are listed
TRIED = 10  # messages
TRIED_ON = parse_window("last:1000")  # of what the agent said: a trial is about how it speaks now
DEADLINE = 20.0  # seconds for each call: a person waits for the page
TRIAL_PERMISSIONS = ("evaluation.add_evaluationrun", "agents.view_message")  # calls cost money, and messages are shown
_DONE = {
    Decision.ACCEPT: "is accepted: it is judged from the next evaluation on",
    Decision.REJECT: "is rejected, and will not be suggested again",
    Decision.UNDO: "is a suggestion again",
    Decision.RETIRE: "is retired: the next evaluation does not ask it, and its scores stay",
    Decision.RESTORE: "is in use again, from the next evaluation on",
}


@admin.register(models.Proposition)
class PropositionAdmin(ModelAdmin[models.Proposition]):
    """There are no rows: the list is of agents with propositions, and the page of one "object" is that of an agent, by its slug."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Proposition | None = None) -> bool:
        return False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """What the history of decisions is about: Django logs them by the agent's slug."""
        return models.Proposition(pk=object_id)

    # -- lists
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show which agents have propositions of their own, and how many in each state."""
        self._allow(request)
        search = request.GET.get("q", "").strip()[:100]
        files, problems = _read_files()
        entries = all_entries(files)
        counts = Counter((entry.owner, entry.state) for entry in entries)
        owners = sorted({entry.owner for entry in entries}, key=lambda owner: (-counts[owner, "suggested"], owner))
        agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=owners)}
        rows = [
            {
                "name": _name_of(owner, agents.get(owner)),
                "url": propositions_url(owner),
                "counts": [(counts[owner, state], f"{propositions_url(owner)}?show={state}") for state in STATES],
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
            states=[heading for heading, _, _ in STATES.values()],
            problems=problems,
            search=search,
            others=[
                (display.agent_chip(agent), propositions_url(agent.slug), page_url("new", agent.slug))
                for agent in others[:MOST_OTHERS]
            ],
            most=MOST_OTHERS,
            has_model=_has_model(),
            may_change=self.has_change_permission(request),
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the propositions about one agent; its buttons decide."""
        self._allow(request, change=request.method == "POST")
        owner = unquote(object_id)
        if request.method == "POST":
            return self._decide(request, owner)
        files, problems = _read_files()
        about = listed(owner, files=files)
        agent = _agent(owner)
        if not about and not problems and agent is None and owner != DEFAULT:
            raise Http404(f"There are no propositions about {owner!r}, nor is there such an agent.")
        chosen = request.GET.get("show", "")
        counts = Counter(entry.state for entry in about)
        persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else None
        name = agent.display_name if agent else ""
        order = sorted(about, key=lambda entry: list(STATES).index(entry.state))
        shown = [entry for entry in order if chosen not in STATES or entry.state == chosen]
        slow = PatternTimeout.of(entry.proposition.id for entry in shown)
        tabs = [("", "All", counts.total())] + [(s, STATES[s][0], counts[s]) for s in STATES if counts[s]]
        kinds = sorted({(entry.dimension, entry.level) for entry in about if entry.proposition.active})
        return self.page(
            request,
            f"{PAGES}agent.html",
            f"{agent or owner}: propositions",
            name=_name_of(owner, agent),
            cards=[_card(entry, slow, name, persona) for entry in shown],
            tabs=[
                {"url": f"?show={s}" if s else "?", "label": label, "count": n, "is_on": s == chosen}
                for s, label, n in (tabs if len(counts) > 1 else ())
            ],
            chosen=chosen if chosen in STATES else "",
            traits=_of_traits(agent, files) if agent is not None and not problems else {},
            every_agent=_of_every_agent(about, files) if owner != DEFAULT else {},
            every_agent_url=propositions_url(DEFAULT),
            exports=[
                (
                    dimension.replace("_", " ") + (", about drafts" if level == "action" else ""),
                    page_url("export", owner, dimension=dimension, level=level),
                )
                for dimension, level in kinds
            ],
            problems=problems,
            may_change=self.has_change_permission(request),
            new_url=page_url("new", owner),
            agent_slug=agent.slug if agent and _has_model() else "",
            overview_url=reverse("admin:evaluation_proposition_changelist"),
            history_url=reverse("admin:evaluation_proposition_history", args=[quote(owner)]),
        )

    def _decide(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Carry out ``accept=MARK``, ``reject=MARK``, ``undo=MARK``, ``retire=MARK`` or ``restore=MARK``."""
        pressed = [name for name in Decision if name in request.POST]
        if len(pressed) != 1:
            raise Http404(f"One button at a time: {', '.join(Decision)}.")
        [decision] = pressed
        mark, anchor = request.POST[decision], ""
        try:
            with transaction.atomic():  # the log entry first: nothing is decided without one
                entry = entry_marked(mark, owner)
                if entry is None:
                    raise CannotSave(CHANGED)
                p = entry.proposition
                anchor = f"#proposition-{p.id}"
                self._log(request, owner, p.id, f"{decision}: {p.claim} ({p.id} in {entry.path})")
                decide(mark=mark, owner=owner, decision=decision)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
        except PropositionError as problem:
            self.message_user(request, f"Proposition files cannot be used: {problem}", messages.ERROR)
        else:
            self.message_user(request, f"{p.id} {_DONE[decision]}.", messages.SUCCESS)
        return HttpResponseRedirect(propositions_url(owner) + anchor)

    # -- one proposition
    @console_page("about/<str:owner>/new/", name="evaluation_proposition_new")
    def new_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        return self.edit_view(request, owner)

    @console_page("about/<str:owner>/edit/")
    def edit_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Show the form of a new proposition, or with ``?at=`` of one there is; save, export, or try it as it is typed."""
        self._allow(request, change=True)
        owner = unquote(owner)
        files, problems = _read_files()
        if problems:
            return HttpResponseRedirect(propositions_url(owner))
        agent = _agent(owner)
        if agent is None and owner != DEFAULT and not any(file.agent_id == owner for file in files):
            raise Http404(f"There is no agent {owner!r}.")
        entry = _entry(request, owner, files) if "at" in request.GET else None
        try:
            editing = Editing(request, owner=owner, agent=agent, entry=entry, files=files)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(propositions_url(owner))
        context: dict[str, Any] = {}
        if request.method == "POST" and editing.is_valid():
            if "_export" in request.POST:
                return _download(editing.as_yaml(), f"{editing.id}.yaml")
            if "_try" in request.POST:
                context["trial"] = self._tried(request, editing.proposition(), agent)
            elif (saved := self._saved(request, editing)) is not None:
                return saved
        return self.page(
            request,
            f"{PAGES}edit.html",
            f"{agent or owner}: {'proposition' if entry else 'new proposition'}",
            name=_name_of(owner, agent),
            propositions_url=propositions_url(owner),
            may_try=_may_try(request) and agent is not None,
            card=_card(entry, PatternTimeout.of([entry.proposition.id])) if entry else {},
            **_editor(editing, agent),
            **context,
        )

    @console_page("about/<str:owner>/try/")
    def try_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Show what trying one proposition on ten messages would cost; after pressing the button, what it scored."""
        self._allow(request)
        owner = unquote(owner)
        files, _ = _read_files()
        entry = _entry(request, owner, files)
        p = entry.proposition
        if not can_be_tried(entry):
            raise Http404(f"{p.id} is not judged message by message.")
        agent = _agent(request.GET.get("agent", "") if owner == DEFAULT else owner)
        context: dict[str, Any] = {}
        if request.method == "POST":
            context["trial"] = self._tried(request, p, agent)
        elif agent is not None:
            context["estimate"] = estimate_sentence(p, agent, n=TRIED, window=TRIED_ON)
        return self.page(
            request,
            f"{PAGES}try.html",
            f"Try {p.id}",
            name=_name_of(owner, agent if owner != DEFAULT else None),
            card=_card(entry, PatternTimeout.of([p.id]), agent.display_name if agent else ""),
            agent=agent,
            agents=Agent.objects.filter(is_active=True)[:MOST_AGENTS] if owner == DEFAULT else (),
            at=request.GET.get("at", ""),
            may_try=_may_try(request),
            may_change=self.has_change_permission(request),
            propositions_url=propositions_url(owner),
            **context,
        )

    @console_page("about/<str:owner>/export/")
    def export_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Answer with a proposition file of one agent, dimension and level."""
        self._allow(request)
        owner = unquote(owner)
        dimension, level = request.GET.get("dimension", "adherence"), request.GET.get("level", "evaluation")
        if dimension not in Dimension.values or level not in LEVELS:
            raise Http404(f"Allowed: dimension {', '.join(Dimension.values)}; level {', '.join(LEVELS)}.")
        files, _ = _read_files()
        try:
            text = exported(owner, dimension, level, files=files, inactive=request.GET.get("inactive") == "1")
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(propositions_url(owner))
        if not text:
            raise Http404(f"Nothing of {dimension} is asked of {owner!r} alone.")
        return _download(text, f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml")

    def _saved(self, request: HttpRequest, editing: Editing) -> HttpResponse | None:
        """Save it and return the way back; None with the reasons in the form."""
        active = "_save" in request.POST
        try:
            with transaction.atomic():  # the log entry first: nothing is saved without one
                verb = "saved" if active else "saved as a suggestion"
                self._log(
                    request, editing.owner, editing.id, f"{verb}: {editing.form.cleaned_data['claim']} ({editing.id})"
                )
                where = editing.save(active=active)
        except CannotSave as problem:
            editing.form.blame(problem.errors)
            return None
        state = "it is judged from the next evaluation on" if active else "it is a suggestion until you accept it"
        text = f"{editing.id} is saved to {where.parent.name}/{where.name}: {state}."
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(f"{propositions_url(editing.owner)}#proposition-{editing.id}")

    def _tried(self, request: HttpRequest, p: Proposition, agent: Agent | None) -> dict[str, Any] | None:
        if not _may_try(request):
            raise PermissionDenied
        if agent is None:
            return None
        try:
            return trial_shown(try_proposition(proposition=p, agent=agent, n=TRIED, window=TRIED_ON, deadline=DEADLINE))
        except ValueError as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return None

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied

    def _log(self, request: HttpRequest, owner: str, proposition_id: str, text: str) -> None:
        LogEntry.objects.create(
            user=user_of(request),
            content_type=ContentType.objects.get_for_model(models.Proposition),
            object_id=owner,
            object_repr=proposition_id[:200],
            action_flag=CHANGE,
            change_message=text,
        )


def _read_files() -> tuple[Sequence[LoadedFile], Sequence[str]]:
    """The proposition files, or why they cannot be read; without those of an example whose slug an agent of the team's own has."""
    try:
        files, own = load_all(), own_agents_like_examples()
        return [file for file in files if file.agent_id not in own or not is_example(file)], ()
    except PropositionError as error:
        return (), [str(problem) for problem in error.problems]


def _has_model() -> bool:
    return not models.is_heuristic(settings.JUDGE_MODEL)


def _agent(slug: str) -> Agent | None:
    return Agent.objects.filter(slug=slug).prefetch_related("traits").first()


def _name_of(owner: str, agent: Agent | None) -> Any:
    """The agent they are about, "every agent", or a slug that no agent has."""
    if agent is not None:
        return display.agent_chip(agent)
    return display.isolated("every agent" if owner == DEFAULT else owner)


def _entry(request: HttpRequest, owner: str, files: Sequence[LoadedFile]) -> Entry:
    entry = entry_at(request.GET.get("at", ""), owner, files=files)
    if entry is None:
        raise Http404("There is no such proposition (any more).")
    return entry


def _card(
    entry: Entry, slow: Mapping[tuple[str, str], Any], name: str = "", persona: str | None = None
) -> dict[str, Any]:
    return card_of(entry, slow.get((entry.dimension, entry.proposition.id), ()), name, persona)


def _may_try(request: HttpRequest) -> bool:
    return request.user.has_perms(TRIAL_PERMISSIONS)


def _editor(editing: Editing, agent: Agent | None) -> dict[str, Any]:
    """The form and what stands around it."""
    entry, quoted = editing.entry, editing.form["source"].value() or ""
    place = place_for(owner=editing.owner, dimension=editing.dimension, level=editing.level, entry=entry)
    persona = render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else ""
    return {
        "form": editing.form,
        "entry": entry,
        "mark": editing.mark,
        "traits": editing.traits,
        "dimensions": [(name, Dimension(name).label) for name in editing.dimensions],
        "levels": LEVELS.items(),
        "dimension": editing.dimension,
        "level": editing.level,
        "place": display.visible(path_shown(place.path)) if place else "",
        "replaces": display.visible(path_shown(entry.path)) if place and place.replaces and entry else "",
        "no_folder": "" if place else NO_FOLDER,
        "quoted": quoted_in(str(quoted), persona) if agent and quoted else "",
    }


def _of_traits(agent: Agent, files: Sequence[LoadedFile]) -> dict[str, Any]:
    """The automatic propositions: of the traits that no file is about."""
    own = propositions_for(agent_slug=agent.slug, dimension="adherence", files=files, seeded=agent.seeded)
    rows = [
        (
            claim_of(p.claim, agent.display_name),
            "once over the window" if p.over_window else "message by message",
            format_html("<code>{}</code>", display.visible(p.id)),
        )
        for p in with_traits(own, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
        if p.source == FROM_A_TRAIT
    ]
    return {"count": len(rows), "table": table(("Proposition", "Judged", "Id"), rows, label="From traits")}


def _of_every_agent(about: Sequence[Entry], files: Sequence[LoadedFile]) -> dict[str, Any]:
    """What is asked of every agent, and not replaced or retired by one of this agent's own."""
    own = {(e.dimension, e.level, e.proposition.id) for e in about if e.state in ("accepted", "retired")}
    rows = []
    for entry in listed(DEFAULT, files=files):
        p, marks = entry.proposition, marks_of(entry)
        if p.target_type != "agent" or not p.active or (entry.dimension, entry.level, p.id) in own:
            continue
        if entry.dimension == "adherence":  # the only one that `marks_of` does not name
            marks = format_html("{} {}", dimension_badge(entry.dimension), marks)
        rows.append((display.visible(p.claim), marks, checked_by(p)))
    heads = ("Proposition", "Kind", "Checked by")
    return {"count": len(rows), "table": table(heads, rows, label="Asked of every agent")}


def _download(text: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{"".join(c for c in name if c.isalnum() or c in "._-")}"'
    return response
