"""The configuration of one agent: override, agent, defaults row, built-in value; the first that says something wins (AC-7.3.3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import sentry_sdk
from django.db.models import Q

from agents.models import Agent
from agents.turn.pipeline import Turn
from correction.config.fields import CONFIG_FIELDS, ConfigError
from correction.models import AgentEvaluationConfig, GateMode
from correction.models.config import SETTINGS

Provenance = Literal["override", "agent", "defaults", "built-in"]

# What holds where no row says anything. None = follows from other fields, see `resolve_config`.
BUILT_IN: dict[str, Any] = {name: setting.built_in for name, setting in SETTINGS.items()}
FIELDS: tuple[str, ...] = tuple(BUILT_IN)
# A dimension the gate can check is one that has these two columns; its claims are the action-level files of its name.
GATE_DIMENSIONS: tuple[str, ...] = tuple(
    name.removeprefix("gate_").removesuffix("_threshold")
    for name in FIELDS
    if name.startswith("gate_") and name.endswith("_threshold")
)


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """The values in effect for one agent, and where each came from. Both hold every name of `FIELDS`."""

    values: Mapping[str, Any]
    provenance: Mapping[str, Provenance]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

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

    Where nobody set `gate_mode`, it is ``enforce`` as soon as a check is enabled; where nobody set `gate_rules_enabled`, the agent's
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
    """The configuration of a turn, read once and kept on it: an edit holds from the next turn on."""
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
    for name, built_in in BUILT_IN.items():
        layers: tuple[tuple[Provenance, Any], ...] = (
            ("override", (overrides or {}).get(name)),
            ("agent", getattr(own, name, None)),
            ("defaults", getattr(defaults, name, None)),
        )
        provenance[name], values[name] = next(
            ((layer, value) for layer, value in layers if value not in (None, "")), ("built-in", built_in)
        )
    if values["gate_rules_enabled"] is None:
        values["gate_rules_enabled"] = values["gate_adherence_enabled"]
    if values["gate_mode"] is None:
        enabled = values["gate_rules_enabled"] or any(values[f"gate_{d}_enabled"] for d in GATE_DIMENSIONS)
        values["gate_mode"] = str(GateMode.ENFORCE if enabled else GateMode.OFF)
    return ResolvedConfig(values, provenance)


def _checked(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that are fields, as the types of the columns; one that is not valid is left out, for a turn must not die of it."""
    found: dict[str, Any] = {}
    for name in BUILT_IN.keys() & overrides.keys():
        with contextlib.suppress(ConfigError):
            found[name] = CONFIG_FIELDS[name].read(overrides[name])
    return found
