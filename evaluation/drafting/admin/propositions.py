"""Propositions in the console: what is asked of each agent, suggestions to decide on, and the pages to write and try one."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.display import agent_chip
from agents.builds import newest_builds
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.display import Tone
from agents.kit.console.filters import number_in
from agents.kit.console.home import MOST_HITS, Hit, add_search
from agents.kit.console.site import ModelAdmin, console_page
from agents.kit.templatetags.display import register as templates
from agents.models import Agent, Message
from agents.personas.persona import render_persona
from evaluation import models
from evaluation.admin.asking import ways_to_evaluate
from evaluation.admin.display import MEASURE, dimension_badge
from evaluation.dimensions import BY_ONE_MESSAGE, OF_PERSONA
from evaluation.drafting.admin.proposition_form import PropositionForm, SentenceForm, YamlForm, as_text, initial_of
from evaluation.drafting.counting import RuleCount, count_rule, last_messages
from evaluation.drafting.editing import CHANGED, NO_FOLDER, CannotSave, Decision, decide, place_for, team_folder
from evaluation.drafting.offered import offered_sentences
from evaluation.drafting.sentences import BY_NAME, Sentence, typed
from evaluation.drafting.suggesting import find_quote
from evaluation.drafting.trying import estimate_trial, try_proposition
from evaluation.models import PatternTimeout
from evaluation.propositions.entries import Entry, all_entries, entry_at, entry_marked, listed
from evaluation.propositions.files import (
    DEFAULT,
    LoadedFile,
    PropositionError,
    is_example,
    load_all,
    own_agents_like_examples,
    propositions_for,
)
from evaluation.propositions.rules import Rule
from evaluation.propositions.schema import AGENT_NAME, Proposition
from evaluation.propositions.traits import FROM_A_TRAIT, with_traits
from evaluation.windows import parse_window

PAGES = "admin/drafting/propositions/"
CHARACTERS_AROUND_QUOTE = 240  # of the persona, before and after
MOST_OTHERS = 50  # agents without propositions of their own that are listed
TRIED_MESSAGES = 10
MOST_OF_MESSAGE = 200  # characters of a message that fill in a sentence; the person shortens them
NOT_IN_PHRASES = re.compile(r'["“”„]')  # they would end the phrase
TRIED_WINDOW = parse_window("last:1000")  # of what the agent said: a trial is about how it speaks now
TRIAL_DEADLINE = 20.0  # seconds for each call: a person waits for the page
COUNT_PERMISSIONS = ("evaluation.change_proposition", "agents.view_message")
TRIAL_PERMISSIONS = ("evaluation.add_evaluationrun", "agents.view_message")  # calls cost money, and messages are shown


@dataclass(frozen=True, slots=True)
class _State:
    """A state of propositions as pages show it."""

    heading: str
    tone: Tone
    hint: str


STATES: Mapping[str, _State] = {  # in the order of the page
    "suggested": _State("Suggested", "info", "not judged before you accept it"),
    "accepted": _State("In use", "good", "judged in every evaluation"),
    "rejected": _State("Rejected", "plain", "a suggestion that was rejected: it is not suggested again"),
    "retired": _State("Retired", "warning", "no longer judged; its scores stay"),
}
DECISION_MESSAGES: Mapping[Decision, str] = {
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
    """Return a proposition with what its templates need besides it.

    Args:
        agent: Whom it is about; None: every agent, or a slug that no agent has.
        persona: Of the agent, in which the quote is shown; None: the quote is shown alone.
        slow: Patterns that timed out, by dimension and id; they are named while the proposition still has them.
    """
    proposition = entry.proposition
    state = STATES[entry.state]
    # As `repr` writes them, with the backslashes of a pattern single again: a timeout stays shown while its pattern is still in there.
    patterns = repr((proposition.rule, proposition.cues)).replace("\\\\", "\\")
    timeouts = slow.get((entry.dimension, proposition.id), ())
    return {
        "entry": entry,
        "p": proposition,
        "claim": proposition.claim.replace(AGENT_NAME, agent.display_name if agent else AGENT_NAME),
        "badge": display.badge(state.heading.lower(), state.tone, state.hint),
        "quoted": quoted_in(proposition.quote, persona),
        "command": _trial_command(entry),
        "edit_url": page_url("edit", entry.owner, at=entry.key),
        "is_tried": entry.dimension in BY_ONE_MESSAGE and entry.level == "evaluation",  # by message, on what was sent
        "timeouts": [timeout for timeout in timeouts if timeout.pattern.strip("/") in patterns],
    }


def _trial_command(entry: Entry) -> str:
    proposition = shlex.quote(f"{path_shown(entry.path)}:{entry.proposition.id}")
    agent = "SLUG" if entry.owner == DEFAULT else entry.owner
    return f"manage.py try_proposition {proposition} --agent {agent}"


def place_in_folder(entry: Entry) -> str:
    """Return file and line, without its folder."""
    return f"{entry.path.parent.name}/{entry.proposition.source}"


def marks_of(entry: Entry) -> SafeString:
    """Return badges for what is not as usual about a proposition; empty where all is."""
    proposition = entry.proposition
    badges: list[SafeString] = []
    if proposition.inverted:
        badges.append(display.badge("anti-pattern", "warning", "the score is flipped"))
    if proposition.hard:
        badges.append(display.badge("strict", "accent", "each flaw takes 20 % off"))
    if proposition.weight != 1:
        badges.append(display.badge(f"weight {proposition.weight:g}", "plain", "its share in the mean; usually 1"))
    if entry.dimension != OF_PERSONA:
        badges.append(dimension_badge(entry.dimension))
    if entry.level == "action":
        badges.append(display.badge("about drafts", "info", "asked by the gate, before a message is sent"))
    if proposition.trait:
        hint = "it replaces the automatic proposition of the trait"
        badges.append(display.badge(f"trait {proposition.trait}", "plain", hint))
    return format_html_join(" ", "{}", ((badge,) for badge in badges))


def checked_by(proposition: Proposition) -> SafeString:
    """Return what judges a proposition: an exact rule, or a judge; and what does so offline: a statistic, words, or nothing."""
    if proposition.rule is not None:
        checks = []
        for name, value in proposition.rule.checks().items():
            checks.append((name, display.visible(json.dumps(value, ensure_ascii=False))))
        checks_html = format_html_join(" ", "<code>{}: {}</code>", checks)
        if proposition.of_ten is not None:
            return format_html("an exact rule, in {} of 10 messages {}", proposition.of_ten, checks_html)
        return format_html("an exact rule {}", checks_html)
    if proposition.measure:
        return format_html("a judge; offline by the statistic <code>{}</code>", proposition.measure)
    if proposition.cues is None:
        return SafeString("a judge alone; without an LLM it is not scored")
    phrases = []
    if proposition.cues.supports:
        phrases.append(("for it", display.visible(", ".join(proposition.cues.supports))))
    if proposition.cues.contradicts:
        phrases.append(("against it", display.visible(", ".join(proposition.cues.contradicts))))
    return format_html("a judge; offline by words {}", format_html_join(" · ", "{}: <code>{}</code>", phrases))


def quoted_in(quoted: str, persona: str | None) -> SafeString:
    """Return the quote, marked, amid what the persona says around it; alone, with a badge, when it is not there (any more).

    Args:
        quoted: Empty: the proposition has no quote, which is said.
        persona: None: there is none to look in.
    """
    if not quoted:
        return SafeString('<span class="pl-subtle">no quote: written by hand</span>')
    span = find_quote(quoted, persona) if persona is not None else None
    if persona is None or span is None:
        gone = display.badge("not in the persona now", "warning", "the persona was changed, or there is no such agent")
        return format_html("<q>{}</q> {}", display.visible(quoted), gone)
    start, end = span
    first = start - CHARACTERS_AROUND_QUOTE
    last = end + CHARACTERS_AROUND_QUOTE
    before = persona[max(0, first) : start]
    after = persona[end:last]
    if first > 0:  # begins with a whole word
        before = f"… {before.partition(' ')[2]}"
    if last < len(persona):
        after = f"{after.rpartition(' ')[0]} …"
    return format_html("{}<mark>{}</mark>{}", *map(display.visible, (before, persona[start:end], after)))


for template_filter in (checked_by, marks_of, place_in_folder):
    templates.filter(template_filter.__name__, template_filter)


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
        """Return what the history of decisions is about: Django logs them by the agent's slug."""
        return models.Proposition(pk=object_id)

    def _may_suggest(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request) and request.user.has_perm(MEASURE)

    # -- lists
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show which agents have propositions of their own, and how many in each state; ``?q=`` narrows by name or slug.

        Raises:
            PermissionDenied: The user may not view propositions.
        """
        self._allow(request)
        search = request.GET.get("q", "").strip()[:100]
        read = _read_files()
        return self.page(
            request,
            f"{PAGES}overview.html",
            "Propositions",
            rows=_overview_rows(read.files, search),
            states=[state.heading for state in STATES.values()],
            problems=read.problems,
            search=search,
            others=_agents_without_propositions(read.files, search),
            most=MOST_OTHERS,
            has_model=not models.is_heuristic(settings.JUDGE_MODEL),
            suggest_url=reverse("admin:evaluation_job_suggest") if self._may_suggest(request) else "",
            may_change=self.has_change_permission(request),
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the propositions about one agent (`object_id` is its slug), with ``?show=`` of one state; POST decides about one.

        Raises:
            PermissionDenied: The user may not view, or with POST not change, propositions.
            Http404: There is neither a proposition about it nor such an agent.
        """
        self._allow(request, change=request.method == "POST")
        owner = unquote(object_id)
        if request.method == "POST":
            return self._decide(request, owner)
        read = _read_files(owner)
        about = listed(owner, files=read.files)
        agent = _find_agent(owner)
        is_known = bool(about) or bool(read.problems) or agent is not None or owner == DEFAULT
        if not is_known:
            raise Http404(f"There are no propositions about {owner!r}, nor is there such an agent.")
        chosen = request.GET.get("show", "")
        if chosen not in STATES:
            chosen = ""
        suggest_url = ""
        if agent is not None and self._may_suggest(request):
            suggest_url = f"{reverse('admin:evaluation_job_suggest')}?{urlencode({'agents': owner})}"
        return self.page(
            request,
            f"{PAGES}agent.html",
            f"{agent or owner}: propositions",
            name=_name_of(owner, agent),
            cards=_cards(about, agent, chosen),
            tabs=_tabs(about),
            chosen=chosen,
            traits=_trait_propositions(agent, read.files) if agent is not None and not read.problems else [],
            every_agent=_asked_of_every_agent(about, read.files) if owner != DEFAULT else [],
            every_agent_url=propositions_url(DEFAULT),
            problems=read.problems,
            may_change=self.has_change_permission(request),
            new_url=page_url("new", owner),
            offered=self._offered_on(request, agent, read),
            may_add=team_folder() is not None,
            ways=_ways_to_evaluate(request, agent, about),
            suggest_url=suggest_url,
            overview_url=self.url("changelist"),
            history_url=page_url("history", owner),
        )

    def _offered_on(self, request: HttpRequest, agent: Agent | None, read: _ReadFiles) -> list[_OfferedRow]:
        """Return the sentences that the persona suggests, for who may add them."""
        if agent is None or read.problems or not self.has_change_permission(request):
            return []
        return _offered(request, agent, read.files)

    def _decide(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Carry out ``accept=MARK``, ``reject=MARK``, ``undo=MARK``, ``retire=MARK`` or ``restore=MARK``; lead back to the propositions.

        Where it cannot be done, a message there says why.

        Raises:
            Http404: Not exactly one of these was sent.
        """
        pressed = [decision for decision in Decision if decision in request.POST]
        if len(pressed) != 1:
            raise Http404(f"One button at a time: {', '.join(Decision)}.")
        decision = pressed[0]
        anchor = ""
        try:
            entry = carry_out(request, owner=owner, mark=request.POST[decision], decision=decision)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
        except PropositionError as problem:
            self.message_user(request, f"Proposition files cannot be used: {problem}", messages.ERROR)
        else:
            identifier = entry.proposition.id
            anchor = f"#proposition-{identifier}"
            self.message_user(request, f"{identifier} {DECISION_MESSAGES[decision]}.", messages.SUCCESS)
        return HttpResponseRedirect(propositions_url(owner) + anchor)

    # -- one proposition
    @console_page("about/<str:owner>/new/")
    def new_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        return self.edit_view(request, owner)

    @console_page("about/<str:owner>/edit/")
    def edit_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Show the form of a new proposition, or with ``?at=`` of one there is; POST saves, exports, or tries it as it is typed.

        It is shown as a sentence with blanks where one says all of it, and else as YAML; the buttons ``_yaml`` and ``_sentence`` change
        between the two without saving. Where files are broken, or the proposition's file cannot be read, lead back to the agent's
        propositions, which say why.

        Raises:
            PermissionDenied: The user may not change propositions.
            Http404: There is no such agent or proposition.
        """
        self._allow(request, change=True)
        owner = unquote(owner)
        read = _read_files(owner)
        if read.problems:
            return HttpResponseRedirect(propositions_url(owner))
        agent, entry = _agent_and_entry(request, owner, read.files)
        try:
            form = _form_of(request, owner, entry)
        except CannotSave as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return HttpResponseRedirect(propositions_url(owner))
        trial = None
        if request.method == "POST" and "_yaml" in request.POST:
            form = _typed_as_yaml(form)
        elif request.method == "POST" and "_sentence" in request.POST:
            form = self._typed_as_sentence(request, form)
        elif request.method == "POST" and form.is_valid():
            if "_export" in request.POST:
                return _download(form.as_yaml(), f"{form.id}.yaml")
            if "_try" in request.POST:
                trial = self._trial(request, form.proposition(), agent)
            else:
                saved = self._save(request, form, agent)
                if saved is not None:
                    return saved
        return self.page(
            request,
            f"{PAGES}edit.html",
            f"{agent or owner}: {'proposition' if entry else 'new proposition'}",
            name=_name_of(owner, agent),
            sentence_name=agent.display_name if agent else "The agent",
            propositions_url=propositions_url(owner),
            agent=agent,
            form=form,
            entry=entry,
            trial=trial,
            offered=_offered(request, agent, read.files) if agent is not None and entry is None else None,
            may_add=team_folder() is not None,
            comparing=_comparing(request, agent),
            **_edit_context(request, form, agent, entry, has_trial=trial is not None),
        )

    @console_page("about/<str:owner>/count/", *COUNT_PERMISSIONS, post=True)
    def count_view(self, request: HttpRequest, owner: str) -> HttpResponse:
        """Answer in how many of the agent's last 50 messages the rule as it is typed holds, as a piece of HTML; nothing is stored.

        Raises:
            Http404: There is no such agent or proposition.
        """
        owner = unquote(owner)
        read = _read_files(owner)
        agent, entry = _agent_and_entry(request, owner, read.files)
        try:
            counted = _counted(_form_of(request, owner, entry), agent)
        except CannotSave as problem:
            counted = _Counted(why_not=str(problem))
        except PropositionError as problem:
            counted = _Counted(why_not=f"Proposition files cannot be used: {problem}")
        return render(request, f"{PAGES}count.html", {"counted": counted, "agent": agent})

    def _typed_as_sentence(self, request: HttpRequest, form: PropositionForm) -> PropositionForm:
        """Return the form of the sentence that says what is typed as YAML; the form as it is, and a message, where none does."""
        if not isinstance(form, YamlForm) or not form.is_valid():
            return form
        sentence = form.sentence()
        if sentence is None:
            self.message_user(request, "None of the sentences says all of this: it stays YAML.", messages.WARNING)
            return form
        initial = initial_of(sentence) | {"source": form.cleaned_data["fields"].get("source", "")}
        return SentenceForm(owner=form.owner, entry=form.entry, initial=initial)

    def _save(self, request: HttpRequest, form: PropositionForm, agent: Agent | None) -> HttpResponse | None:
        """Save a proposition and return where to go next; None where it cannot be, with the reasons in the form.

        The button ``_save`` puts it in use, and ``_evaluate`` leads on to the evaluation of the two newest builds; any other saves it as a
        suggestion.
        """
        is_active = "_save" in request.POST or "_evaluate" in request.POST
        identifier, claim = form.id, form.claim
        verb = "saved" if is_active else "saved as a suggestion"
        try:
            with transaction.atomic():  # the log entry first: nothing is saved without one
                _log(request, form.owner, identifier, f"{verb}: {claim} ({identifier})")
                path = form.save(active=is_active)
        except CannotSave as problem:
            form.show_errors(problem.errors)
            return None
        state = "it is judged from the next evaluation on" if is_active else "it is a suggestion until you accept it"
        text = f"{identifier} is saved to {path.parent.name}/{path.name}: {state}."
        self.message_user(request, text, messages.SUCCESS)
        comparing = _comparing(request, agent) if "_evaluate" in request.POST else None
        if comparing is not None:
            url, _ = comparing
            return HttpResponseRedirect(url)
        anchor = (
            f"#proposition-{identifier}" if form.entry else ""
        )  # after a new one the buttons to evaluate are at hand
        return HttpResponseRedirect(propositions_url(form.owner) + anchor)

    def _trial(self, request: HttpRequest, proposition: Proposition, agent: Agent | None) -> dict[str, Any] | None:
        """Try a proposition and return what the template shows; None without an agent to try it on, or where a message says why not.

        Raises:
            PermissionDenied: The user may not try.
        """
        if not _may_try(request):
            raise PermissionDenied
        if agent is None:
            return None
        try:
            trial = try_proposition(
                proposition=proposition,
                agent=agent,
                n=TRIED_MESSAGES,
                window=TRIED_WINDOW,
                deadline=TRIAL_DEADLINE,
            )
        except ValueError as problem:
            self.message_user(request, str(problem), messages.ERROR)
            return None
        spent = trial.spent
        has_price = spent.unpriced != spent.calls  # of some call at least
        # The lowest scores first, for they show what the judge objects to; messages without a score last.
        lowest = sorted(trial.messages, key=lambda tried: (tried.score is None, tried.score or 0.0))
        cost = display.money(spent.cost_usd if has_price else None, unpriced=spent.unpriced)
        return {"result": trial, "lowest": lowest, "cost": cost}

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        """Refuse users who may not view, or change, propositions."""
        is_allowed = self.has_change_permission(request) if change else self.has_view_permission(request)
        if not is_allowed:
            raise PermissionDenied


def carry_out(request: HttpRequest, *, owner: str, mark: str, decision: Decision) -> Entry:
    """Decide about a proposition and note it in the history; return the proposition as it was.

    Raises:
        CannotSave: It was changed since the page was opened, its state does not allow this, or its file cannot be written.
        PropositionError: Proposition files cannot be used.
    """
    with transaction.atomic():  # the log entry first: nothing is decided without one
        entry = entry_marked(mark, owner)
        if entry is None:
            raise CannotSave(CHANGED)
        identifier, claim = entry.proposition.id, entry.proposition.claim
        _log(request, owner, identifier, f"{decision}: {claim} ({identifier} in {entry.path})")
        return decide(mark=mark, owner=owner, decision=decision)


def _log(request: HttpRequest, owner: str, proposition_id: str, text: str) -> None:
    """Store an entry in the history of an agent's propositions."""
    LogEntry.objects.create(
        user=user_of(request),
        content_type=ContentType.objects.get_for_model(models.Proposition),
        object_id=owner,
        object_repr=proposition_id[:200],
        action_flag=CHANGE,
        change_message=text,
    )


@dataclass(frozen=True, slots=True)
class _ReadFiles:
    """Proposition files, and what is wrong with those that are shown."""

    files: Sequence[LoadedFile]
    problems: Sequence[str]


def _read_files(owner: str = "") -> _ReadFiles:
    """Return the proposition files, without those of an example whose slug an agent of the team's own has.

    Where files cannot be loaded at all, the result has no files, and all problems.

    Args:
        owner: Only problems of files about this agent or every agent; empty = those of all.
    """
    try:
        all_files = load_all()
    except PropositionError as error:
        return _ReadFiles((), [str(problem) for problem in error.problems])
    own_slugs = own_agents_like_examples()
    files = [file for file in all_files if file.agent_id not in own_slugs or not is_example(file)]
    problems: list[str] = []
    for file in files:
        if not owner or file.agent_id in (owner, DEFAULT):
            problems += map(str, file.problems)
    return _ReadFiles(files, problems)


# -- the overview
def _overview_rows(files: Sequence[LoadedFile], search: str) -> list[tuple[Any, str, list[tuple[str, int]]]]:
    """Return name, address and counts by state of each agent with propositions, those with most suggestions first.

    Args:
        search: Only agents that have this in slug or name, in any case.
    """
    entries = all_entries(files)
    counts = Counter((entry.owner, entry.state) for entry in entries)
    owners = sorted({entry.owner for entry in entries}, key=lambda owner: (-counts[owner, "suggested"], owner))
    agents = {agent.slug: agent for agent in Agent.objects.filter(slug__in=owners)}
    rows = []
    for owner in owners:
        agent = agents.get(owner)
        names = f"{owner} {agent.display_name if agent else ''}"
        if search.lower() in names.lower():
            by_state = [(state, counts[owner, state]) for state in STATES]
            rows.append((_name_of(owner, agent), propositions_url(owner), by_state))
    return rows


def _agents_without_propositions(files: Sequence[LoadedFile], search: str) -> list[tuple[Agent, str, str]]:
    """Return agents with the addresses of their propositions and of a new one."""
    owners = {entry.owner for entry in all_entries(files)}
    agents = Agent.objects.in_use().exclude(slug__in=owners)
    if search:
        agents = agents.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
    return [(agent, propositions_url(agent.slug), page_url("new", agent.slug)) for agent in agents[:MOST_OTHERS]]


# -- the page of an agent
def _cards(about: Sequence[Entry], agent: Agent | None, chosen: str) -> list[dict[str, Any]]:
    """Return the propositions of a state (empty = of all) as the page shows them: suggested ones first, see `STATES`."""
    order = list(STATES)
    entries = [entry for entry in about if not chosen or entry.state == chosen]
    entries.sort(key=lambda entry: order.index(entry.state))
    slow = PatternTimeout.of(entry.proposition.id for entry in entries)
    persona = _persona(agent)
    return [card_of(entry, agent, persona, slow) for entry in entries]


def _tabs(about: Sequence[Entry]) -> list[tuple[str, str, int]]:
    """Return state, heading and count of each tab, first that of all states (empty); no tabs where there is one state only."""
    counts = Counter(entry.state for entry in about)
    if len(counts) < 2:
        return []
    tabs = [("", "All", counts.total())]
    for state, shown_as in STATES.items():
        if counts[state]:
            tabs.append((state, shown_as.heading, counts[state]))
    return tabs


# -- the page of a proposition
def _edit_context(
    request: HttpRequest, form: PropositionForm, agent: Agent | None, entry: Entry | None, *, has_trial: bool
) -> dict[str, Any]:
    """Return what else the page shows: where it would be saved, what a trial would take, and how its quote stands in the persona.

    No `place`: there is no folder to save to. An estimate is made of the proposition as it is stored, and not beside a trial.

    Args:
        agent: None: about every agent, or a slug that no agent has, so there is no persona and no trial.
        entry: The proposition that is edited; None for a new one.
    """
    dimension, level = form.dimension_and_level()
    may_count = agent is not None and _may_count(request)
    context: dict[str, Any] = {"no_folder": NO_FOLDER, "may_count": may_count}
    if may_count:
        query = {"at": request.GET["at"]} if "at" in request.GET else {}
        context["count_url"] = page_url("count", form.owner, **query)
        context["counted"] = _counted(form, agent)
    place = place_for(owner=form.owner, dimension=dimension, level=level, entry=entry)
    if place is not None:
        context["place"] = path_shown(place.path)
        if place.replaces and entry is not None:
            context["replaces"] = path_shown(entry.path)
    if entry is not None:
        context["card"] = card_of(entry, agent, None, PatternTimeout.of([entry.proposition.id]))
    if agent is None:
        return context
    quoted = entry.proposition.quote if entry else str(request.GET.get("source", ""))
    if quoted:
        context["quoted"] = quoted_in(quoted, _persona(agent))
    is_by_message = dimension in BY_ONE_MESSAGE and level == "evaluation"
    may_try = form.is_yaml and is_by_message and _may_try(request)
    context["may_try"] = may_try
    if may_try and entry is not None and not has_trial:
        context["estimate"] = estimate_trial(
            proposition=entry.proposition, agent=agent, n=TRIED_MESSAGES, window=TRIED_WINDOW
        )
    return context


def _agent_and_entry(
    request: HttpRequest, owner: str, files: Sequence[LoadedFile]
) -> tuple[Agent | None, Entry | None]:
    """Return the agent of a page and the proposition that ``?at=`` names; None for an agent that is not there any more, and a new one.

    Raises:
        Http404: Neither agent nor file is about this owner, or there is no such proposition.
    """
    agent = _find_agent(owner)
    if agent is None and owner != DEFAULT and not any(file.agent_id == owner for file in files):
        raise Http404(f"There is no agent {owner!r}.")
    return agent, _entry_or_404(request, owner, files) if "at" in request.GET else None


def _form_of(request: HttpRequest, owner: str, entry: Entry | None) -> PropositionForm:
    """Return the form that was sent, or that the proposition is shown in. The address may fill in the sentence of a new one.

    Raises:
        CannotSave: The proposition's file cannot be read.
    """
    if request.method == "POST":
        form_class = YamlForm if "prop-yaml" in request.POST else SentenceForm
        return form_class(request.POST, owner=owner, entry=entry)
    if entry is None:
        return SentenceForm(
            owner=owner, entry=None, initial={**_typed_from_message(request, owner), **request.GET.dict()}
        )
    form = SentenceForm(owner=owner, entry=entry)
    return form if form.sentence is not None else YamlForm(owner=owner, entry=entry)


def _typed_from_message(request: HttpRequest, owner: str) -> dict[str, str]:
    """Return the sentence that the agent never says what ``?from_message=`` says; empty where there is no such message to read."""
    number = number_in(request.GET, "from_message")
    if number is None or not request.user.has_perm("agents.view_message"):
        return {}
    text = Message.objects.filter(pk=number, agent__slug=owner).values_list("text", flat=True).first()
    words = " ".join(NOT_IN_PHRASES.sub(" ", text or "").split())
    if not words:
        return {}
    phrase = words[:MOST_OF_MESSAGE].rsplit(" ", 1)[0] if len(words) > MOST_OF_MESSAGE else words
    never = BY_NAME["never"]
    return initial_of(Sentence(never, {never.blanks[0].name: typed([phrase])}))


def _typed_as_yaml(form: PropositionForm) -> YamlForm:
    """Return the YAML of what is typed as a sentence; of what is saved, or an empty one, where a blank is empty."""
    initial = {"yaml": as_text(form.cleaned_data["fields"])} if form.is_valid() else None
    return YamlForm(owner=form.owner, entry=form.entry, initial=initial)


# -- counts, and what the persona suggests
@dataclass(frozen=True, slots=True)
class _Counted:
    """What the page says of the rule that is typed: the count, or why there is none."""

    count: RuleCount | None = None
    why_not: str = ""


def _counted(form: PropositionForm, agent: Agent | None) -> _Counted:
    """Count the rule that is typed, or that an unsent form is filled in with, on the agent's last 50 messages."""
    if agent is None:
        return _Counted(why_not="There is no agent to count on.")
    if not form.is_bound:
        filled = {f"{form.prefix}-{name}": form[name].value() for name in form.fields}
        if not form.is_yaml and not form["kind"].value():
            return _Counted(why_not="Fill in a sentence to see in how many messages it holds.")
        form = type(form)(filled, owner=form.owner, entry=form.entry)
    if not form.is_valid():
        problems = [str(error) for errors in form.errors.values() for error in errors]
        return _Counted(why_not=" ".join(problems))
    proposition = form.proposition()
    if proposition.rule is None:
        return _Counted(why_not="It has no rule to count: a judge scores it. Try it on 10 messages.")
    if proposition.inverted or proposition.precondition:
        return _Counted(why_not="A rule that is inverted or has a precondition is not counted. Try it on 10 messages.")
    recent_messages = last_messages(agent)
    if not recent_messages:
        return _Counted(why_not=f"{agent.display_name} has said nothing yet, so there is nothing to count.")
    return _Counted(count_rule(messages=recent_messages, rule=proposition.rule, of_ten=proposition.of_ten))


@dataclass(frozen=True, slots=True)
class _OfferedRow:
    """A sentence that the persona suggests, as the page shows it.

    Attributes:
        claim: With the agent's name; empty where a blank is to be filled in first.
        count: On the agent's last messages; None where the person may not read these, or there are none.
        typed: The form's fields by their names in the page. `url`: of the page with these filled in.
    """

    quote: str
    claim: str
    count: RuleCount | None
    typed: Mapping[str, str]
    url: str


def _offered(request: HttpRequest, agent: Agent, files: Sequence[LoadedFile]) -> list[_OfferedRow]:
    """Return the sentences that the persona suggests and no proposition of the agent, in any state, says already."""
    rules = []
    for entry in listed(agent.slug, files=files):
        if entry.proposition.rule is not None:
            rules.append(entry.proposition.rule.checks())
    recent_messages = last_messages(agent) if _may_count(request) else []
    rows = []
    for offer in offered_sentences(persona=agent.system_prompt, name=agent.display_name, known=rules):
        fields = offer.fields()
        count = None
        if fields is not None and recent_messages:
            count = count_rule(messages=recent_messages, rule=Rule(**fields["rule"]), of_ten=fields.get("of_ten"))
        typed = initial_of(offer.sentence) | {"source": offer.quote}
        rows.append(
            _OfferedRow(
                quote=offer.quote,
                claim=fields["claim"].replace(AGENT_NAME, agent.display_name) if fields else "",
                count=count,
                typed={f"{SentenceForm.prefix}-{name}": value for name, value in typed.items()},
                url=page_url("new", agent.slug, **typed),
            )
        )
    return rows


def _ways_to_evaluate(request: HttpRequest, agent: Agent | None, about: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return address and label of the evaluations that ask what is in use here; none where nothing is, or for who may not evaluate."""
    if agent is None or not request.user.has_perm(MEASURE):
        return []
    if not any(entry.proposition.active for entry in about):
        return []
    return ways_to_evaluate(agent, _newest_builds(agent))


def _comparing(request: HttpRequest, agent: Agent | None) -> tuple[str, str] | None:
    """Return address and button of the evaluation that compares the two newest builds; None without them, or for who may not evaluate."""
    if agent is None or not request.user.has_perm(MEASURE):
        return None
    builds = _newest_builds(agent)
    if len(builds) < 2:
        return None
    url, _ = ways_to_evaluate(agent, builds)[0]
    return url, f"Save, then evaluate {builds[1]} and {builds[0]}"


def _newest_builds(agent: Agent) -> list[str]:
    return newest_builds(Message.objects.filter(agent=agent).order_by("-said_at", "-pk"))


def _may_count(request: HttpRequest) -> bool:
    return request.user.has_perms(COUNT_PERMISSIONS)


def _find_agent(slug: str) -> Agent | None:
    return Agent.objects.filter(slug=slug).prefetch_related("traits").first()


def _persona(agent: Agent | None) -> str | None:
    if agent is None:
        return None
    return render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all())


def _name_of(owner: str, agent: Agent | None) -> Any:
    """Return the agent they are about, "every agent", or a slug that no agent has."""
    if agent is not None:
        return agent_chip(agent)
    return display.isolated("every agent" if owner == DEFAULT else owner)


def _entry_or_404(request: HttpRequest, owner: str, files: Sequence[LoadedFile]) -> Entry:
    entry = entry_at(request.GET.get("at", ""), owner, files=files)
    if entry is None:
        raise Http404("There is no such proposition (any more).")
    return entry


def _may_try(request: HttpRequest) -> bool:
    return request.user.has_perms(TRIAL_PERMISSIONS)


def _trait_propositions(agent: Agent, files: Sequence[LoadedFile]) -> list[tuple[str, Proposition]]:
    """Return the automatic propositions of an agent, with their sentences: of its traits that no file has a proposition for."""
    from_files = propositions_for(agent_slug=agent.slug, dimension=OF_PERSONA, files=files, seeded=agent.seeded)
    propositions = with_traits(from_files, agent.traits.all(), automatic=settings.TRAIT_PROPOSITIONS)
    return [
        (proposition.claim.replace(AGENT_NAME, agent.display_name), proposition)
        for proposition in propositions
        if proposition.source == FROM_A_TRAIT
    ]


def _asked_of_every_agent(about: Sequence[Entry], files: Sequence[LoadedFile]) -> list[Entry]:
    """Return what is asked of every agent, and not replaced or retired by one of this agent's own."""
    own = {_identity(entry) for entry in about if entry.state in ("accepted", "retired")}
    return [
        entry
        for entry in listed(DEFAULT, files=files)
        if entry.proposition.target_type == "agent" and entry.proposition.active and _identity(entry) not in own
    ]


def _identity(entry: Entry) -> tuple[str, str, str]:
    return entry.dimension, entry.level, entry.proposition.id


def _download(text: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type="application/yaml; charset=utf-8")
    safe_name = "".join(character for character in name if character.isalnum() or character in "._-")
    response["Content-Disposition"] = f'attachment; filename="{safe_name}"'
    return response


def propositions_like(request: HttpRequest, typed: str) -> list[Hit]:
    """Return the first propositions (`MOST_HITS`) with this in their id or claim, in any case, for the search of the console."""
    hits: list[Hit] = []
    for entry in all_entries(_read_files().files):
        proposition = entry.proposition
        if typed.lower() not in f"{proposition.id} {proposition.claim}".lower():
            continue
        claim = display.shortened(proposition.claim.replace(AGENT_NAME, "the agent"), 60)
        hits.append(Hit(proposition.id, f"proposition of {entry.owner}: {claim}", _page_with(entry), "edit_note"))
        if len(hits) == MOST_HITS:
            break
    return hits


def _page_with(entry: Entry) -> str:
    return f"{propositions_url(entry.owner)}#proposition-{entry.proposition.id}"


add_search("evaluation.view_proposition", propositions_like)
