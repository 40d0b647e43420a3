"""Configurations in the console: the matrix is their list, and one page edits a configuration or one mechanism of it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    CHECK_PERMISSION,
    Choice,
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
    own_and_defaults,
    read_changes,
)
from correction.models import AgentEvaluationConfig
from evaluation.admin.display import MEASURE

TEMPLATE_FOLDER = "admin/correction/config/"
LIST_URL_NAME = "admin:correction_agentevaluationconfig_changelist"
ENTRIES_SHOWN = 100  # of a history
AGENTS_NAMED = 5  # agents that inherit a change of the defaults and are named; the others are counted


@admin.register(AgentEvaluationConfig)
class AgentEvaluationConfigAdmin(ModelAdmin[AgentEvaluationConfig]):
    """Rows are made by the first setting of an agent, so there is nothing to add; they go with their agent."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AgentEvaluationConfig | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not obj.is_defaults)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the matrix; its buttons set one switch, or take back what is set in one cell."""
        self._require_permission(request)
        if request.method == "POST":
            return self._set_or_reset_cell(request)
        search = request.GET.get("q", "")[:100]
        context = matrix_context(search=search, page=request.GET.get("p", "1"))
        return self._page(request, "matrix", self.table.name, **context)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Lead from the address that Django knows for a row to the page of its agent."""
        return HttpResponseRedirect(config_url(self._row(request, object_id).agent))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(history_url(self._row(request, object_id).agent))

    @console_page("target/<str:target>/", name="correction_agentevaluationconfig_target")
    def edit_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Show and save a configuration as a form; with ``?mechanism=`` only that part of it.

        The target is an agent's key or ``defaults``.
        """
        self._require_permission(request)
        agent = _agent_of_target(target)
        chosen = _asked_mechanism(request)
        mechanisms = MECHANISMS if chosen is None else (chosen,)
        names = [name for mechanism in mechanisms for name in mechanism.fields]
        stored = _stored_rows(agent)
        form = ConfigForm(request.POST or None, own=stored.edited, defaults=stored.above, names=names)
        if request.method == "POST":
            response = self._save_form(request, agent, chosen, form)
            if response is not None:
                return response
        groups = _fields_by_mechanism(agent, form, mechanisms, stored.config, advanced=False)
        advanced = _fields_by_mechanism(agent, form, mechanisms, stored.config, advanced=True)
        # A fold would hide an error, and is in the way where nothing stands above it.
        unfolded = not groups or any(SETTINGS[name].advanced for name in form.errors if name in SETTINGS)
        return self._page(
            request,
            "form",
            f"{agent or 'Defaults'}: {chosen.label if chosen else 'corrections'}",
            agent=agent,
            form=form,
            notes=notes_on(stored.config, agent),
            groups=groups,
            advanced=advanced,
            unfolded=unfolded,
            chosen=chosen,
            all_url=config_url(agent),
            history_url=history_url(agent),
            gate_url=gate_url(agent),
        )

    def _save_form(
        self, request: HttpRequest, agent: Agent | None, chosen: Mechanism | None, form: ConfigForm
    ) -> HttpResponse | None:
        """Store what was typed, or (button ``_reset``) let everything inherit; None where the form is shown again and says what is wrong.

        Args:
            agent: None: the defaults are edited.
            chosen: The mechanism whose part of the form it is; None: all of it.
        """
        self._require_permission(request, change=True)
        back = config_url(agent)
        if chosen is not None:
            back = f"{reverse(LIST_URL_NAME)}#{anchor_of(agent, chosen)}"
        if "_reset" in request.POST:
            return self._save_or_ask_first(request, agent, chosen, dict.fromkeys(form.names), back=back)
        if not form.is_valid():
            return None
        reason = form.cleaned_data["reason"]
        try:
            return self._save_or_ask_first(
                request, agent, chosen, form.changes, back=back, reason=reason, seen=form.was
            )
        except ConfigConflict as conflict:
            form.show_conflict(conflict)
            return None

    @console_page("target/<str:target>/gate/")
    def gate_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Replay the latest messages with other thresholds, choose what the gate does, see and undo what was changed, check a sentence.

        The buttons post ``_save``, ``_judge`` (the replayed messages) or ``_check`` (a sentence); what else is posted becomes the page's
        address. With ``?progress`` it answers only how many messages still wait to be judged.
        """
        self._require_permission(request)
        agent = _agent_of_target(target)
        stored = _stored_rows(agent)
        # A sentence is checked, and messages are judged, as the page was shown: its address says how, and the estimate was for that.
        is_as_shown = "_check" in request.POST or "_judge" in request.POST
        query = request.GET if is_as_shown else request.POST or request.GET
        choice = read_choice(query, stored.config)
        page_url = gate_url(agent, **choice.query)
        if "_save" in request.POST:
            return self._save_gate(request, agent, choice, stored, page_url=page_url)
        if "_judge" in request.POST:
            return self._judge_messages(request, agent, choice, page_url=page_url)
        sentence: dict[str, Any] = {}
        if "_check" in request.POST and agent is not None:
            if not request.user.has_perm(CHECK_PERMISSION):
                raise PermissionDenied
            sentence = check_sentence(agent, request.POST.get("draft", ""), choice.checked)
        elif request.POST:
            return HttpResponseRedirect(page_url)
        context = gate_context(request, agent, choice, own=stored.edited, config=stored.config)
        if "progress" in request.GET:
            return JsonResponse({"waiting": context["waiting"]})
        live_url = ""
        if context["waiting"] and not request.POST:
            live_url = gate_url(agent, **choice.query, progress=1)
        return self._page(
            request,
            "gate",
            f"Gate for {agent or 'all agents'}",
            **context,
            sentence=sentence,
            live=live_url,
            page_url=page_url,
            history_url=history_url(agent),
        )

    def _save_gate(
        self, request: HttpRequest, agent: Agent | None, choice: Choice, stored: StoredRows, *, page_url: str
    ) -> HttpResponse:
        """Store what the person chose for the gate; where it cannot be stored say why, and lead back to the page as it was filled in."""
        self._require_permission(request, change=True)
        try:
            form = changes_of_choice(request.POST, choice, own=stored.edited, defaults=stored.above)
            return self._save_or_ask_first(
                request,
                agent,
                BY_ID["gate"],
                form.changes,
                back=f"{gate_url(agent)}#changes",
                reason=request.POST.get("reason", ""),
                seen=form.seen,
            )
        except ConfigConflict as conflict:
            sentence = f"{conflict}. Look at what is stored now and save again."
            self.message_user(request, sentence, messages.ERROR)
        except ConfigError as error:
            self.message_user(request, f"{error}.", messages.ERROR)
        return HttpResponseRedirect(page_url)

    def _judge_messages(
        self, request: HttpRequest, agent: Agent | None, choice: Choice, *, page_url: str
    ) -> HttpResponse:
        """Queue messages of the replay to be judged: those not judged, or (button ``all``) also those only an evaluation judged."""
        if not request.user.has_perm(MEASURE):
            raise PermissionDenied
        try:
            number = queue_unjudged(agent, choice, evaluated=request.POST["_judge"] == "all")
            self.message_user(request, f"{counted(number, 'message waits', 'messages wait')} to be judged.")
        except ValueError as error:
            self.message_user(request, str(error), messages.ERROR)
        return HttpResponseRedirect(page_url)

    @console_page("target/<str:target>/history/")
    def target_history_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Show who changed what and when, newest first; go back to an earlier state, or undo one change."""
        self._require_permission(request, change=request.method == "POST")
        agent = _agent_of_target(target)
        if request.method == "POST":
            self._undo_or_revert(request, agent)
            return HttpResponseRedirect(page_to_return_to(request, request.POST, history_url(agent)))
        entries = [(change, settings_of(change)) for change in config_history(agent, limit=ENTRIES_SHOWN)]
        context = {"config_url": config_url(agent), "agent": agent, "entries": entries, "limit": ENTRIES_SHOWN}
        return self._page(request, "history", f"{agent or 'Defaults'}: history", **context)

    def _undo_or_revert(self, request: HttpRequest, agent: Agent | None) -> None:
        """Undo one entry of the history (``undo=``), or go back to the state after one (``history_id=``), and say so.

        Args:
            agent: None: the defaults.
        """
        user = user_of(request)
        before = in_effect(agent)
        try:
            if "undo" in request.POST:
                entry = number_in(request.POST, "undo") or 0  # no entry has the number 0: it is refused
                after = undo(agent=agent, history_id=entry, user=user)
                done = "undone, everything is as before"
            else:
                entry = number_in(request.POST, "history_id") or 0
                after = revert(agent=agent, history_id=entry, user=user)
                done = f"back to entry {entry}"
        except ConfigError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        sentence = f"{agent or 'The defaults'}: {done}. {gate_from_now_on(before, after)}"
        self.message_user(request, sentence.strip(), messages.SUCCESS)

    def _set_or_reset_cell(self, request: HttpRequest) -> HttpResponse:
        """Set one switch (``set=TARGET:FIELD:VALUE``) or let a cell's settings inherit again (``reset=TARGET:MECHANISM``).

        The target is an agent's key or ``defaults``.

        Raises:
            Http404: There is no such switch, mechanism or agent.
        """
        self._require_permission(request, change=True)
        changes: dict[str, Any]
        if "set" in request.POST:
            target, name, value = _three_parts(request.POST["set"])
            mechanism = BY_SWITCH.get(name)
            changes = {name: value}
        else:
            target, name, _ = _three_parts(request.POST.get("reset", ""))
            mechanism = BY_ID.get(name)
            changes = dict.fromkeys(mechanism.fields) if mechanism else {}
        if mechanism is None:
            raise Http404("There is no such cell.")
        agent = _agent_of_target(target)
        back = f"{request.get_full_path()}#{anchor_of(agent, mechanism)}"
        return self._save_or_ask_first(request, agent, mechanism, changes, back=back)

    def _save_or_ask_first(
        self,
        request: HttpRequest,
        agent: Agent | None,
        mechanism: Mechanism | None,
        changes: Mapping[str, Any],
        *,
        back: str,
        reason: str = "",
        seen: Mapping[str, Any] | None = None,
    ) -> HttpResponse:
        """Store the changes under the user's name, say so with what the gate does now, and lead `back` to where the person was.

        A change of the defaults is asked about first, where agents inherit it. The notice has a button that undoes the change. A value that
        is not allowed is said, and nothing stored.

        Args:
            agent: None: the defaults.
            mechanism: Named in the notice; None: all corrections were edited.
            seen: What the page showed as stored; None: conflicts are not looked for.

        Raises:
            ConfigConflict: Another person changed the same since it was `seen`.
        """
        what = mechanism.label if mechanism else "corrections"
        user = user_of(request)
        before = in_effect(agent)
        if agent is None and "confirmed" not in request.POST:
            consequences = _consequences(before, changes)
            if consequences is not None:
                return self._ask_first(request, what, consequences, back=back)
        last_entry = last_change(agent=agent, user=user)  # tells below whether anything was changed
        try:
            after = configure(agent=agent, changes=changes, user=user, reason=reason, seen=seen)
        except ConfigConflict:
            raise
        except ConfigError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            entry = last_change(agent=agent, user=user)
            button = "" if entry == last_entry else _undo_button(request, agent, entry, back)
            sentence = f"{agent or 'The defaults'}: {what} saved. {gate_from_now_on(before, after)}"
            self.message_user(request, format_html("{} {}", sentence, button), messages.SUCCESS)
        return HttpResponseRedirect(back)

    def _ask_first(self, request: HttpRequest, what: str, consequences: dict[str, Any], *, back: str) -> HttpResponse:
        """Ask whether the defaults are to be changed; the page sends everything again that was posted."""
        posted = []
        for name, texts in request.POST.lists():
            if name != "csrfmiddlewaretoken":
                posted += [(name, text) for text in texts]
        return self._page(request, "confirm", f"Defaults: {what}", **consequences, posted=posted, back=back)

    def _page(self, request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
        context |= {"may_change": self.has_change_permission(request), "matrix_url": reverse(LIST_URL_NAME)}
        return self.page(request, f"{TEMPLATE_FOLDER}{template}.html", title, **context)

    def _require_permission(self, request: HttpRequest, *, change: bool = False) -> None:
        """Refuse users who may not view configurations, or not change them.

        Raises:
            PermissionDenied: The user may not.
        """
        is_allowed = self.has_change_permission(request) if change else self.has_view_permission(request)
        if not is_allowed:
            raise PermissionDenied

    def _row(self, request: HttpRequest, object_id: str) -> AgentEvaluationConfig:
        self._require_permission(request)
        return get_object_or_404(AgentEvaluationConfig, pk=number_in({"pk": object_id}, "pk"))


def _three_parts(text: str) -> tuple[str, str, str]:
    """Split a button's value at its first two colons; parts that are not there are empty."""
    first, _, rest = text.partition(":")
    second, _, third = rest.partition(":")
    return first, second, third


def history_url(agent: Agent | None) -> str:
    """Return the address of a configuration's history."""
    return reverse("admin:correction_agentevaluationconfig_target_history", args=[target_of(agent)])


def _agent_of_target(target: str) -> Agent | None:
    """Return the agent that a URL names; None for the defaults."""
    if target == DEFAULTS:
        return None
    return get_object_or_404(Agent, pk=number_in({"target": target}, "target"))


def _asked_mechanism(request: HttpRequest) -> Mechanism | None:
    """Return the mechanism that the address asks for; None for all."""
    name = request.GET.get("mechanism", "")
    if name and name not in BY_ID:
        raise Http404(f"There is no mechanism {name!r}; there are {', '.join(BY_ID)}.")
    return BY_ID.get(name)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The row that is edited, the defaults above it (None where these are edited), and what is in effect."""

    edited: AgentEvaluationConfig | None
    above: AgentEvaluationConfig | None
    config: ResolvedConfig


def _stored_rows(agent: Agent | None) -> StoredRows:
    """Read the configuration of an agent, or (None) the defaults, in one query."""
    condition = Q(is_defaults=True)
    if agent is not None:
        condition |= Q(agent=agent)
    own, defaults = own_and_defaults(AgentEvaluationConfig.objects.filter(condition))
    config = merge(own=own, defaults=defaults)
    if agent is None:
        return StoredRows(edited=defaults, above=None, config=config)
    return StoredRows(edited=own, above=defaults, config=config)


def _fields_by_mechanism(
    agent: Agent | None, form: ConfigForm, mechanisms: Sequence[Mechanism], config: ResolvedConfig, *, advanced: bool
) -> list[dict[str, Any]]:
    """Return the fields by mechanism, the advanced ones or (False) the others; a mechanism without any is left out.

    Args:
        agent: Whose form it is; None: that of the defaults.
    """
    groups = []
    for mechanism in mechanisms:
        names = [name for name in mechanism.fields if SETTINGS[name].advanced == advanced]
        if names:
            lines = [_field_line(agent, form, name, config) for name in names]
            groups.append({"mechanism": mechanism, "lines": lines})
    return groups


def _field_line(agent: Agent | None, form: ConfigForm, name: str, config: ResolvedConfig) -> dict[str, Any]:
    """Return a field with what is in effect, where that comes from, and the value it had when the page was opened (`seen`).

    Args:
        agent: Whose form it is; None: that of the defaults.
    """
    bound = form[name]
    came_from = origin(config, name)
    if agent is None and config.provenance[name] == "defaults":
        came_from = "set here"
    return {
        "bound": bound,
        "in_effect": config.show(name),
        "came_from": came_from,
        "is_choice": isinstance(bound.field, ChoiceField),
        "seen_name": f"{SEEN}{name}",
        "seen": form.seen(name),
    }


def _consequences(before: ResolvedConfig, changes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the page shows that asks before the defaults are changed; None where nothing changes for any agent.

    None too where a change is not allowed. Counts the agents that inherit a changed field, and names the first five.

    Args:
        before: The defaults in effect.
        changes: As they were typed.
    """
    try:
        values = read_changes(changes)
    except ConfigError:  # saving says so
        return None
    stored = _stored_rows(agent=None).edited  # None: there is no defaults row yet
    # Changed here, never saved.
    row = copy.copy(stored) if stored is not None else AgentEvaluationConfig(is_defaults=True)
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    agents = inheritors(changed)
    number = agents.count() if changed else 0
    if not number:
        return None
    after = merge(own=None, defaults=row)
    rows = []
    for name, setting in SETTINGS.items():
        if name in changed or before[name] != after[name]:  # also what follows from a change, such as the mode
            rows.append((setting.label, before.show(name), after.show(name)))
    return {
        "number": number,
        "named": [display.isolated(agent) for agent in agents[:AGENTS_NAMED]],
        "more": max(0, number - AGENTS_NAMED),
        "changes": rows,
        "gate": gate_from_now_on(before, after),
    }


def _undo_button(request: HttpRequest, agent: Agent | None, entry: int | None, back: str) -> SafeString:
    """Return a form of its own for the notice, so that it works without scripts; `back` is where it leads."""
    return format_html(
        '<form class="pl-undo" method="post" action="{}"><input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        '<input type="hidden" name="next" value="{}"><button class="pl-button" type="submit" name="undo" value="{}">Undo</button></form>',
        history_url(agent), get_token(request), back, entry,
    )  # fmt: skip
