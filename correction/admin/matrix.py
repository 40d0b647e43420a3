"""The matrix of agents and mechanisms: what is in effect for whom, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page
from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.console import display
from agents.console.site import BoundedPaginator
from agents.models import Agent
from correction.admin.display import MODE_TONES, label_of, origin, setting
from correction.config.configure import notes_on
from correction.config.resolve import FIELDS, GATE_DIMENSIONS, ResolvedConfig, merge
from correction.models import AgentEvaluationConfig


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A group of fields that make sense together.

    Attributes:
        id: Its name in URLs.
        label: Its name for people.
        purpose: What it does, in a line.
        fields: All of them; `switch` first.
        switch: The field that turns it on; the mode for the gate as a whole.
        number: The field shown beside the switch; empty when there is none.
        sign: How that number reads, e.g. ``≥`` before a lowest score.
        dimension: The gate dimension it is; empty for all others.
    """

    id: str
    label: str
    purpose: str
    fields: tuple[str, ...]
    switch: str
    number: str = ""
    sign: str = ""
    dimension: str = ""


def _dimensions() -> Iterator[Mechanism]:
    """A gate dimension is what has its columns; so a new one gets its column in the matrix by itself."""
    for name in GATE_DIMENSIONS:
        fields = tuple(field for field in FIELDS if field.startswith(f"gate_{name}_"))
        purpose = f"judges each draft for {name} before (or, observing, after) it is said"
        yield Mechanism(
            name, name, purpose, fields, f"gate_{name}_enabled", f"gate_{name}_threshold", "≥ ", dimension=name
        )


MECHANISMS: tuple[Mechanism, ...] = (
    Mechanism(
        "gate",
        "gate",
        "whether drafts are checked, and how long that may take",
        (
            *("gate_mode", "observe_sample_rate", "max_correction_attempts"),
            *("gate_deadline_seconds", "gate_total_deadline_seconds"),
        ),
        "gate_mode",
    ),
    *_dimensions(),
    Mechanism(
        "rules",
        "rules",
        "checks each draft against the agent's own rules, free of cost",
        ("gate_rules_enabled",),
        "gate_rules_enabled",
    ),
    Mechanism(
        "anti_convergence",
        "anti-convergence",
        "nudges the agent when the channel agrees too much",
        ("anti_convergence_enabled", "convergence_threshold"),
        "anti_convergence_enabled",
        "convergence_threshold",
        "≥ ",
    ),
    Mechanism(
        "variety",
        "variety",
        "nudges the agent when it brings no new ideas",
        ("variety_intervention_enabled", "variety_message_threshold"),
        "variety_intervention_enabled",
        "variety_message_threshold",
        "≥ ",
    ),
    Mechanism(
        "repetition",
        "repetition",
        "shows the agent its own repeated phrases to avoid",
        ("repetition_suppression_enabled", "repetition_threshold"),
        "repetition_suppression_enabled",
        "repetition_threshold",
        "> ",
    ),
    Mechanism(
        "budget",
        "budget",
        "stops paid checks for the day when the budget is used up",
        ("budget_enabled", "daily_budget_usd"),
        "budget_enabled",
        "daily_budget_usd",
        "$",
    ),
    Mechanism(
        "behavior",
        "behaviour requests",
        "changes the persona when somebody asks for it",
        tuple(field for field in FIELDS if field.startswith("behavior_")),
        "behavior_requests_enabled",
        "behavior_daily_limit",
        "≤ ",
    ),
)
BY_ID: dict[str, Mechanism] = {mechanism.id: mechanism for mechanism in MECHANISMS}
BY_SWITCH: dict[str, Mechanism] = {mechanism.switch: mechanism for mechanism in MECHANISMS}


DEFAULTS = "defaults"
AGENTS_PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Cell:
    """One mechanism of one agent.

    Attributes:
        anchor: Its id on the page.
        mode: Badge of the gate's mode; None where there is a switch.
        is_on: What the switch shows; `flip` is the value of the button that turns it over.
        number: The threshold in effect; empty when the mechanism has none, or none is set.
        origin: Where the values come from, in a word; `details` says it per field.
        is_own: Some value is set here; then it can be reset.
    """

    anchor: str
    url: str
    label: str
    mode: SafeString | None
    is_on: bool
    flip: str
    reset: str
    number: str
    origin: str
    details: str
    is_own: bool


@dataclass(frozen=True, slots=True)
class Row:
    """An agent, or the defaults."""

    target: str
    name: SafeString
    title: str
    url: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    defaults: Row
    rows: tuple[Row, ...]
    page: Page[Agent]


def matrix(*, search: str = "", page: str | int = 1) -> Matrix:
    """The defaults and a page of agents, active ones first, in three queries."""
    found = Agent.objects.order_by("-is_active", "display_name", "slug")
    if search:
        found = found.filter(Q(display_name__icontains=search) | Q(slug__icontains=search))
    agents = BoundedPaginator(found, AGENTS_PER_PAGE).get_page(page)
    rows = AgentEvaluationConfig.objects.filter(Q(is_defaults=True) | Q(agent__in=[a.pk for a in agents]))
    own = {row.agent_id: row for row in rows}
    defaults = own.pop(None, None)
    above = _row(None, None, defaults)
    return Matrix(
        defaults=above,
        rows=tuple(_row(agent, own.get(agent.pk), defaults, said=above.notes) for agent in agents),
        page=agents,
    )


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
    said: tuple[str, ...] = (),
) -> Row:
    """`said`: notes that stand beside the defaults already, and need not stand beside every agent."""
    config = merge(own=own, defaults=defaults)
    layer = "agent" if agent is not None else "defaults"
    if agent is None:
        name = SafeString("Defaults")
    else:
        name = display.isolated(agent.display_name)
        if not agent.is_active:
            name = format_html("{} {}", name, display.badge("inactive"))
    return Row(
        target=target_of(agent),
        name=name,
        title=display.marked(agent.display_name) if agent else "the defaults",
        url=config_url(agent),
        cells=tuple(_cell(agent, mechanism, config, layer) for mechanism in MECHANISMS),
        notes=tuple(note for note in notes_on(config) if note not in said),
    )


def _cell(agent: Agent | None, mechanism: Mechanism, config: ResolvedConfig, layer: str) -> Cell:
    target, switch = target_of(agent), mechanism.switch
    is_mode = switch == "gate_mode"
    is_on = config[switch] is True
    set_here = [name for name in mechanism.fields if config.provenance[name] == layer]
    shown = [name for name in (switch, mechanism.number) if name]
    return Cell(
        anchor=anchor_of(agent, mechanism),
        url=config_url(agent, mechanism),
        label=mechanism.label,
        mode=display.badge(config[switch], MODE_TONES.get(config[switch], "plain")) if is_mode else None,
        is_on=is_on,
        flip=f"{target}:{switch}:{'off' if is_on else 'on'}",
        reset=f"{target}:{mechanism.id}",
        number=_number(mechanism, config),
        origin=_origin_of_cell(agent, config, set_here, shown),
        details="\n".join(
            f"{label_of(name)}: {setting(name, config[name])}, {_named(agent, config, name)}"
            for name in mechanism.fields
        ),
        is_own=bool(set_here),
    )


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


def context_of(found: Matrix, *, search: str) -> dict[str, Any]:
    """What the template needs beside the page's frame."""
    url = reverse("admin:correction_agentevaluationconfig_thresholds", args=[DEFAULTS])
    return {"matrix": found, "mechanisms": MECHANISMS, "search": search, "thresholds_url": url}
