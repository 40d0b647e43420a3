"""Agents: the persona with its traits, memory and versions, its prompt as it would be sent now, and a turn that is asked for.

Every save goes through `agents.personas.persona.record_version`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import InlineModelAdmin
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.picking import SEEN_COLUMNS, face
from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.display import word_diff
from agents.kit.console.filters import number_in
from agents.kit.console.forms import DistinctTraits
from agents.kit.console.site import (
    Button,
    ColorInput,
    GrowingTextarea,
    ModelAdmin,
    Select,
    StackedInline,
    Tab,
    TabularInline,
    TextInput,
    console_page,
    extend,
)
from agents.kit.llm import ledger
from agents.kit.llm.endpoints import model_of, problem_of
from agents.kit.llm.providers import is_priced
from agents.kit.models import LLMCall
from agents.kit.text.fences import safe_and_cut
from agents.models import Agent, Channel, MemoryBlock, Message, NumberOf, PersonaVersion, Run, Trait
from agents.personas.persona import (
    PersonaMovedOn,
    changes_since,
    current_digest,
    differences,
    record_version,
    render_persona,
    restore_version,
    strength_band,
    values_of,
)
from agents.personas.shape import not_reserved
from agents.turn.pipeline import StageFailed
from agents.turn.prompt import PROMPT_CHARACTERS, preview_prompt
from agents.turn.send_message import TurnRefused, start_turn
from agents.turn.tools import tool_definitions

MAY_RUN = "agents.add_run"
MAY_PREVIEW = ("agents.view_agent", "agents.view_message")
MAY_SEE_VERSIONS = "agents.view_personaversion"
VERSIONS_SHOWN = 10  # on a page; each is compared with the one before
VERSIONS_NAMED = 3  # on the agent's own page
MOST_CHANNELS = 100  # to choose from
PICKED_FROM = 20  # agents that a search field shows at once
OWN_SECTIONS = (
    "persona",
    "instructions",
    "memory",
)  # of every prompt; all others were added by a stage of the pipeline


SAVE_AGAIN = (
    "Nothing is saved yet; what you typed is kept below. Saving again leaves what changed as it is now, except where you typed something "
    "else, and the system prompt, which becomes the one below. If a trait was removed meanwhile, delete its row, too."
)

LONGEST_SHOWN = 300  # characters of a description


def as_stored(typed: str, stored: str) -> str:
    """Return the stored text unless another was typed: a browser sends line ends of its own, and forms strip."""
    typed = _without_browser_line_ends(typed)
    if typed == _without_browser_line_ends(stored):
        return stored
    return typed


def what_changed(agent: Agent, opened: str) -> str:
    """Return why the page cannot be saved as it is: which versions came since it was opened with this digest; empty where none did."""
    if opened == current_digest(agent):
        return ""
    versions = changes_since([(agent.pk, opened)]).get((agent.pk, opened), ())
    changes = "; ".join(str(version) for version in versions) or "by something that left no version"
    return f"This agent was changed since you opened the page: {safe_and_cut(changes)}. {SAVE_AGAIN}"


def _without_browser_line_ends(text: str) -> str:
    """Return a text as forms have it: with plain line ends, and without white space around it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
    TraitModelForm = forms.ModelForm[Trait]
else:
    AgentModelForm = TraitModelForm = forms.ModelForm


class LinesField(forms.JSONField):
    """A list of texts as JSON, one text a line; a text may itself have line breaks."""

    def prepare_value(self, value: Any) -> Any:
        """Return what the field shows: a list as JSON with each text on a line of its own; what was typed as it is."""
        if isinstance(value, list):
            return json.dumps(value, indent=0, ensure_ascii=False) if value else "[]"
        return super().prepare_value(value)

    def validate(self, value: Any) -> None:
        if value is None and not self.required:
            return
        if not isinstance(value, list) or not all(isinstance(line, str) and line.strip() for line in value):
            raise forms.ValidationError('Write a JSON list of texts, e.g. ["Hello there.", "Second line."].')


class AgentForm(AgentModelForm):
    sample_lines = LinesField(
        required=False,
        initial=list,
        widget=GrowingTextarea,
        help_text="a JSON list of lines in the agent's voice; what the scripted actor says offline",
    )
    aliases = LinesField(
        required=False,
        initial=list,
        widget=GrowingTextarea,
        help_text='further names by which people call it, a JSON list, e.g. ["Mike"]; its first name is known without',
    )
    version_note = forms.CharField(
        required=False,
        max_length=150,
        widget=TextInput,
        label="What changed, and why",
        help_text="stored with the persona version that this save makes",
    )
    opened = forms.CharField(required=False, widget=forms.HiddenInput)

    class Meta:
        model = Agent
        fields = (
            *("display_name", "aliases", "slug", "title", "description", "avatar_color", "is_active"),
            *("system_prompt", "sample_lines", "model_id", "max_turns"),
        )
        widgets: ClassVar = {"avatar_color": ColorInput()}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.instance._state.adding:
            self.initial["opened"] = current_digest(self.instance)
            if "description" in self.fields:
                self.fields["description"].show_hidden_initial = True  # models write it, too: what was not typed stays

    def clean_sample_lines(self) -> list[str]:
        return self.cleaned_data["sample_lines"] or []

    def clean_aliases(self) -> list[str]:
        return self.cleaned_data["aliases"] or []

    def clean_slug(self) -> str:
        """Return the slug; refuse a reserved one, unless the agent has it already."""
        slug = str(self.cleaned_data["slug"])
        if self.instance._state.adding or slug != self.initial.get("slug"):
            try:
                not_reserved(slug)
            except ValueError as error:
                raise forms.ValidationError(str(error)) from None
        return slug

    def clean_system_prompt(self) -> str:
        return as_stored(self.cleaned_data["system_prompt"], self.initial.get("system_prompt", ""))

    def clean(self) -> None:
        """Refuse, once, to save a page that shows an older persona. Workers wait for the lock until the save is done.

        A description that was typed is noted as a person's; one that was not typed stays as it is stored, for models write it, too.
        """
        super().clean()
        typed = self.cleaned_data.get("description", "")
        origin = Agent.DescriptionOrigin
        if self.instance._state.adding:
            self.instance.description_origin = origin.PERSON if typed else origin.UNKNOWN
            return
        stored = Agent.objects.select_for_update(no_key=True).order_by().get(pk=self.instance.pk)
        self.data: Any = self.data.copy()  # where something changed meanwhile, saving again is a decision about it
        problem = what_changed(stored, self.cleaned_data.get("opened", ""))
        if problem:
            # The form that is shown again is of this persona: saving it works.
            self.data["opened"] = current_digest(stored)
            self.add_error(None, problem)
        differs_from_stored = typed != _without_browser_line_ends(stored.description)
        if "description" in self.changed_data and differs_from_stored:
            self._refuse_newer_description(stored)
            self.cleaned_data["description"] = as_stored(typed, stored.description)
            self.instance.description_origin = origin.PERSON
        else:
            self.cleaned_data["description"] = stored.description
            self.instance.description_origin = stored.description_origin

    def _refuse_newer_description(self, stored: Agent) -> None:
        """Add an error, once, where a description was changed since the page was opened: it would be replaced unseen."""
        name_of_initial = self.add_initial_prefix("description")
        shown_when_opened = _without_browser_line_ends(self.data.get(name_of_initial, ""))
        if shown_when_opened == _without_browser_line_ends(stored.description):
            return
        self.data[name_of_initial] = stored.description
        text = f"It was changed since you opened the page, to: {stored.description[:LONGEST_SHOWN]}"
        self.add_error("description", text)


class TraitForm(TraitModelForm):
    """A row that was not touched is not saved, even if the trait changed since the page was opened."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("name", "description", "strength", "sentiment"):
            if name in self.fields:
                self.fields[name].show_hidden_initial = True

    def clean_description(self) -> str:
        return as_stored(self.cleaned_data["description"], self.instance.description)


class TraitInline(TabularInline[Trait, Agent]):
    model = Trait
    form = TraitForm
    formset = DistinctTraits
    fields = ("name", "description", "strength", "band", "sentiment", "source")
    readonly_fields = ("band", "source")

    @admin.display(description="read as")
    def band(self, trait: Trait) -> SafeString:
        """Return the heading under which the specification has a trait of this strength, as it was saved."""
        if not trait.pk:
            return display.EMPTY
        band = strength_band(trait.strength)
        label = band.split(" (")[0].lower()
        tone: display.Tone = "warning" if trait.strength == 0 else "plain"
        return display.badge(label, tone, band)


class MemoryBlockInline(StackedInline[MemoryBlock, Agent]):
    model = MemoryBlock
    fields = ("label", "value")
    collapsible = True


OWN_FIELDS = (
    "display_name",
    "aliases",
    "slug",
    "origin",
    "title",
    "description",
    "avatar_color",
    "is_active",
    "traces",
)


# The extensions of the layers above name them by their keys.
AGENT_TABS = (
    Tab(key="overview", title="Overview"),
    Tab(key="persona", title="Persona", has_form=True),
    Tab(key="gate", title="Gate"),
    Tab(key="history", title="History"),
)
MOST_MESSAGES = 1_000  # of an agent, counted in the list


@admin.register(Agent)
class AgentAdmin(ModelAdmin[Agent]):
    form = AgentForm
    tabs = AGENT_TABS
    list_before_template = "admin/list_starts.html"
    prepopulated_fields: ClassVar = {"slug": ("display_name",)}
    readonly_fields = ("origin", "rendered_persona", "traces")
    fieldsets = (
        ("Persona", {"fields": ("system_prompt", "rendered_persona", "version_note")}),
        ("Name", {"fields": OWN_FIELDS, "classes": ("collapse",)}),
        ("Sample lines", {"fields": ("sample_lines",), "classes": ("collapse",)}),
        ("Model", {"fields": ("model_id", "max_turns"), "classes": ("collapse",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        newest = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("number")[:1]
        return super().get_queryset(request).annotate(version_number=Subquery(newest))

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Agent], search_term: str
    ) -> tuple[QuerySet[Agent], bool]:
        """Leave out the agents of experiments, in the list and where one of all agents is chosen."""
        return super().get_search_results(request, queryset.filter(synthetic=False), search_term)

    @console_page("pick/", "agents.view_agent")
    def pick_view(self, request: HttpRequest) -> HttpResponse:
        """Return a page of the active agents that fit what was typed, as the search field of `agents.admin.picking` asks for them."""
        typed = request.GET.get("term", "").replace("\x00", "")
        matching, _ = self.get_search_results(request, Agent.objects.in_use(), typed)
        start = ((number_in(request.GET, "page") or 1) - 1) * PICKED_FROM
        agents = list(matching.only(*SEEN_COLUMNS)[start : start + PICKED_FROM + 1])
        results = [
            {"id": agent.slug, "text": display.marked(agent.display_name), "html": face(agent)}
            for agent in agents[:PICKED_FROM]
        ]
        return JsonResponse({"results": results, "pagination": {"more": len(agents) > PICKED_FROM}})

    def fill_in(self, rows: list[Any]) -> None:
        """Set of each agent how many messages it said, up to 1,001 (one more than is shown), for the page in one query."""
        own = Message.objects.filter(agent=OuterRef("pk"), synthetic=False)  # simulated messages do not count
        # The order and the only column of an index, which is then all that is read.
        counted = own.order_by("sent_at").values("sent_at")[: MOST_MESSAGES + 1]
        agents = Agent.objects.filter(pk__in=[agent.pk for agent in rows]).order_by()
        totals = dict(agents.annotate(n=NumberOf(counted)).values_list("pk", "n"))
        for agent in rows:
            agent.messages_total = totals.get(agent.pk, 0)

    def get_inlines(self, request: HttpRequest, obj: Agent | None) -> list[type[InlineModelAdmin[Any, Any]]]:
        return [TraitInline, MemoryBlockInline]

    def get_buttons(self, request: HttpRequest, obj: Agent) -> list[Button]:
        """Return the buttons of an agent's page, each only where the user may do what it leads to."""
        buttons = super().get_buttons(request, obj)
        may = request.user.has_perms
        if may((*MAY_PREVIEW, "agents.view_channel")):
            chats = reverse("admin:agents_channel_chats", args=[obj.pk])
            buttons.append(
                Button(label="Chat", url=chats, why="talk to it; nothing of it enters a measurement", main=True)
            )
        if may([MAY_RUN]):
            why = "estimates, asks, and shows each step"
            buttons.append(Button(label="Run a turn", url=self.url("turn", obj), why=why))
        if may(MAY_PREVIEW):
            why = "what its model would read now"
            buttons.append(Button(label="Prompt preview", url=self.url("prompt", obj), why=why))
        if may([MAY_SEE_VERSIONS]):
            why = "what changed, and the way back"
            buttons.append(Button(label="Versions", url=self.url("versions", obj), why=why))
        return buttons

    def get_panels(self, request: HttpRequest, obj: Agent) -> list[SafeString]:
        """Return who it is and what can be done, then what the other apps know of it that belongs to the tab that is shown."""
        buttons = sorted(self.get_buttons(request, obj), key=lambda button: button.label)
        chosen_tab = self.chosen_tab(request)
        anchors: list[tuple[str, str]] = []
        elsewhere: list[tuple[str, str]] = []  # ids of parts of other tabs, and where they are
        for tab in self.tabs_for_user(request):
            if tab == chosen_tab:
                anchors += self.get_anchors(request, tab)
            else:
                url = self.tab_url(request, tab, obj)
                elsewhere += [(part, f"{url}#{part}") for part, _ in self.get_anchors(request, tab)]
        context = {
            "agent": obj,
            "avatar": display.avatar(obj.display_name, obj.avatar_color),
            "name": display.isolated(obj.display_name),
            "title": display.isolated(obj.title) if obj.title else "",
            "facts": self.traces(obj),
            "buttons": [button for button in buttons if button.main],
            "menu": [button for button in buttons if not button.main],
            "anchors": anchors,
            "elsewhere": elsewhere,
        }
        toolbar = render_to_string("admin/agents/agent/toolbar.html", context)
        return [toolbar, *super().get_panels(request, obj)]

    @admin.display(description="agent", ordering="display_name")
    def who(self, agent: Agent) -> SafeString:
        inactive = "" if agent.is_active else display.badge("inactive")
        name = format_html("<strong>{}</strong> {}", display.isolated(agent.display_name), inactive)
        dot = display.avatar(agent.display_name, agent.avatar_color)
        return format_html('<span class="pl-chip">{}{}</span>', dot, display.lines(name, display.isolated(agent.title)))

    message_count = display.column("messages", lambda agent: display.count_up_to(agent.messages_total, MOST_MESSAGES))

    @admin.display(description="persona", ordering="version_number")
    def persona_version(self, agent: Any) -> SafeString:
        return format_html("v{}", agent.version_number) if agent.version_number else display.EMPTY

    @admin.display(description="what the model reads")
    def rendered_persona(self, agent: Agent) -> SafeString:
        if agent._state.adding:
            return SafeString("Shown once the agent is saved.")
        return display.folded(render_persona(system_prompt=agent.system_prompt, traits=agent.traits.all()), 70)

    @admin.display(description="history")
    def traces(self, agent: Agent) -> SafeString:
        if agent._state.adding:
            return display.EMPTY
        messages = display.link(display.list_url(Message, agent__id__exact=agent.pk), "messages")
        turns = display.link(display.list_url(Run, agent__id__exact=agent.pk), "turns")
        calls = display.link(display.list_url(LLMCall, agent__id__exact=agent.pk), "model calls")
        return format_html("{} · {} · {}", messages, turns, calls)

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        """Return the groups of fields: of a new agent with its name first, of one that may be changed with the digest it was opened by."""
        persona, name, *others = self.fieldsets
        if obj is None:
            return [(None, {"fields": OWN_FIELDS}), persona, *others]
        if not self.has_change_permission(request, obj):
            return self.fieldsets
        title, options = persona
        with_digest = (title, {**options, "fields": (*options["fields"], "opened")})
        return [with_digest, name, *others]

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """Allow it for an agent that never spoke: its messages are a log."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.messages.exists())

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: Any) -> None:
        if formset.model is Trait:
            for trait_form in formset.forms:
                if trait_form.instance.pk is None:
                    trait_form.instance.source = request.user.get_username()[:64]
        super().save_formset(request, form, formset, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """Record a version for the save, after the traits; none when the persona is what it was."""
        super().save_related(request, form, formsets, change)
        note = form.cleaned_data.get("version_note", "")
        text = f"edited: {note}" if note else "edited in the console"
        record_version(agent=form.instance, note=text, user=user_of(request))

    def agent_page(self, request: HttpRequest, agent: Agent, name: str, title: str, **context: Any) -> HttpResponse:
        """Return one of the pages of an agent beside its form; `title` is formatted with the agent's name."""
        title = title.format(display.marked(agent.display_name))
        return self.page(request, f"admin/agents/agent/{name}.html", title, agent=agent, **context)

    @console_page("<int:pk>/prompt/", *MAY_PREVIEW)
    def prompt_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the prompt as it would be sent now. No model is asked and nothing is written."""
        agent = get_object_or_404(Agent, pk=pk)
        channels = channels_of(agent)
        channel = chosen_channel(request, channels)
        context: dict[str, Any] = {}
        answer = None
        if channel is not None:
            try:
                prompt = preview_prompt(agent=agent, channel=channel)
                answer = prompt.wanted_answer
                context["prompt"] = prompt
            except StageFailed as error:
                context["problem"] = error
        return self.agent_page(
            request,
            agent,
            "prompt",
            "What {} would read",
            model=agent.model_id or model_of("actor"),
            channels=channels,
            channel=channel,
            tools=tool_definitions(answer),
            own=OWN_SECTIONS,
            **context,
        )

    @console_page("<int:pk>/turn/", MAY_RUN)
    def turn_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Estimate a turn and ask for it; POST queues it, and leads to the page on which it can be watched."""
        agent = get_object_or_404(Agent, pk=pk)
        channels = channels_of(agent)
        channel = chosen_channel(request, channels)
        initial = {"channel": channel.slug if channel is not None else ""}
        form = TurnForm(request.POST if request.method == "POST" else None, channels=channels, initial=initial)
        if request.method == "POST" and channel is not None and form.is_valid():
            try:
                run = start_turn(agent=agent, channel=channel, prompt=form.cleaned_data["prompt"])
            except TurnRefused as error:
                form.add_error(None, str(error))
            else:
                text = f"Turn {run.pk} is queued; a worker (manage.py work) takes it."
                self.message_user(request, text, messages.SUCCESS)
                return HttpResponseRedirect(reverse("admin:agents_run_change", args=[run.pk]))
        needs: dict[str, Any] = {}
        problem = ""
        if channel is not None:
            try:
                needs = turn_needs(agent, channel)
                problem = problem_of("actor", needs["model"])
            except StageFailed as error:
                problem = f"No turn can begin: a required stage failed ({error})."
        waiting = Run.objects.filter(agent=agent, status__in=["pending", "running"]).order_by("-pk")[:5]
        context = {"channel": channel, "form": form, "needs": needs, "problem": problem, "waiting": waiting}
        return self.agent_page(request, agent, "turn", "Run a turn of {}", **context)

    @console_page("<int:pk>/versions/", MAY_SEE_VERSIONS)
    def versions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show a page of versions, the newest first, each with what changed in it; ``?before=NUMBER`` shows older ones.

        The first page also says whether the persona differs from its newest version, as after a change that left none.
        """
        agent = get_object_or_404(Agent, pk=pk)
        before = number_in(request.GET, "before")
        rows = PersonaVersion.objects.filter(agent=agent).select_related("created_by").order_by("-number")
        newest = rows.values_list("number", flat=True).first() or 0
        listed = rows.filter(number__lt=before) if before else rows
        versions = list(listed[: VERSIONS_SHOWN + 1])  # the last one only to be compared with
        rows_shown = []
        for version, earlier in zip_longest(versions[:VERSIONS_SHOWN], versions[1:]):
            persona = render_persona(system_prompt=version.system_prompt, traits=values_of(version))
            changes = _changes(earlier, version) if earlier else {}
            rows_shown.append({"row": version, "persona": persona, **changes})
        digest_now = current_digest(agent)
        is_first_page = not before
        return self.agent_page(
            request,
            agent,
            "versions",
            "Versions of {}",
            versions=rows_shown,
            newest=newest,
            now=digest_now,
            may_restore=self.has_change_permission(request, agent),
            older=versions[VERSIONS_SHOWN - 1].number if len(versions) > VERSIONS_SHOWN else 0,  # 0: there are none
            is_first_page=is_first_page,
            unsaved=is_first_page and bool(versions) and versions[0].digest != digest_now,
        )

    @console_page("<int:pk>/versions/<int:number>/restore/", post=True)
    def restore_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        """Make a new version that says what an old one said; a change made since the page was opened is not undone (POST)."""
        agent = get_object_or_404(Agent, pk=pk)
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        version = get_object_or_404(PersonaVersion, agent=agent, number=number)
        try:
            new_version = restore_version(version=version, seen=request.POST.get("opened", ""), user=user_of(request))
        except PersonaMovedOn as problem:
            self.message_user(request, f"Nothing was restored: {problem}.", messages.ERROR)
        else:
            if new_version is not None:  # None: no version was needed
                self.log_change(request, agent, f"restored version {number}")
            text = "it holds from the next turn on" if new_version else "it said so already"
            self.message_user(request, f"The persona says what version {number} said; {text}.", messages.SUCCESS)
        return HttpResponseRedirect(self.url("versions", agent))


def persona_anchor(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the place above the form to which links to the persona lead."""
    return SafeString('<div id="persona"></div>')


def versions_section(request: HttpRequest, agent: Agent) -> SafeString:
    """Return the newest versions of the persona, and the way to what changed in them. One query."""
    versions = PersonaVersion.objects.filter(agent=agent).select_related("created_by").order_by("-number")
    context = {
        "versions": list(versions.defer("system_prompt", "traits")[:VERSIONS_NAMED]),
        "url": reverse("admin:agents_agent_versions", args=[agent.pk]),
    }
    return render_to_string("admin/agents/agent/newest_versions.html", context)


extend(
    Agent, "agents.view_agent", tab="persona", panels=(persona_anchor,), anchors=(("persona", "Persona and traits"),)
)
extend(
    Agent, MAY_SEE_VERSIONS, tab="history", sections=(versions_section,), anchors=(("versions", "Persona versions"),)
)


def _changes(before: PersonaVersion, after: PersonaVersion) -> dict[str, Any]:
    """Return what changed between two versions: trait by trait, and the system prompt word by word.

    ``diff`` is None where the prompt is the same; ``nothing`` is true where the traits are, too.
    """
    changed = differences(before, after)
    prompt_changed = before.system_prompt != after.system_prompt
    return {
        "traits": [text for text in changed if text != "system prompt"],
        "prompt_changed": prompt_changed,
        "diff": word_diff(before.system_prompt, after.system_prompt) if prompt_changed else None,
        "nothing": not changed,
    }


def channels_of(agent: Agent) -> list[Channel]:
    """Return the channels it may speak in: those people speak in first, the newest first."""
    joined = Channel.objects.filter(memberships__agent=agent).order_by("synthetic", "-pk")
    return list(joined[:MOST_CHANNELS])


def chosen_channel(request: HttpRequest, channels: Sequence[Channel]) -> Channel | None:
    """Return the channel that the form or the URL names, else the first; None without any."""
    slug = request.POST.get("channel") or request.GET.get("channel", "")
    for channel in channels:
        if channel.slug == slug:
            return channel
    return channels[0] if channels else None


CALLS = 2  # one says something, the next ends the turn: an assumption, for an agent may use other tools, too
REPLY_TOKENS = 120  # of each answer: an assumption, too
CHARACTERS_PER_TOKEN = 4


class TurnForm(forms.Form):
    """Where the agent acts, and what an operator asks of this turn."""

    channel = forms.ChoiceField(widget=Select, help_text="what it says there is really said; its corrections apply")
    prompt = forms.CharField(
        required=False,
        max_length=PROMPT_CHARACTERS,
        widget=GrowingTextarea,
        label="What you ask of this turn",
        help_text="shown to the agent, not said in the channel; empty: it decides what to do",
    )

    def __init__(self, *args: Any, channels: Sequence[Channel], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["channel"].choices = [(channel.slug, display.marked(channel)) for channel in channels]  # type: ignore[attr-defined]


def turn_needs(agent: Agent, channel: Channel) -> dict[str, Any]:
    """Return model, calls, tokens and dollars of one turn, from the prompt as it would be now; asks no model.

    Tokens are characters / 4; that it takes two calls of 120 tokens is assumed.

    Raises:
        StageFailed: A required stage failed.
    """
    model = agent.model_id or model_of("actor")
    prompt = preview_prompt(agent=agent, channel=channel)
    characters = len(prompt.system_text) + len(prompt.user_text)
    for tool in tool_definitions(prompt.wanted_answer):
        characters += len(tool.description) + len(json.dumps(tool.input_schema))
    tokens_of_first_call = characters // CHARACTERS_PER_TOKEN
    # Of each call: it reads the replies before it, too.
    input_tokens = [tokens_of_first_call + earlier * REPLY_TOKENS for earlier in range(CALLS)]
    return {
        "model": model,
        "calls": CALLS,
        "input_tokens": sum(input_tokens),
        "output_tokens": CALLS * REPLY_TOKENS,
        "cost": _cost_of_calls(model, input_tokens),
    }


def _cost_of_calls(model: str, input_tokens: Sequence[int]) -> SafeString:
    """Return what calls with so many input tokens each, and replies of `REPLY_TOKENS`, would cost."""
    if not is_priced(model):
        return display.badge("free", "good", "this actor needs no network")
    cost = ledger.sum_if_all_priced(ledger.estimate_cost(model, tokens, REPLY_TOKENS) for tokens in input_tokens)
    return display.money(cost, unpriced=len(input_tokens) if cost is None else 0)
