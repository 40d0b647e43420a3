"""The matrix of agents and mechanisms: what is in effect for whom, and where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import BoundedPaginator
from agents.models import Agent
from correction.admin.display import MODE_TONES, label_of, origin, setting
from correction.config.configure import notes_on
from correction.config.settings import FIELDS, GATE_DIMENSIONS, ResolvedConfig, merge
from correction.models import AgentEvaluationConfig


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A group of fields that make sense together, and a column of the matrix.

    Attributes:
        id: Its name in URLs. `label`: its name for people. `purpose`: what it does, in a line.
        fields: All of them. The first, the `switch`, turns it on; for the gate as a whole it is the mode.
        number: The field shown beside the switch; empty when there is none.
        sign: How that number reads, e.g. ``≥`` before a lowest score.
        dimension: The gate dimension it is; empty for all others.
    """

    id: str
    label: str
    purpose: str
    fields: tuple[str, ...]
    number: str = ""
    sign: str = ""
    dimension: str = ""

    @property
    def switch(self) -> str:
        return self.fields[0]


def _beginning(prefix: str) -> tuple[str, ...]:
    return tuple(field for field in FIELDS if field.startswith(prefix))


MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "gate",
        "gate",
        "whether drafts are checked, and how long that may take",
        (
            *("gate_mode", "observe_sample_rate", "max_correction_attempts"),
            *("gate_deadline_seconds", "gate_total_deadline_seconds"),
        ),
    ),
    *(  # a gate dimension is one that has its columns
        Mechanism(
            name,
            name,
            f"judges each draft for {name} before (or, observing, after) it is said",
            _beginning(f"gate_{name}_"),
            f"gate_{name}_threshold",
            "≥ ",
            dimension=name,
        )
        for name in GATE_DIMENSIONS
    ),
    Mechanism(
        "rules", "rules", "checks each draft against the agent's own rules, free of cost", ("gate_rules_enabled",)
    ),
    Mechanism(
        "anti_convergence",
        "anti-convergence",
        "nudges the agent when the channel agrees too much",
        ("anti_convergence_enabled", "convergence_threshold"),
        "convergence_threshold",
        "≥ ",
    ),
    Mechanism(
        "variety",
        "variety",
        "nudges the agent when it brings no new ideas",
        _beginning("variety_"),
        "variety_message_threshold",
        "≥ ",
    ),
    Mechanism(
        "repetition",
        "repetition",
        "shows the agent its own repeated phrases to avoid",
        _beginning("repetition_"),
        "repetition_threshold",
        "> ",
    ),
    Mechanism(
        "budget",
        "budget",
        "stops paid checks for the day when the budget is used up",
        ("budget_enabled", "daily_budget_usd"),
        "daily_budget_usd",
        "$",
    ),
    Mechanism(
        "behavior",
        "behaviour requests",
        "changes the persona when a person asks for it",
        _beginning("behavior_"),
        "behavior_daily_limit",
        "≤ ",
    ),
)
BY_ID: dict[str, Mechanism] = {mechanism.id: mechanism for mechanism in MECHANISMS}
BY_SWITCH: dict[str, Mechanism] = {mechanism.switch: mechanism for mechanism in MECHANISMS}


DEFAULTS = "defaults"
AGENTS_PER_PAGE = 50


def matrix_context(*, search: str = "", page: str | int = 1) -> dict[str, Any]:
    """What the template shows: the defaults and a page of agents, active ones first, in three queries."""
    chosen = Agent.objects.order_by("-is_active", "display_name", "slug")
    if search:
        chosen = chosen.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
    agents = BoundedPaginator(chosen, AGENTS_PER_PAGE).get_page(page)
    stored = AgentEvaluationConfig.objects.filter(Q(is_defaults=True) | Q(agent__in=[a.pk for a in agents]))
    own = {row.agent_id: row for row in stored}
    defaults = own.pop(None, None)
    above = _row(None, None, defaults)
    return {
        "defaults": above,
        "rows": [_row(agent, own.get(agent.pk), defaults, said=above["notes"]) for agent in agents],
        "page": agents,
        "mechanisms": MECHANISMS,
        "search": search,
        "thresholds_url": reverse("admin:correction_agentevaluationconfig_thresholds", args=[DEFAULTS]),
    }


def target_of(agent: Agent | None) -> str:
    """How URLs and buttons name whose configuration it is."""
    return str(agent.pk) if agent is not None else DEFAULTS


def config_url(agent: Agent | None, mechanism: Mechanism | None = None) -> str:
    """The page that edits a configuration, or one mechanism of it."""
    url = reverse("admin:correction_agentevaluationconfig_target", args=[target_of(agent)])
    return f"{url}?mechanism={mechanism.id}" if mechanism is not None else url


def observe_url(agent: Agent, mechanism: Mechanism) -> str:
    """The page that edits a gate dimension, filled in so that the gate checks it and only observes."""
    return f"{config_url(agent, mechanism)}&observe=1"


def anchor_of(agent: Agent | None, mechanism: Mechanism) -> str:
    return f"cell-{target_of(agent)}-{mechanism.id}"


def _row(
    agent: Agent | None,
    own: AgentEvaluationConfig | None,
    defaults: AgentEvaluationConfig | None,
    *,
    said: Sequence[str] = (),
) -> dict[str, Any]:
    """`said`: notes that the defaults show already, and that the agents need not repeat."""
    config = merge(own=own, defaults=defaults)
    layer = "agent" if agent is not None else "defaults"
    if agent is None:
        name = SafeString("Defaults")
    else:
        name = display.isolated(agent.display_name)
        if not agent.is_active:
            name = format_html("{} {}", name, display.badge("inactive"))
    return {
        "target": target_of(agent),
        "name": name,
        "title": display.marked(agent.display_name) if agent else "the defaults",
        "url": config_url(agent),
        "cells": tuple(_cell(agent, mechanism, config, layer) for mechanism in MECHANISMS),
        "notes": tuple(note for note in notes_on(config) if note not in said),
    }


def _cell(agent: Agent | None, mechanism: Mechanism, config: ResolvedConfig, layer: str) -> dict[str, Any]:
    """One mechanism of one agent; `flip` is the value of the button that turns the switch over."""
    target, switch = target_of(agent), mechanism.switch
    is_mode = switch == "gate_mode"
    is_on = config[switch] is True
    set_here = [name for name in mechanism.fields if config.provenance[name] == layer]
    shown = [name for name in (switch, mechanism.number) if name]
    return {
        "anchor": anchor_of(agent, mechanism),
        "url": config_url(agent, mechanism),
        "label": mechanism.label,
        "mode": display.badge(config[switch], MODE_TONES.get(config[switch], "plain")) if is_mode else None,
        "is_on": is_on,
        "flip": f"{target}:{switch}:{'off' if is_on else 'on'}",
        "reset": f"{target}:{mechanism.id}",
        "number": _number(mechanism, config),
        "origin": _origin_of_cell(agent, config, set_here, shown),
        "details": "\n".join(
            f"{label_of(name)}: {setting(name, config[name])}, {_named(agent, config, name)}"
            for name in mechanism.fields
        ),
        "is_own": bool(set_here),
    }


def _number(mechanism: Mechanism, config: ResolvedConfig) -> str:
    """The threshold in effect with its sign; empty where there is none."""
    value = config[mechanism.number] if mechanism.number else None
    if value is None:
        return ""
    return display.dollars(value) if mechanism.sign == "$" else f"{mechanism.sign}{setting(mechanism.number, value)}"


def _origin_of_cell(agent: Agent | None, config: ResolvedConfig, set_here: list[str], shown: list[str]) -> str:
    if not set_here:
        return next(
            (origin(config, name) for name in shown if config.provenance[name] == "defaults"), origin(config, shown[0])
        )
    if agent is None:
        return "set"
    return "own" if all(name in set_here for name in shown) else "partly own"


def _named(agent: Agent | None, config: ResolvedConfig, name: str) -> str:
    return "set" if agent is None and config.provenance[name] == "defaults" else origin(config, name)
