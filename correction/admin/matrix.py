"""The matrix of agents and mechanisms: what is in effect for whom, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page
from django.db.models import Q
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.admin import display
from agents.console_lists import BoundedPaginator
from agents.models import Agent
from correction.admin.display import MODE_TONES, label_of, origin, setting
from correction.admin.mechanisms import MECHANISMS, Mechanism
from correction.config.configure import notes_on
from correction.config.resolve import ResolvedConfig, merge
from correction.models import AgentEvaluationConfig

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
