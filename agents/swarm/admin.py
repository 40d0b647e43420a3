"""Swarms in the console: their phases with versions, what is remembered of a conversation, and what a swarm did in a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import OuterRef, Subquery, prefetch_related_objects
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin.chat import add_chat_panel
from agents.kit.console import display
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.site import ModelAdmin, StackedInline, console_page, extend
from agents.kit.refusals import Refused
from agents.models import Agent, Channel, Message, Run
from agents.swarm.assign import SwarmRequest, check_clashes, check_values
from agents.swarm.models import DialogEntry, DialogState, Swarm, SwarmPhase, SwarmTurn
from agents.swarm.state import (
    KINDS,
    LIST_KINDS,
    StateRefused,
    add,
    edit,
    entries,
    pin,
    remove,
    unpin,
    updating,
)
from agents.swarm.summaries import NOTE_CHARACTERS, newest_summary, text_of, why_no_summary, write_summary
from agents.swarm.talk import refused_polishes, trace_lines, trace_of

PAGES = "admin/swarm/swarm/"
MOST_VERSIONS = 30  # of all phases together, the newest
ENTRY_ACTIONS = {"pin": pin, "unpin": unpin, "remove": remove}

if TYPE_CHECKING:
    SwarmModelForm = forms.ModelForm[Swarm]
    PhaseModelForm = forms.ModelForm[SwarmPhase]
else:
    SwarmModelForm = PhaseModelForm = forms.ModelForm


class SwarmForm(SwarmModelForm):
    """The form of a swarm; what could not work is refused as over the API."""

    def clean(self) -> dict[str, Any]:
        """Check the fields as the API does, and that no other swarm of its agents answers one of its intents.

        What is refused becomes an error of its field, where that has none yet.
        """
        given: dict[str, Any] = super().clean() or {}
        given["tools"] = given.get("tools") or []
        try:
            asked = check_values({name: given[name] for name in SwarmRequest.model_fields if name in given})
            if not self.errors:
                changed = Swarm(name=asked.name, intents=asked.intents, enabled=asked.enabled)
                for agent in given["agents"].order_by("pk"):
                    check_clashes(agent, chain(agent.swarms.exclude(pk=self.instance.pk), [changed]))
        except Refused as refused:
            for path, sentence in refused.errors.items():
                field = path.partition("[")[0]
                if field not in self.errors:
                    self.add_error(field, sentence)
        return given


class PhaseForm(PhaseModelForm):
    """A phase whose prompt or temperature changes gets its next version."""

    def save(self, commit: bool = True) -> SwarmPhase:
        if self.instance.pk and {"prompt", "temperature"} & set(self.changed_data):
            self.instance.version += 1
        phase: SwarmPhase = super().save(commit)
        return phase


class PhaseInline(StackedInline[SwarmPhase, Swarm]):
    model = SwarmPhase
    form = PhaseForm
    fields = ("name", ("phase", "order"), "prompt", ("enabled", "temperature"))
    verbose_name_plural = "phases"


@admin.register(Swarm)
class SwarmAdmin(ModelAdmin[Swarm]):
    form = SwarmForm
    inlines = (PhaseInline,)
    autocomplete_fields = ("agents",)
    fields = ("name", "enabled", "intents", "tools", "post_executor", "agents")

    def get_panels(self, request: HttpRequest, obj: Swarm) -> list[SafeString]:
        context = {"versions": list(versions(obj))}
        return [*super().get_panels(request, obj), SafeString(render_to_string(f"{PAGES}versions.html", context))]


def versions(swarm: Swarm) -> Iterator[dict[str, Any]]:
    """Yield at most `MOST_VERSIONS` changes of a swarm's phases, the newest first, each with what it changed of the version before.

    A phase's first version has none before it and is left out, as is one whose earlier version is not among the 200 newest rows.
    """
    history: Any = SwarmPhase.history
    rows = list(history.filter(swarm_id=swarm.pk).select_related("history_user").order_by("-history_id")[:200])
    yielded = 0
    for index, row in enumerate(rows):
        earlier = [other for other in rows[index + 1 :] if other.id == row.id]
        if not earlier or yielded >= MOST_VERSIONS:
            continue
        before = earlier[0]
        changed = _changed_fields(before, row)
        has_new_prompt = before.prompt != row.prompt
        if changed or has_new_prompt:
            yielded += 1
            diff = display.word_diff(before.prompt, row.prompt) if has_new_prompt else ""
            yield {"row": row, "changed": changed, "diff": diff}


def _changed_fields(before: Any, after: Any) -> list[str]:
    """Return what a version of a phase changed besides its prompt, e.g. ``enabled: True → False``."""
    if after.history_type == "-":
        return ["removed"]
    changed: list[str] = []
    for name in ("enabled", "temperature", "order", "phase", "name"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            changed.append(f"{name}: {old} → {new}")
    return changed


@admin.register(DialogState)
class DialogStateAdmin(LogAdmin[DialogState]):
    """Those who view messages read what was said; those who may change states add, pin, edit and remove entries, and write summary."""

    list_select_related = ("agent", "channel")

    def get_panels(self, request: HttpRequest, obj: DialogState) -> list[SafeString]:
        """Return the usual panels, and for those who may read messages what is remembered, with the summary and refused polishes."""
        panels = super().get_panels(request, obj)
        if not request.user.has_perm(READING):
            return panels
        prefetch_related_objects([obj], "entries")
        summary = newest_summary(obj.agent, obj.channel)
        context = {
            "state": obj,
            "pinnable": LIST_KINDS,
            "kinds": by_kind(obj),
            "all_kinds": KINDS,
            "most": NOTE_CHARACTERS,
            "summary": summary,
            "summary_text": text_of(summary, obj) if summary else "",
            "summary_failed": why_no_summary(obj.agent, obj.channel),
            "refused_polishes": refused_polishes(obj.agent, obj.channel),
            "transcript": reverse("admin:agents_channel_transcript", args=[obj.channel_id]),
            "turns": display.list_url(SwarmTurn, agent__id__exact=obj.agent_id),
            "may_change": request.user.has_perm("swarm.change_dialogstate"),
            "url": self.url("entry", obj),
        }
        return [*panels, SafeString(render_to_string(f"{PAGES}state.html", context, request=request))]

    @console_page("<int:pk>/entry/", "swarm.change_dialogstate", READING, post=True)
    def entry_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add, pin, unpin, change or remove one entry, or write the summary (POST)."""
        row: DialogState = get_object_or_404(DialogState.objects.select_related("agent", "channel"), pk=pk)
        action = action_of(request.POST)
        try:
            change_state(row, action, request.POST)
        except StateRefused as refused:
            self.message_user(request, f"Nothing was changed: {refused}.", messages.ERROR)
        else:
            self.log_change(request, row, "write the summary" if action == "write" else f"{action} an entry")
            self.message_user(request, "Changed; the agent's next turn reads it so.", messages.SUCCESS)
        return HttpResponseRedirect(self.url("change", row))


def action_of(given: QueryDict) -> str:
    """Return which button of the page of a state was pressed; its name is a field of the form."""
    for action in (*ENTRY_ACTIONS, "add", "write"):
        if action in given:
            return action
    return "edit"


def change_state(row: DialogState, action: str, given: QueryDict) -> None:
    """Do what a person asks for on the page of a dialog state.

    Args:
        action: ``write`` (the summary), ``add``, ``edit``, or one of `ENTRY_ACTIONS`. But for the first two, the form's field of
            this name has the entry's primary key.
        given: The form. An edited text is in the field ``text-`` with the entry's key.

    Raises:
        StateRefused: It is not allowed, or there is no such entry.
    """
    if action == "write":
        write_summary(row.agent, row.channel, given.get("summary", ""))
        return
    with updating(row.agent, row.channel) as state:
        if action == "add":
            values = {
                "text": given.get("text", ""),
                "quote": given.get("quote", ""),
                "position": number_in(given, "position"),
                "pinned": "pinned" in given,
            }
            add(state, given.get("kind", ""), values)
            return
        entry_id = number_in(given, action)
        if action == "edit":
            edit(state, entry_id, given.get(f"text-{entry_id}", ""))
        else:
            ENTRY_ACTIONS[action](state, entry_id)


def by_kind(state: DialogState) -> list[tuple[str, list[DialogEntry]]]:
    """Return each kind of which something is remembered, with its entries."""
    remembered = [(kind, entries(state, kind)) for kind in KINDS]
    return [(kind, rows) for kind, rows in remembered if rows]


def number_in(given: QueryDict, name: str) -> int:
    """Return the number in a field of a form; 0 where there is none."""
    text = str(given.get(name, ""))
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else 0


@admin.register(SwarmTurn)
class SwarmTurnAdmin(LogAdmin[SwarmTurn]):
    list_select_related = ("agent", "channel", "swarm", "run")

    @admin.display(description="what it did")
    def outcome(self, turn: SwarmTurn) -> SafeString:
        return format_html("{}", display.badge(*outcome_of(turn)))

    def get_panels(self, request: HttpRequest, obj: SwarmTurn) -> list[SafeString]:
        """Return the usual panels, and for those who may read messages what polishing changed, with each refused text."""
        panels = super().get_panels(request, obj)
        if not request.user.has_perm(READING):
            return panels
        context = {
            "turn": obj,
            "diff": display.word_diff(obj.draft, obj.polished) if obj.polished else "",
            "rejected": [(one, display.word_diff(obj.draft, one.get("text", ""))) for one in obj.rejected],
        }
        return [*panels, SafeString(render_to_string(f"{PAGES}turn.html", context))]


def outcome_of(turn: SwarmTurn) -> tuple[str, display.Tone]:
    """Return what a swarm did, in a word or two, and its tone; of several things the first that is asked for here."""
    decided = turn.calibration.get("decision", {}).get("kind", "")
    if turn.replaced:
        return "replaced", "warning"
    if turn.rejected:
        return "polish refused", "warning"
    if turn.polished:
        return "polished", "good"
    return {"clarify": "asked back", "cannot": "could not answer"}.get(decided, "calibrated"), "plain"


def swarm_notes(request: HttpRequest, shown: list[Message]) -> dict[int, SafeString]:
    """Return, by a message's primary key, what a swarm did with it and a link to what it remembers, for the page of a conversation.

    Messages that no swarm's turn sent are left out; the link is for those who may view dialog states.
    """
    notes: dict[Any, SafeString] = {}
    states = DialogState.objects.filter(agent=OuterRef("agent"), channel=OuterRef("channel"))
    turns = SwarmTurn.objects.filter(message__in=shown).defer("draft")
    may_read = request.user.has_perm("swarm.view_dialogstate")
    for turn in turns.annotate(state=Subquery(states.values("pk")[:1])):
        note = format_html("swarm: {}", display.page_of(turn, outcome_of(turn)[0]))
        if turn.state and may_read:
            note += format_html(" · {}", display.page_of(DialogState(pk=turn.state), "what it remembers"))
        notes[turn.message_id] = note
    return notes


def chat_part(request: HttpRequest, agent: Agent, chat: Channel, run: Run) -> SafeString:
    """Render what the swarm did in the newest turn of a chat, and what it remembers, each for those who may view it.

    Args:
        run: Of the newest turn.
    """
    turn = SwarmTurn.objects.filter(run=run).select_related("swarm").first()
    state = DialogState.objects.filter(agent=agent, channel=chat).prefetch_related("entries").first()
    context = {
        "trace": trace_lines(trace_of(turn)) if turn and request.user.has_perm("swarm.view_swarmturn") else [],
        "turn": turn,
        "state": state if request.user.has_perm("swarm.view_dialogstate") else None,
        "remembered": by_kind(state) if state else [],
    }
    return render_to_string(f"{PAGES}chat.html", context, request)


add_chat_panel(chat_part)
extend(Message, "swarm.view_swarmturn", notes=(swarm_notes,))
