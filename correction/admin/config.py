"""Configurations in the console: the matrix is their list, and one page edits a configuration or one mechanism of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.forms import ChoiceField
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.admin.access import user_of
from agents.kit.console import display
from agents.kit.console.filters import number_in
from agents.kit.console.site import ModelAdmin, console_page, page_to_return_to
from agents.kit.text.wording import counted
from agents.models import Agent
from correction.admin.config_form import SEEN, ConfigForm
from correction.admin.display import origin
from correction.admin.gate import (
    CHECKING,
    changes_of_choice,
    check_sentence,
    gate_context,
    queue_unjudged,
    read_choice,
    settings_of,
)
from correction.admin.matrix import (
    BY_ID,
    BY_SWITCH,
    DEFAULTS,
    anchor_of,
    config_url,
    gate_url,
    matrix_context,
    target_of,
)
from correction.config.configure import (
    ConfigConflict,
    config_history,
    configure,
    gate_from_now_on,
    in_effect,
    inheritors,
    last_change,
    notes_on,
    revert,
    undo,
)
from correction.config.settings import (
    MECHANISMS,
    SETTINGS,
    ConfigError,
    Mechanism,
    ResolvedConfig,
    merge,
    read_changes,
)
from correction.models import AgentEvaluationConfig
from evaluation.admin.display import MEASURE

PAGES = "admin/correction/config/"
LIST = "admin:correction_agentevaluationconfig_changelist"
ENTRIES = 100  # of a history
NAMED = 5  # agents that inherit a change of the defaults and are named; the others are counted


@admin.register(AgentEvaluationConfig)
class AgentEvaluationConfigAdmin(ModelAdmin[AgentEvaluationConfig]):
    """Rows are made by the first setting of an agent, so there is nothing to add; they go with their agent."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AgentEvaluationConfig | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not obj.is_defaults)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The matrix; its buttons set one switch, or take back what is set in one cell."""
        self._allow(request)
        if request.method == "POST":
            return self._button_pressed(request)
        search = request.GET.get("q", "")[:100]
        shown = matrix_context(search=search, page=request.GET.get("p", "1"))
        return self._page(request, "matrix", "Corrections", **shown)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The address that Django knows for a row leads to the page of its agent."""
        return HttpResponseRedirect(config_url(self._row(request, object_id).agent))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(history_url(self._row(request, object_id).agent))

    @console_page("target/<str:target>/", name="correction_agentevaluationconfig_target")
    def edit_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """A configuration as a form; with ``?mechanism=`` only that part of it."""
        self._allow(request)
        agent, chosen = _agent(target), _mechanism(request)
        own, defaults, config = _stored_rows(agent)
        shown = MECHANISMS if chosen is None else (chosen,)
        names = [name for mechanism in shown for name in mechanism.fields]
        form = ConfigForm(request.POST or None, own=own, defaults=defaults, names=names)
        if request.method == "POST":
            self._allow(request, change=True)
            back = config_url(agent) if chosen is None else f"{reverse(LIST)}#{anchor_of(agent, chosen)}"
            if "_reset" in request.POST:
                return self._save(request, agent, chosen, dict.fromkeys(names), back=back)
            if form.is_valid():
                try:
                    reason = form.cleaned_data["reason"]
                    return self._save(request, agent, chosen, form.changes, back=back, reason=reason, seen=form.was)
                except ConfigConflict as conflict:
                    form.show_conflict(conflict)
        return self._page(
            request,
            "form",
            f"{agent or 'Defaults'}: {chosen.label if chosen else 'corrections'}",
            agent=agent,
            form=form,
            notes=notes_on(config, agent),
            groups=_groups(agent, form, shown, config),
            chosen=chosen,
            all_url=config_url(agent),
            history_url=history_url(agent),
            gate_url=gate_url(agent),
        )

    @console_page("target/<str:target>/gate/")
    def gate_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Replay the latest messages with other thresholds, choose what the gate does, see and undo what was changed, check a sentence."""
        self._allow(request)
        agent = _agent(target)
        own, defaults, config = _stored_rows(agent)
        posted = request.POST
        # A sentence is checked, and messages are judged, as the page was shown: its address says how, and the estimate was for that.
        as_shown = "_check" in posted or "_judge" in posted
        choice = read_choice(request.GET if as_shown else posted or request.GET, config)
        here, sentence = gate_url(agent, **choice.query), {}
        if "_save" in posted:
            self._allow(request, change=True)
            try:
                changes, seen = changes_of_choice(posted, choice, own=own, defaults=defaults)
                back, reason = gate_url(agent) + "#changes", posted.get("reason", "")
                return self._save(request, agent, BY_ID["gate"], changes, back=back, reason=reason, seen=seen)
            except ConfigError as error:
                again = " Look at what is stored now and save again." if isinstance(error, ConfigConflict) else ""
                self.message_user(request, f"{error}.{again}", messages.ERROR)
                return HttpResponseRedirect(here)
        if "_judge" in posted:
            if not request.user.has_perm(MEASURE):
                raise PermissionDenied
            try:
                number = queue_unjudged(agent, choice, evaluated=posted["_judge"] == "all")
                self.message_user(request, f"{counted(number, 'message waits', 'messages wait')} to be judged.")
            except ValueError as error:
                self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(here)
        if "_check" in posted and agent is not None:
            if not request.user.has_perm(CHECKING):
                raise PermissionDenied
            sentence = check_sentence(agent, posted.get("draft", ""), choice.checked)
        elif posted:
            return HttpResponseRedirect(here)
        context = gate_context(request, agent, choice, own=own, config=config)
        if "progress" in request.GET:
            return JsonResponse({"waiting": context["waiting"]})
        live = gate_url(agent, **choice.query, progress=1) if context["waiting"] and not posted else ""
        title = f"Gate for {agent or 'all agents'}"
        more = {"sentence": sentence, "live": live, "here": here, "history_url": history_url(agent)}
        return self._page(request, "gate", title, **context, **more)

    @console_page("target/<str:target>/history/")
    def target_history_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Who changed what and when, newest first; each state but the present one can be gone back to."""
        self._allow(request, change=request.method == "POST")
        agent = _agent(target)
        if request.method == "POST":
            self._go_back(request, agent)
            return HttpResponseRedirect(page_to_return_to(request, request.POST, history_url(agent)))
        entries = [(change, settings_of(change)) for change in config_history(agent, limit=ENTRIES)]
        context = {"config_url": config_url(agent), "agent": agent, "entries": entries, "limit": ENTRIES}
        return self._page(request, "history", f"{agent or 'Defaults'}: history", **context)

    def _go_back(self, request: HttpRequest, agent: Agent | None) -> None:
        """Undo one entry of the history (``undo=``), or go back to the state after one (``history_id=``)."""
        undoing = "undo" in request.POST
        entry = number_in(request.POST, "undo" if undoing else "history_id") or 0
        before = in_effect(agent)
        try:
            after = (undo if undoing else revert)(agent=agent, history_id=entry, user=user_of(request))
        except ConfigError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            done = "undone, everything is as before" if undoing else f"back to entry {entry}"
            text = f"{agent or 'The defaults'}: {done}. {gate_from_now_on(before, after)}"
            self.message_user(request, text.strip(), messages.SUCCESS)

    def _button_pressed(self, request: HttpRequest) -> HttpResponse:
        """``set=TARGET:FIELD:VALUE`` or ``reset=TARGET:MECHANISM``."""
        self._allow(request, change=True)
        target, _, rest = (request.POST.get("set") or request.POST.get("reset") or "").partition(":")
        name, _, value = rest.partition(":")
        mechanism = BY_SWITCH.get(name) if "set" in request.POST else BY_ID.get(name)
        if mechanism is None:
            raise Http404("There is no such cell.")
        changes = {name: value} if "set" in request.POST else dict.fromkeys(mechanism.fields)
        agent = _agent(target)
        back = f"{request.get_full_path()}#{anchor_of(agent, mechanism)}"
        return self._save(request, agent, mechanism, changes, back=back)

    def _save(
        self,
        request: HttpRequest,
        agent: Agent | None,
        mechanism: Mechanism | None,
        changes: dict[str, Any],
        *,
        back: str,
        reason: str = "",
        seen: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        """Store the changes under the user's name, say so with what the gate does now, and lead `back` to where the person was.

        A change of the defaults is asked about first, where agents inherit it.

        Raises:
            ConfigConflict: Another person changed the same since it was `seen`.
        """
        user, before = user_of(request), in_effect(agent)
        what = mechanism.label if mechanism else "corrections"
        if agent is None and "confirmed" not in request.POST and (context := _consequences(before, changes)):
            posted = [(name, text) for name, texts in request.POST.lists() for text in texts]
            context |= {"posted": [pair for pair in posted if pair[0] != "csrfmiddlewaretoken"], "back": back}
            return self._page(request, "confirm", f"Defaults: {what}", **context)
        earlier = last_change(agent=agent, user=user)
        try:
            after = configure(agent=agent, changes=changes, user=user, reason=reason, seen=seen)
        except ConfigConflict:
            raise
        except ConfigError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            entry = last_change(agent=agent, user=user)
            button = _undo_button(request, agent, entry, back) if entry != earlier else ""
            said = f"{agent or 'The defaults'}: {what} saved. {gate_from_now_on(before, after)}"
            self.message_user(request, format_html("{} {}", said, button), messages.SUCCESS)
        return HttpResponseRedirect(back)

    def _page(self, request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
        context |= {"may_change": self.has_change_permission(request), "matrix_url": reverse(LIST)}
        return self.page(request, f"{PAGES}{template}.html", title, **context)

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied

    def _row(self, request: HttpRequest, object_id: str) -> AgentEvaluationConfig:
        self._allow(request)
        return get_object_or_404(AgentEvaluationConfig, pk=number_in({"pk": object_id}, "pk"))


def history_url(agent: Agent | None) -> str:
    return reverse("admin:correction_agentevaluationconfig_target_history", args=[target_of(agent)])


def _agent(target: str) -> Agent | None:
    """The agent that a URL names; None for the defaults."""
    if target == DEFAULTS:
        return None
    return get_object_or_404(Agent, pk=number_in({"target": target}, "target"))


def _mechanism(request: HttpRequest) -> Mechanism | None:
    wanted = request.GET.get("mechanism", "")
    if wanted and wanted not in BY_ID:
        raise Http404(f"There is no mechanism {wanted!r}; there are {', '.join(BY_ID)}.")
    return BY_ID.get(wanted)


def _stored_rows(
    agent: Agent | None,
) -> tuple[AgentEvaluationConfig | None, AgentEvaluationConfig | None, ResolvedConfig]:
    """The row that is edited, the defaults above it (None when these are edited), and what is in effect; in one query."""
    wanted = Q(is_defaults=True) | Q(agent=agent) if agent is not None else Q(is_defaults=True)
    rows = {row.agent_id: row for row in AgentEvaluationConfig.objects.filter(wanted).order_by()}
    own, defaults = (None, rows.get(None)) if agent is None else (rows.get(agent.pk), rows.get(None))
    config = merge(own=own, defaults=defaults)
    return (own, defaults, config) if agent is not None else (defaults, None, config)


def _groups(
    agent: Agent | None, form: ConfigForm, mechanisms: Sequence[Mechanism], config: ResolvedConfig
) -> list[dict[str, Any]]:
    """The fields by mechanism, each with what is in effect and the value it had when the page was opened (`seen`)."""

    def line(name: str) -> dict[str, Any]:
        bound, came = form[name], origin(config, name)
        return {
            "bound": bound,
            "in_effect": config.show(name),
            "came_from": "set here" if agent is None and config.provenance[name] == "defaults" else came,
            "is_choice": isinstance(bound.field, ChoiceField),
            "seen_name": f"{SEEN}{name}",
            "seen": form.seen(name),
        }

    return [{"mechanism": one, "lines": [line(name) for name in one.fields]} for one in mechanisms]


def _consequences(before: ResolvedConfig, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page shows that asks before the defaults are changed; None where nothing changes for any agent."""
    try:
        values = read_changes(changes)
    except ConfigError:
        return None
    stored, _, _ = _stored_rows(None)
    row = copy.copy(stored) if stored is not None else AgentEvaluationConfig(is_defaults=True)
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    number = inheritors(changed).count() if changed else 0
    if not number:
        return None
    after = merge(own=None, defaults=row)
    moved = [name for name in SETTINGS if before[name] != after[name] or name in changed]
    return {
        "number": number,
        "named": [display.isolated(agent) for agent in inheritors(changed)[:NAMED]],
        "more": max(0, number - NAMED),
        "changes": [(SETTINGS[name].label, before.show(name), after.show(name)) for name in moved],
        "gate": gate_from_now_on(before, after),
    }


def _undo_button(request: HttpRequest, agent: Agent | None, entry: int | None, back: str) -> SafeString:
    """A form of its own for the notice, so that it works without scripts; `back` is where it leads."""
    return format_html(
        '<form class="pl-undo" method="post" action="{}"><input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        '<input type="hidden" name="next" value="{}"><button class="pl-button" type="submit" name="undo" value="{}">Undo</button></form>',
        history_url(agent), get_token(request), back, entry,
    )  # fmt: skip
