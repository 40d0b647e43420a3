"""What is in effect for an agent (AC-7.3.3): the first of override, agent, defaults row and built-in value that is set wins."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import sentry_sdk
from django.db.models import Q

from agents.models import Agent
from agents.turn.pipeline import Turn
from correction.config.fields import GATE_DIMENSIONS, SETTINGS, ConfigError, GateMode, short
from correction.models import AgentEvaluationConfig

Provenance = Literal["override", "agent", "defaults", "built-in"]


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The values in effect for one agent, and where each came from. Both hold every name of `SETTINGS`."""

    values: Mapping[str, Any]
    provenance: Mapping[str, Provenance]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def show(self, name: str) -> str:
        """A value for people."""
        return SETTINGS[name].show(self.values[name])

    @property
    def gate_mode(self) -> str:
        return str(self.values["gate_mode"])

    @property
    def gate_dimensions(self) -> tuple[str, ...]:
        """The dimensions the gate checks: those enabled, and adherence where only the agent's rules are."""
        return tuple(
            d
            for d in GATE_DIMENSIONS
            if self.values[f"gate_{d}_enabled"] or (d == "adherence" and self.values["gate_rules_enabled"])
        )

    @property
    def gate_is_off(self) -> bool:
        return self.gate_mode == GateMode.OFF or not self.gate_dimensions

    def threshold(self, dimension: str) -> Decimal:
        """Lowest score (0 to 9) that passes."""
        return Decimal(self.values[f"gate_{dimension}_threshold"])


def resolve_config(agent: Agent, overrides: Mapping[str, Any] | None = None) -> ResolvedConfig:
    """The configuration of `agent` in effect, in one query.

    Where no row sets `gate_mode`, it is ``enforce`` as soon as a check is enabled; where none sets `gate_rules_enabled`, the agent's
    rules are checked wherever adherence is.

    Args:
        agent: Whose.
        overrides: Values for one run (`Run.overrides`); names that are no field, and None, are passed over.
    """
    with sentry_sdk.start_span(op="correction.config", name="resolve config") as span:
        rows = AgentEvaluationConfig.objects.filter(Q(agent=agent) | Q(is_defaults=True)).order_by()
        own = defaults = None
        for row in rows:
            own, defaults = (own, row) if row.is_defaults else (row, defaults)
        resolved = merge(own=own, defaults=defaults, overrides=_checked(overrides or {}))
        span.set_data("gate_mode", resolved.gate_mode)
        return resolved


def resolve_all(agents: Iterable[Agent]) -> list[tuple[Agent, ResolvedConfig]]:
    """The configuration of each of these agents, in one query (give a queryset with ``select_related("evaluation_config")``)."""
    defaults = AgentEvaluationConfig.objects.filter(is_defaults=True).first()
    return [(agent, merge(own=getattr(agent, "evaluation_config", None), defaults=defaults)) for agent in agents]


def resolve_defaults() -> ResolvedConfig:
    """What holds for an agent that says nothing of its own."""
    return merge(own=None, defaults=AgentEvaluationConfig.objects.filter(is_defaults=True).first())


def config_of(turn: Turn) -> ResolvedConfig:
    """The configuration of a turn, read once: an edit holds from the next turn on."""
    known: ResolvedConfig | None = turn.reports.get("config")
    if known is None:
        known = turn.reports["config"] = resolve_config(turn.agent, turn.overrides)
    return known


def merge(
    *,
    own: AgentEvaluationConfig | None,
    defaults: AgentEvaluationConfig | None,
    overrides: Mapping[str, Any] | None = None,
) -> ResolvedConfig:
    """The merge without a query, for lists of agents."""
    values: dict[str, Any] = {}
    provenance: dict[str, Provenance] = {}
    for name, setting in SETTINGS.items():
        layers: tuple[tuple[Provenance, Any], ...] = (
            ("override", (overrides or {}).get(name)),
            ("agent", getattr(own, name, None)),
            ("defaults", getattr(defaults, name, None)),
        )
        provenance[name], values[name] = next(
            ((layer, value) for layer, value in layers if value not in (None, "")), ("built-in", setting.built_in)
        )
    if values["gate_rules_enabled"] is None:
        values["gate_rules_enabled"] = values["gate_adherence_enabled"]
    if values["gate_mode"] is None:
        enabled = values["gate_rules_enabled"] or any(values[f"gate_{d}_enabled"] for d in GATE_DIMENSIONS)
        values["gate_mode"] = str(GateMode.ENFORCE if enabled else GateMode.OFF)
    return ResolvedConfig(values, provenance)


def _checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that are fields, as the types of the columns; one that is not valid is left out, for a turn must not die of it."""
    valid: dict[str, Any] = {}
    for name in SETTINGS.keys() & overrides.keys():
        with contextlib.suppress(ConfigError):
            valid[name] = SETTINGS[name].read(overrides[name])
    return valid


def read_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the columns store them.

    Raises:
        ConfigError: Unknown fields, or values that are not allowed; all of them at once (of a flood, the first ones).
    """
    read: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, value in changes.items():
        try:
            if name in SETTINGS:
                read[name] = SETTINGS[name].read(value)
            elif len(errors) < len(SETTINGS):
                errors[name] = _unknown(name)
        except ConfigError as error:
            errors |= error.errors
    if errors:
        raise ConfigError(errors)
    return read


def _unknown(name: str) -> str:
    """A sentence for a name that is no setting, with the nearest ones first."""
    near = difflib.get_close_matches(name.lower(), SETTINGS, n=3, cutoff=0.6)
    guess = f" (did you mean {' or '.join(near)}?)" if near else ""
    return f"there is no field {short(name)!r}{guess}; allowed: {', '.join(SETTINGS)}"
