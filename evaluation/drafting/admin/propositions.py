"""Propositions in the console: what is asked of each agent, suggestions to decide on, and the pages to write, try and export them."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

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
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.console.home import MOST_HITS, Hit, add_search
from agents.kit.console.site import ModelAdmin, console_page
from agents.kit.templatetags.display import register as templates
from agents.models import Agent
from agents.personas.persona import render_persona
from evaluation import models
from evaluation.admin.display import MEASURE, dimension_badge
from evaluation.dimensions import BY_ONE_MESSAGE, OF_PERSONA
from evaluation.drafting.admin.proposition_form import LEVELS, PropositionForm
from evaluation.drafting.editing import CHANGED, NO_FOLDER, CannotSave, Decision, decide, exported, place_for
from evaluation.drafting.suggesting import find_quote
from evaluation.drafting.trying import estimate_trial, try_proposition
from evaluation.models import Dimension, PatternTimeout
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
from evaluation.propositions.schema import AGENT_NAME, Proposition
from evaluation.windows import parse_window

PAGES = "admin/drafting/propositions/"
AROUND = 240  # characters of the persona shown before and after a quote
MOST_OTHERS = 50  # agents without propositions of their own that are listed
TRIED = 10  # messages
TRIED_ON = parse_window("last:1000")  # of what the agent said: a trial is about how it speaks now
DEADLINE = 20.0  # seconds for each call: a person waits for the page
TRIAL_PERMISSIONS = ("evaluation.add_evaluationrun", "agents.view_message")  # calls cost money, and messages are shown
STATES: dict[str, tuple[str, Tone, str]] = {  # heading, tone and hint, in the order of the page
    "suggested": ("Suggested", "info", "not judged before you accept it"),
    "accepted": ("In use", "good", "judged in every evaluation"),
    "rejected": ("Rejected", "plain", "a suggestion that was rejected: it is not suggested again"),
    "retired": ("Retired", "warning", "no longer judged; its scores stay"),
}
DONE = {
    Decision.ACCEPT: "is accepted: it is judged from the next evaluation on",
    Decision.REJECT: "is rejected, and will not be suggested again",
    Decision.UNDO: "is a suggestion again",
    Decision.RETIRE: "is retired: the next evaluation does not ask it, and its scores stay",
    Decision.RESTORE: "is in use again, from the next evaluation on",
}


# -- how one is shown
def card_of(
    entry: Entry, agent: Agent | None, persona: str | None, slow: Mapping[tuple[str, str], Any]
) -> dict[str, Any]:
    """Return a proposition with what its templates need besides it. Patterns that timed out are named while it still has them."""
    p = entry.proposition
    written = repr((p.rule, p.cues)).replace("\\\\", "\\")
    place = shlex.quote(f"{path_shown(entry.path)}:{p.id}")
    return {
        "entry": entry,
        "p": p,
        "claim": p.claim.replace(AGENT_NAME, agent.display_name if agent else AGENT_NAME),
        "badge": display.badge(STATES[entry.state][0].lower(), *STATES[entry.state][1:]),
        "quoted": quoted_in(p.quote, persona),
        "command": f"manage.py try_proposition {place} --agent {'SLUG' if entry.owner == DEFAULT else entry.owner}",
        "edit_url": page_url("edit", entry.owner, at=entry.key),
        "is_tried": entry.dimension in BY_ONE_MESSAGE and entry.level == "evaluation",  # by message, on what was sent
        "timeouts": [row for row in slow.get((entry.dimension, p.id), ()) if row.pattern.strip("/") in written],
    }


def place_in_folder(entry: Entry) -> str:
    """Return file and line, without its folder."""
    return f"{entry.path.parent.name}/{entry.proposition.source}"


def marks_of(entry: Entry) -> SafeString:
    """Return badges for what is not as usual about it."""
    p = entry.proposition
    marks = [display.badge("anti-pattern", "warning", "the score is flipped")] if p.inverted else []
    if p.hard:
        marks.append(display.badge("strict", "accent", "each flaw takes 20 % off"))
    if p.weight != 1:
        marks.append(display.badge(f"weight {p.weight:g}", "plain", "its share in the mean; usually 1"))
    if entry.dimension != OF_PERSONA:
        marks.append(dimension_badge(entry.dimension))
    if entry.level == "action":
        marks.append(display.badge("about drafts", "info", "asked by the gate, before a message is sent"))
    if p.trait:
        marks.append(display.badge(f"trait {p.trait}", "plain", "it replaces the automatic proposition of the trait"))
    return format_html_join(" ", "{}", ((mark,) for mark in marks))


def checked_by(p: Proposition) -> SafeString:
    """Return what judges it: an exact rule, or a judge; and what does so offline."""
    if p.rule is not None:
        checks = ((name, json.dumps(value, ensure_ascii=False)) for name, value in p.rule.checks().items())
        shown = format_html_join(" ", "<code>{}: {}</code>", ((name, display.visible(value)) for name, value in checks))
        return format_html("an exact rule {}", shown)
    if p.measure:
        return format_html("a judge; offline by the statistic <code>{}</code>", p.measure)
    if p.cues is None:
        return SafeString("a judge alone; without an LLM it is not scored")
    lists = ((label, words) for label, words in (("for it", p.cues.supports), ("against it", p.cues.contradicts)))
    words = ((label, display.visible(", ".join(phrases))) for label, phrases in lists if phrases)
    return format_html("a judge; offline by words {}", format_html_join(" · ", "{}: <code>{}</code>", words))


def quoted_in(quoted: str, persona: str | None) -> SafeString:
    """Return the quote, marked, amid what the persona says around it; alone when it is not there (any more)."""
    if not quoted:
        return SafeString('<span class="pl-subtle">no quote: written by hand</span>')
    span = find_quote(quoted, persona) if persona is not None else None
    if persona is None or span is None:
        gone = display.badge("not in the persona now", "warning", "the persona was changed, or there is no such agent")
        return format_html("<q>{}</q> {}", display.visible(quoted), gone)
    start, end = span
    before, after = persona[max(0, start - AROUND) : start], persona[end : end + AROUND]
    if start > AROUND:
        before = f"… {before.partition(' ')[2]}"
    if end + AROUND < len(persona):
        after = f"{after.rpartition(' ')[0]} …"
    return format_html("{}<mark>{}</mark>{}", *map(display.visible, (before, persona[start:end], after)))


for show in (checked_by, marks_of, place_in_folder):
    templates.filter(show.__name__, show)


def page_url(view: str, owner: str, **query: str) -> str:
    """Return the address of a page about an agent's propositions."""
    url = reverse(f"admin:evaluation_proposition_{view}", args=[quote(owner)])
    return f"{url}?{urlencode(query)}" if query else url


def propositions_url(owner: str) -> str:
    """Return the page of an agent's propositions."""
    return page_url("change", owner)


def path_shown(path: Path) -> Path:
    """Return the file as it is typed in the checkout."""
    return path.relative_to(settings.BASE_DIR) if path.is_relative_to(settings.BASE_DIR) else path


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

    def _may_suggest(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request) and request.user.has_perm(MEASURE)

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
        others = Agent.objects.in_use().exclude(slug__in=owners)
        if search:
            others = others.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
        return self.page(
            request,
            f"{PAGES}overview.html",
            "Propositions",
            rows=[
                (_name_of(owner, agents.get(owner)), propositions_url(owner), [(s, counts[owner, s]) for s in STATES])
                for owner in owners
                if search.lower() in f"{owner} {agents[owner].display_name if owner in agents else ''}".lower()
            ],
            states=[heading for heading, _, _ in STATES.values()],
            problems=problems,
            search=search,
            others=[
                (agent, propositions_url(agent.slug), page_url("new", agent.slug)) for agent in others[:MOST_OTHERS]
            ],
            most=MOST_OTHERS,
            has_model=_has_model(),
            suggest_url=reverse("admin:evaluation_job_suggest") if self._may_suggest(request) else "",
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
        files, problems = _read_files(owner)
        about = listed(owner, files=files)
        agent = _agent(owner)
        if not about and not problems and agent is None and owner != DEFAULT:
            raise Http404(f"There are no propositions about {owner!r}, nor is there such an agent.")
        chosen = request.GET.get("show", "")
        counts = Counter(entry.state for entry in about)
        order = sorted(about, key=lambda entry: list(STATES).index(entry.state))
        shown = [entry for entry in order if chosen not in STATES or entry.state == chosen]
        slow, persona = PatternTimeout.of(entry.proposition.id for entry in shown), _persona(agent)
        return self.page(
            request,
            f"{PAGES}agent.html",
            f"{agent or owner}: propositions",
            name=_name_of(owner, agent),
            cards=[card_of(entry, agent, persona, slow) for entry in shown],
            tabs=[("", "All", counts.total()), *((s, STATES[s][0], counts[s]) for s in STATES if counts[s])]
            if len(counts) > 1
            else [],
            chosen=chosen if chosen in STATES else "",
            traits=_of_traits(agent, files) if agent is not None and not problems else [],
            every_agent=_of_every_agent(about, files) if owner != DEFAULT else [],
            every_agent_url=propositions_url(DEFAULT),
            exports=[
                (dimension, level, page_url("export", owner, dimension=dimension, level=level))
                for dimension, level in sorted({(e.dimension, e.level) for e in about if e.proposition.active})
            ],
            problems=problems,
            may_change=self.has_change_permission(request),
            new_url=page_url("new", owner),
            suggest_url=f"{reverse('admin:evaluation_job_suggest')}?{urlencode({'agents': owner})}"
            if agent is not None and self._may_suggest(request)
            else "",
            overview_url=self.url("changelist"),
            history_url=page_url("history", owner),
        )

    def _decide(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Carry out ``accept=MARK``, ``reject=MARK``, ``undo=MARK``, ``retire=MARK`` or ``restore=MARK``."""
        pressed = [name for name in Decision if name in request.POST]
        if len(pressed) != 1:
            raise Http404(f"One button at a time: {', '.join(Decision)}.")
        [decision] = pressed
        anchor = ""
        try:
            entry = carry_out(request, owner=owner, mark=request.POST[decision], decision=decision)
            p = entry.proposition
            anchor = f"#proposition-{p.id}"
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
        except PropositionError as problem:
            self.message_user(request, f"Proposition files cannot be used: {problem}", messages.ERROR)
        else:
            self.message_user(request, f"{p.id} {DONE[decision]}.", messages.SUCCESS)
        return HttpResponseRedirect(propositions_url(owner) + anchor)

    # -- one proposition
    @console_page("about/<str:owner>/new/")
    def new_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        return self.edit_view(request, owner)

    @console_page("about/<str:owner>/edit/")
    def edit_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Show the form of a new proposition, or with ``?at=`` of one there is; save, export, or try it as it is typed."""
        self._allow(request, change=True)
        owner = unquote(owner)
        files, problems = _read_files(owner)
        if problems:
            return HttpResponseRedirect(propositions_url(owner))
        agent = _agent(owner)
        if agent is None and owner != DEFAULT and not any(file.agent_id == owner for file in files):
            raise Http404(f"There is no agent {owner!r}.")
        entry = _entry(request, owner, files) if "at" in request.GET else None
        sent = request.POST if request.method == "POST" else None
        try:
            form = PropositionForm(sent, owner=owner, agent=agent, entry=entry)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(propositions_url(owner))
        trial = None
        if sent is not None and form.is_valid():
            if "_export" in sent:
                return _download(form.as_yaml(), f"{form.cleaned_data['id']}.yaml")
            if "_try" in sent:
                trial = self._tried(request, form.proposition(), agent)
            elif (saved := self._saved(request, form)) is not None:
                return saved
        dimension, level = form.place()
        place = place_for(owner=owner, dimension=dimension, level=level, entry=entry)
        slow = PatternTimeout.of([entry.proposition.id]) if entry else {}
        quoted = str(form["source"].value() or "")
        may_try = _may_try(request) and agent is not None and dimension in BY_ONE_MESSAGE and level == "evaluation"
        estimate = None
        if may_try and entry is not None and agent is not None and trial is None:
            estimate = estimate_trial(proposition=entry.proposition, agent=agent, n=TRIED, window=TRIED_ON)
        return self.page(
            request,
            f"{PAGES}edit.html",
            f"{agent or owner}: {'proposition' if entry else 'new proposition'}",
            name=_name_of(owner, agent),
            propositions_url=propositions_url(owner),
            may_try=may_try,
            estimate=estimate,
            agent=agent,
            card=card_of(entry, agent, None, slow) if entry else {},
            form=form,
            entry=entry,
            place=path_shown(place.path) if place else "",
            replaces=path_shown(entry.path) if place and place.replaces and entry else "",
            no_folder=NO_FOLDER,
            quoted=quoted_in(quoted, _persona(agent)) if agent and quoted else "",
            trial=trial,
        )

    @console_page("about/<str:owner>/export/")
    def export_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Answer with a proposition file of one agent, dimension and level."""
        self._allow(request)
        owner = unquote(owner)
        dimension, level = request.GET.get("dimension", OF_PERSONA), request.GET.get("level", "evaluation")
        if dimension not in Dimension.values or level not in LEVELS:
            raise Http404(f"Allowed: dimension {', '.join(Dimension.values)}; level {', '.join(LEVELS)}.")
        files, _ = _read_files()
        try:
            text = exported(owner, dimension, level, files=files)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(propositions_url(owner))
        if not text:
            raise Http404(f"Nothing of {dimension} is asked of {owner!r} alone.")
        return _download(text, f"{owner}.action.yaml" if level == "action" else f"{owner}.yaml")

    def _saved(self, request: HttpRequest, form: PropositionForm) -> HttpResponse | None:
        """Save it and return the way back; None with the reasons in the form."""
        active, given = "_save" in request.POST, form.cleaned_data
        try:
            with transaction.atomic():  # the log entry first: nothing is saved without one
                verb = "saved" if active else "saved as a suggestion"
                _log(request, form.owner, given["id"], f"{verb}: {given['claim']} ({given['id']})")
                where = form.save(active=active)
        except CannotSave as problem:
            form.blame(problem.errors)
            return None
        state = "it is judged from the next evaluation on" if active else "it is a suggestion until you accept it"
        text = f"{given['id']} is saved to {where.parent.name}/{where.name}: {state}."
        self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(f"{propositions_url(form.owner)}#proposition-{given['id']}")

    def _tried(self, request: HttpRequest, p: Proposition, agent: Agent | None) -> dict[str, Any] | None:
        if not _may_try(request):
            raise PermissionDenied
        if agent is None:
            return None
        try:
            trial = try_proposition(proposition=p, agent=agent, n=TRIED, window=TRIED_ON, deadline=DEADLINE)
        except ValueError as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return None
        spent = trial.spent
        priced = None if spent.unpriced == spent.calls else spent.cost_usd
        # The lowest scores first: they show what the judge objects to.
        lowest = sorted(trial.messages, key=lambda one: (one.score is None, one.score or 0.0))
        return {"of": trial, "lowest": lowest, "cost": display.money(priced, unpriced=spent.unpriced)}

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied


def carry_out(request: HttpRequest, *, owner: str, mark: str, decision: Decision) -> Entry:
    """Decide about a proposition and note it in the history; return the proposition as it was. For the errors see `decide`."""
    with transaction.atomic():  # the log entry first: nothing is decided without one
        entry = entry_marked(mark, owner)
        if entry is None:
            raise CannotSave(CHANGED)
        p = entry.proposition
        _log(request, owner, p.id, f"{decision}: {p.claim} ({p.id} in {entry.path})")
        return decide(mark=mark, owner=owner, decision=decision)


def _log(request: HttpRequest, owner: str, proposition_id: str, text: str) -> None:
    LogEntry.objects.create(
        user=user_of(request),
        content_type=ContentType.objects.get_for_model(models.Proposition),
        object_id=owner,
        object_repr=proposition_id[:200],
        action_flag=CHANGE,
        change_message=text,
    )


def _read_files(owner: str = "") -> tuple[Sequence[LoadedFile], Sequence[str]]:
    """The proposition files, without those of an example whose slug an agent of the team's own has, and what is wrong with them.

    With an `owner` the problems are of the files that are read for it.
    """
    try:
        every, own = load_all(), own_agents_like_examples()
    except PropositionError as error:
        return (), [str(problem) for problem in error.problems]
    files = [file for file in every if file.agent_id not in own or not is_example(file)]
    concerned = [file for file in files if not owner or file.agent_id in (owner, DEFAULT)]
    return files, [str(problem) for file in concerned for problem in file.problems]


def _has_model() -> bool:
    return not models.is_heuristic(settings.JUDGE_MODEL)


def _agent(slug: str) -> Agent | None:
    return Agent.objects.filter(slug=slug).prefetch_related("traits").first()


def _persona(agent: Agent | None) -> str | None:
    return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()) if agent else None


def _name_of(owner: str, agent: Agent | None) -> Any:
    """The agent they are about, "every agent", or a slug that no agent has."""
    if agent is not None:
        return agent_chip(agent)
    return display.isolated("every agent" if owner == DEFAULT else owner)


def _entry(request: HttpRequest, owner: str, files: Sequence[LoadedFile]) -> Entry:
    entry = entry_at(request.GET.get("at", ""), owner, files=files)
    if entry is None:
        raise Http404("There is no such proposition (any more).")
    return entry


def _may_try(request: HttpRequest) -> bool:
    return request.user.has_perms(TRIAL_PERMISSIONS)


def _of_traits(agent: Agent, files: Sequence[LoadedFile]) -> list[tuple[str, Proposition]]:
    """The automatic propositions, with their sentences: of the traits that no file is about."""
    own = propositions_for(agent_slug=agent.slug, dimension=OF_PERSONA, files=files, seeded=agent.seeded)
    asked = with_traits(own, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
    return [(p.claim.replace(AGENT_NAME, agent.display_name), p) for p in asked if p.source == FROM_A_TRAIT]


def _of_every_agent(about: Sequence[Entry], files: Sequence[LoadedFile]) -> list[Entry]:
    """What is asked of every agent, and not replaced or retired by one of this agent's own."""
    own = {(e.dimension, e.level, e.proposition.id) for e in about if e.state in ("accepted", "retired")}
    return [
        entry
        for entry in listed(DEFAULT, files=files)
        if entry.proposition.target_type == "agent"
        and entry.proposition.active
        and (entry.dimension, entry.level, entry.proposition.id) not in own
    ]


def _download(text: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{"".join(c for c in name if c.isalnum() or c in "._-")}"'
    return response


def propositions_like(request: HttpRequest, typed: str) -> list[Hit]:
    """The propositions with this in their id or claim, for the search of the console."""
    entries = (
        e for e in all_entries(_read_files()[0]) if typed.lower() in f"{e.proposition.id} {e.proposition.claim}".lower()
    )
    return [
        Hit(
            e.proposition.id,
            f"proposition of {e.owner}: {display.shortened(e.proposition.claim.replace(AGENT_NAME, 'the agent'), 60)}",
            _page_with(e),
            "edit_note",
        )
        for e in islice(entries, MOST_HITS)
    ]


def _page_with(entry: Entry) -> str:
    return f"{propositions_url(entry.owner)}#proposition-{entry.proposition.id}"


add_search("evaluation.view_proposition", propositions_like)
