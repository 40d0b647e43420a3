"""Configurations in the console: the matrix is their list, and one page edits a whole configuration or one mechanism of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from agents.admin.access import user_of
from agents.console.site import ModelAdmin
from agents.models import Agent
from correction.admin.config_form import (
    ConfigForm,
    asking,
    form_context,
    history_context,
    judged_drafts,
    stored_rows,
    tried,
)
from correction.admin.matrix import (
    BY_ID,
    BY_SWITCH,
    DEFAULTS,
    MECHANISMS,
    Mechanism,
    anchor_of,
    config_url,
    matrix_context,
    target_of,
)
from correction.admin.thresholds import thresholds_context, thresholds_url
from correction.config.configure import configure, gate_from_now_on, in_effect, last_change, revert, undo
from correction.config.settings import GATE_DIMENSIONS, ConfigError
from correction.models import AgentEvaluationConfig, GateMode

PAGES = "admin/correction/config/"


@admin.register(AgentEvaluationConfig)
class AgentEvaluationConfigAdmin(ModelAdmin[AgentEvaluationConfig]):
    """Rows are made by the first setting of an agent, so there is nothing to add; they go with their agent."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: AgentEvaluationConfig | None = None) -> bool:
        return super().has_delete_permission(request, obj) and (obj is None or not obj.is_defaults)

    def get_urls(self) -> list[URLPattern]:
        pages = (
            ("target/<str:target>/", self.edit_view, "target"),
            ("target/<str:target>/try/", self.try_view, "try"),
            ("target/<str:target>/thresholds/", self.thresholds_view, "thresholds"),
            ("target/<str:target>/history/", self.history_of_view, "target_history"),
        )
        own = [
            path(route, self.admin_site.admin_view(view), name=f"correction_agentevaluationconfig_{name}")
            for route, view, name in pages
        ]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The matrix; its buttons set one switch, or take back what is set in one cell."""
        self._allow(request)
        if request.method == "POST":
            return self._button_pressed(request)
        search = request.GET.get("q", "")[:100]
        return self.page(
            request,
            f"{PAGES}matrix.html",
            "Corrections",
            may_change=self.has_change_permission(request),
            **matrix_context(search=search, page=request.GET.get("p", "1")),
        )

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The address that Django knows for a row leads to the page of its agent."""
        return HttpResponseRedirect(config_url(self._row(request, object_id).agent))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return HttpResponseRedirect(_history_url(self._row(request, object_id).agent))

    def edit_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """A configuration as a form; with ``?mechanism=`` only that part of it."""
        self._allow(request)
        agent, chosen = _agent(target), _mechanism(request)
        own, defaults = stored_rows(agent)
        shown = MECHANISMS if chosen is None else (chosen,)
        observing = chosen is not None and bool(chosen.dimension) and "observe" in request.GET
        if chosen is not None and observing:
            shown = (replace(chosen, fields=("gate_mode", *chosen.fields)),)
        names = [name for mechanism in shown for name in mechanism.fields]
        typed = {name: request.GET[name] for name in names if name.endswith("_threshold") and name in request.GET}
        tried_now = "_try" in request.POST or bool(typed)
        if chosen is not None and observing:
            typed |= {"gate_mode": str(GateMode.OBSERVE), chosen.switch: "on"}
        form = ConfigForm(request.POST or None, own=own, defaults=defaults, names=names, typed=typed)
        if request.method == "POST":
            self._allow(request, change=True)
            if "_reset" in request.POST:
                return self._save(request, agent, chosen, dict.fromkeys(chosen.fields if chosen else names))
            if form.is_valid() and "_try" not in request.POST:
                return self._save(request, agent, chosen, form.changes, reason=form.cleaned_data["reason"])
        title = f"{agent or 'Defaults'}: {chosen.label if chosen else 'corrections'}"
        context = form_context(agent, form, shown, own=own, defaults=defaults, tried_now=tried_now)
        return self.page(
            request,
            f"{PAGES}form.html",
            title,
            may_change=self.has_change_permission(request),
            chosen=chosen,
            matrix_url=reverse("admin:correction_agentevaluationconfig_changelist"),
            whole_url=config_url(agent),
            history_url=_history_url(agent),
            thresholds_url=thresholds_url(agent),
            **context,
        )

    def try_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """What a threshold would have done, as a piece of the form; nothing is stored."""
        self._allow(request)
        dimension = request.GET.get("dimension", "")
        if dimension not in GATE_DIMENSIONS:
            raise Http404(f"There is no gate dimension {dimension!r}; there are {', '.join(GATE_DIMENSIONS)}.")
        agent, typed = _agent(target), request.GET.get(f"gate_{dimension}_threshold", "")
        return HttpResponse(tried(agent, dimension, typed, judged_drafts(agent)))

    def thresholds_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """What other thresholds would have done to the drafts judged so far, as histograms; nothing is stored."""
        self._allow(request)
        agent = _agent(target)
        return self.page(
            request,
            f"{PAGES}thresholds.html",
            f"{agent or 'Defaults'}: thresholds",
            may_change=self.has_change_permission(request),
            matrix_url=reverse("admin:correction_agentevaluationconfig_changelist"),
            **thresholds_context(agent, request.GET),
        )

    def history_of_view(self, request: HttpRequest, target: str) -> HttpResponse:
        """Who changed what and when; each state can be gone back to."""
        self._allow(request, change=request.method == "POST")
        agent = _agent(target)
        if request.method == "POST":
            undoing = "undo" in request.POST
            self._go_back(request, agent, request.POST.get("undo" if undoing else "history_id", ""), undoing=undoing)
            came_from = request.POST.get("next", "")
            hosts, secure = {request.get_host()}, request.is_secure()
            safe = url_has_allowed_host_and_scheme(came_from, hosts, require_https=secure)
            return HttpResponseRedirect(came_from if safe else _history_url(agent))
        return self.page(
            request,
            f"{PAGES}history.html",
            f"{agent or 'Defaults'}: history",
            may_change=self.has_change_permission(request),
            config_url=config_url(agent),
            **history_context(agent),
        )

    def _go_back(self, request: HttpRequest, agent: Agent | None, entry: str, *, undoing: bool) -> None:
        number = int(entry) if entry.isdecimal() and len(entry) < 19 else 0
        before = in_effect(agent)
        try:
            after = (undo if undoing else revert)(agent=agent, history_id=number, user=user_of(request))
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
        return self._save(request, _agent(target), mechanism, changes, stay=request.get_full_path())

    def _save(
        self,
        request: HttpRequest,
        agent: Agent | None,
        mechanism: Mechanism | None,
        changes: dict[str, Any],
        *,
        reason: str = "",
        stay: str = "",
    ) -> HttpResponse:
        """Store the changes under the user's name, say so with what the gate does now, and return to where the person was.

        A change of the defaults is asked about first, where agents inherit it.
        """
        user, before = user_of(request), in_effect(agent)
        if agent is None and "confirmed" not in request.POST and (context := asking(before, changes)):
            what = mechanism.label if mechanism else "corrections"
            return self.page(request, f"{PAGES}confirm.html", f"Defaults: {what}", posted=_posted(request), **context)
        if mechanism is None:
            back = config_url(agent)
        else:
            matrix_url = stay or reverse("admin:correction_agentevaluationconfig_changelist")
            back = f"{matrix_url}#{anchor_of(agent, mechanism)}"
        earlier = last_change(agent=agent, user=user)
        try:
            after = configure(agent=agent, changes=changes, user=user, reason=reason)
        except ConfigError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            said = f"{agent or 'The defaults'}: {mechanism.label if mechanism else 'corrections'} saved."
            entry = last_change(agent=agent, user=user)
            button = _undo_button(request, agent, entry, back) if entry != earlier else ""
            text = format_html("{} {} {}", said, gate_from_now_on(before, after), button)
            self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(back)

    def _allow(self, request: HttpRequest, *, change: bool = False) -> None:
        if not (self.has_change_permission(request) if change else self.has_view_permission(request)):
            raise PermissionDenied

    def _row(self, request: HttpRequest, object_id: str) -> AgentEvaluationConfig:
        self._allow(request)
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404(f"There is no configuration {object_id}.")
        return row


def _agent(target: str) -> Agent | None:
    """The agent that a URL names; None for the defaults."""
    if target == DEFAULTS:
        return None
    agent = Agent.objects.filter(pk=target).first() if target.isdecimal() and len(target) < 19 else None
    if agent is None:
        raise Http404(f"There is no agent {target}.")
    return agent


def _posted(request: HttpRequest) -> list[tuple[str, str]]:
    """What a form sent, to be sent once more when the person agrees."""
    return [(name, text) for name, texts in request.POST.lists() for text in texts if name != "csrfmiddlewaretoken"]


def _undo_button(request: HttpRequest, agent: Agent | None, entry: int | None, back: str) -> SafeString:
    """A form of its own for the notice, so that it works without scripts; `back` is where it leads."""
    return format_html(
        '<form class="pl-undo" method="post" action="{}"><input type="hidden" name="csrfmiddlewaretoken" value="{}">'
        '<input type="hidden" name="next" value="{}"><button class="pl-button" type="submit" name="undo" value="{}">Undo</button></form>',
        _history_url(agent), get_token(request), back, entry,
    )  # fmt: skip


def _mechanism(request: HttpRequest) -> Mechanism | None:
    wanted = request.GET.get("mechanism", "")
    if wanted and wanted not in BY_ID:
        raise Http404(f"There is no mechanism {wanted!r}; there are {', '.join(BY_ID)}.")
    return BY_ID.get(wanted)


def _history_url(agent: Agent | None) -> str:
    return reverse("admin:correction_agentevaluationconfig_target_history", args=[target_of(agent)])
