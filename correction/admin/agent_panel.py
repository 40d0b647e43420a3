"""The corrections of an agent on its own page: what is in effect, where it comes from, and the way to change it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.admin import display
from agents.models import Agent
from correction.admin.display import MODE_TONES, label_of, origin, setting
from correction.admin.matrix import config_url
from correction.admin.mechanisms import MECHANISMS, Mechanism
from correction.config.configure import notes_on
from correction.config.resolve import ResolvedConfig, resolve_config
from correction.models import CorrectionLog, InterventionLog


def config_panel(request: HttpRequest, agent: Agent) -> SafeString:
    """One line per mechanism, in one query."""
    config = resolve_config(agent)
    context = {
        "rows": [_row(agent, config, mechanism) for mechanism in MECHANISMS],
        "notes": notes_on(config),
        "edit_url": config_url(agent),
        "history_url": reverse("admin:correction_agentevaluationconfig_target_history", args=[agent.pk]),
        "logs_url": display.list_url(CorrectionLog, agent__id__exact=agent.pk),
        "interventions_url": display.list_url(InterventionLog, agent__id__exact=agent.pk),
        "may_change": request.user.has_perm("correction.change_agentevaluationconfig"),
    }
    return SafeString(render_to_string("admin/correction/agent_config.html", context, request))


def _row(agent: Agent, config: ResolvedConfig, mechanism: Mechanism) -> dict[str, Any]:
    switch = mechanism.switch
    return {
        "label": mechanism.label,
        "purpose": mechanism.purpose,
        "url": config_url(agent, mechanism),
        "state": _state(config, switch),
        "origin": origin(config, switch),
        "is_own": config.provenance[switch] == "agent",
        "numbers": [
            {
                "label": label_of(name),
                "value": setting(name, config[name]),
                "origin": origin(config, name),
                "is_own": config.provenance[name] == "agent",
            }
            for name in mechanism.fields
            if name != switch
        ],
    }


def _state(config: ResolvedConfig, switch: str) -> SafeString:
    if switch == "gate_mode":
        return display.badge(config.gate_mode, MODE_TONES.get(config.gate_mode, "plain"))
    return display.badge("on", "good") if config[switch] else display.badge("off")
