"""The matrix of agents and mechanisms: what is in effect for whom, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kit.console import display
from agents.kit.console.paging import BoundedPaginator
from agents.models import Agent
from correction.admin.display import mode_badge, origin
from correction.config.configure import notes_on
from correction.config.settings import MECHANISMS, SETTINGS, Mechanism, ResolvedConfig, merge
from correction.models import AgentEvaluationConfig, GateMode

BY_ID: dict[str, Mechanism] = {mechanism.id: mechanism for mechanism in MECHANISMS}
BY_SWITCH: dict[str, Mechanism] = {mechanism.switch: mechanism for mechanism in MECHANISMS}
DEFAULTS = "defaults"
AGENTS_PER_PAGE = 50


def matrix_context(*, search: str = "", page: str | int = 1) -> dict[str, Any]:
    """What the template shows: the defaults and a page of agents, active ones first, in three queries."""
    chosen = Agent.objects.listed().order_by("-is_active", "display_name", "slug")
    if search:
        chosen = chosen.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
    agents = BoundedPaginator(chosen, AGENTS_PER_PAGE).get_page(page)
    stored = AgentEvaluationConfig.objects.filter(Q(is_defaults=True) | Q(agent__in=[a.pk for a in agents]))
    own = {row.agent_id: row for row in stored}
    defaults = own.pop(None, None)
    above = row_of(None, merge(own=None, defaults=defaults))
    return {
        "defaults": above,
        "rows": [
            row_of(agent, merge(own=own.get(agent.pk), defaults=defaults), said=above["notes"]) for agent in agents
        ],
        "page": agents,
        "mechanisms": MECHANISMS,
        "search": search,
        "gate_url": gate_url(None),
    }


def target_of(agent: Agent | None) -> str:
    """How URLs and buttons name whose configuration it is."""
    return str(agent.pk) if agent is not None else DEFAULTS


def config_url(agent: Agent | None, mechanism: Mechanism | None = None) -> str:
    """The page that edits a configuration, or one mechanism of it."""
    url = reverse("admin:correction_agentevaluationconfig_target", args=[target_of(agent)])
    return f"{url}?mechanism={mechanism.id}" if mechanism is not None else url


def gate_url(agent: Agent | None, **filled_in: Any) -> str:
    """The page where an agent's gate is decided, or that of the defaults; `filled_in` stands in its form and is not saved yet.

    Args:
        filled_in: ``gate_mode``; ``add``, a dimension to check besides those that are checked; a threshold by its dimension.
    """
    url = reverse("admin:correction_agentevaluationconfig_gate", args=[target_of(agent)])
    return f"{url}?{urlencode(filled_in, doseq=True)}" if filled_in else url


def anchor_of(agent: Agent | None, mechanism: Mechanism) -> str:
    return f"cell-{target_of(agent)}-{mechanism.id}"


def row_of(agent: Agent | None, config: ResolvedConfig, *, said: Sequence[str] = ()) -> dict[str, Any]:
    """`said`: notes that the defaults show already, and that the agents need not repeat."""
    name = SafeString("Defaults") if agent is None else display.isolated(agent.display_name)
    if agent is not None and not agent.is_active:
        name = format_html("{} {}", name, display.badge("inactive"))
    return {
        "target": target_of(agent),
        "name": name,
        "title": display.marked(agent.display_name) if agent else "the defaults",
        "url": config_url(agent),
        "cells": tuple(_cell(agent, mechanism, config) for mechanism in MECHANISMS),
        "notes": tuple(note for note in notes_on(config) if note not in said),
    }


def _cell(agent: Agent | None, mechanism: Mechanism, config: ResolvedConfig) -> dict[str, Any]:
    """One mechanism of one agent; `flip` is the value of the button that turns the switch over."""
    target, switch, value = target_of(agent), mechanism.switch, config[mechanism.number] if mechanism.number else None
    layer = "agent" if agent is not None else "defaults"
    own = [name for name in mechanism.fields if config.provenance[name] == layer]

    def from_where(name: str) -> str:
        return "set" if agent is None and name in own else origin(config, name)

    shown = [name for name in (switch, mechanism.number) if name]
    if own:
        where = "set" if agent is None else "own" if set(shown) <= set(own) else "partly own"
    else:
        inherited = [name for name in shown if config.provenance[name] == "defaults"]
        where = origin(config, (inherited or shown)[0])
    number = "" if value is None else mechanism.sign + SETTINGS[mechanism.number].show(value)
    return {
        "anchor": anchor_of(agent, mechanism),
        "url": gate_url(agent) if switch == "gate_mode" else config_url(agent, mechanism),
        "label": mechanism.label,
        "mode": mode_badge(config) if switch == "gate_mode" else None,
        "is_on": config[switch] not in (False, GateMode.OFF),
        "flip": f"{target}:{switch}:{'off' if config[switch] is True else 'on'}",
        "reset": f"{target}:{mechanism.id}",
        "number": display.dollars(value) if value is not None and mechanism.sign == "$" else number,
        "origin": where,
        "purpose": mechanism.purpose,
        "details": [f"{SETTINGS[name].label}: {config.show(name)}, {from_where(name)}" for name in mechanism.fields],
        "is_own": bool(own),
    }
