"""Swarms in the console: their phases with versions, what is remembered of a conversation, and what a swarm did in a turn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Subquery, prefetch_related_objects
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agents.admin.chat import add_chat_panel
from agents.admin.display import agent_chip
from agents.admin.personas import as_stored
from agents.kit.console import display
from agents.kit.console.display import count_up_to
from agents.kit.console.filters import number_in
from agents.kit.console.forms import RequestForm, request_form
from agents.kit.console.home import CountUpTo
from agents.kit.console.logs import READING, LogAdmin
from agents.kit.console.paging import MOST_COUNTED
from agents.kit.console.site import ModelAdmin, console_page, extend
from agents.kit.refusals import Refused
from agents.models import Agent, Channel, Message, Run
from agents.swarm.assign import PhaseRequest, SwarmRequest, check_clashes, check_values, save_phase
from agents.swarm.lane import DECISIONS, MOST_TURNS, Lane, lane_of_swarm, lane_of_turn
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
from agents.swarm.summaries import (
    NOTE_CHARACTERS,
    newest_summary,
    several_people_talk,
    text_of,
    why_no_summary,
    write_summary,
)
from agents.swarm.talk import refused_polishes, trace_lines, trace_of

PAGES = "admin/swarm/swarm/"
MOST_VERSIONS = 30  # of all phases together, the newest
MOST_NAMED = 3  # agents of a swarm in the list
IN_LANE = ("agent", "channel", "swarm", "message__agent", "run__trigger__user")  # read with a turn
PHASE_FIELDS = tuple(PhaseRequest.model_fields)
ENTRY_ACTIONS = {"pin": pin, "unpin": unpin, "remove": remove}

if TYPE_CHECKING:
    SwarmModelForm = forms.ModelForm[Swarm]
else:
    SwarmModelForm = forms.ModelForm


class SwarmForm(SwarmModelForm):
    """The form of a swarm; what could not work is refused as over the API."""

    def clean(self) -> dict[str, Any]:
        """Check the fields as the API does, and that no other swarm of its agents answers one of its intents.

        What is refused becomes an error of its field, where that has none yet.
        """
        cleaned: dict[str, Any] = super().clean() or {}
        cleaned["tools"] = cleaned.get("tools") or []
        try:
            checked = check_values({name: cleaned[name] for name in SwarmRequest.model_fields if name in cleaned})
            if not self.errors:
                changed = Swarm(name=checked.name, intents=checked.intents, enabled=checked.enabled)
                for agent in cleaned["agents"].order_by("pk"):
                    check_clashes(agent, chain(agent.swarms.exclude(pk=self.instance.pk), [changed]))
        except Refused as refused:
            for path, sentence in refused.errors.items():
                field = path.partition("[")[0]
                if field not in self.errors:
                    self.add_error(field, sentence)
        return cleaned


PhaseForm = request_form(PhaseRequest)


@admin.register(Swarm)
class SwarmAdmin(ModelAdmin[Swarm]):
    """A swarm is its lane, its own fields, and a page for each phase."""

    form = SwarmForm
    autocomplete_fields = ("agents",)
    fields = ("name", "enabled", "intents", "tools", "post_executor", "agents")

    def fill_in(self, rows: list[Any]) -> None:
        """Set the first agents of each swarm and how many it has, up to 1,001, for the page in two queries."""
        links = Swarm.agents.through.objects.filter(swarm=OuterRef("pk")).order_by(
            "pk"
        )  # as its index is: few are read
        first = {
            f"agent_{number}": Subquery(links.values("agent")[number : number + 1]) for number in range(MOST_NAMED)
        }
        swarms: Any = Swarm.objects.filter(pk__in=[swarm.pk for swarm in rows]).order_by()
        having = {row["pk"]: row for row in swarms.values("pk", total=CountUpTo(links), **first)}
        agent_ids = {row[name] for row in having.values() for name in first}
        agents = Agent.objects.only("slug", "display_name", "avatar_color").in_bulk(agent_ids)
        for swarm in rows:
            row = having.get(swarm.pk, {"total": 0})
            swarm.agents_total = row["total"]
            swarm.first_agents = [agents[row[name]] for name in first if row.get(name) in agents]

    @admin.display(description="agents")
    def having(self, swarm: Any) -> SafeString:
        """Return the first agents that have the swarm, and how many more there are."""
        chips = [agent_chip(agent) for agent in swarm.first_agents]
        more = swarm.agents_total - len(chips)
        if more > 0:
            number = count_up_to(more, MOST_COUNTED - len(chips))
            chips.append(display.link(display.list_url(Agent, swarms__id__exact=swarm.pk), f"+{number} more"))
        if not chips:
            return display.EMPTY
        return format_html('<span class="pl-line">{}</span>', format_html_join(" ", "{}", [(name,) for name in chips]))

    def get_panels(self, request: HttpRequest, obj: Swarm) -> list[SafeString]:
        """Return the usual panels and the lane, with a turn for those who may read it: the one that ``?turn=`` names, else the newest."""
        panels = super().get_panels(request, obj)
        turns: list[SwarmTurn] = []
        chosen: SwarmTurn | None = None
        if request.user.has_perms(("swarm.view_swarmturn", READING)):
            own = SwarmTurn.objects.filter(swarm=obj).select_related(*IN_LANE).order_by("-pk")
            turns = list(own[:MOST_TURNS])
            chosen = own.filter(pk=number_in(request.GET, "turn") or 0).first()
            if chosen is None and turns:
                chosen = turns[0]
        lane = lane_of_turn(chosen) if chosen else lane_of_swarm(obj)
        offered = [(turn, *outcome_of(turn)) for turn in turns]
        return [*panels, lane_panel(request, lane=lane, swarm=obj, turns=offered)]

    def get_sections(self, request: HttpRequest, obj: Swarm) -> list[SafeString]:
        context = {"versions": list(versions(obj))}
        return [*super().get_sections(request, obj), SafeString(render_to_string(f"{PAGES}versions.html", context))]

    def response_add(self, request: HttpRequest, obj: Swarm, post_url_continue: str | None = None) -> HttpResponse:
        """Lead to the page of a new swarm, where it gets its phases."""
        response = super().response_add(request, obj, post_url_continue)
        stays = {"_addanother", "_popup", "_continue"} & set(request.POST)
        return response if stays else HttpResponseRedirect(self.url("change", obj))

    @console_page("<int:pk>/phases/add/", "swarm.view_swarm", "swarm.add_swarmphase")
    def add_phase_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Add a phase to a swarm; ``?phase=`` says when it is asked, and it is the last one then."""
        swarm = get_object_or_404(Swarm, pk=pk)
        moment = request.GET.get("phase", "")
        if moment not in SwarmPhase.Phase.values:
            moment = ""
        last = swarm.phases.filter(phase=moment).order_by("order").last()
        initial = {"phase": moment, "order": last.order + 1 if last else 1, "enabled": True}
        return self._phase_page(request, swarm, None, initial)

    @console_page("phases/<int:phase_id>/", "swarm.view_swarm", "swarm.view_swarmphase")
    def phase_view(self, request: HttpRequest, phase_id: int) -> HttpResponse:
        """Show one phase with its versions; POST changes or removes it."""
        phase = get_object_or_404(SwarmPhase.objects.select_related("swarm"), pk=phase_id)
        if request.method == "POST" and "remove" in request.POST:
            if not request.user.has_perm("swarm.delete_swarmphase"):
                raise PermissionDenied
            self.log_change(request, phase.swarm, f"removed the phase {phase.name}")
            phase.delete()
            self.message_user(request, f"{phase.name} was removed.", messages.SUCCESS)
            return HttpResponseRedirect(self.url("change", phase.swarm))
        return self._phase_page(request, phase.swarm, phase, {name: getattr(phase, name) for name in PHASE_FIELDS})

    def _phase_page(
        self, request: HttpRequest, swarm: Swarm, phase: SwarmPhase | None, initial: dict[str, Any]
    ) -> HttpResponse:
        """Show the fields of one phase; POST saves them.

        Args:
            phase: None = a new one.
        """
        may_change = phase is None or request.user.has_perm("swarm.change_swarmphase")
        form = PhaseForm(request.POST or None, initial=initial)
        if request.method == "POST":
            if not may_change:
                raise PermissionDenied
            if form.is_valid() and self._save_phase(request, form, swarm, phase):
                return HttpResponseRedirect(f"{self.url('change', swarm)}#lane")
        return self.page(
            request,
            f"{PAGES}phase.html",
            f"{display.marked(phase.name)}, phase of a swarm" if phase else "Add a phase",
            form=form,
            swarm=swarm,
            phase=phase,
            may_change=may_change,
            may_remove=phase is not None and request.user.has_perm("swarm.delete_swarmphase"),
            versions=list(versions(swarm, phase)) if phase else [],
        )

    def _save_phase(self, request: HttpRequest, form: RequestForm, swarm: Swarm, phase: SwarmPhase | None) -> bool:
        """Save what a form asks for and tell the user; False where it is refused, which the form then says."""
        values = form.asked.model_dump()
        # The browser's line ends are no change.
        values["prompt"] = as_stored(values["prompt"], phase.prompt if phase else "")
        version_before = phase.version if phase else 0
        try:
            saved = save_phase(values, swarm=swarm, phase=phase)
        except Refused as refused:
            for path, sentence in refused.errors.items():
                form.add_error(path if path in form.fields else None, sentence)
            return False
        self.log_change(request, swarm, f"{'changed' if phase else 'added'} the phase {saved.name}")
        new_version = f" It is version {saved.version} now." if saved.version > version_before else ""
        self.message_user(request, f"{saved.name} is saved.{new_version}", messages.SUCCESS)
        return True


def lane_panel(request: HttpRequest, *, lane: Lane, swarm: Swarm | None, **context: Any) -> SafeString:
    """Render a lane, with links to what the user may view and add.

    Args:
        swarm: Whose page it is; None: that of a turn.
        context: ``turns`` to choose from (turn, what it did, its tone), or the turns ``before`` and ``after`` in the conversation.
    """
    context |= {
        "lane": lane,
        "swarm": swarm,
        "may_view_phases": request.user.has_perm("swarm.view_swarmphase"),
        "may_add": swarm is not None and request.user.has_perm("swarm.add_swarmphase"),
    }
    return SafeString(render_to_string(f"{PAGES}lane.html", context, request=request))


def versions(swarm: Swarm, phase: SwarmPhase | None = None) -> Iterator[dict[str, Any]]:
    """Yield at most `MOST_VERSIONS` changes of a swarm's phases, the newest first, each with what it changed of the version before.

    A phase's first version has none before it and is left out, as is one whose earlier version is not among the 200 newest rows.

    Args:
        phase: Only this one's; None: of all, also of removed ones.
    """
    history: Any = SwarmPhase.history.filter(swarm_id=swarm.pk)
    if phase is not None:
        history = history.filter(id=phase.pk)
    rows = list(history.select_related("history_user").order_by("-history_id")[:200])
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
        context = {
            **known_of(obj),
            "all_kinds": KINDS,
            "most": NOTE_CHARACTERS,
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


def known_of(state: DialogState) -> dict[str, Any]:
    """Return what is remembered of a conversation, with the summary and refused polishes, as the templates show it."""
    prefetch_related_objects([state], "entries")
    summary = newest_summary(state.agent, state.channel)
    return {
        "state": state,
        "preferences_apply": not (state.preferences and several_people_talk(state.channel)),
        "pinnable": LIST_KINDS,
        "kinds": by_kind(state),
        "summary": summary,
        "summary_text": text_of(summary, state) if summary else "",
        "summary_failed": why_no_summary(state.agent, state.channel),
        "refused_polishes": refused_polishes(state.agent, state.channel),
        "transcript": reverse("admin:agents_channel_transcript", args=[state.channel_id]),
    }


def action_of(form: QueryDict) -> str:
    """Return which button of the page of a state was pressed; its name is a field of the form."""
    for action in (*ENTRY_ACTIONS, "add", "write"):
        if action in form:
            return action
    return "edit"


def change_state(row: DialogState, action: str, form: QueryDict) -> None:
    """Do what a person asks for on the page of a dialog state.

    Args:
        action: ``write`` (the summary), ``add``, ``edit``, or one of `ENTRY_ACTIONS`. But for the first two, the form's field of
            this name has the entry's primary key.
        form: The form. An edited text is in the field ``text-`` with the entry's key.

    Raises:
        StateRefused: It is not allowed, or there is no such entry.
    """
    if action == "write":
        write_summary(row.agent, row.channel, form.get("summary", ""))
        return
    with updating(row.agent, row.channel) as state:
        if action == "add":
            values = {
                "text": form.get("text", ""),
                "quote": form.get("quote", ""),
                "position": number_in(form, "position") or 0,
                "pinned": "pinned" in form,
            }
            add(state, form.get("kind", ""), values)
            return
        entry_id = number_in(form, action) or 0
        if action == "edit":
            edit(state, entry_id, form.get(f"text-{entry_id}", ""))
        else:
            ENTRY_ACTIONS[action](state, entry_id)


def by_kind(state: DialogState) -> list[tuple[str, list[DialogEntry]]]:
    """Return each kind of which something is remembered, with its entries."""
    remembered = [(kind, entries(state, kind)) for kind in KINDS]
    return [(kind, rows) for kind, rows in remembered if rows]


@admin.register(SwarmTurn)
class SwarmTurnAdmin(LogAdmin[SwarmTurn]):
    list_select_related = ("agent", "channel", "swarm", "run")

    @admin.display(description="what it did")
    def outcome(self, turn: SwarmTurn) -> SafeString:
        return format_html("{}", display.badge(*outcome_of(turn)))

    def get_panels(self, request: HttpRequest, obj: SwarmTurn) -> list[SafeString]:
        """Return the usual panels, and for those who may read messages the lane with the turns before and after it."""
        panels = super().get_panels(request, obj)
        if not request.user.has_perm(READING):
            return panels
        turn = SwarmTurn.objects.select_related(*IN_LANE).get(pk=obj.pk)
        same_talk = SwarmTurn.objects.filter(agent=turn.agent, channel=turn.channel).only("pk")
        before = same_talk.filter(pk__lt=turn.pk).order_by("-pk").first()
        after = same_talk.filter(pk__gt=turn.pk).order_by("pk").first()
        return [*panels, lane_panel(request, lane=lane_of_turn(turn), swarm=None, before=before, after=after)]


def outcome_of(turn: SwarmTurn) -> tuple[str, display.Tone]:
    """Return what a swarm did, in a word or two, and its tone; of several things the first that is asked for here."""
    decided = turn.calibration.get("decision", {}).get("kind", "")
    if turn.replaced:
        return "replaced", "warning"
    if turn.rejected:
        return "polish refused", "warning"
    if turn.polished:
        return "polished", "good"
    return DECISIONS.get(decided, "calibrated"), "plain"


def swarm_notes(request: HttpRequest, messages: list[Message]) -> dict[int, SafeString]:
    """Return, by a message's primary key, what a swarm did with it and a link to what it remembers, for the page of a conversation.

    Messages that no swarm's turn sent are left out; the link is for those who may view dialog states.
    """
    notes: dict[Any, SafeString] = {}
    states = DialogState.objects.filter(agent=OuterRef("agent"), channel=OuterRef("channel"))
    turns = SwarmTurn.objects.filter(message__in=messages).defer("draft")
    may_read = request.user.has_perm("swarm.view_dialogstate")
    for turn in turns.annotate(state=Subquery(states.values("pk")[:1])):
        note = format_html("swarm: {}", display.page_of(turn, outcome_of(turn)[0]))
        if turn.state and may_read:
            note += format_html(" · {}", display.page_of(DialogState(pk=turn.state), "what it remembers"))
        notes[turn.message_id] = note
    return notes


def chat_part(request: HttpRequest, agent: Agent, chat: Channel, run: Run) -> SafeString:
    """Render what an agent with a swarm remembers of a chat, and what its swarm did in the newest turn, each for those who may view it.

    Args:
        run: Of the newest turn.
    """
    context: dict[str, Any] = {}
    if request.user.has_perm("swarm.view_dialogstate"):
        state = DialogState.objects.filter(agent=agent, channel=chat).select_related("agent", "channel").first()
        context["has_state"] = state is not None or agent.swarms.filter(enabled=True).exists()
        context |= known_of(state) if state else {}
    if request.user.has_perm("swarm.view_swarmturn"):
        turn = SwarmTurn.objects.filter(run=run).select_related("swarm").first()
        context |= {"turn": turn, "trace": trace_lines(trace_of(turn)) if turn else []}
    return render_to_string(f"{PAGES}chat.html", context, request)


add_chat_panel(chat_part)
extend(Message, "swarm.view_swarmturn", notes=(swarm_notes,))
