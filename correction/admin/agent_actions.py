"""Actions on several agents: switch a mechanism, copy a configuration. Each asks first and says for whom it was done or not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.admin.access import user_of
from agents.adminsite import Select
from agents.models import Agent
from correction.admin.config_page import stored_rows
from correction.admin.mechanisms import BY_ID, MECHANISMS
from correction.config.configure import configure, copy_config, gate_from_now_on
from correction.config.fields import CONFIG_FIELDS, ConfigError
from correction.config.resolve import ResolvedConfig, resolve_all
from correction.models import AgentEvaluationConfig

NAMED = 5  # agents of each kind that the answer names


class SwitchForm(forms.Form):
    """Which mechanism, and what becomes of it; the gate itself has modes instead of on and off."""

    mechanism = forms.ChoiceField(choices=[(m.id, f"{m.label}: {m.purpose}") for m in MECHANISMS], widget=Select)
    state = forms.ChoiceField(
        label="shall be",
        choices=[
            ("on", "on"),
            ("off", "off"),
            ("observe", "observe"),
            ("enforce", "enforce"),
            ("inherit", "inherited"),
        ],
        widget=Select,
        help_text="observe and enforce: for the gate; on: for all others",
    )

    def clean(self) -> dict[str, Any]:
        cleaned = dict(super().clean() or {})
        if "mechanism" in cleaned and "state" in cleaned:
            try:
                CONFIG_FIELDS[BY_ID[cleaned["mechanism"]].switch].read(cleaned["state"])
            except ConfigError as error:
                self.add_error("state", str(error))
        return cleaned


class CopyForm(forms.Form):
    """Whose settings the others get."""

    source: Any = forms.ModelChoiceField(
        queryset=Agent.objects.order_by("display_name"),
        widget=Select,
        label="from",
        help_text="its own settings, and what it leaves to the defaults; what the chosen agents had set is replaced",
    )


@admin.action(description="Switch a correction mechanism on or off")
def switch_mechanism(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
    """Set, or reset to inherit, the switch of one mechanism for the chosen agents."""
    form = SwitchForm(request.POST if "apply" in request.POST else None)
    if not form.is_valid():
        return _ask(model_admin, request, queryset, form, "switch_mechanism", "Switch a correction mechanism", "Switch")
    mechanism, state = BY_ID[form.cleaned_data["mechanism"]], form.cleaned_data["state"]
    wanted = CONFIG_FIELDS[mechanism.switch].read(state)
    rows = {row.agent_id: row for row in AgentEvaluationConfig.objects.filter(agent__in=queryset)}
    before = _in_effect(queryset)
    done, same, refused = [], [], []
    for agent in queryset:
        if getattr(rows.get(agent.pk), mechanism.switch, None) == wanted:
            same.append(agent)
            continue
        try:
            changes = {mechanism.switch: state}
            configure(agent=agent, changes=changes, user=user_of(request), reason="from the list of agents")
            done.append(agent)
        except ConfigError as error:
            refused.append((agent, str(error)))
    what = f"{mechanism.label} {'inherited' if wanted is None else state}"
    _tell(model_admin, request, f"{what}: set for", done, messages.SUCCESS)
    _tell_gate(model_admin, request, done, before)
    _tell(model_admin, request, f"{what}: skipped, because it is so already, for", same, messages.INFO)
    for agent, why in refused:
        model_admin.message_user(request, f"{agent}: {why}", messages.ERROR)
    return None


@admin.action(description="Copy corrections from another agent")
def copy_corrections(model_admin: Any, request: HttpRequest, queryset: QuerySet[Agent]) -> HttpResponse | None:
    """Give the chosen agents the settings of one agent."""
    form = CopyForm(request.POST if "apply" in request.POST else None)
    if not form.is_valid():
        return _ask(model_admin, request, queryset, form, "copy_corrections", "Copy corrections", "Copy")
    source = form.cleaned_data["source"]
    targets = [agent for agent in queryset if agent.pk != source.pk]
    before = _in_effect(queryset)
    copy_config(source=source, targets=targets, user=user_of(request))
    _tell(model_admin, request, f"Corrections copied from {source} to", targets, messages.SUCCESS)
    _tell_gate(model_admin, request, targets, before)
    own, _ = stored_rows(source)
    if own is None:
        model_admin.message_user(request, f"{source} sets nothing itself: they inherit everything now.", messages.INFO)
    if len(targets) < len(queryset):
        model_admin.message_user(request, f"{source} was skipped: it is the one copied from.", messages.INFO)
    return None


def _ask(
    model_admin: Any,
    request: HttpRequest,
    queryset: QuerySet[Agent],
    form: forms.Form,
    action: str,
    title: str,
    verb: str,
) -> HttpResponse:
    """The page between choosing the agents and doing it."""
    response: HttpResponse = model_admin.page(
        request,
        "admin/correction/agents_action.html",
        title,
        form=form,
        verb=verb,
        action=action,
        chosen=[(agent.pk, display.agent_chip(agent)) for agent in queryset],
        checkbox=ACTION_CHECKBOX_NAME,
    )
    return response


def _tell(model_admin: Any, request: HttpRequest, what: str, agents: list[Agent], level: int) -> None:
    if agents:
        model_admin.message_user(request, format_html("{} {}.", what, _names(agents)), level)


def _in_effect(agents: QuerySet[Agent]) -> dict[int, ResolvedConfig]:
    return {agent.pk: config for agent, config in resolve_all(agents.select_related("evaluation_config"))}


def _tell_gate(model_admin: Any, request: HttpRequest, agents: list[Agent], before: dict[int, ResolvedConfig]) -> None:
    """Say what the gate does from now on, where that changed."""
    after = _in_effect(Agent.objects.filter(pk__in=[agent.pk for agent in agents]))
    said: dict[str, list[Agent]] = {}
    for agent in agents:
        said.setdefault(gate_from_now_on(before[agent.pk], after[agent.pk]), []).append(agent)
    for sentence, those in said.items():
        if sentence:
            _tell(model_admin, request, f"{sentence} It holds for", those, messages.INFO)


def _names(agents: Iterable[Agent]) -> SafeString | str:
    names = [display.marked(agent) for agent in agents]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
