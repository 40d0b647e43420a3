"""Show the matrix of agents and mechanisms: what is in effect for whom, and where it comes from."""

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
    """Return what the template shows: the defaults and a page of 50 agents, active ones first, in three queries.

    Args:
        search: A part of a name or slug; empty: all agents.
    """
    listed = Agent.objects.listed().order_by("-is_active", "display_name", "slug")
    if search:
        listed = listed.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
    agents = BoundedPaginator(listed, AGENTS_PER_PAGE).get_page(page)
    rows = AgentEvaluationConfig.objects.filter(Q(is_defaults=True) | Q(agent__in=[agent.pk for agent in agents]))
    stored = {row.agent_id: row for row in rows}
    defaults = stored.get(None)  # the defaults row has no agent
    defaults_row = row_of(agent=None, config=merge(own=None, defaults=defaults))
    agent_rows = []
    for agent in agents:
        config = merge(own=stored.get(agent.pk), defaults=defaults)
        agent_rows.append(row_of(agent, config, known_notes=defaults_row["notes"]))
    return {
        "defaults": defaults_row,
        "rows": agent_rows,
        "page": agents,
        "mechanisms": MECHANISMS,
        "search": search,
        "gate_url": gate_url(agent=None),
    }


def target_of(agent: Agent | None) -> str:
    """Return how URLs and buttons name whose configuration it is."""
    return str(agent.pk) if agent is not None else DEFAULTS


def config_url(agent: Agent | None, mechanism: Mechanism | None = None) -> str:
    """Return the address of the page that edits a configuration, or one mechanism of it."""
    url = reverse("admin:correction_agentevaluationconfig_target", args=[target_of(agent)])
    return f"{url}?mechanism={mechanism.id}" if mechanism is not None else url


def gate_url(agent: Agent | None, **filled_in: Any) -> str:
    """Return the address of the page of an agent's gate, or that of the defaults; `filled_in` stands in its form and is not saved yet.

    Args:
        filled_in: ``gate_mode``; ``add``, a dimension to check besides those that are checked; a threshold by its dimension.
    """
    url = reverse("admin:correction_agentevaluationconfig_gate", args=[target_of(agent)])
    return f"{url}?{urlencode(filled_in, doseq=True)}" if filled_in else url


def anchor_of(agent: Agent | None, mechanism: Mechanism) -> str:
    """Return the HTML id of a cell."""
    return f"cell-{target_of(agent)}-{mechanism.id}"


def row_of(agent: Agent | None, config: ResolvedConfig, *, known_notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the row of an agent, or (None) of the defaults, with a cell for each mechanism.

    Args:
        known_notes: Those that the defaults show already, and that the agents need not repeat.
    """
    name = SafeString("Defaults")
    title = "the defaults"
    if agent is not None:
        name = display.isolated(agent.display_name)
        title = display.marked(agent.display_name)
        if not agent.is_active:
            name = format_html("{} {}", name, display.badge("inactive"))
    return {
        "target": target_of(agent),
        "name": name,
        "title": title,
        "url": config_url(agent),
        "cells": tuple(_cell(agent, mechanism, config) for mechanism in MECHANISMS),
        "notes": tuple(note for note in notes_on(config) if note not in known_notes),
    }


def _cell(agent: Agent | None, mechanism: Mechanism, config: ResolvedConfig) -> dict[str, Any]:
    """Return one mechanism of one agent, or (None) of the defaults.

    `flip` and `reset` are the values of the buttons that turn the switch over and let its settings inherit again.
    """
    switch = mechanism.switch
    own_layer = "defaults" if agent is None else "agent"
    own = [name for name in mechanism.fields if config.provenance[name] == own_layer]  # set here
    cell = {
        "anchor": anchor_of(agent, mechanism),
        "url": config_url(agent, mechanism),
        "label": mechanism.label,
        "mode": None,
        "is_on": config[switch] not in (False, GateMode.OFF),
        "flip": f"{target_of(agent)}:{switch}:{'off' if config[switch] is True else 'on'}",
        "reset": f"{target_of(agent)}:{mechanism.id}",
        "number": _number_beside_switch(mechanism, config),
        "origin": _origin_of_cell(agent, mechanism, config, own),
        "purpose": mechanism.purpose,
        "details": [_detail(agent, name, config) for name in mechanism.fields],
        "is_own": bool(own),
    }
    if switch == "gate_mode":
        cell["url"] = gate_url(agent)
        cell["mode"] = mode_badge(config)
    return cell


def _number_beside_switch(mechanism: Mechanism, config: ResolvedConfig) -> SafeString | str:
    """Return the number beside the switch; empty where there is none."""
    if not mechanism.number or config[mechanism.number] is None:
        return ""
    if mechanism.sign == "$":
        return display.dollars(config[mechanism.number])
    return f"{mechanism.sign}{config.show(mechanism.number)}"


def _origin_of_cell(agent: Agent | None, mechanism: Mechanism, config: ResolvedConfig, own: Sequence[str]) -> str:
    """Return in a word or two where the settings of a cell come from.

    Args:
        agent: None: the cell is one of the defaults.
        own: The settings that are set here: ``own`` where the switch and the number beside it are among them, else ``partly own``.
    """
    visible = [name for name in (mechanism.switch, mechanism.number) if name]
    if own:
        if agent is None:
            return "set"
        return "own" if set(visible) <= set(own) else "partly own"
    for name in visible:
        if config.provenance[name] == "defaults":
            return origin(config, name)
    return origin(config, mechanism.switch)


def _detail(agent: Agent | None, name: str, config: ResolvedConfig) -> str:
    """Return a setting with its value and where that comes from."""
    came_from = origin(config, name)
    if agent is None and config.provenance[name] == "defaults":
        came_from = "set"
    return f"{SETTINGS[name].label}: {config.show(name)}, {came_from}"
