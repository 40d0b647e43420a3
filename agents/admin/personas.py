"""Agents: the persona with its traits, memory and history. Every save goes through `agents.persona.record_version`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.contrib.admin.options import InlineModelAdmin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.formsets import DistinctTraits
from agents.admin.persona_forms import AgentForm, TraitForm
from agents.admin.prompt_preview import NEEDED as MAY_PREVIEW
from agents.admin.turn_now import PERMISSION as MAY_RUN
from agents.admin.versions import VersionPages, band_badge
from agents.adminsite import Button, StackedInline, TabularInline
from agents.models import Agent, LLMCall, MemoryBlock, Message, PersonaVersion, Run, Trait
from agents.persona import record_version, render_persona

WITHOUT_NOTE = "edited in the console"


if TYPE_CHECKING:
    TraitFormSet = BaseInlineFormSet[Any, Agent, Any]
else:
    TraitFormSet = BaseInlineFormSet


class TraitInline(TabularInline[Trait, Agent]):
    model = Trait
    form = TraitForm
    formset = DistinctTraits
    fields = ("name", "description", "strength", "band", "sentiment", "source")
    readonly_fields = ("band", "source")

    @admin.display(description="read as")
    def band(self, trait: Trait) -> SafeString:
        """Under which words of the specification it stands, as it was saved."""
        return band_badge(trait.strength) if trait.pk else display.EMPTY


class MemoryBlockInline(StackedInline[MemoryBlock, Agent]):
    model = MemoryBlock
    fields = ("label", "value")
    tab = True


@admin.register(Agent)
class AgentAdmin(VersionPages):
    form = AgentForm
    list_display = ("who", "message_count", "persona_version")
    list_display_links = ("who",)
    list_filter = ("is_active",)
    search_fields = ("display_name", "slug", "title")
    prepopulated_fields: ClassVar = {"slug": ("display_name",)}
    readonly_fields = ("origin", "rendered_persona", "traces")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    "display_name",
                    "slug",
                    "origin",
                    "title",
                    "description",
                    "avatar_color",
                    "is_active",
                    "traces",
                )
            },
        ),
        ("Persona", {"fields": ("system_prompt", "rendered_persona", "version_note")}),
        ("Sample lines", {"fields": ("sample_lines",), "classes": ("collapse",)}),
        ("Model", {"fields": ("model_id", "max_turns"), "classes": ("collapse",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Agent]:
        newest = PersonaVersion.objects.filter(agent=OuterRef("pk")).order_by("-number").values("number")[:1]
        return super().get_queryset(request).annotate(version_number=Subquery(newest))

    def fill_in(self, rows: list[Any]) -> None:
        said = Message.objects.filter(agent__in=rows, synthetic=False)  # what was played is no speech of its own
        totals = dict(said.order_by().values_list("agent").annotate(n=Count("*")))
        for agent in rows:
            agent.messages_total = totals.get(agent.pk, 0)

    def get_inlines(self, request: HttpRequest, obj: Agent | None) -> list[type[InlineModelAdmin[Any, Any]]]:
        return [TraitInline, MemoryBlockInline]

    def get_buttons(self, request: HttpRequest, obj: Agent) -> list[Button]:
        own = []
        if request.user.has_perm(MAY_RUN):
            own.append(Button(label="Run a turn", url=_own("turn", obj), why="estimates, asks, and shows each step"))
        if request.user.has_perms(MAY_PREVIEW):
            own.append(Button(label="Prompt preview", url=_own("prompt", obj), why="what its model would read now"))
        if request.user.has_perm("agents.view_personaversion"):
            own.append(Button(label="Versions", url=_own("versions", obj), why="what changed, and the way back"))
        return [*super().get_buttons(request, obj), *own]

    def get_panels(self, request: HttpRequest, obj: Agent) -> list[SafeString]:
        """First who it is and what can be done, then what the other apps know of it."""
        context = {
            "agent": obj,
            "avatar": display.avatar(obj.display_name, obj.avatar_color),
            "name": display.isolated(obj.display_name),
            "title": display.isolated(obj.title) if obj.title else "",
            "facts": self.traces(obj),
            "buttons": self.get_buttons(request, obj),
            "anchors": [*self.get_anchors(request), ("persona", "Persona and traits")],
        }
        toolbar = render_to_string("admin/agents/agent/toolbar.html", context)
        return [toolbar, *super().get_panels(request, obj), SafeString('<div id="persona"></div>')]

    @admin.display(description="agent", ordering="display_name")
    def who(self, agent: Agent) -> SafeString:
        name = format_html(
            "<strong>{}</strong> {}",
            display.isolated(agent.display_name),
            "" if agent.is_active else display.badge("inactive"),
        )
        dot = display.avatar(agent.display_name, agent.avatar_color)
        return format_html('<span class="pl-chip">{}{}</span>', dot, display.lines(name, display.isolated(agent.title)))

    @admin.display(description="messages")
    def message_count(self, agent: Any) -> str | SafeString:
        return display.count(agent.messages_total)

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
        lists = ((Message, "messages"), (Run, "runs"), (LLMCall, "model calls"))
        links = (display.link(display.list_url(model, agent__id__exact=agent.pk), label) for model, label in lists)
        return format_html("{} · {} · {}", *links)

    def get_fieldsets(self, request: HttpRequest, obj: Agent | None = None) -> Any:
        if obj is None or not self.has_change_permission(request, obj):
            return self.fieldsets
        first, *others = self.fieldsets
        return [(first[0], {**first[1], "fields": (*first[1]["fields"], "opened")}), *others]

    def has_delete_permission(self, request: HttpRequest, obj: Agent | None = None) -> bool:
        """Only an agent that never spoke: its messages are a log."""
        return super().has_delete_permission(request, obj) and (obj is None or not obj.messages.exists())

    def save_formset(self, request: HttpRequest, form: Any, formset: TraitFormSet, change: Any) -> None:
        if formset.model is Trait:
            for trait_form in formset.forms:
                if trait_form.instance.pk is None:
                    trait_form.instance.source = request.user.get_username()[:64]
        super().save_formset(request, form, formset, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: Any) -> None:
        """After the traits: one version for the whole save, none when the persona is what it was."""
        super().save_related(request, form, formsets, change)
        note = form.cleaned_data.get("version_note", "")
        record_version(agent=form.instance, note=f"edited: {note}" if note else WITHOUT_NOTE, user=request.user)  # type: ignore[arg-type]  # the admin lets no anonymous user in


def _own(page: str, agent: Agent) -> str:
    """One of the pages of an agent beside its form."""
    return reverse(f"admin:agents_agent_{page}", args=[agent.pk])
